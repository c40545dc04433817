"""Writes a film picture by picture as mp4, with sound and subtitles, so that a long one takes no more memory.

Captions are timed texts: a track that a player can switch off, and the same text next to the film as .srt, for players
that read no others.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path

import numpy as np

from ..files import replacing, write_text
from ..game.state import clean_text
from .soundtrack import RATE, sound_frames
from .video import CLIPS, ColourConverter, Frames, open_media, tag

if typing.TYPE_CHECKING:
    import av

_LONGEST_CAPTION = 60_000  # bytes; mov_text counts them in two
# The muxer holds captions and sound, which are given first, until the pictures of their time come.
_MP4 = {"movflags": "use_metadata_tags+faststart", "max_interleave_delta": "0"}
_X264 = {"crf": "16", "preset": "medium"}
_UNSTYLED = str.maketrans("{}", "\uff5b\uff5d")  # players take {...} in subtitles for styles; these look alike
# The encoder of mov_text takes the look of its text from the head of an ASS file.
_ASS_HEADER = b"""[Script Info]
ScriptType: v4.00+
PlayResX: 384
PlayResY: 288

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, Bold, Italic, Underline, \
StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, Alignment, MarginL, MarginR, MarginV, Encoding
Style: Default,Arial,16,&Hffffff,&Hffffff,&H0,&H0,0,0,0,0,100,100,0,0,1,1,0,2,10,10,10,0

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""


@dataclass(frozen=True)
class Caption:
    """A text that is shown from `start` to `end`, in seconds."""

    start: float
    end: float
    text: str

    @property
    def unstyled(self) -> str:
        """The text on one line, in which no player finds a style or another caption."""
        return clean_text(self.text).translate(_UNSTYLED)


def write_film(
    path: Path,
    frames: Iterable[Frames],
    fps: float,
    count: int,
    metadata: Mapping[str, str],
    captions: Sequence[Caption] = (),
    sound: np.ndarray | None = None,
) -> list[Path]:
    """Write an mp4, atomically; returns it and, with captions, the .srt file next to it.

    The .srt of an older film with captions is removed where the new one has none; any other .srt is somebody's own.
    frames: `count` of uint8 (H, W, 3), all of one size, both sides even. metadata: the file's text fields. sound:
    float32 (2, samples) at 48,000 a second, fitted to the film. ValueError: another suffix, an odd size.
    """
    if path.suffix != ".mp4":
        raise ValueError(f"{path.name} is not the name of an mp4; end it in .mp4 (core's nodes write other formats)")
    subtitles = path.with_suffix(".srt")
    outdated = not captions and _has_captions(path)
    with replacing(path) as part:
        _write_mp4(part, frames, fps, count / fps, metadata, captions, sound)
    if outdated:
        subtitles.unlink(missing_ok=True)
    if not captions:
        return [path]
    write_text(subtitles, srt_of(captions))
    return [path, subtitles]


def _has_captions(film: Path) -> bool:
    """Whether there is a film with a track of captions; then the .srt next to it was written with it."""
    import av

    try:
        with open_media(film, CLIPS) as container:
            return bool(container.streams.subtitles)
    except av.error.FFmpegError:
        return False  # no film, or none that can be read


def srt_of(captions: Sequence[Caption]) -> str:
    """The captions as the text of a SubRip file."""
    blocks = (f"{n}\n{_clock(c.start)} --> {_clock(c.end)}\n{c.unstyled}\n" for n, c in enumerate(captions, start=1))
    return "\n".join(blocks)


def _clock(seconds: float) -> str:
    total = round(1000 * seconds)
    return f"{total // 3_600_000:02d}:{total // 60_000 % 60:02d}:{total // 1000 % 60:02d},{total % 1000:03d}"


def _write_mp4(
    path: Path,
    frames: Iterable[Frames],
    fps: float,
    seconds: float,
    metadata: Mapping[str, str],
    captions: Sequence[Caption],
    samples: np.ndarray | None,
) -> None:
    import av

    pictures = _video_frames(frames)
    with av.open(str(path), "w", format="mp4", options=_MP4) as container:
        container.metadata.update(metadata)
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001), options=_X264)
        heard = None if samples is None else container.add_stream("aac", rate=RATE, layout="stereo")
        subtitles = _subtitle_stream(container) if captions else None
        first = next(pictures)
        tag(stream, first.width, first.height)
        for caption in captions:
            container.mux(_caption_packet(caption, subtitles))
        if samples is not None:
            for frame in sound_frames(samples, seconds):
                container.mux(heard.encode(frame))
            container.mux(heard.encode())
        for frame in chain([first], pictures):
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def _subtitle_stream(container: av.container.OutputContainer) -> typing.Any:
    import av

    stream = container.add_stream("mov_text")
    if not hasattr(stream.codec_context, "subtitle_header"):
        raise ValueError(
            f"soft subtitles in an mp4 need PyAV 17 or later, but this is {av.__version__}; update it with `pip "
            "install --upgrade av`"
        )
    stream.codec_context.subtitle_header = _ASS_HEADER
    stream.time_base = Fraction(1, 1000)
    return stream


def _caption_packet(caption: Caption, stream: typing.Any) -> av.Packet:
    """A caption in the format of mov_text: the number of bytes, then the text."""
    import av

    text = caption.unstyled.encode("utf-8")[:_LONGEST_CAPTION].decode("utf-8", "ignore").encode("utf-8")
    data = struct.pack(">H", len(text)) + text
    packet = av.Packet(len(data))
    packet.update(data)  # a packet made of the bytes themselves keeps a pointer to them, which PyAV 17 frees
    packet.stream, packet.time_base = stream, Fraction(1, 1000)
    packet.pts = packet.dts = round(1000 * caption.start)
    packet.duration = round(1000 * (caption.end - caption.start))
    return packet


def _video_frames(frames: Iterable[Frames]) -> Iterator[av.VideoFrame]:
    converter = ColourConverter()
    for frame in frames:
        height, width = frame.shape[:2]
        if height % 2 or width % 2:
            raise ValueError(f"the film's frames are {width} x {height}; both must be even")
        yield converter.to_frame(frame)
