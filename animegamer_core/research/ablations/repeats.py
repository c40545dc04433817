"""Run-to-run variation: how far two equal training runs differ. A smaller difference to `full` does not count.

Recorded from two runs of budget `short` with seed 0, one on four H200s and one on a single H200. Nondeterministic
kernels gave two different engines; the decoders were equal to the last digit, and so were all scores of held-out clips.
The effect of another seed was not measured, so this is a lower bound of the variation.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

BUDGET = "short"
ROUNDING = 0.001  # the values were recorded to three digits, so a difference may be off by this much
METRICS = ("clip_i", "dreamsim", "acc_f", "mae_f")
# Games: variant -> the values of METRICS in the first and in the second run.
RUNS: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = MappingProxyType(
    {
        "full": ((0.953, 0.912, 0.885, 0.115), (0.960, 0.919, 0.885, 0.115)),
        "no_adaptation": ((0.944, 0.907, 0.850, 0.150), (0.959, 0.917, 0.850, 0.150)),
        "window_0": ((0.900, 0.856, 0.905, 0.095), (0.895, 0.859, 0.905, 0.095)),
        "window_2": ((0.947, 0.904, 0.890, 0.110), (0.950, 0.907, 0.885, 0.115)),
        "window_8": ((0.950, 0.906, 0.885, 0.115), (0.961, 0.919, 0.890, 0.110)),
    }
)


def run_difference(budget: str, metric: str) -> float | None:
    """The largest difference of two equal runs of a budget in a metric; None if none were compared.

    The values of games are used for clips too, whose two runs were equal.
    """
    if budget != BUDGET or metric not in METRICS:
        return None
    place = METRICS.index(metric)
    return max(abs(second[place] - first[place]) for first, second in RUNS.values()) + ROUNDING
