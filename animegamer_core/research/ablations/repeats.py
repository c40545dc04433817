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
# Games: variant -> metric -> the values of the first and the second run.
RUNS: Mapping[str, Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "full": {
            "clip_i": (0.953, 0.960),
            "dreamsim": (0.912, 0.919),
            "acc_f": (0.885, 0.885),
            "mae_f": (0.115, 0.115),
        },
        "no_adaptation": {
            "clip_i": (0.944, 0.959),
            "dreamsim": (0.907, 0.917),
            "acc_f": (0.850, 0.850),
            "mae_f": (0.150, 0.150),
        },
        "window_0": {
            "clip_i": (0.900, 0.895),
            "dreamsim": (0.856, 0.859),
            "acc_f": (0.905, 0.905),
            "mae_f": (0.095, 0.095),
        },
        "window_2": {
            "clip_i": (0.947, 0.950),
            "dreamsim": (0.904, 0.907),
            "acc_f": (0.890, 0.885),
            "mae_f": (0.110, 0.115),
        },
        "window_8": {
            "clip_i": (0.950, 0.961),
            "dreamsim": (0.906, 0.919),
            "acc_f": (0.885, 0.890),
            "mae_f": (0.115, 0.110),
        },
    }
)


def run_difference(budget: str, metric: str) -> float | None:
    """The largest difference of two equal runs of a budget in a metric; None if none were compared.

    The values of games are used for clips too, whose two runs were equal.
    """
    if budget != BUDGET:
        return None
    found = [abs(row[metric][1] - row[metric][0]) for row in RUNS.values() if metric in row]
    return max(found) + ROUNDING if found else None
