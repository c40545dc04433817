"""Fades between scenes: through black or white, told by blank frames; into one another, told by frames between two.

Frames are told by their number in the film. `spread` is Look.spread: how much a picture's middle shows, in grey levels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .looks import Look, change

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLATEAU = 4  # frames without a further rise end the way into or out of a fade
SHORTEST = 3  # frames of half a fade: what is quicker is a flash
EVEN = 0.25  # grey levels: of blank frames that differ by less, the first is the darkest (whitest)
GRADUAL = 0.6  # beside a blank frame a fade shows less than this share of what its scene shows
WINDOWS = (0.4, 0.7, 1.0, 1.5)  # seconds of film looked at for a cross-fade
SAMPLES = 9  # frames of a window that are compared
STEP, BACK = 0.4, 0.06  # the most of a cross-fade that may pass from one sample to the next, on and back
CHANGING = 0.3  # the least share of the picture that a cross-fade changes


@dataclass(frozen=True)
class Melt:
    """What makes a cross-fade. Its frames lie between two pictures that are `distance` or more apart, in grey levels.

    residue: how far, as a share of the distance, half of the picture may lie off the line between the two: what moves
    leaves it. dip: a mixture shows less than its pictures do; the most contrast, as a share of theirs, amid the fade.
    unmoved: least share of the change from frame to frame that no shift explains, which is most of it in a pan.
    """

    distance: float = 16.0
    residue: float = 0.25
    dip: float = 0.94
    unmoved: float = 0.7


@dataclass(frozen=True)
class Join:
    """How one scene gives way to the next. number: the next scene's first frame.

    kind is "cut" or "fade". From frame `begins` up to, not including, `ends` the picture is not one scene's alone.
    weight: of two joins that cannot both be, the one that weighs more is.
    """

    number: int
    kind: str
    begins: int
    ends: int
    weight: float = 0.0

    def meets(self, other: Join) -> bool:
        """Whether the two touch the same frames or lie side by side."""
        return self.begins - 1 <= other.ends and other.begins <= self.ends + 1


def blank_fades(blanks: Sequence[str], spreads: Sequence[float], longest: int) -> list[Join]:
    """The fades through black or white of a film, in order.

    blanks: each frame's Look.blank. longest: frames that either half of a fade may take. A film that begins or ends in
    black has a join there too, its number the first frame or one after the last.
    """
    joins, first = [], 0
    for picture, run in itertools.groupby(blanks, key=lambda blank: not blank):
        kinds = list(run)
        if not picture and set(kinds) & {"black", "white"}:
            joins += _blank_fade(first, kinds, spreads, longest)
        first += len(kinds)
    return joins


def _blank_fade(first: int, kinds: Sequence[str], spreads: Sequence[float], longest: int) -> list[Join]:
    """The fade around the blank frames from `first` on: none where the scenes on both sides stop and begin at once."""
    end = first + len(kinds)
    before = _way(spreads[max(0, first - longest) : first][::-1])
    after = _way(spreads[end : end + longest])
    if not before and not after:
        return []
    number = 0 if first == 0 else len(spreads) if end == len(spreads) else end
    if before and after and first < number < len(spreads):
        least = min(spread for kind, spread in zip(kinds, spreads[first:end], strict=True) if kind != "flat")
        number = first + next(
            at for at, kind in enumerate(kinds) if kind != "flat" and spreads[first + at] <= least + EVEN
        )
    elif after and number == end:
        number = first
    return [Join(number, "fade", first - before, end + after)]


def _way(spreads: Sequence[float]) -> int:
    """How many frames, going away from a blank one, it takes until the picture is whole; 0 where it is so at once."""
    if not spreads:
        return 0
    most, at = spreads[0], 0
    for index, spread in enumerate(spreads):
        if spread > 1.01 * most:
            most, at = spread, index
        elif index - at >= PLATEAU:
            break
    return at if at >= SHORTEST and spreads[0] <= GRADUAL * most else 0


def melting(looks: Sequence[Look], fps: float, melt: Melt) -> Iterator[Join]:
    """Cross-fades that the film's last frames may be, one a window that ends at the last of `looks`."""
    for seconds in WINDOWS:
        frames = round(seconds * fps)
        if not SAMPLES <= frames < len(looks):
            continue
        picked = np.linspace(len(looks) - 1 - frames, len(looks) - 1, SAMPLES).round().astype(int)
        way = looks[picked[-1]].tiny - looks[picked[0]].tiny
        apart = float(way @ way)
        if apart < way.size * melt.distance**2:
            continue
        passed = _passed([looks[at] for at in picked], way, apart, melt)
        if passed is not None:
            begins, middle, ends = (int(np.interp(share, passed, picked)) for share in (0.03, 0.5, 0.97))
            base = looks[0].number
            yield Join(base + middle, "fade", base + begins, base + ends + 1, apart)


def _passed(looks: Sequence[Look], way: NDArray[np.float32], apart: float, melt: Melt) -> NDArray[np.float64] | None:
    """How far (0..1) each look has come on the way from the first to the last, None where this is no cross-fade."""
    steps = np.stack([look.tiny for look in looks]) - looks[0].tiny
    passed = steps @ way / apart
    if np.diff(passed).max() > STEP or np.diff(passed).min() < -BACK:
        return None
    between = [look.contrast for look, share in zip(looks, passed, strict=True) if 0.3 < share < 0.7]
    if not between or min(between) > melt.dip * (looks[0].contrast + looks[-1].contrast) / 2:
        return None
    cells = np.linalg.norm(way.reshape(-1, 3), axis=1)
    off = np.linalg.norm((steps - passed[:, None] * way).reshape(len(looks), -1, 3), axis=2).max(axis=0)
    changing = cells > melt.distance
    if changing.mean() < CHANGING or np.median(off[changing] / cells[changing]) > melt.residue:
        return None
    pairs = list(itertools.pairwise(looks))
    whole = sum(float(np.abs(one.small_HWC - other.small_HWC).mean()) for one, other in pairs)
    if sum(change(*pair) for pair in pairs) < melt.unmoved * whole:
        return None
    return np.maximum.accumulate(passed.astype(float))


def heaviest(joins: Sequence[Join]) -> list[Join]:
    """Of joins that meet one another the heaviest alone, in the order of the film."""
    chosen: list[Join] = []
    for join in sorted(joins, key=lambda join: -join.weight):
        if not any(join.meets(other) for other in chosen):
            chosen.append(join)
    return sorted(chosen, key=lambda join: join.number)
