"""Clips: short mp4 files that are read and written whole."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..files import DISK_FULL, replacing

if typing.TYPE_CHECKING:
    from av.container import InputContainer
    from torch import Tensor

Frames = np.ndarray  # (F, H, W, 3) uint8, red green blue
# Nearly lossless for drawn pictures. Without B-frames packets are in playing order, so clips can be joined without
# encoding again. The same frames must give the same file: the result of x264 depends on the number of threads, and for
# small frames its macroblock tree reads uninitialised memory (1 file in 50 differed at 48 x 32).
_X264 = {"crf": "14", "preset": "medium", "bf": "0", "threads": "1", "x264-params": "mbtree=0"}
_MP4 = {"movflags": "use_metadata_tags+faststart"}
CLIPS = "mov"  # FFmpeg's name of the demuxer of mp4


@dataclass(frozen=True)
class Clip:
    """A clip from a file. metadata: the file's text fields."""

    frames: Frames
    fps: float
    metadata: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)
def one_thread() -> dict[str, int]:
    """The option that keeps conversions on one thread, many times faster for small frames; PyAV has it from 17 on."""
    import av

    return {"threads": 1} if int(av.__version__.split(".")[0]) >= 17 else {}


def to_uint8(frames_FCHW: Tensor) -> Frames:
    """Frames (F, 3, H, W) in [-1, 1] as bytes (F, H, W, 3), truncated as in the released scripts."""
    unit_FCHW = ((frames_FCHW.detach().float().cpu() + 1) / 2).clamp(0, 1)
    return np.ascontiguousarray((unit_FCHW * 255).permute(0, 2, 3, 1).numpy().astype(np.uint8))


def write_clip(
    path: Path | str,
    frames: Frames,
    fps: float,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a clip atomically as H.264 in yuv420p.

    ValueError: another suffix, frames that are not (F, H, W, 3) bytes, an odd width or height.
    """
    import av

    path = Path(path)
    if path.suffix != ".mp4":
        raise ValueError(f"{path}: clips are .mp4 files")
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or not len(frames):
        raise ValueError(
            f"frames are {frames.dtype} of shape {frames.shape}; expected uint8 (frames, height, width, 3)"
        )
    if not 0 < fps <= 1000:
        raise ValueError(f"fps is {fps}; expected a number above 0, at most 1000")
    height, width = frames.shape[1:3]
    if height % 2 or width % 2:
        raise ValueError(
            f"frames are {width} x {height}; mp4 needs an even width and height, so crop or pad by one pixel"
        )
    with replacing(path) as part, av.open(str(part), "w", format="mp4", options=_MP4) as container:
        container.metadata.update(metadata or {})
        rate = Fraction(fps).limit_denominator(1001)
        stream = container.add_stream("libx264", rate=rate, options=_X264)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def open_media(path: Path, formats: str) -> InputContainer:
    """Open a film, clip or sound of one of these formats: FFmpeg's names of demuxers, with commas.

    Only this file is read. FFmpeg goes by content, not by name, and playlists and scripts make it open the files and
    addresses that they name. FFmpegError for anything else.
    """
    import av

    options = {"protocol_whitelist": "file", "format_whitelist": formats}
    return av.open(f"file:{path}", container_options=options, metadata_errors="ignore")


@contextmanager
def _opened(path: Path) -> Iterator[InputContainer]:
    """An open mp4 with a video; ValueError for another file, and for what cannot be read of it within the block."""
    import av

    try:
        with open_media(path, CLIPS) as container:
            if not container.streams.video or container.streams.video[0].codec_context is None:
                raise ValueError(f"{path}: no video that can be decoded in this file")
            yield container
    except FileNotFoundError:  # names the file already
        raise
    except av.error.FFmpegError as error:
        if error.errno in DISK_FULL:  # of the file that is written within the block
            raise
        raise ValueError(f"{path}: not a readable mp4 ({error.strerror})") from error


def read_clip(path: Path) -> Clip:
    """Read a clip; ValueError if it is not one, FileNotFoundError if it is missing."""
    from av.video.reformatter import VideoReformatter

    reformatter = VideoReformatter()  # one for all frames, since creating one is slow
    with _opened(path) as container:
        frames = [
            reformatter.reformat(frame, format="rgb24", **one_thread()).to_ndarray()
            for frame in container.decode(container.streams.video[0])
        ]
        sizes = {frame.shape for frame in frames}
        if len(sizes) != 1:
            raise ValueError(
                f"{path}: {len(frames)} frames with {len(sizes)} sizes; expected one or more frames of one size"
            )
        fps = float(container.streams.video[0].average_rate or 0)
        return Clip(np.stack(frames), fps, dict(container.metadata))


def join_clips(paths: Sequence[Path], out: Path) -> None:
    """Join clips in order. Packets are copied without encoding again, so quality is kept and memory stays small.

    ValueError: no paths, or clips that differ in size or frame rate.
    """
    import av

    if not paths:
        raise ValueError("no clips to join; play a turn first")
    with replacing(out) as part, av.open(str(part), "w", format="mp4", options=_MP4) as joined:
        track, first, start = None, None, 0
        for path in paths:
            with _opened(path) as clip:
                source = clip.streams.video[0]
                if source.codec_context.name != "h264" or source.duration is None:
                    raise ValueError(f"{path}: is not a clip of a game; expected H.264 of a known length")
                if track is None:
                    track, first = joined.add_stream_from_template(source), source.codec_context.extradata
                if source.codec_context.extradata != first:
                    raise ValueError(f"{path}: size or frame rate differs from {paths[0]}; join clips of one world")
                for packet in clip.demux(source):
                    if packet.dts is not None:
                        packet.pts, packet.dts, packet.stream = packet.pts + start, packet.dts + start, track
                        joined.mux(packet)
                start += source.duration


@dataclass(frozen=True)
class ClipInfo:
    """size: (width, height). fps: frames per second, rounded to 1/1000."""

    size: tuple[int, int]
    frames: int
    fps: float


def read_clip_info(path: Path) -> ClipInfo:
    """The size, length and rate of a clip, of which no frame is decoded. ValueError: why the clip is damaged."""
    with _opened(path) as container:
        stream, frames = container.streams.video[0], 0
        for packet in container.demux(stream):
            frames += packet.size > 0 and not packet.is_corrupt
        if frames < stream.frames:
            raise ValueError(f"{path}: is cut off after {frames} of {stream.frames} frames")
        return ClipInfo((stream.width, stream.height), frames, round(float(stream.average_rate or 0), 3))
