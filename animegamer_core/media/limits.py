"""One bound on the pixels of films, clips and pictures from outside, kept before anything is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av.video.stream import VideoStream

MOST_PIXELS = 1 << 27  # of a picture, of a frame, and of all frames of a clip: 400 MB in RGB
# For decoders, which count their padding too, and for av.open, which decodes a first frame of what it opens.
OPTIONS = {"max_pixels": str(2 * MOST_PIXELS)}
UNDECODED = {"skip_frame": "all"}  # for av.open, which then decodes none: a clip's size is in its header


class SizeError(ValueError):
    """A size that is refused; the message lacks the file's name."""


def check_pixels(width: int, height: int, frames: int = 1) -> None:
    """SizeError if this many frames of this size have more than MOST_PIXELS pixels."""
    if width * height * frames > MOST_PIXELS:
        many = f"{frames} frames of " if frames > 1 else ""
        raise SizeError(
            f"has {many}{width} x {height} pixels; expected at most {MOST_PIXELS} in all, so make it smaller"
        )


def limit_track(track: VideoStream, frames: int = 1) -> None:
    """Stop a video track from decoding frames that are far too large, even if its header states a smaller size.

    frames: how many are held at a time. SizeError if the header states more.
    """
    context = track.codec_context
    check_pixels(context.width, context.height, frames)
    context.options = {**context.options, **OPTIONS}
