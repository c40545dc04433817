"""A clip's size, length and frame rate, from its file's header and packets; no frame is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..media.limits import UNDECODED, check_pixels, limit_track


@dataclass(frozen=True)
class ClipInfo:
    """size: (width, height). fps: frames per second, rounded to 1/1000. pixel: width / height of one."""

    size: tuple[int, int]
    frames: int
    fps: float
    pixel: float = 1.0


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
            rate, pixel = round(float(stream.average_rate or 0), 3), float(stream.sample_aspect_ratio or 1)
            return ClipInfo((stream.width, stream.height), frames, rate, pixel)
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
