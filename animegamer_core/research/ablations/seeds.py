"""Confidence intervals that include the variation over training seeds as well as over games."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...evaluate.estimates import Estimate

ENOUGH = 3  # seeds; with two, a single difference would have to show how much runs vary
# 97.5 % points of Student's t distribution with 1, 2, 3 ... degrees of freedom
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def over_seeds(over_games: Estimate, seed_means: Sequence[float]) -> Estimate:
    """An estimate whose interval covers the choice of games and of seeds.

    over_games: the estimate from all seeds' values, with its interval over games. seed_means: each seed's mean on the
    same games. The interval of these means is +- t s / sqrt(S), with Student's t, their sample standard deviation s and
    their number S. It is independent of the choice of games, so half the joint interval is the root of the sum of
    squares of both half intervals. With one seed, the estimate is returned unchanged.
    """
    count = len(seed_means)
    if count < 2 or not over_games.count:
        return over_games
    point = STUDENT[min(count - 1, len(STUDENT)) - 1]  # for more seeds, a little too wide
    half = point * float(np.std(seed_means, ddof=1)) / math.sqrt(count)
    value = over_games.value
    below, above = (math.hypot(side, half) for side in (value - over_games.low, over_games.high - value))
    return replace(over_games, low=value - below, high=value + above)
