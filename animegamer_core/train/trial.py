"""`train all --trial`: the pace of every stage before the first one begins, from steps that are thrown away.

Each stage takes its first 20 steps in a folder of its own, from the trial files of those before. What encoders and VAE
computed of the clips stays in the cache, so that only loading, these steps and what the engine predicts come twice.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path

from .pace import MEASURED_STEPS, FirstSteps, Pace
from .plan import Chain, StageRun, size_text, stage_file
from .spread import processes

TRIAL = "trial"  # in the run's folder


def run_trial(
    chain: Chain,
    out: Path,
    train: Callable[[argparse.Namespace, Callable[[str], object]], int],
    say: Callable[[str], object],
) -> dict[str, Pace] | None:
    """The pace of each stage that is not done; None where Ctrl-C stopped the trial. Leaves nothing but the cache."""
    paces: dict[str, Pace] = {}
    _remove(out / TRIAL)
    try:
        for run in (run for run in chain.runs if not run.done):
            say(f"trial of stage {run.stage}")
            if train(_arguments(chain, run, out, lambda pace, stage=run.stage: paces.update({stage: pace})), _quiet):
                return None
            processes().wait_for_everyone()  # the main process writes the file that the next stage begins from
            _report(run.stage, paces.get(run.stage), say)
    finally:
        _remove(out / TRIAL)
    return paces


def _arguments(chain: Chain, run: StageRun, out: Path, measured: Callable[[Pace], object]) -> argparse.Namespace:
    """A stage's arguments for its first steps alone, from the files of done stages and of trials."""
    tried = {other.stage for other in chain.runs if not other.done}
    places = [(out / TRIAL if name in tried else out) / name for name in run.begins]
    given = len(run.args.start) - len(run.begins)  # files of --start, before those of stages
    steps = min(MEASURED_STEPS, run.config.steps)
    brief = {"steps": steps, "lr_warmup": min(steps, run.config.lr_warmup), "save_every": steps}
    brief |= {"minutes": 0.0, "validate_every": 0, "shots_every": 0}
    own = {f"option_{name}": value for name, value in brief.items()}
    own |= {"start": (*run.args.start[:given], *map(stage_file, places)), "out": out / TRIAL / run.stage}
    own |= {"resume": False, "after_step": FirstSteps(steps, processes().device, measured)}
    return argparse.Namespace(**{**vars(run.args), **own})


def _quiet(line: str) -> None:
    """Says nothing: losses of a trial mean nothing."""


def _report(stage: str, pace: Pace | None, say: Callable[[str], object]) -> None:
    if pace is not None:
        peak = f", at most {size_text(pace.peak_bytes)} of GPU memory" if pace.peak_bytes else ""
        say(f"trial of stage {stage}: {pace.seconds:.2g} s a step{peak}")


def _remove(folder: Path) -> None:
    """Remove a trial's folder; the main process does, and the others wait."""
    if processes().is_main_process:
        shutil.rmtree(folder, ignore_errors=True)
    processes().wait_for_everyone()
