"""The order in which agents are shown, and how much judges agree.

J judges (passes of a model, or people), A agents.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...evaluate.estimates import ranks


def shown_order(about: str, turn: int, count: int) -> tuple[int, ...]:
    """Which agent (0..count-1) is in each place when something is shown for the `turn`-th time (0, 1, ...).

    The order is shuffled with the seed `about`, then rotated by one place each time, so that in `count` times each
    agent is in every place once. Then it is shuffled again.
    """
    first = list(range(count))
    random.Random(f"{about}/{turn // count}").shuffle(first)
    moved = turn % count
    return tuple(first[moved:] + first[:moved])


def ranks_of(scores: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 1 for the highest score; ties share their mean rank."""
    return ranks(-np.asarray(scores, dtype=float)) + 1


def concordance(ranks_JA: ArrayLike) -> float | None:
    """Kendall's W of judges' ranks, from 0 (no agreement) to 1; None if it is undefined.

    W = 12 S / (J^2 (A^3 - A) - J T), where S is the sum of squared deviations of the agents' rank sums from their mean,
    and T the sum of t^3 - t over every group of t equal ranks of a judge (Kendall and Babington Smith 1939; with ties
    as in Kendall, Rank Correlation Methods, 1948). Undefined for fewer than two judges or agents, and if all judges
    rank all agents equal.
    """
    given = np.asarray(ranks_JA, dtype=float)
    judges, agents = given.shape
    if judges < 2 or agents < 2:
        return None
    sums = given.sum(0)
    deviations = float(np.square(sums - sums.mean()).sum())
    ties = sum(float((counts**3 - counts).sum()) for counts in (np.unique(row, return_counts=True)[1] for row in given))
    most = judges**2 * (agents**3 - agents) - judges * ties
    return None if most <= 0 else 12 * deviations / most


def mean_difference(scores_JA: ArrayLike) -> float | None:
    """The mean absolute difference between two judges' scores of an agent, over all pairs of judges; None for one."""
    scores = np.asarray(scores_JA, dtype=float)
    pairs = [np.abs(one - other).mean() for one, other in itertools.combinations(scores, 2)]
    return float(np.mean(pairs)) if pairs else None


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
