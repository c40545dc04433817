"""Intervals that count how far training runs with other seeds differ, next to the spread of games."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...evaluate.estimates import Estimate

ENOUGH = 3  # seeds; with two, one difference alone says how far runs vary
# 97.5 % points of Student's t distribution with 1, 2, 3 ... degrees of freedom
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def over_seeds(over_games: Estimate, seed_means: Sequence[float]) -> Estimate:
    """An estimate over games and seeds together.

    over_games: of all seeds' values, with the interval over games. seed_means: each seed's mean on the same games. The
    interval of those means, +- t s / sqrt(S) with Student's t, s their sample deviation and S their number, is
    independent of the choice of games; so each half of the joint interval is the square root of the sum of both halves'
    squares. One seed leaves the estimate as it is.
    """
    count = len(seed_means)
    if count < 2 or not over_games.count:
        return over_games
    point = STUDENT[min(count - 1, len(STUDENT)) - 1]  # of more seeds a little too wide
    half = point * float(np.std(seed_means, ddof=1)) / math.sqrt(count)
    value = over_games.value
    below, above = (math.hypot(side, half) for side in (value - over_games.low, over_games.high - value))
    return replace(over_games, low=value - below, high=value + above)
