"""What the command line tells of a run while it goes on: features before the first step, steps, and how it stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from .checkpoints import CHECKPOINTS, list_checkpoints, step_of

TOLD_EVERY_S = 10.0  # between lines about one feature


class Telling:
    """Tells one run of a stage, line by line."""

    def __init__(self, stage: str, say: Callable[[str], object]) -> None:
        self._stage, self._say = stage, say
        self._feature, self._told = "", 0.0
        self._before = 0, 0.0

    def feature(self, name: str, done: int, count: int) -> None:
        """Clips of which a feature is known: when it is begun, every 10 s, and when it is whole."""
        now = time.monotonic()
        if name == self._feature and done < count and now - self._told < TOLD_EVERY_S:
            return
        self._feature, self._told = name, now
        self._say(f"{'reading clips' if name == 'frames' else f'computing {name} of clips'}: {done} of {count}")

    def step(self, step: int, steps: int, values: dict[str, float]) -> None:
        """Logged values, with the seconds of a step since the line before and the time that is left at this pace."""
        before, seconds_before = self._before
        self._before = step, values["seconds"]
        pace = (values["seconds"] - seconds_before) / (step - before)
        shown = (f"{name} {value:.4g}" for name, value in values.items() if name != "seconds")
        left = f", {duration(pace * (steps - step))} left" if step < steps else ""
        self._say(f"{self._stage} {step}/{steps}  {'  '.join(shown)}  {pace:.2g} s a step{left}")


def duration(seconds: float) -> str:
    """A time as people say it: 45 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def tell_interrupt() -> None:
    """Say that an interrupt was heard: within the signal's handler, so on a stream that steps do not write to."""
    sys.stderr.write("\nthe step under way is finished and saved first; Ctrl-C again stops at once\n")
    sys.stderr.flush()


def how_it_stopped(out: Path) -> str:
    """What an interrupted run in this folder has kept, and how to go on."""
    kept = list_checkpoints(out / CHECKPOINTS)
    if not kept:
        return "stopped before a step was saved; the same command begins again"
    return f"stopped after step {step_of(kept[-1])}; the same command with --resume goes on"
