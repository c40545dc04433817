"""What pages show about training: the current run, and what every run in output/animegamer/runs has written.

    GET /animegamer/training[?run=R&stage=S]   without names: the current run, or else the last one
The event `animegamer.training` says that a run has started, progressed or ended; the page then asks the route.
"""

from __future__ import annotations

import contextlib
import time
import typing

from . import comfyui

if typing.TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    Json = dict[str, typing.Any]

EVENT = "animegamer.training"
EVERY_SECONDS = 1.0  # between two events of a run
MOST_RUNS, MOST_POINTS, MOST_LINES, MOST_SHEETS = 100, 400, 60, 40
_at_work: dict[tuple[str, str], RunAtWork] = {}


class RunAtWork:
    """A run that this ComfyUI trains now. steps: how many it will take."""

    def __init__(self, run: str, stage: str, steps: int) -> None:
        self.run, self.stage, self.steps, self._sent_at = run, stage, steps, 0.0

    def went_on(self, step: int) -> bool:
        """Send the event, at most once a second; returns whether it was sent."""
        if time.monotonic() - self._sent_at < EVERY_SECONDS:
            return False
        self._sent_at = time.monotonic()
        self.send("trains", step)
        return True

    def send(self, state: str, step: int = 0) -> None:
        """Send the event with a state: begun, trains, finished or stopped."""
        facts = {"run": self.run, "stage": self.stage, "step": step, "steps": self.steps, "state": state}
        comfyui.send(EVENT, facts)


@contextlib.contextmanager
def at_work(run: str, stage: str, steps: int) -> Iterator[RunAtWork]:
    """Marks the run as current within the block; events say when it starts and how it ends."""
    now = _at_work[run, stage] = RunAtWork(run, stage, steps)
    now.send("begun")
    state = "stopped"
    try:
        yield now
        state = "finished"
    finally:
        del _at_work[run, stage]
        now.send(state, steps if state == "finished" else 0)


def training(query: Mapping[str, str]) -> Json:
    """The route's answer; ValueError for an unknown run. Names are compared, never made into paths."""
    folders = _run_folders()
    wanted = (query.get("run", ""), query.get("stage", ""))
    if wanted == ("", ""):
        wanted = next(reversed([*(name for name in _at_work if name in folders)]), next(iter(folders), wanted))
    runs = [{"run": run, "stage": stage} for run, stage in list(folders)[:MOST_RUNS]]
    if wanted == ("", ""):
        return {"runs": runs}
    if wanted not in folders:
        raise ValueError(f"there is no run {wanted[0]!r} with stage {wanted[1]!r} in output/animegamer/runs")
    return {"runs": runs, "run": wanted[0], "stage": wanted[1], **_progress(folders[wanted], _at_work.get(wanted))}


def _run_folders() -> dict[tuple[str, str], Path]:
    """The folders of runs that have a log, the last one written to first."""
    from ..animegamer_core.train.log import LOG

    logs = {}
    for log in (comfyui.output_folder() / comfyui.RUNS).glob(f"*/*/{LOG}"):
        with contextlib.suppress(FileNotFoundError):  # removed at this moment
            logs[log] = log.stat().st_mtime
    found = sorted(logs, key=lambda log: (-logs[log], log))
    return {(log.parent.parent.name, log.parent.name): log.parent for log in found}


def _progress(folder: Path, now: RunAtWork | None) -> Json:
    from ..animegamer_core.checkpoint.storage import read_json
    from ..animegamer_core.train.checkpoints import RESULT
    from ..animegamer_core.train.log import LOG, SHEETS, read_log

    lines = read_log(folder / LOG)
    ended = now is None and (folder / RESULT).is_file()
    sheets = sorted((folder / SHEETS).glob("step-*.png"))[-MOST_SHEETS:]
    return {
        "active": now is not None,
        "ended": ended,
        "steps": now.steps if now else read_json(folder / RESULT).get("steps") if ended else None,
        "curve": [_point(line) for line in _thinned(lines)],
        "log": lines[-MOST_LINES:],
        "sheets": [{"step": int(sheet.stem.removeprefix("step-")), **comfyui.output_item(sheet)} for sheet in sheets],
    }


def _point(line: Mapping[str, float]) -> Json:
    return {name: line[name] for name in ("step", "loss", "held_out_loss") if name in line}


def _thinned(lines: list[dict[str, float]]) -> list[dict[str, float]]:
    """At most about MOST_POINTS lines, evenly spaced, with the last one and all that have a held-out loss."""
    every = max(1, -(-len(lines) // MOST_POINTS))
    last = len(lines) - 1
    return [line for at, line in enumerate(lines) if at % every == 0 or at == last or "held_out_loss" in line]
