"""Writes a film picture by picture: mp4 with sound and subtitles, GIF, or animated WebP.

Memory stays flat for mp4 and GIF. A longer WebP takes more, since its encoder puts the whole file together in memory.
Captions are timed texts. An mp4 with captions has the same text next to it as .srt, for players that read no others.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from ..files import replacing, write_text
from ..state import clean_text
from .limits import OPTIONS
from .soundtrack import Soundtrack, SoundWriter
from .video import Frames

if typing.TYPE_CHECKING:
    import av
    from PIL import Image

FILM_KINDS = ("mp4", "gif", "webp")
MOST_FPS = {"mp4": 120, "gif": 50, "webp": 120}  # browsers show faster GIFs at 10 frames per second
_LONGEST_CAPTION = 60_000  # bytes; mov_text counts them in two
_MP4 = {"movflags": "use_metadata_tags+faststart"}
_X264 = {"crf": "16", "preset": "medium"}
_WEBP = {"quality": "90", "loop": "0", "compression_level": "3"}
_GIF_COLOURS = 256
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


@dataclass(frozen=True)
class FilmFacts:
    """What is known of a film before its first picture. seconds: its length. title: for the file's metadata.

    captions: as subtitles that a player can switch off; mp4 only.
    """

    fps: float
    seconds: float
    title: str
    captions: Sequence[Caption] = ()
    sound: Soundtrack | None = None


def check_film(kind: str, facts: FilmFacts) -> None:
    """ValueError if a film of this kind cannot have what the facts ask for."""
    if kind not in FILM_KINDS:
        raise ValueError(f"unknown kind of film {kind!r}; choose {', '.join(FILM_KINDS)}")
    if not 1 <= facts.fps <= MOST_FPS[kind]:
        raise ValueError(f"{facts.fps:g} frames per second; expected 1 to {MOST_FPS[kind]} in a .{kind} file")
    if kind != "mp4" and facts.sound is not None:
        raise ValueError(f"a .{kind} file cannot have sound; choose mp4, or drop the sound")
    if kind != "mp4" and facts.captions:
        raise ValueError(f"a .{kind} file cannot have soft subtitles; choose burned ones, or mp4")


def write_film(path: Path, frames: Iterable[Frames], facts: FilmFacts, palette_of: Sequence[Frames] = ()) -> list[Path]:
    """Write a film by its suffix, atomically; returns it and, with captions, the .srt file next to it.

    The .srt of an older film with captions is removed where the new one has none; any other .srt is somebody's own.
    frames: uint8 (H, W, 3), all of one size, both sides even. palette_of: frames that stand for the whole film, from
    which a GIF takes its 256 colours. ValueError: see `check_film`; an odd size.
    """
    kind = path.suffix.lstrip(".")
    check_film(kind, facts)
    subtitles = path.with_suffix(".srt")
    outdated = kind == "mp4" and not facts.captions and _has_captions(path)
    with replacing(path) as part:
        if kind == "mp4":
            _write_mp4(part, frames, facts)
        elif kind == "gif":
            _write_pictures(part, _with_palette(frames, palette_of), facts.fps, ("gif", "gif", "pal8", {}))
        else:
            _write_pictures(part, _video_frames(frames), facts.fps, ("webp", "libwebp_anim", "yuv420p", _WEBP))
    if outdated:
        subtitles.unlink(missing_ok=True)
    if not facts.captions:
        return [path]
    write_text(subtitles, srt_of(facts.captions))
    return [path, subtitles]


def _has_captions(film: Path) -> bool:
    """Whether there is a film with a track of captions; then the .srt next to it was written with it."""
    import av

    try:
        with av.open(str(film), options=OPTIONS) as container:
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


def _write_mp4(path: Path, frames: Iterable[Frames], facts: FilmFacts) -> None:
    import av

    with av.open(str(path), "w", format="mp4", options=_MP4) as container:
        container.metadata["title"] = facts.title
        stream = container.add_stream("libx264", rate=_rate(facts.fps), options=_X264)
        sound = None if facts.sound is None else SoundWriter(container, facts.sound, facts.seconds)
        subtitles = _subtitle_stream(container) if facts.captions else None
        captions = iter(facts.captions)
        waiting = next(captions, None)
        for number, frame in enumerate(_video_frames(frames)):
            if number == 0:
                stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, "yuv420p"
            container.mux(stream.encode(frame))
            now = number / facts.fps
            while waiting is not None and subtitles is not None and waiting.start <= now:
                container.mux(_caption_packet(waiting, subtitles))
                waiting = next(captions, None)
            if sound is not None:
                sound.write_until(now)
        container.mux(stream.encode())
        if sound is not None:
            sound.write_until(None)


def _subtitle_stream(container: av.container.OutputContainer) -> typing.Any:
    import av

    stream = container.add_stream("mov_text")
    if not hasattr(stream.codec_context, "subtitle_header"):
        raise ValueError(
            f"soft subtitles in an mp4 need PyAV 17 or later, but this is {av.__version__}; update it with `pip "
            "install --upgrade av`, or choose burned ones"
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


def _write_pictures(
    path: Path, frames: Iterator[av.VideoFrame], fps: float, form: tuple[str, str, str, dict[str, str]]
) -> None:
    """Write a film without sound. form: (container, codec, pixel format, options of the codec)."""
    import av

    kind, codec, pixels, options = form
    with av.open(str(path), "w", format=kind, options={"loop": "0"}) as container:
        stream = container.add_stream(codec, rate=_rate(fps), options=options)
        for number, frame in enumerate(frames):
            if number == 0:
                stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, pixels
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def _video_frames(frames: Iterable[Frames]) -> Iterator[av.VideoFrame]:
    import av

    for frame in frames:
        height, width = frame.shape[:2]
        if height % 2 or width % 2:
            raise ValueError(f"the film's frames are {width} x {height}; both must be even, so use scale 2")
        yield av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")


def _with_palette(frames: Iterable[Frames], palette_of: Sequence[Frames]) -> Iterator[av.VideoFrame]:
    """Frames in 256 colours, the same ones in the whole film, so that still parts do not flicker."""
    import av
    from PIL import Image

    palette: Image.Image | None = None
    for frame in frames:
        if palette is None:
            shown = np.concatenate([*palette_of] or [frame])
            palette = Image.fromarray(shown).quantize(_GIF_COLOURS, Image.Quantize.MEDIANCUT)
            colours = _palette_bytes(palette)
        picture = Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        yield av.VideoFrame.from_ndarray((np.asarray(picture), colours), format="pal8")


def _palette_bytes(picture: Image.Image) -> np.ndarray:
    """The palette as PyAV expects it: uint8 (256, 4), alpha first."""
    colours = np.zeros((256, 4), np.uint8)
    known = np.array(picture.getpalette("RGB"), np.uint8).reshape(-1, 3)
    colours[:, 0], colours[: len(known), 1:] = 255, known
    return colours


def _rate(fps: float) -> Fraction:
    return Fraction(fps).limit_denominator(1001)
