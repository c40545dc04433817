"""A film's file, open: which track is the film, the times of its frames, and where it breaks off.

What `film` offers to the other rooms stands on this. PyAV is imported where it is needed.
"""

from __future__ import annotations

import math
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain, dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .colour import HDR, Display

if TYPE_CHECKING:
    import numpy as np
    from av import Packet, VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream
    from numpy.typing import NDArray

_KNOWN_LENGTH = ("mov,mp4", "matroska", "avi", "flv", "asf")  # kinds of file whose header tells the true length
_DOLBY = ("dvh1", "dvhe", "dva1", "dvav")  # tags of Dolby Vision
_DECODING_TIMES = ("avi",)  # kinds of file that tell when a picture is decoded, not when it is shown
_MAY_JUMP = ("mpegts", "mpeg")  # kinds of file whose clock may start anew amid them, as in recordings that were joined
_MISSING = 1.0  # seconds that must be missing from the end before a file counts as cut off
_LATE = 1.0  # seconds behind the end that a time may lie
_USUAL_FPS = 25.0
_DOUBTED_FPS = 240.0  # headers that tell as many often tell the ticks of their clock, as WebM does by 1000
MOST_FPS = 1000.0  # frames a second


class FilmError(ValueError):
    """A film that cannot be read, or not to its end; the message is one sentence that names the file."""


class Timed(NamedTuple):
    """A decoded frame with its number in the film (-1: unknown) and its seconds since the first shown one."""

    index: int
    seconds: float
    frame: VideoFrame


@contextmanager
def opened(path: Path, threads: int) -> Iterator[FilmFile]:
    """An open film whose first frame could be decoded; FilmError for anything else."""
    _check_file(path)
    with _container(path) as container:
        yield FilmFile(path, container, threads)


def _container(path: Path) -> InputContainer:
    import av

    # Only local files: a playlist must not make us fetch what it names.
    local = {"protocol_whitelist": "file"}
    try:
        return av.open(f"file:{path}", container_options=local, metadata_errors="ignore")
    except av.error.FFmpegError as error:
        hint = "its index is missing, as in a file that was cut off" if _has_film_head(path) else "it is no film"
        raise FilmError(f"{path}: cannot be opened ({error.strerror}); {hint}") from error


def _check_file(path: Path) -> None:
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise FilmError(f"{path}: is a folder; name a film in it")
        if not stat.S_ISREG(kind):
            raise FilmError(f"{path}: is not a file")
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise FilmError(f"{path}: cannot be read ({error.strerror})") from error
    if empty:
        raise FilmError(f"{path}: is empty (0 bytes)")


def _has_film_head(path: Path) -> bool:
    """Whether a file begins as mp4/mov or Matroska do, though no reader makes sense of it."""
    with path.open("rb") as file:
        head = file.read(12)
    return head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free") or head[:4] == b"\x1a\x45\xdf\xa3"


class FilmFile:
    """An open file: its video track, the shape of its first frame, its clock, and how far its data reach."""

    def __init__(self, path: Path, container: InputContainer, threads: int) -> None:
        self.path, self.container, self.broken, self.whole = path, container, "", True
        self.stream = _video_track(path, container)
        self.stream.thread_type = "AUTO"
        self.stream.codec_context.thread_count = threads
        self.seconds = _length(container, self.stream)
        self._reached, self._failure, self._stopped = -math.inf, "", False
        self._decoded = self._decode()
        self._first = next(self._decoded, None)
        if self._first is None:
            raise FilmError(f"{path}: holds no picture that can be decoded ({self._failure or 'zero frames'})")
        rate = self.stream.guessed_rate if self._first.time is None else self.stream.average_rate
        self.step = 1 / frame_rate(float(rate or _USUAL_FPS), self.stream.frames, self.seconds)
        self.display = Display(self._first, self.stream)

    def frames(self, start: float) -> Iterator[Timed]:
        """Yield the film's frames, to be called once: from a key frame about `start`, or all of them (`whole`)
        where `start` is 0 or the file's times lead nowhere. Sets `broken` at the end."""
        origin = self._first.time
        self.whole = start <= 0 or origin is None or self._jumps()
        if self.whole:
            frames = chain([self._first], self._decoded)
        else:
            frames = self._decode() if self._sought(origin + start) else ()
            frames = dropwhile(lambda frame: frame.time is None, frames)
        clock, seconds = Clock(origin, self.step, self.seconds), 0.0
        for number, frame in enumerate(frames):
            seconds = clock.read(frame.time)
            yield Timed(number if self.whole else -1, seconds, frame)
        self.broken = self._what_is_missing(seconds + self.step)

    def show(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """The frame as RGB (H, W, 3); FilmError where its colours are of a kind that cannot be turned into it."""
        import av

        try:
            return self.display.show(frame)
        except av.error.FFmpegError as error:
            kind = frame.format.name
            raise FilmError(
                f"{self.path}: its pictures ({kind}) cannot be turned into RGB ({error.strerror})"
            ) from error

    def _jumps(self) -> bool:
        if self.container.format.name not in _MAY_JUMP:
            return False
        told = self.path.stat()
        return _clock_jumps(self.path, told.st_size, told.st_mtime_ns)

    def _sought(self, time: float) -> bool:
        import av

        try:
            self.container.seek(math.floor(time / self.stream.time_base), stream=self.stream)
        except av.error.FFmpegError:  # no index, or behind the end: the caller tries further ahead, then from 0
            return False
        return True

    def _decode(self) -> Iterator[VideoFrame]:
        """Yield what can be decoded rightly from here on: behind damage, no picture before the next key frame."""
        damaged = False
        for frame in self._decode_all():
            damaged = frame.is_corrupt or (damaged and not frame.key_frame)
            if not damaged:
                yield frame

    def _decode_all(self) -> Iterator[VideoFrame]:
        import av

        due: deque[int | None] = deque()
        for packet in self._packets():
            if packet.size and self.container.format.name in _DECODING_TIMES:
                due.append(packet.dts)
            try:
                for frame in packet.decode():
                    frame.pts = due.popleft() if due else frame.pts
                    yield frame
            except av.error.FFmpegError as error:  # the packet is left out; if the film ends here, this is why
                self._failure = error.strerror

    def _packets(self) -> Iterator[Packet]:
        """Yield the packets of the video track, and see on all tracks how far the file reaches."""
        import av

        try:
            for packet in self.container.demux():
                time = packet.dts if packet.pts is None else packet.pts
                if time is not None:
                    self._reached = max(self._reached, float((time + (packet.duration or 0)) * packet.time_base))
                if packet.stream is self.stream:
                    yield packet
        except av.error.FFmpegError as error:
            self._failure, self._stopped = error.strerror, True

    def _what_is_missing(self, seconds: float) -> str:
        """The sentence that tells where a film broke off at `seconds`; '' for one that is whole."""
        known = self.container.format.name.startswith(_KNOWN_LENGTH)
        promised = self.container.duration / 1e6 if known and self.container.duration else -math.inf
        if not self._stopped and self._reached >= promised - _MISSING:
            return ""
        of = f" of {self.seconds:.1f} s" if self.seconds else ""
        why = self._failure or "no more data"
        return f"{self.path}: ends at {seconds:.1f} s{of}: the file is cut off or damaged ({why})"


@lru_cache(maxsize=64)
def _clock_jumps(path: Path, size: int, changed: int) -> bool:
    """Whether the times of a film fall back amid it; its packets are read once a process, but none is decoded."""
    import av

    last = -math.inf
    with _container(path) as container:
        try:
            for packet in container.demux(_video_track(path, container)):
                if packet.dts is not None and packet.dts < last:
                    return True
                last = last if packet.dts is None else packet.dts
        except av.error.FFmpegError:  # who reads the film to there will say so
            return False
    return False


def _video_track(path: Path, container: InputContainer) -> VideoStream:
    """The first track of moving pictures that can be decoded; FilmError tells what the file is instead of a film."""
    from av.stream import Disposition

    kind = container.format.name
    if kind == "tty" or kind.startswith("image2") or kind.endswith("_pipe"):
        raise FilmError(f"{path}: is a {'text' if kind == 'tty' else 'picture'}, not a film")
    tracks = [track for track in container.streams.video if Disposition.attached_pic not in track.disposition]
    if not tracks:
        held = "only a cover picture" if container.streams.video else "no video"
        raise FilmError(f"{path}: has {held}{' beside its sound' if container.streams.audio else ''}; name a film")
    if tracks[0].codec_context is None:
        raise FilmError(f"{path}: the header of its video is cut off or of an unknown kind")
    if tracks[0].codec_context.codec_tag in _DOLBY and tracks[0].codec_context.color_trc not in HDR:
        raise FilmError(
            f"{path}: is Dolby Vision without an HDR10 layer, whose colours only its decoder knows; convert it"
        )
    return tracks[0]


def _length(container: InputContainer, track: VideoStream) -> float:
    """Seconds of the video as the header tells them, 0.0 where it does not."""
    if track.duration:
        return float(track.duration * track.time_base)
    before = (container.start_time or 0) if container.format.name.startswith("matroska") else 0
    return max(0.0, ((container.duration or 0) - max(0, before)) / 1e6)


def frame_rate(told: float, frames: int, seconds: float) -> float:
    """Frames a second, below MOST_FPS: as told, or, where that is doubtful, by the frames and seconds of the header."""
    if told < _DOUBTED_FPS:
        return told
    counted = (frames - 1) / seconds if seconds else 0.0
    return counted if 0 < counted < MOST_FPS else _USUAL_FPS


class Clock:
    """Seconds since the first shown frame, always rising, whatever times a file states.

    One odd time (not rising, or far behind the end) is passed over; from the second in a row on, the file's clock is
    taken to have jumped, and is read with the shift that lets frames follow at the average rate.
    """

    def __init__(self, origin: float | None, step: float, seconds: float) -> None:
        self._shift, self._step, self._odd = -(origin or 0.0), step, 0
        self._last = self._good = -math.inf  # the last time given, and the last that the file's own clock gave
        self._limit = seconds + _LATE if seconds else math.inf

    def read(self, time: float | None) -> float:
        """The seconds of the next frame; time: as the file states it, None for none."""
        seconds = math.nan if time is None else time + self._shift
        if self._good == -math.inf:
            self._last = self._good = 0.0 if time is None else seconds
        elif self._last < seconds <= self._limit:
            self._last, self._good, self._odd = seconds, seconds, 0
        else:
            self._odd += 1
            passed_over = time is not None and self._odd == 1
            self._last = self._good + self._step * (0.1 if passed_over else self._odd)
            if time is not None and not passed_over:
                self._shift = self._last - time
        return self._last
