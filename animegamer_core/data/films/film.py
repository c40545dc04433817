"""Reads films: the header, and the frames as RGB in display order with their times.

For a damaged file, the readers yield what is readable, then raise FilmError. H height, W width as displayed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .film_file import FilmError, FilmFile, Timed, opened

FILM_SUFFIXES = tuple(
    ".3gp .avi .divx .f4v .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .mxf .ogm .ogv .ts .vob .webm .wmv".split()
)
AT = 1e-3  # seconds by which times may differ, since containers round them to milliseconds
_BACK = (0.0, 2.0, 10.0, math.inf)  # seconds before the wanted time to seek to, tried in turn


@dataclass(frozen=True)
class FilmInfo:
    """A film's header and the shape of its first frame.

    width, height: as displayed, after rotation, in square pixels. fps: the average. seconds: 0.0 if the header has no
    length. rotation: counterclockwise degrees from the stored picture (if it is to be mirrored, after that is done left
    to right) to the displayed one: 0, 90, 180 or 270. variable: whether the frame rate varies, according to the header.
    hdr: '', 'pq' or 'hlg'.
    """

    width: int
    height: int
    fps: float
    seconds: float
    codec: str
    rotation: int
    variable: bool
    hdr: str


@dataclass(frozen=True)
class FilmFrame:
    """One frame.

    index: its number in the film, or -1 if reading did not begin at the film's start. seconds: since the first shown
    frame. rgb: (H, W, 3).
    """

    index: int
    seconds: float
    rgb: NDArray[np.uint8]


def probe(path: Path) -> FilmInfo:
    """A film's header, checked against its first frame; FilmError if no frame can be decoded."""
    with opened(Path(path), threads=1) as film:
        height, width = film.display.size
        average = film.stream.average_rate
        base = film.stream.base_rate or average
        return FilmInfo(
            width=width,
            height=height,
            fps=1 / film.step,
            seconds=film.seconds,
            codec=film.stream.codec_context.name,
            rotation=90 * film.display.turns,
            variable=bool(film.seconds and average and abs(float(base / average) - 1) > 0.01),
            hdr=film.display.hdr,
        )


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
            if film.whole or (first is not None and first.seconds <= start + AT):
                yield from _from_shown(film, chain([first], frames), start, stop)
                return


def _from_shown(film: FilmFile, frames: Iterable[Timed], start: float, stop: float | None) -> Iterator[FilmFrame]:
    shown = None
    for timed in frames:
        if stop is not None and timed.seconds >= stop:
            break
        if shown is not None and timed.seconds > start + AT:
            yield FilmFrame(shown.index, shown.seconds, film.show(shown.frame))
        shown = timed
    if shown is not None:
        yield FilmFrame(shown.index, shown.seconds, film.show(shown.frame))
    if film.broken:
        raise FilmError(film.broken)


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
