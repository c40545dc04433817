"""Measured values with their 95 % intervals and counts, and the metrics that need no model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Z95 = 1.959963984540054  # the normal distribution's 97.5 % point
PEAK = 255.0
DRAWS = 2000  # bootstrap samples
REACH = 6  # pixels that a figure may be shifted to be compared
FEW = 10  # with fewer games a bootstrap interval over games is too narrow


@dataclass(frozen=True)
class Estimate:
    """A measured value, its 95 % interval, and its number of samples (0: not measured)."""

    value: float
    low: float
    high: float
    count: int

    @property
    def json_values(self) -> dict[str, Any]:
        """Value, interval and count for a report's JSON; null where nothing was measured."""
        value, low, high = (end if math.isfinite(end) else None for end in (self.value, self.low, self.high))
        return {"value": value, "interval": [low, high], "n": self.count}


UNMEASURED = Estimate(math.nan, math.nan, math.nan, 0)


def fraction(right: ArrayLike) -> Estimate:
    """The fraction of true entries with Wilson's score interval, which also holds near 0 and 1 and for few samples.

    Wilson 1927: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n).
    """
    flags = np.asarray(right, dtype=bool).ravel()
    return _wilson(float(flags.mean()), flags.size, flags.size) if flags.size else UNMEASURED


def fraction_over_games(games: Sequence[Sequence[bool]]) -> Estimate:
    """The fraction of true entries with Wilson's interval for the effective number of turns.

    games: whether each game's turns are right. Turns of one game are correlated, so n turns are worth n / d independent
    ones, where d >= 1 is the variance between games over that of independent turns (Kish 1965, design effect; as an
    effective n in Wilson's interval, Franco et al. 2019). With one game d is unknown and taken as 1.
    """
    measured = [flags for flags in games if len(flags)]
    if not measured:
        return UNMEASURED
    right, counts = np.array([sum(flags) for flags in measured]), np.array([len(flags) for flags in measured])
    count = int(counts.sum())
    part = float(right.sum()) / count
    if part in (0, 1) or len(measured) == 1:
        return _wilson(part, count, count)
    independent = part * (1 - part) / (count - 1)
    between = len(measured) / (len(measured) - 1) * float(np.square(right - part * counts).sum()) / count**2
    return _wilson(part, count / max(1.0, between / independent), count)


def _wilson(part: float, effective_count: float, count: int) -> Estimate:
    square = Z95**2 / effective_count
    middle = (part + square / 2) / (1 + square)
    half = Z95 * math.sqrt(part * (1 - part) / effective_count + square / (4 * effective_count)) / (1 + square)
    return Estimate(part, min(part, max(0.0, middle - half)), max(part, min(1.0, middle + half)), count)


def mean(values: ArrayLike) -> Estimate:
    """The mean with its normal interval, +- 1.96 s / sqrt(n) with s the sample deviation; no width for one value."""
    numbers = np.asarray(values, dtype=float).ravel()
    count = numbers.size
    if count == 0:
        return UNMEASURED
    middle = float(numbers.mean())
    half = Z95 * float(numbers.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    return Estimate(middle, middle - half, middle + half, count)


def mean_over_games(games: Sequence[Sequence[float]]) -> Estimate:
    """The mean of all values with a bootstrap interval over games, since the turns of one game are correlated.

    games: the values of each game's turns. Whole games are drawn with replacement, as many as there are; the interval's
    ends are the 2.5 % and 97.5 % percentiles of the means of DRAWS such samples (Efron 1979; for clusters Field and
    Welsh 2007). If only one game has values, its turns are drawn instead of games.
    """
    measured = [np.asarray(values, dtype=float) for values in games if len(values)]
    if not measured:
        return UNMEASURED
    if len(measured) == 1:
        measured = [value[None] for value in measured[0]]
    sums = np.array([values.sum() for values in measured])
    counts = np.array([values.size for values in measured])
    drawn = np.random.default_rng(0).integers(0, len(measured), (DRAWS, len(measured)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)
    middle = float(np.concatenate(measured).mean())
    low, high = (float(end) for end in np.quantile(means, (0.025, 0.975)))
    return Estimate(middle, min(middle, low), max(middle, high), int(counts.sum()))


def psnr(shown: NDArray[np.uint8], true: NDArray[np.uint8]) -> float:
    """Peak signal-to-noise ratio in dB of one clip: 10 log10(255^2 / MSE) over all of its pixels and channels."""
    assert shown.shape == true.shape, (shown.shape, true.shape)
    squares = np.square(shown.astype(np.float32) - true)  # exact: integers below 2 ** 24
    error = float(squares.mean(dtype=np.float64))
    return math.inf if error == 0 else 10 * math.log10(PEAK**2 / error)


def likeness(shown: NDArray[np.uint8], true: NDArray[np.uint8], boxes_F4: NDArray[np.int64]) -> NDArray[np.float64]:
    """(F - 1,) how alike a figure is in each frame but the first: the SSIM of the grey box around the true one, for the
    best of all shifts of up to REACH pixels. 1 is equal. boxes_F4: left, top, right, bottom.

    Wang et al. 2004, Image Quality Assessment: From Error Visibility to Structural Similarity; 7 x 7 Gaussian window.
    """
    found = []
    for ours, theirs, box in zip(shown[1:], true[1:], boxes_F4[1:], strict=True):
        left, top, right, bottom = box
        wanted = _grey(theirs)[top:bottom, left:right]
        moments = _blurred(wanted), _blurred(wanted * wanted)
        around = np.pad(_grey(ours), REACH, mode="edge")[top : bottom + 2 * REACH, left : right + 2 * REACH]
        height, width = wanted.shape
        shifts = itertools.product(range(2 * REACH + 1), repeat=2)
        found.append(max(_ssim(around[y : y + height, x : x + width], wanted, moments) for y, x in shifts))
    return np.array(found)


def _grey(frame_HWC: NDArray[np.uint8]) -> NDArray[np.float32]:
    return frame_HWC.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)


def _blurred(values: NDArray[np.float32]) -> NDArray[np.float32]:
    import cv2  # heavy, and only this row needs it

    return np.asarray(cv2.GaussianBlur(values, (7, 7), 1.5))


def _ssim(one: NDArray[np.float32], other: NDArray[np.float32], moments: tuple[NDArray, NDArray]) -> float:
    """moments: the blurred `other` and its blurred square, which all shifts share."""
    first, (second, squares) = _blurred(one), moments
    spread = _blurred(one * one) - first * first, squares - second * second
    shared = _blurred(one * other) - first * second
    level, contrast = (0.01 * PEAK) ** 2, (0.03 * PEAK) ** 2
    same = (2 * first * second + level) * (2 * shared + contrast)
    return float((same / ((first**2 + second**2 + level) * (sum(spread) + contrast))).mean())


def motion_accuracy(asked: Sequence[int], measured: Sequence[int]) -> Estimate:
    """ACC-F, for which the paper gives no formula: the fraction of shots whose measured level is the requested one."""
    return fraction(np.equal(asked, measured))


def motion_error(asked: Sequence[int], measured: Sequence[int]) -> Estimate:
    """MAE-F: the mean absolute difference, in levels, between the requested and the measured level."""
    return mean(np.abs(np.subtract(asked, measured)))


def chance_above(first: NDArray, second: NDArray) -> Estimate:
    """The chance that a value of the first kind is above one of the second, ties counting half: the area under ROC."""
    return mean([float(np.mean((value > second) + 0.5 * (value == second))) for value in first])


def rank_correlation(first: Sequence[float] | NDArray, second: Sequence[float] | NDArray) -> float:
    """Spearman's rank correlation: Pearson's of the ranks, ties sharing their mean rank; 0 if a side is constant."""
    one, other = (row - row.mean() for row in (ranks(first), ranks(second)))
    scale = math.sqrt(float((one**2).sum() * (other**2).sum()))
    return float((one * other).sum() / scale) if scale > 0 else 0.0


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 0; ties share their mean rank."""
    _, place, counts = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[place.ravel()]
