"""The figures of an evaluation, each with its count and a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Z95 = 1.959963984540054  # the normal distribution's 97.5 % point
PEAK = 255.0
DRAWS = 2000  # of the bootstrap
FEW = 10  # games under which a bootstrap over them is surer than it should be


@dataclass(frozen=True)
class Figure:
    """A measured value, the ends of its 95 % interval, and how many samples it comes from (0: never measured)."""

    value: float
    low: float
    high: float
    count: int


def share(right: ArrayLike) -> Figure:
    """The share of true entries with Wilson's score interval, which also holds near 0 and 1 and for few samples.

    Wilson 1927: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n).
    """
    flags = np.asarray(right, dtype=bool).ravel()
    return _wilson(float(flags.mean()), flags.size, flags.size) if flags.size else _unmeasured()


def share_over_games(games: Sequence[Sequence[bool]]) -> Figure:
    """The share of true entries, with Wilson's interval for as many turns as they are worth.

    games: whether each game's turns are right. Turns of a game go wrong together, so n of them tell no more than
    n / d that do not, d >= 1 being the variance between games over that of independent turns (Kish 1965, design
    effect; as an effective n in Wilson's interval, Franco et al. 2019). One game alone tells nothing of d.
    """
    told = [np.asarray(flags, dtype=bool) for flags in games if len(flags)]
    if not told:
        return _unmeasured()
    right, counts = np.array([flags.sum() for flags in told]), np.array([flags.size for flags in told])
    count = int(counts.sum())
    part = float(right.sum()) / count
    if part in (0, 1) or len(told) == 1:
        return _wilson(part, count, count)
    alone = part * (1 - part) / (count - 1)
    between = len(told) / (len(told) - 1) * float(np.square(right - part * counts).sum()) / count**2
    return _wilson(part, count / max(1.0, between / alone), count)


def _wilson(part: float, worth: float, count: int) -> Figure:
    square = Z95**2 / worth
    middle = (part + square / 2) / (1 + square)
    half = Z95 * math.sqrt(part * (1 - part) / worth + square / (4 * worth)) / (1 + square)
    return Figure(part, min(part, max(0.0, middle - half)), max(part, min(1.0, middle + half)), count)


def mean(values: ArrayLike) -> Figure:
    """The mean with its normal interval, +- 1.96 s / sqrt(n) with s the sample deviation; one value has no width."""
    numbers = np.asarray(values, dtype=float).ravel()
    count = numbers.size
    if count == 0:
        return _unmeasured()
    middle = float(numbers.mean())
    half = Z95 * float(numbers.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    return Figure(middle, middle - half, middle + half, count)


def mean_over_games(games: Sequence[Sequence[float]], draws: int = DRAWS, seed: int = 0) -> Figure:
    """The mean of all values, with a bootstrap interval over games, since the turns of one game are alike.

    games: the values of each game's turns. Whole games are drawn anew with replacement, as many as there are; the
    interval's ends are the 2.5 % and 97.5 % points of the means of `draws` such draws (Efron 1979, percentiles; of
    clusters as Field and Welsh 2007). Where one game alone has values, its turns are drawn in place of games.
    """
    told = [np.asarray(values, dtype=float) for values in games if len(values)]
    if not told:
        return _unmeasured()
    if len(told) == 1:
        told = [value[None] for value in told[0]]
    sums, counts = np.array([values.sum() for values in told]), np.array([values.size for values in told])
    drawn = np.random.default_rng(seed).integers(0, len(told), (draws, len(told)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)
    middle = float(np.concatenate(told).mean())
    low, high = (float(end) for end in np.quantile(means, (0.025, 0.975)))
    return Figure(middle, min(middle, low), max(middle, high), int(counts.sum()))


def psnr(shown: NDArray[np.uint8], true: NDArray[np.uint8]) -> float:
    """Peak signal-to-noise ratio in dB of one clip: 10 log10(255^2 / MSE) over all of its pixels and channels."""
    if shown.shape != true.shape:
        raise ValueError(f"clips of shapes {shown.shape} and {true.shape} cannot be compared; give two of one size")
    error = float(np.square(shown.astype(np.float64) - true).mean())
    return math.inf if error == 0 else 10 * math.log10(PEAK**2 / error)


def motion_accuracy(asked: Sequence[int], measured: Sequence[int]) -> Figure:
    """ACC-F: the share of shots whose measured motion level is the one that was asked for.

    The paper names the metric without a formula; a shot's level is its measured motion value between the world's own
    edges, the same measure that gave its training clips their levels.
    """
    return share(np.equal(asked, measured))


def motion_error(asked: Sequence[int], measured: Sequence[int]) -> Figure:
    """MAE-F: the mean distance, in levels, between the level asked for and the one measured as for ACC-F."""
    return mean(np.abs(np.subtract(asked, measured)))


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation: Pearson's of the ranks, equals sharing their mean rank; 0 if a side is constant."""
    if len(first) != len(second) or len(first) < 2:
        raise ValueError(f"{len(first)} and {len(second)} values; a rank correlation needs two or more pairs")
    one, other = (row - row.mean() for row in (ranks(first), ranks(second)))
    spread = math.sqrt(float((one**2).sum() * (other**2).sum()))
    return float((one * other).sum() / spread) if spread > 0 else 0.0


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 0, equal values sharing the mean of theirs."""
    _, place, counts = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[place.ravel()]


def _unmeasured() -> Figure:
    return Figure(math.nan, math.nan, math.nan, 0)
