"""Reads films: the header, the frames as RGB in display order with their times, and where a file is damaged.

For a damaged file, the readers yield what is readable, then raise FilmError. A decoder invents what damage hides, so
nothing is believed from there to the next key frame. H height, W width as displayed. PyAV is only imported when a file
is opened.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, dropwhile, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...media.video import open_media
from .colour import Display
from .interlaced import deinterlaced, field_order

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
# Checks for damage that a decoder makes only on request, by codec (`err_detect`). With other codecs they would also
# refuse sound films that are unusual.
_CHECKS = {"mjpeg": "explode", "hevc": "crccheck+explode"} | dict.fromkeys(
    ("wmv1", "wmv2", "msmpeg4v2", "msmpeg4"), "bitstream+buffer"
)
_SECOND = "libvpx-vp9"  # notices damage in VP9, of which FFmpeg's own decoder takes any bytes; it has no 10 bits
# Bytes that may lie between two packets that follow each other, by format; AVI's may be aligned to sectors.
_BETWEEN = {"matroska": 512, "avi": 4096}
_SILENT = ("mpegts", "mpeg", "asf", "ogg")  # formats that say nothing of lost packets
_QUIET = 0.75  # seconds without a packet after which some are lost there; MPEG states a time every 0.7 s
_B, _MOST_B = 3, 16  # FFmpeg's number of B-frames, and most of them in a row where a film also has others
_UNREAD = 1 << 15  # bytes, fewer than those after which the reader of MPEG-TS gives up for once
_SPANS_NAMED = 3  # most damaged spans in a message
_LEAST_SIDE = 16  # pixels of a film; smaller ones are for tests and tracking


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
    except (av.error.FFmpegError, FileNotFoundError) as error:
        hint = "it is not a film (a picture, a playlist?), or it is truncated and its index is missing"
        raise FilmError(f"{path}: cannot be opened ({error.strerror}); {hint}") from error


class FilmFile:
    """An open file: its video track, the shape of its first frame, its clock, and what of it is damaged."""

    def __init__(self, path: Path, container: InputContainer, threads: int) -> None:
        import av

        self.path, self.container, self.broken, self.whole = path, container, "", True
        self.stream = _video_track(path, container)
        self.stream.thread_type = "AUTO"
        self.stream.codec_context.thread_count = threads
        if checks := _CHECKS.get(self.stream.codec_context.name):
            self.stream.codec_context.options = {"err_detect": checks}
        is_vp9 = self.stream.codec_context.name == "vp9" and self.stream.format.components[0].bits == 8
        self._second = av.CodecContext.create(_SECOND, "r") if is_vp9 and _SECOND in av.codecs_available else None
        self.seconds = _length(container, self.stream)
        self._reached = self._track_end = -math.inf  # seconds by the file's clock, of all tracks and of this one
        self._track_start = math.inf
        self._failure, self._stopped, self.step = "", False, 0.0
        self._lost: list[tuple[float, float]] = []
        self._decoded = _without_spoilt(self._decode())
        self._first = next((frame for frame in self._decoded if frame is not None), None)
        if self._first is None:
            raise FilmError(f"{path}: has no frame that can be decoded ({self._failure or 'zero frames'})")
        rate = self.stream.guessed_rate if self._first.time is None else self.stream.average_rate
        self.step = 1 / _frame_rate(float(rate or _USUAL_FPS), self.stream.frames, self.seconds)
        # A file may state the shape of its pixels for all frames; else the frames' own counts, which may change.
        stated = self.stream.sample_aspect_ratio
        self._pixels = None if stated == self.stream.codec_context.sample_aspect_ratio else stated
        self._displays: dict[tuple[Any, ...], Display] = {}
        self.size = self._display(self._first).size
        if min(self.size) < _LEAST_SIDE:
            height, width = self.size
            raise FilmError(f"{path}: has {width} x {height} pixels; a film has {_LEAST_SIDE} or more on either side")

    @property
    def origin(self) -> float:
        """The first shown frame's time by the file's own clock, in seconds; of what is lost if the film begins so."""
        first = self._first.time or 0.0
        return self._track_start if first - self._track_start > _MISSING else first

    def frames(self, start: float) -> Iterator[tuple[float, VideoFrame, float]]:
        """Yield the film's frames with their seconds since `origin`, and the seconds lost to damage before
        each; call this once. Sets `broken`.

        They begin at a key frame near `start` (seconds); `whole` is then false. All frames are yielded if `start` is 0
        or the file's times cannot be relied on, none if seeking fails.
        """
        origin = None if self._first.time is None else self.origin
        self.whole = start <= 0 or origin is None or _clock_jumps(self.path, self.container.format.name)
        if self.whole:
            frames: Iterator[VideoFrame | None] = chain([None, self._first], self._decoded)
        else:
            frames = _without_spoilt(self._decode()) if self._sought(origin + start) else iter(())
            frames = dropwhile(lambda frame: frame is None or frame.time is None, frames)
        clock, end, damaged = Clock(origin, self.step, self.seconds), 0.0, 0
        for frame in deinterlaced(frames, self.stream, _untold_order(self.path)):
            if frame is None:
                damaged += 1
                continue
            seconds = clock.read(frame.time, damaged)
            lost = seconds - end if damaged and seconds - end > self.step / 2 else 0.0
            if lost:
                self._lost.append((end, seconds))
            yield seconds, frame, lost
            end, damaged = seconds + self.step, 0
        if damaged and self._track_end - self.origin > end:
            self._lost.append((end, self._track_end - self.origin))
        self.broken = self._what_is_missing(end)

    def show(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """The frame as RGB (H, W, 3)."""
        return self._display(frame).show(frame)

    def _display(self, frame: VideoFrame) -> Display:
        """Shows frames of this shape; recordings of television change between 4:3 and 16:9."""
        pixels = self._pixels or frame.opaque[0]
        key = frame.width, frame.height, frame.rotation, pixels
        if key not in self._displays:
            self._displays[key] = Display(frame, pixels)
        return self._displays[key]

    def _sought(self, time: float) -> bool:
        import av

        try:
            self.container.seek(math.floor(time / self.stream.time_base), stream=self.stream)
        # no index, past the end, or an impossible time: read_frames tries an earlier time, then 0
        except (av.error.FFmpegError, OverflowError):
            return False
        return True

    def _decode(self) -> Iterator[VideoFrame | None]:
        """Yield the frames from here on, and None for damage and for each frame left out then, up to a key frame."""
        import av

        awaited: set[int] = set()  # times of the packets that gave no frame yet
        keys: set[int | None] = set()  # times of packets with a key frame; AV1 may show a stale one again
        # A key frame shown before `until` is older than the damage, unless the clock has jumped back to it.
        damaged, until, last = False, -math.inf, math.inf
        is_decoded_at = self.container.format.name in _DECODING_TIMES
        for (packet, skipped), (_, is_cut) in pairwise(chain(self._packets(), [(None, False)])):
            time = packet.dts if is_decoded_at else packet.pts
            keys |= {time} if packet.is_keyframe else set()
            if packet.size and not is_decoded_at and time is not None and not packet.is_discard:
                awaited.add(time)
            failed, frames = packet.is_corrupt or is_cut, []
            try:
                # An empty packet with a time repeats the frame before, in Theora.
                frames = packet.decode() if packet.size or packet.dts is None else []
                if self._second is not None and packet.size:
                    self._second.decode(packet)
            except av.error.FFmpegError as error:  # if the film ends here, this is the reason
                failed, self._failure = True, error.strerror
            if failed or skipped:
                damaged, until = True, until if time is None else time + failed
                yield None
            for frame in frames:
                if frame.key_frame or last == math.inf:  # the decoder may be ahead of the frames that it gives
                    pixels = self.stream.codec_context.sample_aspect_ratio
                frame.opaque = (pixels,)  # a new object, since PyAV forgets it with the first frame that has it
                frame.pts = frame.dts if is_decoded_at else frame.pts  # of the packet after which it was given
                now = math.inf if frame.pts is None else frame.pts
                # A packet between two frames gave none. One that is shown with a frame is hidden, as some of VP8.
                apart = 0.75 * self.step / float(self.stream.time_base)
                missing = any(last + apart <= time <= now - apart for time in awaited)
                awaited = {time for time in awaited if time > now}
                if frame.is_corrupt or missing:
                    damaged, until = True, now
                    yield None
                is_key = frame.key_frame and (frame.pts in keys or self.stream.codec.canonical_name != "av1")
                if is_key and not frame.is_corrupt and (now >= until or now < last < math.inf):
                    damaged = False
                yield None if damaged else frame
                last = now

    def _packets(self) -> Iterator[tuple[Packet, bool]]:
        """Yield the packets of the video track, and whether damaged bytes were skipped before; note how far all tracks
        reach."""
        import av

        skipped, read_to = False, math.inf  # the byte after the last packet
        quiet = _QUIET / self.stream.time_base if self.container.format.name in _SILENT else math.inf
        last = math.inf
        kind = "" if "alpha_mode" in self.stream.metadata else self.container.format.name  # alpha lies between
        between = next((most for name, most in _BETWEEN.items() if kind.startswith(name)), math.inf)
        for _ in range(2 + self.path.stat().st_size // _UNREAD):
            try:
                for packet in self.container.demux():
                    if packet.size and packet.pos is not None:
                        skipped, read_to = skipped or packet.pos > read_to + between, packet.pos + packet.size
                    time = packet.dts if packet.pts is None else packet.pts
                    if time is not None:
                        end = float((time + (packet.duration or 0)) * packet.time_base)
                        self._reached = max(self._reached, end)
                        if packet.stream is self.stream:
                            self._track_end = max(self._track_end, end)
                            if not packet.is_discard:
                                self._track_start = min(self._track_start, float(time * packet.time_base))
                    if packet.stream is self.stream:
                        if packet.dts is not None:
                            skipped, last = skipped or packet.dts - last > quiet, packet.dts
                        yield packet, skipped
                        skipped = False
                return
            except av.error.BlockingIOError as error:  # much that is no packet: more may follow
                skipped, self._failure = True, error.strerror
            except av.error.FFmpegError as error:
                self._failure, self._stopped = error.strerror, True
                return

    def _what_is_missing(self, seconds: float) -> str:
        """The message for a film that broke off at `seconds`, or was damaged before; '' for a whole film."""
        known = self.container.format.name.startswith(_KNOWN_LENGTH)
        promised = self.container.duration / 1e6 if known and self.container.duration else -math.inf
        of = f" of {self.seconds:.1f} s" if self.seconds else ""
        if self._stopped or self._reached < promised - _MISSING:
            why = self._failure or "no more data"
            return f"{self.path}: ends at {seconds:.1f} s{of}: the file is truncated or damaged ({why})"
        if not self._lost:
            return ""
        spans = ", ".join(f"{start:.1f} to {end:.1f} s" for start, end in self._lost[:_SPANS_NAMED])
        more = f" and {len(self._lost) - _SPANS_NAMED} more" if len(self._lost) > _SPANS_NAMED else ""
        lost = sum(end - start for start, end in self._lost)
        return f"{self.path}: {lost:.1f} s{of} are damaged, and are left out ({spans}{more})"


def _without_spoilt(frames: Iterator[VideoFrame | None]) -> Iterator[VideoFrame | None]:
    """The frames, without B-frames before a damaged one, which were decoded from it."""
    run: list[VideoFrame | None] = []
    for frame in frames:
        run = [*([None] * len(run) if frame is None else run), frame]
        if frame is None or frame.pict_type != _B or len(run) > _MOST_B:
            yield from run
            run = []
    yield from run


@lru_cache(maxsize=64)
def _untold_order(path: Path) -> str:
    """See `field_order`."""
    with _container(path) as container:
        track = _video_track(path, container)
        return field_order(container, track, _length(container, track))


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
    """The video track that players show, flagged as default or the first; FilmError says what the file is instead."""
    from av.stream import Disposition

    tracks = [track for track in container.streams.video if Disposition.attached_pic not in track.disposition]
    tracks = [track for track in tracks if track.codec_context is not None]
    track = next((track for track in tracks if Disposition.default in track.disposition), *tracks[:1] or [None])
    if track is None:
        raise FilmError(f"{path}: has no video that can be decoded; name a film")
    if track.codec_context.codec_tag in _DOLBY or track.codec_context.color_trc in _HDR:
        raise FilmError(f"{path}: is in HDR, and its colours would be wrong; convert it to SDR (BT.709)")
    return track


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

    def read(self, time: float | None, missed: int = 0) -> float:
        """The next frame's time in seconds. time: as stored in the file, None if it has none. missed: frames before."""
        seconds = math.nan if time is None else time + self._shift
        if self._good == -math.inf:
            self._last = self._good = 0.0 if time is None else seconds
        elif self._last < seconds <= self._limit:
            self._last, self._good, self._odd = seconds, seconds, 0
        else:
            if not seconds >= self._good:  # no time, or one after a jump back, does not show frames missed
                self._good += self._step * missed
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
    """One frame. seconds: since the first shown frame. rgb: (H, W, 3). lost: the seconds before it that are damaged."""

    seconds: float
    rgb: NDArray[np.uint8]
    lost: float = 0.0


def probe(path: Path) -> FilmInfo:
    """A film's header, checked against its first frame; FilmError if no frame can be decoded."""
    with opened(Path(path), threads=1) as film:
        height, width = film.size
        return FilmInfo(width, height, 1 / film.step, film.seconds)


def read_frames(path: Path, start: float = 0.0, stop: float | None = None, *, threads: int = 1) -> Iterator[FilmFrame]:
    """Yield the frames of a film in display order, from the one shown at `start` to the last before `stop`.

    start, stop: seconds since the first shown frame; stop None: to the end. threads: of the decoder, 0 for one per
    core, which on a busy machine sometimes take a damaged frame for a sound one. Times come from the file, so a
    variable frame rate is preserved; frames with no time, or with one that does not increase, follow at the average
    rate. Interlaced frames are deinterlaced. Damaged frames are left out up to the next key frame. FilmError before the
    first frame if the file is not a film, after the last one if some of the film was damaged, or it breaks off.
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
    film: FilmFile, frames: Iterable[tuple[float, VideoFrame, float] | None], start: float, stop: float | None
) -> Iterator[FilmFrame]:
    shown, gap = None, ""
    for timed in frames:
        if timed is None:
            break
        if stop is not None and timed[0] >= stop:
            begins = timed[0] - timed[2]
            gap = f"{film.path}: is damaged from {begins:.1f} to {timed[0]:.1f} s" if begins < stop - AT else ""
            break
        if shown is not None and timed[0] > start + AT:
            yield FilmFrame(shown[0], film.show(shown[1]), shown[2])
        shown = timed
    if shown is not None:
        yield FilmFrame(shown[0], film.show(shown[1]), shown[2])
    if gap or film.broken:
        raise FilmError(gap or film.broken)


def until_broken(frames: Iterable[FilmFrame]) -> Iterator[FilmFrame]:
    """Yield the frames of a film that is known to break off."""
    with contextlib.suppress(FilmError):
        yield from frames


def frames_at(frames: Iterable[FilmFrame], times: Sequence[float]) -> Iterator[NDArray[np.uint8] | None]:
    """Yield the picture at each time (seconds, in ascending order): the last frame with seconds <= time.

    None if that time is lost to damage. For times before the first frame, that is the first frame. One frame past the
    last time is read from `frames`. FilmError if there are no frames.
    """
    following = iter(frames)
    shown = coming = next(following, None)
    if shown is None:
        raise FilmError("the film has no frame in this span")
    for time in times:
        while coming is not None and coming.seconds <= time + AT:
            shown, coming = coming, next(following, None)
        yield None if coming is not None and coming.seconds - coming.lost <= time - AT else shown.rgb
