"""A run's progress messages: computing features, steps and their pace, and how the run stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from .checkpoints import CHECKPOINTS, list_checkpoints, step_of
from .log import LOG, read_log

MEASURED_STEPS = 20  # of each stage, to measure its pace
REPORT_EVERY_S = 10.0  # between two lines about the same feature
Report = Callable[[str], object]  # prints or collects a line


class RunProgress:
    """Reports the progress of one run of a stage, line by line."""

    def __init__(self, stage: str, report: Report) -> None:
        self._stage, self._report = stage, report
        self._feature, self._reported = "", 0.0
        self._before = 0, 0.0

    def feature(self, name: str, done: int, count: int) -> None:
        """Report for how many clips a feature is computed: at the start, every 10 s, and at the end."""
        now = time.monotonic()
        if name == self._feature and done < count and now - self._reported < REPORT_EVERY_S:
            return
        self._feature, self._reported = name, now
        self._report(f"{'reading clips' if name == 'frames' else f'computing {name} of clips'}: {done} of {count}")

    def step(self, step: int, steps: int, values: dict[str, float]) -> None:
        """Report logged values, the mean seconds per step since the line before, and the time left at this pace."""
        before, seconds_before = self._before
        self._before = step, values["seconds"]
        pace = (values["seconds"] - seconds_before) / (step - before)
        shown = (f"{name} {value:.4g}" for name, value in values.items() if name != "seconds")
        left = f", {duration(pace * (steps - step))} left" if step < steps else ""
        self._report(f"{self._stage} {step}/{steps}  {'  '.join(shown)}  {pace:.2g} s a step{left}")


def duration(seconds: float) -> str:
    """A time as text: 45 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def report_interrupt() -> None:
    """Say that Ctrl-C was received. A signal handler calls this, so it writes to stderr, which steps do not use."""
    sys.stderr.write("\nfinishing and saving the current step; press Ctrl-C again to stop at once\n")
    sys.stderr.flush()


def how_it_stopped(out: Path) -> str:
    """A sentence on what an interrupted run in this folder has saved, and how to continue."""
    saved = list_checkpoints(out / CHECKPOINTS)
    if not saved:
        return "stopped before a step was saved; the same command starts again"
    return f"stopped after step {step_of(saved[-1])}; the same command with --resume continues"


@dataclass(frozen=True)
class Pace:
    """How fast a stage is.

    seconds: per step, without the first, which compiles and warms up. peak_bytes: of GPU memory, 0 on a CPU.
    """

    seconds: float
    peak_bytes: int = 0


class FirstSteps:
    """Times the first steps of a stage. Used as its `should_stop`, it never stops it; the steps are part of the run.

    steps: how many are left. measured: called once, after MEASURED_STEPS of them or after the last.
    """

    def __init__(self, steps: int, device: torch.device, measured: Callable[[Pace], object]) -> None:
        self._last, self._device, self._measured = min(steps, MEASURED_STEPS), device, measured
        self._taken, self._begun = 0, 0.0

    def __call__(self) -> bool:
        self._taken += 1
        if self._taken in (1, self._last) and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # the clock must include work that the GPU has not finished
        if self._taken == 1:
            self._begun = time.monotonic()
            if self._device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self._device)
        elif self._taken == self._last:
            peak = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else 0
            self._measured(Pace((time.monotonic() - self._begun) / (self._taken - 1), peak))
        return False


def seconds_a_step(out: Path) -> float | None:
    """Mean seconds per step between the last two lines of a run's log; None if it has fewer than two."""
    lines = read_log(out / LOG)[-2:]
    if len(lines) < 2:
        return None
    (first, last) = lines
    return (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])
