"""How long a stage takes: measured on its first steps, or known from an earlier run's log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from .log import LOG, read_log

MEASURED_STEPS = 20


@dataclass(frozen=True)
class Pace:
    """seconds: of one step, without the first, which compiles and warms up. peak_bytes: GPU memory, 0 on a CPU."""

    seconds: float
    peak_bytes: int = 0


class FirstSteps:
    """Times the first steps of a stage; a `should_stop` that always says no. Those steps are part of the run.

    steps: how many are left. measured: called once, after MEASURED_STEPS of them or after the last.
    """

    def __init__(self, steps: int, device: torch.device, measured: Callable[[Pace], object]) -> None:
        self._last, self._device, self._measured = min(steps, MEASURED_STEPS), device, measured
        self._taken, self._begun = 0, 0.0

    def __call__(self) -> bool:
        self._taken += 1
        if self._taken in (1, self._last) and self._device.type == "cuda":
            torch.cuda.synchronize(
                self._device
            )  # the GPU runs behind the program, and the clock would not see its work
        if self._taken == 1:
            self._begun = time.monotonic()
            if self._device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self._device)
        elif self._taken == self._last:
            peak = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else 0
            self._measured(Pace((time.monotonic() - self._begun) / (self._taken - 1), peak))
        return False


def seconds_a_step(out: Path) -> float | None:
    """Seconds of a step between the last two lines of a run's log; None where it has fewer."""
    lines = read_log(out / LOG)[-2:]
    if len(lines) < 2:
        return None
    (first, last) = lines
    return (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])
