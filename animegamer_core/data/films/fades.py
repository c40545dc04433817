"""Fades between scenes: through black or white, told by blank frames; into one another, told by frames between two.

Frames are told by their number in the film. `spread` is Look.spread: how much a picture's middle shows, in grey levels.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .looks import Look

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLATEAU = 4  # frames without a further rise end the way into or out of a fade
SHORTEST = 3  # frames of half a fade: what is quicker is a flash
EVEN = 0.25  # grey levels: of blank frames that differ by less, the first is the darkest (whitest)
GRADUAL = 0.6  # beside a blank frame a fade shows less than this share of what its scene shows
WINDOWS = (0.4, 0.55, 0.7, 0.85, 1.0, 1.25, 1.5)  # seconds of film looked at for a cross-fade
SAMPLES = 9  # moments of a window whose pictures are compared
LEAST_SAMPLES = 5  # pictures among them: what is shown in fewer jumps
SAME_TIME = 1e-4  # seconds: times are sums of floats
STEP, BACK = 0.4, 0.06  # the most of a cross-fade that may pass from one sample to the next, on and back
AMID = 0.08  # of the way, from either end: what passes there may be slower
CHANGING = 0.3  # the least share of the picture that a cross-fade changes

Change = Callable[[Look, Look], float]


@dataclass(frozen=True)
class Melt:
    """What makes a cross-fade. Its frames lie between two pictures that are `distance` or more apart, in grey levels.

    dip: a mixture shows less than its pictures do; the most contrast, as a share of theirs, amid the fade.
    residue: how far, as a share of the distance, half of the picture may lie off the line between the two: what moves
    leaves it. even: the smallest step amid the way from one to the other, as a share of the median step; wild motion
    comes in fits. unmoved: least share of the change from frame to frame that no shift explains; in a pan shifts
    explain most of it. Where much moves, more residue is allowed, up to residue_most, if more contrast is lost, by
    `deeper` for each share beyond `dip`, and if unmoved_most is unexplained.
    """

    distance: float = 16.0
    dip: float = 0.96
    residue: float = 0.25
    even: float = 0.7
    unmoved: float = 0.75
    deeper: float = 4.0
    residue_most: float = 0.7
    unmoved_most: float = 0.89


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


def blank_fades(
    blanks: Sequence[str], spreads: Sequence[float], longest: int, flashed: Container[int] = ()
) -> list[Join]:
    """The fades through black or white of a film, in order.

    blanks: each frame's Look.blank. longest: frames that either half of a fade may take. flashed: frames of flashes;
    blank frames that are nothing else are a fade only if the picture goes and comes by and by. A film that begins or
    ends in black has a join there too, its number the first frame or one after the last.
    """
    joins, first = [], 0
    for picture, run in itertools.groupby(blanks, key=lambda blank: not blank):
        kinds = list(run)
        if not picture and set(kinds) & {"black", "white"}:
            flash = all(number in flashed for number in range(first, first + len(kinds)))
            joins += _blank_fade(first, kinds, spreads, longest, flash)
        first += len(kinds)
    return joins


def _blank_fade(first: int, kinds: Sequence[str], spreads: Sequence[float], longest: int, flash: bool) -> list[Join]:
    """The fade around the blank frames from `first` on: none where the scenes on both sides stop and begin at once, or,
    if it may be a flash, one of them."""
    end = first + len(kinds)
    before = _way(spreads[max(0, first - longest) : first][::-1])
    after = _way(spreads[end : end + longest])
    if (not before and not after) or (flash and not (before and after)):
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


def melting(looks: Sequence[Look], seconds: Sequence[float], melt: Melt, change: Change) -> Iterator[Join]:
    """Cross-fades that the film's last frames may be, one a window that ends at the last of `looks`.

    seconds: when each frame of the film is shown, by its number. change: `looks.change`, which is asked for the same
    frames again and again. A window is a time: films of varying rate hold some pictures for long, so that a number of
    frames would say little.
    """
    now, base = seconds[looks[-1].number], looks[0].number
    for window in WINDOWS:
        if seconds[base] > now - window:
            continue
        times = np.linspace(now - window, now, SAMPLES) + SAME_TIME
        picked = [bisect.bisect_right(seconds, time, lo=base) - 1 - base for time in times]
        way = looks[picked[-1]].tiny - looks[picked[0]].tiny
        apart = float(way @ way)
        if len(set(picked)) < LEAST_SAMPLES or apart < way.size * melt.distance**2:
            continue
        found = _passed([looks[at] for at in picked], way, apart, melt)
        if found is None:
            continue
        passed, unmoved = found
        if _unmoved(itertools.islice(looks, picked[0], None), change) >= unmoved:
            begins, middle, ends = (int(np.interp(share, passed, picked)) for share in (0.03, 0.5, 0.97))
            yield Join(base + middle, "fade", base + begins, base + ends + 1, apart)


def _passed(
    looks: Sequence[Look], way: NDArray[np.float32], apart: float, melt: Melt
) -> tuple[NDArray[np.float64], float] | None:
    """How far (0..1) each look has come on the way from the first to the last, and how much of the change between them
    has to be left unexplained by shifts; None where this is no cross-fade."""
    steps = np.stack([look.tiny for look in looks]) - looks[0].tiny
    passed = steps @ way / apart
    each = np.diff(passed)
    amid = each[(passed[:-1] > AMID) & (passed[1:] < 1 - AMID)]
    if each.max() > STEP or each.min() < -BACK or (amid.size and amid.min() < melt.even * np.median(amid)):
        return None
    # a flash of white or black shows nothing either, and says nothing of a mixture
    shown = [(look.contrast, share) for look, share in zip(looks, passed, strict=True) if not look.blank]
    between = [contrast for contrast, share in shown if 0.3 < share < 0.7]
    whole = (looks[0].contrast + looks[-1].contrast) / 2
    if not between or whole == 0 or (dipped := min(between) / whole) > melt.dip:
        return None
    cells = np.linalg.norm(way.reshape(-1, 3), axis=1)
    off = np.linalg.norm((steps - passed[:, None] * way).reshape(len(looks), -1, 3), axis=2).max(axis=0)
    changing = cells > melt.distance
    if changing.mean() < CHANGING:
        return None
    residue = np.median(off[changing] / cells[changing])
    if residue > min(melt.residue + melt.deeper * (melt.dip - dipped), melt.residue_most):
        return None
    unmoved = melt.unmoved if residue <= melt.residue else melt.unmoved_most
    return np.maximum.accumulate(passed.astype(float)), unmoved


def _unmoved(looks: Iterable[Look], change: Change) -> float:
    """How much of the change from each look to the next no shift explains, as a share of all of it."""
    pairs = list(itertools.pairwise(looks))
    whole = sum(float(np.abs(one.small_HWC - other.small_HWC).mean()) for one, other in pairs)
    return sum(change(*pair) for pair in pairs) / whole


def heaviest(joins: Sequence[Join]) -> list[Join]:
    """Of joins that meet one another the heaviest alone, in the order of the film."""
    chosen: list[Join] = []
    for join in sorted(joins, key=lambda join: -join.weight):
        if not any(join.meets(other) for other in chosen):
            chosen.append(join)
    return sorted(chosen, key=lambda join: join.number)
