"""Reading films: what a file holds, its frames as RGB in the order and at the times they are shown.

Every reader here takes broken files: what can be read comes first, then one FilmError sentence. H height, W width as
displayed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from .filmfile import FilmError, FilmFile, Timed, opened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FILM_SUFFIXES = tuple(
    ".3gp .avi .divx .f4v .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .mxf .ogm .ogv .ts .vob .webm .wmv".split()
)
AT = 1e-3  # seconds: a frame counts as shown this much before its time, since containers round times to milliseconds
_BACK = (0.0, 2.0, 10.0, math.inf)  # seconds before the wanted time to seek to, one try after the other


@dataclass(frozen=True)
class FilmInfo:
    """What a film's header and first frame tell.

    width, height: as displayed, after rotation, in square pixels. fps: on average. seconds: 0.0 where the file does
    not tell its length. rotation: degrees to the left that the stored picture is turned by, 0, 90, 180 or 270.
    variable: whether the frame rate varies, as far as the header tells. hdr: '', 'pq' or 'hlg'.
    """

    path: Path
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
    """One frame. index: number in the film, or -1 where reading began amid it. seconds: since the first shown frame.
    rgb: (H, W, 3)."""

    index: int
    seconds: float
    rgb: NDArray[np.uint8]


def probe(path: Path) -> FilmInfo:
    """Return what a film is, after its first frame was decoded; FilmError where there is none to decode."""
    with opened(Path(path), threads=1) as film:
        height, width = film.display.size
        average = film.stream.average_rate
        base = film.stream.base_rate or average
        return FilmInfo(
            path=Path(path),
            width=width,
            height=height,
            fps=1 / film.step,
            seconds=film.seconds,
            codec=film.stream.codec_context.name,
            rotation=90 * film.display.turns,
            variable=bool(film.seconds and average and abs(float(base / average) - 1) > 0.01),
            hdr=film.display.hdr,
        )


def read_frames(path: Path, start: float = 0.0, stop: float | None = None, *, threads: int = 0) -> Iterator[FilmFrame]:
    """Yield the frames of a film in the order shown, from the one shown at `start` to the last before `stop`.

    start, stop: seconds since the first shown frame; None: to the end. threads: of the decoder, 0 for one a core;
    who reads several films at once takes 1. Times come from the file, so a variable frame rate is kept; frames
    without a time, or with one that does not rise, follow at the average rate. Interlaced pictures stay as they are.
    Pictures that cannot be decoded are left out. FilmError before the first frame for what is no film, and after the
    last readable one for a film that breaks off.
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
            yield _as_shown(film, shown)
        shown = timed
    if shown is not None:
        yield _as_shown(film, shown)
    if film.broken:
        raise FilmError(film.broken)


def _as_shown(film: FilmFile, timed: Timed) -> FilmFrame:
    return FilmFrame(timed.index, timed.seconds, film.show(timed.frame))


def frames_at(frames: Iterable[FilmFrame], times: Sequence[float]) -> Iterator[NDArray[np.uint8]]:
    """Yield the picture shown at each of the times (seconds, never falling): the last frame with seconds <= time.

    A time before the first frame shows the first, one after the last frame the last. One frame past the last time is
    taken from `frames`. ValueError where there are no frames at all.
    """
    following = iter(frames)
    shown = coming = next(following, None)
    if shown is None:
        raise ValueError("no frame can be shown: the film has none in this span")
    for time in times:
        while coming is not None and coming.seconds <= time + AT:
            shown, coming = coming, next(following, None)
        yield shown.rgb
