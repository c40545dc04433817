"""A run's progress messages: computing features, steps and their pace, and how the run stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from .checkpoints import CHECKPOINTS, list_checkpoints, step_of

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
