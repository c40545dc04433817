"""Clips as mp4 files (with PyAV) or, without it, as safetensors."""

from __future__ import annotations

import importlib.util
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..files import FULL, replacing
from .limits import UNDECODED, SizeError, check_pixels, limit_track

if typing.TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream
    from torch import Tensor

Frames = np.ndarray  # (F, H, W, 3) uint8, red green blue
CLIP_SUFFIXES = (".mp4", ".safetensors")
# Nearly lossless for drawn pictures. Without B-frames packets are in playing order, so clips can be joined without
# encoding again. The same frames must give the same file: the result of x264 depends on the number of threads, and for
# small frames its macroblock tree reads uninitialised memory (1 file in 50 differed at 48 x 32).
_X264 = {"crf": "14", "preset": "medium", "bf": "0", "threads": "1", "x264-params": "mbtree=0"}
_MP4 = {"movflags": "use_metadata_tags+faststart"}


@dataclass(frozen=True)
class Clip:
    """A clip from a file. metadata: the file's text fields."""

    frames: Frames
    fps: float
    metadata: dict[str, str] = field(default_factory=dict)


def clip_suffix() -> str:
    """The suffix of new clips: `.mp4`, or `.safetensors` if PyAV is not installed."""
    return CLIP_SUFFIXES[importlib.util.find_spec("av") is None]


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
    """Write a clip atomically: H.264 in yuv420p for `.mp4`; raw bytes for `.safetensors`.

    ValueError: another suffix, frames that are not (F, H, W, 3) bytes, for `.mp4` an odd width or height.
    """
    path = Path(path)
    _check_frames(frames, fps)
    with replacing(path) as part:
        if _kind(path) == ".mp4":
            _write_mp4(part, frames, fps, metadata or {})
        else:
            _write_safetensors(part, frames, fps, metadata or {})


def read_clip(path: Path | str, size: tuple[int, int] | None = None) -> Clip:
    """Read a clip of either kind; ValueError if it is not a clip or too large, FileNotFoundError if it is missing.

    size: (width, height) that it has to have, which is compared before anything is decoded.
    """
    path = Path(path)
    try:
        clip = _read_mp4(path, size) if _kind(path) == ".mp4" else _read_safetensors(path, size)
    except SizeError as error:
        raise ValueError(f"{path}: {error}") from error
    try:
        _check_frames(clip.frames, clip.fps)
    except ValueError as error:
        raise ValueError(f"{path}: not a clip; {error}") from error
    return clip


def join_clips(paths: Sequence[Path], out: Path | str) -> None:
    """Join clips in order. mp4 packets are copied without encoding again, so quality is kept and memory stays small.

    ValueError: no paths, or clips that differ in kind, size or frame rate.
    """
    out = Path(out)
    if not paths:
        raise ValueError("no clips to join; play a turn first")
    other = next((path for path in paths if _kind(Path(path)) != _kind(out)), None)
    if other is not None:
        raise ValueError(f"{other}: cannot join a {Path(other).suffix} clip into a {out.suffix} file")
    with replacing(out) as part:
        if _kind(out) == ".mp4":
            _join_mp4(paths, part)
        else:
            _join_safetensors(paths, part)


def _kind(path: Path) -> str:
    if path.suffix not in CLIP_SUFFIXES:
        raise ValueError(f"{path}: clips are {' or '.join(CLIP_SUFFIXES)} files")
    return path.suffix


def _check_frames(frames: Frames, fps: float) -> None:
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or not len(frames):
        raise ValueError(
            f"frames are {frames.dtype} of shape {frames.shape}; expected uint8 (frames, height, width, 3)"
        )
    if not 0 < fps <= 1000:
        raise ValueError(f"fps is {fps}; expected a number above 0, at most 1000")


def _write_mp4(path: Path, frames: Frames, fps: float, metadata: Mapping[str, str]) -> None:
    import av

    height, width = frames.shape[1:3]
    if height % 2 or width % 2:
        raise ValueError(
            f"frames are {width} x {height}; mp4 needs an even width and height, so crop or pad by one pixel"
        )
    with av.open(str(path), "w", format="mp4", options=_MP4) as container:
        container.metadata.update(metadata)
        rate = Fraction(fps).limit_denominator(1001)
        stream = container.add_stream("libx264", rate=rate, options=_X264)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


@contextmanager
def _opened(path: Path) -> Iterator[InputContainer]:
    """An open mp4 with a video; ValueError for another file, and for what cannot be read of it within the block."""
    import av

    try:
        with av.open(str(path), options=UNDECODED) as container:
            if not container.streams.video:
                raise ValueError(f"{path}: no video in this file")
            yield container
    except FileNotFoundError:  # names the file already
        raise
    except av.error.FFmpegError as error:
        if error.errno in FULL:  # of the file that is written within the block
            raise
        raise ValueError(f"{path}: not a readable mp4 ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a readable mp4 (its metadata is not UTF-8)") from error


def _read_mp4(path: Path, size: tuple[int, int] | None) -> Clip:
    with _opened(path) as container:
        stream = container.streams.video[0]
        frames = list(_decoded(container, stream, size))
        sizes = {frame.shape for frame in frames}
        if len(sizes) != 1:
            raise ValueError(
                f"{path}: {len(frames)} frames with {len(sizes)} sizes; expected one or more frames of one size"
            )
        return Clip(np.stack(frames), float(stream.average_rate or 0), dict(container.metadata))


def _decoded(container: InputContainer, stream: VideoStream, size: tuple[int, int] | None) -> Iterator[Frames]:
    """The frames of an open clip; SizeError before they are too large in sum."""
    from av.video.reformatter import VideoReformatter

    reformatter = VideoReformatter()  # one for all frames, since creating one is slow
    if stream.codec_context is not None:  # None: decoding says why
        _check_size((stream.width, stream.height), size)
        limit_track(stream, max(1, stream.frames))
    for number, frame in enumerate(container.decode(stream), start=1):
        check_pixels(frame.width, frame.height, number)
        yield reformatter.reformat(frame, format="rgb24", **one_thread()).to_ndarray()


def _write_safetensors(path: Path, frames: Frames, fps: float, metadata: Mapping[str, str]) -> None:
    from safetensors.numpy import save_file

    save_file({"frames": np.ascontiguousarray(frames)}, path, metadata={**metadata, "fps": repr(float(fps))})


def _check_size(size: tuple[int, int], expected: tuple[int, int] | None) -> None:
    if expected not in (None, size):
        raise SizeError(f"has frames of {size[0]} x {size[1]}; expected {expected[0]} x {expected[1]}")


def _read_safetensors(path: Path, size: tuple[int, int] | None) -> Clip:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata, stored = dict(file.metadata() or {}), file.get_slice("frames")
            kind, shape = stored.get_dtype(), stored.get_shape()
            if kind != "U8" or len(shape) != 4:  # numpy lacks some other types
                raise ValueError(f"frames are {kind} of shape {shape}")
            check_pixels(shape[2], shape[1], shape[0])
            _check_size((shape[2], shape[1]), size)
            return Clip(file.get_tensor("frames"), float(metadata.pop("fps")), metadata)
    except SizeError:
        raise
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(
            f"{path}: not a clip; expected a tensor `frames` of bytes and a number `fps` in its metadata ({error})"
        ) from error


def _join_mp4(paths: Sequence[Path], out: Path) -> None:
    import av

    with av.open(str(out), "w", format="mp4", options=_MP4) as joined:
        track, first, start = None, None, 0
        for path in paths:
            with _opened(path) as clip:
                source = clip.streams.video[0]
                if source.codec_context is None or source.codec_context.name != "h264" or source.duration is None:
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


def _join_safetensors(paths: Sequence[Path], out: Path) -> None:
    clips = [read_clip(path) for path in paths]
    if len({(clip.frames.shape[1:], clip.fps) for clip in clips}) > 1:
        raise ValueError(f"{out.name}: clips with different sizes or frame rates; join clips of one world")
    _write_safetensors(out, np.concatenate([clip.frames for clip in clips]), clips[0].fps, {})


@dataclass(frozen=True)
class ClipInfo:
    """size: (width, height). fps: frames per second, rounded to 1/1000."""

    size: tuple[int, int]
    frames: int
    fps: float


def read_clip_info(path: Path) -> ClipInfo:
    """The size, length and rate of a clip. ValueError: why the clip is damaged."""
    if not path.stat().st_size:
        raise ValueError("the file is empty")
    return _video_info(path) if path.suffix == ".mp4" else _safetensors_info(path)


def _video_info(path: Path) -> ClipInfo:
    import av

    try:
        with av.open(str(path), options=UNDECODED) as container:
            if not container.streams.video:
                raise ValueError("no video in this file")
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise ValueError("its video codec is unknown")
            limit_track(stream, max(1, stream.frames))
            frames = 0
            for packet in container.demux(stream):
                if packet.is_corrupt:
                    raise ValueError(f"the file is cut off in frame {frames}")
                frames += packet.size > 0
            if frames < stream.frames:
                raise ValueError(f"the file is cut off after {frames} of {stream.frames} frames")
            return ClipInfo((stream.width, stream.height), frames, round(float(stream.average_rate or 0), 3))
    except av.error.FFmpegError as error:
        raise ValueError(f"the file is not a readable mp4 ({error.strerror})") from error


def _safetensors_info(path: Path) -> ClipInfo:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            shape = file.get_slice("frames").get_shape()
            if len(shape) != 4 or shape[-1] != 3:
                raise ValueError(f"frames are {shape}; expected (frames, height, width, 3)")
            check_pixels(shape[2], shape[1], shape[0])
            return ClipInfo((shape[2], shape[1]), shape[0], float((file.metadata() or {})["fps"]))
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"not a clip of frames and fps ({error})") from error
