"""Reads films: the header, the frames as RGB in display order with their times, and where a file breaks off.

For a damaged file, the readers yield what is readable, then raise FilmError. H height, W width as displayed. PyAV is
only imported when a file is opened.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, dropwhile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...media.video import open_media
from .colour import Display

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream

_KNOWN_LENGTH = ("mov,mp4", "matroska", "avi", "flv", "asf")  # formats whose header has the true length
_HDR = (16, 18)  # transfer characteristics of ITU-T H.273: PQ and HLG
_DOLBY = ("dvh1", "dvhe", "dva1", "dvav")  # tags of Dolby Vision
_DECODING_TIMES = ("avi",)  # formats that store decoding times, not display times
_FILMS = "mov,matroska,avi,flv,asf,mpegts,mpeg,mpegvideo,m4v,mxf,ogg,rm,dv,gif"  # FFmpeg's names of demuxers
_MAY_JUMP = ("mpegts", "mpeg")  # formats whose clock may restart, as in joined recordings
_MISSING = 1.0  # seconds that must be missing at the end before a file counts as truncated
_LATE = 1.0  # seconds by which a time may exceed the film's length
_USUAL_FPS = 25.0
_DOUBTED_FPS = 240.0  # a stated rate from here on is often the container's clock, such as WebM's 1000
_MOST_FPS = 1000.0


class FilmError(ValueError):
    """A film cannot be read, or not to its end; the message names the file."""


@contextmanager
def opened(path: Path, threads: int) -> Iterator[FilmFile]:
    """An open film whose first frame can be decoded; FilmError for anything else."""
    with _container(path) as container:
        yield FilmFile(path, container, threads)


def _container(path: Path) -> InputContainer:
    import av

    try:
        return open_media(path, _FILMS)
    except av.error.FFmpegError as error:
        hint = "it is not a film (a picture, a playlist?), or it is truncated and its index is missing"
        raise FilmError(f"{path}: cannot be opened ({error.strerror}); {hint}") from error


class FilmFile:
    """An open file: its video track, the shape of its first frame, its clock, and where its data end."""

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
            raise FilmError(f"{path}: has no frame that can be decoded ({self._failure or 'zero frames'})")
        rate = self.stream.guessed_rate if self._first.time is None else self.stream.average_rate
        self.step = 1 / _frame_rate(float(rate or _USUAL_FPS), self.stream.frames, self.seconds)
        self.display = Display(self._first, self.stream)

    @property
    def origin(self) -> float:
        """The first shown frame's time by the file's own clock, in seconds."""
        return self._first.time or 0.0

    def frames(self, start: float) -> Iterator[tuple[float, VideoFrame]]:
        """Yield the film's frames with their seconds since the first shown one; call this once. Sets `broken`.

        They begin at a key frame near `start` (seconds); `whole` is then false. All frames are yielded if `start` is 0
        or the file's times cannot be relied on, none if seeking fails.
        """
        origin = self._first.time
        self.whole = start <= 0 or origin is None or _clock_jumps(self.path, self.container.format.name)
        if self.whole:
            frames: Iterator[VideoFrame] = chain([self._first], self._decoded)
        else:
            frames = self._decode() if self._sought(origin + start) else iter(())
            frames = dropwhile(lambda frame: frame.time is None, frames)
        clock, seconds = Clock(origin, self.step, self.seconds), 0.0
        for frame in frames:
            seconds = clock.read(frame.time)
            yield seconds, frame
        self.broken = self._what_is_missing(seconds + self.step)

    def show(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """The frame as RGB (H, W, 3); FilmError if its pixel format cannot be converted."""
        import av

        try:
            return self.display.show(frame)
        except av.error.FFmpegError as error:
            kind = frame.format.name
            raise FilmError(
                f"{self.path}: its frames ({kind}) cannot be converted to RGB ({error.strerror})"
            ) from error

    def _sought(self, time: float) -> bool:
        import av

        try:
            self.container.seek(math.floor(time / self.stream.time_base), stream=self.stream)
        # no index, past the end, or an impossible time: read_frames tries an earlier time, then 0
        except (av.error.FFmpegError, OverflowError):
            return False
        return True

    def _decode(self) -> Iterator[VideoFrame]:
        """Yield the frames from here on; after a damaged one, skip to the next key frame."""
        import av

        due: deque[int | None] = deque()
        damaged = False
        for packet in self._packets():
            if packet.size and self.container.format.name in _DECODING_TIMES:
                due.append(packet.dts)
            try:
                for frame in packet.decode():
                    frame.pts = due.popleft() if due else frame.pts
                    damaged = frame.is_corrupt or (damaged and not frame.key_frame)
                    if not damaged:
                        yield frame
            except av.error.FFmpegError as error:  # skip the packet; if the film ends here, this is the reason
                self._failure = error.strerror

    def _packets(self) -> Iterator[Packet]:
        """Yield the packets of the video track, and note how far all tracks reach."""
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
        """The message for a film that broke off at `seconds`; '' for a whole film."""
        known = self.container.format.name.startswith(_KNOWN_LENGTH)
        promised = self.container.duration / 1e6 if known and self.container.duration else -math.inf
        if not self._stopped and self._reached >= promised - _MISSING:
            return ""
        of = f" of {self.seconds:.1f} s" if self.seconds else ""
        why = self._failure or "no more data"
        return f"{self.path}: ends at {seconds:.1f} s{of}: the file is truncated or damaged ({why})"


@lru_cache(maxsize=64)
def _clock_jumps(path: Path, kind: str) -> bool:
    """Whether the times of a film jump back. kind: its format. Reads all packets, without decoding them."""
    import av

    if kind not in _MAY_JUMP:
        return False
    last = -math.inf
    with _container(path) as container, contextlib.suppress(av.error.FFmpegError):  # read_frames reports damage
        for packet in container.demux(_video_track(path, container)):
            if packet.dts is not None and packet.dts < last:
                return True
            last = last if packet.dts is None else packet.dts
    return False


def _video_track(path: Path, container: InputContainer) -> VideoStream:
    """The first video track that can be decoded; FilmError says what the file is instead."""
    from av.stream import Disposition

    tracks = [track for track in container.streams.video if Disposition.attached_pic not in track.disposition]
    if not tracks or tracks[0].codec_context is None:
        raise FilmError(f"{path}: has no video that can be decoded; name a film")
    if tracks[0].codec_context.codec_tag in _DOLBY or tracks[0].codec_context.color_trc in _HDR:
        raise FilmError(f"{path}: is in HDR, and its colours would be wrong; convert it to SDR (BT.709)")
    return tracks[0]


def _length(container: InputContainer, track: VideoStream) -> float:
    """The length of the video by its header, 0.0 if unknown."""
    if track.duration:
        return float(track.duration * track.time_base)
    before = (container.start_time or 0) if container.format.name.startswith("matroska") else 0
    return max(0.0, ((container.duration or 0) - max(0, before)) / 1e6)


def _frame_rate(stated: float, frames: int, seconds: float) -> float:
    """Frames per second: as stated; if that is doubtful, from the header's frame count and length, else 25."""
    if stated < _DOUBTED_FPS:
        return stated
    counted = (frames - 1) / seconds if seconds else 0.0
    return counted if 0 < counted < _MOST_FPS else _USUAL_FPS


class Clock:
    """Seconds since the first shown frame, always increasing even if the file's times are not.

    A single odd time (not later than the one before, or far past the end) is ignored. Two in a row mean that the file's
    clock has jumped: it is shifted so that frames follow at the average rate.
    """

    def __init__(self, origin: float | None, step: float, seconds: float) -> None:
        self._shift, self._step, self._odd = -(origin or 0.0), step, 0
        self._last = self._good = -math.inf  # the last time returned, and the last that came from the file's clock
        self._limit = seconds + _LATE if seconds else math.inf

    def read(self, time: float | None) -> float:
        """The next frame's time in seconds. time: as stored in the file, None if it has none."""
        seconds = math.nan if time is None else time + self._shift
        if self._good == -math.inf:
            self._last = self._good = 0.0 if time is None else seconds
        elif self._last < seconds <= self._limit:
            self._last, self._good, self._odd = seconds, seconds, 0
        else:
            self._odd += 1
            is_ignored = time is not None and self._odd == 1
            self._last = self._good + self._step * (0.1 if is_ignored else self._odd)
            if time is not None and not is_ignored:
                self._shift = self._last - time
        return self._last


FILM_SUFFIXES = tuple(
    ".3gp .avi .divx .f4v .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .mxf .ogm .ogv .ts .vob .webm .wmv".split()
)
AT = 1e-3  # seconds by which times may differ, since containers round them to milliseconds
_BACK = (0.0, 2.0, 10.0, math.inf)  # seconds before the wanted time to seek to, tried in turn


@dataclass(frozen=True)
class FilmInfo:
    """A film's header and the shape of its first frame.

    width, height: as displayed, after rotation, in square pixels. fps: the average. seconds: 0.0 if the header has no
    length.
    """

    width: int
    height: int
    fps: float
    seconds: float


@dataclass(frozen=True)
class FilmFrame:
    """One frame. seconds: since the first shown frame. rgb: (H, W, 3)."""

    seconds: float
    rgb: NDArray[np.uint8]


def probe(path: Path) -> FilmInfo:
    """A film's header, checked against its first frame; FilmError if no frame can be decoded."""
    with opened(Path(path), threads=1) as film:
        height, width = film.display.size
        return FilmInfo(width, height, 1 / film.step, film.seconds)


def read_frames(path: Path, start: float = 0.0, stop: float | None = None, *, threads: int = 1) -> Iterator[FilmFrame]:
    """Yield the frames of a film in display order, from the one shown at `start` to the last before `stop`.

    start, stop: seconds since the first shown frame; stop None: to the end. threads: of the decoder, 0 for one per
    core, which on a busy machine sometimes take a damaged frame for a sound one. Times come from the file, so a
    variable frame rate is preserved; frames with no time, or with one that does not increase, follow at the average
    rate. Interlaced frames are not deinterlaced, and damaged frames are skipped up to the next key frame. FilmError
    before the first frame if the file is not a film, after the last one if the film breaks off.
    """
    for back in _BACK:
        begin = max(0.0, start - back)
        with opened(Path(path), threads) as film:
            frames = film.frames(begin)
            first = next(frames, None)
            if film.whole or (first is not None and first[0] <= start + AT):
                yield from _from_shown(film, chain([first], frames), start, stop)
                return


def _from_shown(
    film: FilmFile, frames: Iterable[tuple[float, VideoFrame] | None], start: float, stop: float | None
) -> Iterator[FilmFrame]:
    shown = None
    for timed in frames:
        if timed is None or (stop is not None and timed[0] >= stop):
            break
        if shown is not None and timed[0] > start + AT:
            yield FilmFrame(shown[0], film.show(shown[1]))
        shown = timed
    if shown is not None:
        yield FilmFrame(shown[0], film.show(shown[1]))
    if film.broken:
        raise FilmError(film.broken)


def until_broken(frames: Iterable[FilmFrame]) -> Iterator[FilmFrame]:
    """Yield the frames of a film that is known to break off."""
    with contextlib.suppress(FilmError):
        yield from frames


def frames_at(frames: Iterable[FilmFrame], times: Sequence[float]) -> Iterator[NDArray[np.uint8]]:
    """Yield the picture at each time (seconds, in ascending order): the last frame with seconds <= time.

    For times before the first frame, that is the first frame. One frame past the last time is read from `frames`.
    ValueError if there are no frames.
    """
    following = iter(frames)
    shown = coming = next(following, None)
    if shown is None:
        raise ValueError("the film has no frame in this span")
    for time in times:
        while coming is not None and coming.seconds <= time + AT:
            shown, coming = coming, next(following, None)
        yield shown.rgb
