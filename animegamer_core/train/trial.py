"""`train all --trial`: measures the pace of every stage before the first one begins, on steps that are thrown away.

Each stage takes its first 20 steps in a folder of its own, from the trial adapters of those before. Features of text
encoder, image encoder and VAE stay in the cache, so that only loading, these steps and the engine's predictions are
done twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .distributed import processes
from .one_stage import train_one_stage
from .pace import MEASURED_STEPS, FirstSteps, Pace
from .plan import Chain, StageRun, size_text, stage_file
from .progress import Report
from .request import TrainRequest

TRIAL = "trial"  # in the run's folder


def run_trial(chain: Chain, out: Path, report: Report) -> dict[str, Pace] | None:
    """The pace of each stage that is not done; None where Ctrl-C stopped the trial. Leaves only the cache behind."""
    paces: dict[str, Pace] = {}
    _remove(out / TRIAL)
    try:
        for run in (run for run in chain.runs if not run.done):
            report(f"trial of stage {run.stage}")
            request = _trial_request(chain, run, out, lambda pace, stage=run.stage: paces.update({stage: pace}))
            if train_one_stage(request, lambda line: None):  # losses of a trial mean nothing
                return None
            processes().wait_for_everyone()  # the main process writes the adapter that the next stage begins from
            if pace := paces.get(run.stage):
                peak = f", at most {size_text(pace.peak_bytes)} of GPU memory" if pace.peak_bytes else ""
                report(f"trial of stage {run.stage}: {pace.seconds:.2g} s a step{peak}")
    finally:
        _remove(out / TRIAL)
    return paces


def _trial_request(chain: Chain, run: StageRun, out: Path, measured: Callable[[Pace], object]) -> TrainRequest:
    """A stage's first steps alone, from the adapters of done stages and of trials."""
    tried = {other.stage for other in chain.runs if not other.done}
    folders = [(out / TRIAL if name in tried else out) / name for name in run.begins]
    given = len(run.request.start) - len(run.begins)  # adapters of --start, before those of stages
    steps = min(MEASURED_STEPS, run.config.steps)
    brief = {"steps": steps, "lr_warmup": min(steps, run.config.lr_warmup), "save_every": steps}
    brief |= {"minutes": 0.0, "validate_every": 0, "shots_every": 0}
    return replace(
        run.request,
        out=out / TRIAL / run.stage,
        start=(*run.request.start[:given], *map(stage_file, folders)),
        resume=False,
        options={**run.request.options, **brief},
        after_step=FirstSteps(steps, processes().device, measured),
    )


def _remove(folder: Path) -> None:
    """Remove a trial's folder; the main process does, and the others wait."""
    if processes().is_main_process:
        shutil.rmtree(folder, ignore_errors=True)
    processes().wait_for_everyone()
