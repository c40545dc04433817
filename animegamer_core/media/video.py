"""Clips: short mp4 files that are read and written whole. And the colours of all films that are read or written."""

from __future__ import annotations

import errno
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from ..files import DISK_FULL, replacing

if typing.TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.video.plane import VideoPlane
    from av.video.stream import VideoStream
    from torch import Tensor

Frames = np.ndarray  # (F, H, W, 3) uint8, red green blue
# Nearly lossless for drawn pictures. Without B-frames packets are in playing order, so clips can be joined without
# encoding again. The same frames must give the same file: the result of x264 depends on the number of threads, and for
# small frames its macroblock tree reads uninitialised memory (1 file in 50 differed at 48 x 32).
_X264 = {"crf": "14", "preset": "veryfast", "bf": "0", "threads": "1", "x264-params": "mbtree=0"}
_MP4 = {"movflags": "use_metadata_tags+faststart"}
CLIPS = "mov"  # FFmpeg's name of the demuxer of mp4
_BT601, _BT709 = 5, 1  # libswscale's tables of a colour matrix
_TABLES = {1: _BT709, 4: 4, 5: _BT601, 6: _BT601, 7: 7, 9: 9, 10: 9}  # by H.273 matrix coefficients
_SRGB, _SMPTE170M = 1, 6  # H.273: primaries and curve of sRGB pictures in films; the matrix of BT.601
_LIMITED, _FULL = 1, 2


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


class ColourConverter:
    """Converts frames of one film to RGB, or RGB pictures to frames that are tagged with what their numbers mean.

    libswscale is exact where chroma has the size of luma, but where it also scales chroma, each way costs about one
    level. So chroma is halved and doubled here, which films that are saved again and again survive.
    """

    def __init__(self) -> None:
        from av.video.reformatter import VideoReformatter

        # one for all frames, since creating one is slow
        self._reformatter, self._to_8_bits = VideoReformatter(), VideoReformatter()

    def to_rgb(self, frame: VideoFrame, width: int, height: int) -> np.ndarray:
        """A frame as RGB (height, width, 3), by its tags. Without tags, as players do: BT.709 if it is HD."""
        pixels = frame.format
        untagged = _BT709 if _is_hd(frame.width, frame.height) else _BT601
        table = None if pixels.is_rgb else _TABLES.get(int(frame.colorspace), untagged)
        is_full = pixels.is_rgb or pixels.name.startswith("yuvj") or int(frame.color_range) == _FULL
        levels = _FULL if is_full else _LIMITED
        if (kind := pixels.name)[:8] in ("yuv420p1", "yuv422p1"):  # 10 or 12 bits: libswscale's RGB is two levels dark
            same = {"src_colorspace": table, "dst_colorspace": table, "src_color_range": levels}
            frame = self._to_8_bits.reformat(frame, format=kind[:7], dst_color_range=levels, **same, **one_thread())
        if frame.format.name in ("yuv420p", "yuvj420p") and frame.width % 2 == frame.height % 2 == 0:
            frame = _doubled_chroma(frame)
        return self._reformatter.reformat(
            frame,
            width,
            height,
            "rgb24",
            src_colorspace=table,
            # RGB has no matrix, but PyAV before 17 applies the source's matrix only if the two differ.
            dst_colorspace=_BT709 if table == _BT601 else _BT601,
            src_color_range=levels,
            dst_color_range=_FULL,
            **one_thread(),
        ).to_ndarray()

    def to_frame(self, picture: np.ndarray) -> VideoFrame:
        """RGB (H, W, 3), both sides even, as a frame in yuv420p for a stream that `tag` has tagged."""
        import av

        height, width = picture.shape[:2]
        full = self._reformatter.reformat(
            av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24"),
            format="yuv444p",
            dst_colorspace=_BT709 if _is_hd(width, height) else _BT601,
            src_color_range=_FULL,
            dst_color_range=_LIMITED,
            **one_thread(),
        )
        frame = av.VideoFrame(width, height, "yuv420p")
        frame.colorspace, frame.color_range = full.colorspace, full.color_range
        _values(frame.planes[0])[:] = _values(full.planes[0])
        for source, plane in zip(full.planes[1:], frame.planes[1:], strict=True):
            four = _values(source).astype(np.uint16).reshape(height // 2, 2, width // 2, 2)
            _values(plane)[:] = (four.sum((1, 3), dtype=np.uint16) + 2) // 4
        return frame


def tag(stream: VideoStream, width: int, height: int) -> None:
    """Set the size, pixel format and colour tags of a new stream for the frames of a ColourConverter."""
    stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
    context = stream.codec_context
    context.color_primaries = context.color_trc = _SRGB  # those of BT.601 would shift the colours in a browser
    context.colorspace = _BT709 if _is_hd(width, height) else _SMPTE170M
    context.color_range = _LIMITED


def _is_hd(width: int, height: int) -> bool:
    """Whether players take an untagged film of this size for BT.709."""
    return width >= 1280 or height > 576


def _doubled_chroma(frame: VideoFrame) -> VideoFrame:
    """A frame in yuv420p as yuv444p."""
    import av

    doubled = av.VideoFrame(frame.width, frame.height, "yuv444p")
    _values(doubled.planes[0])[:] = _values(frame.planes[0])
    for source, plane in zip(frame.planes[1:], doubled.planes[1:], strict=True):
        wide = (_values(source).astype(np.uint16) * 257).view(np.uint8)  # each byte twice, faster than np.repeat
        _values(plane)[::2] = _values(plane)[1::2] = wide
    return doubled


def _values(plane: VideoPlane) -> np.ndarray:
    """The bytes of a plane (H, W), to read or write in place."""
    buffer: typing.Any = plane  # which PyAV's types do not say
    return np.frombuffer(buffer, np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]


def to_uint8(frames_FCHW: Tensor) -> Frames:
    """Frames (F, 3, H, W) in [-1, 1] as bytes (F, H, W, 3), truncated as in the released scripts."""
    unit_FCHW = ((frames_FCHW.detach().float() + 1) / 2).clamp(0, 1)
    return (unit_FCHW * 255).byte().permute(0, 2, 3, 1).contiguous().cpu().numpy()


def write_clip(path: Path, frames: Frames, fps: float, metadata: Mapping[str, str] | None = None) -> None:
    """Write a clip, (F, H, W, 3) bytes of an even width and height, atomically as an mp4 in H.264 and yuv420p."""
    import av

    height, width = frames.shape[1:3]
    with replacing(path) as part, av.open(str(part), "w", format="mp4", options=_MP4) as container:
        container.metadata.update(metadata or {})
        rate = Fraction(fps).limit_denominator(1001)
        stream = container.add_stream("libx264", rate=rate, options=_X264)
        tag(stream, width, height)
        converter = ColourConverter()
        for frame in frames:
            container.mux(stream.encode(converter.to_frame(frame)))
        container.mux(stream.encode())


def open_media(path: Path, formats: str) -> InputContainer:
    """Open a film, clip or sound of one of these formats: FFmpeg's names of demuxers, with commas.

    Only this file is read. FFmpeg goes by content, not by name, and playlists and scripts make it open the files and
    addresses that they name. FFmpegError for anything else.
    """
    import av

    if path.is_fifo():  # it would wait for ever
        raise FileNotFoundError(errno.EINVAL, "a pipe is no film or sound", str(path))
    options = {"protocol_whitelist": "file", "format_whitelist": formats}
    # text fields that are no UTF-8 are no reason to refuse a film; PyAV 19 reads them, and has no option for it
    lenient = {"metadata_errors": "ignore"} if int(av.__version__.split(".")[0]) < 19 else {}
    return av.open(f"file:{path}", container_options=options, **lenient)


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


def read_clip(path: Path, most: int | None = None) -> Clip:
    """Read a clip, or its first `most` frames; ValueError if it is not one, FileNotFoundError if it is missing."""
    converter = ColourConverter()
    with _opened(path) as container:
        frames = [
            converter.to_rgb(frame, frame.width, frame.height)
            for frame in islice(container.decode(container.streams.video[0]), most)
        ]
        fps = float(container.streams.video[0].average_rate or 0)
        return Clip(np.stack(frames), fps, dict(container.metadata))


def join_clips(paths: Sequence[Path], out: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Join clips in order. Packets are copied without encoding again, so quality is kept and memory stays small.

    ValueError: clips that differ in size or frame rate.
    """
    import av

    with replacing(out) as part, av.open(str(part), "w", format="mp4", options=_MP4) as joined:
        joined.metadata.update(metadata or {})
        track, first, start = None, None, 0
        for path in paths:
            with _opened(path) as clip:
                source = clip.streams.video[0]
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
