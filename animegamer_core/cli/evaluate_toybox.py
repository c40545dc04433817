"""The task `evaluate toybox`: the acceptance table of a Toybox world."""
# ruff: noqa: T201

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..checkpoint.adapters import open_with_adapters
from ..data.stats import counted
from ..runtime.presets import get_preset, preset_for_device
from ..spec import DTYPES
from ..state import DEFAULT_WINDOW
from .options import Adapters, Device, Flag, Guidance, Preset, World, one_of
from .progress_line import overwrite

if TYPE_CHECKING:
    from ..evaluate.report import Outcome, Report

TABLE = ("probes", "vae", "shots", "motion", "override", "games", "colour", "memory", "unseen", "speed")
HARDER = ("sharp", "new", "references", "conflict")
ROWS = (*TABLE[:-1], *HARDER, TABLE[-1])


@dataclass(frozen=True, kw_only=True)
class Options:
    world: World = "toybox"
    lora: Adapters = ()
    full: Flag = False
    """Use all samples; always on with a GPU, takes hours on a CPU."""
    limit: int | None = None
    """Number of games; all other sample sizes scale with it."""
    rows: tuple[Annotated[str, one_of(ROWS)], ...] | None = None
    """Rows of the table; unset: all but takes, and the harder games' only for a world that has them."""
    seed: int = 0
    """Another seed plays other games."""
    preset: Preset | None = None
    """Preset for drawing shots; also compared with preset exact."""
    steps: int | None = None
    """Sampling steps of every shot; unset: the preset's or world's."""
    guidance: Guidance | None = None
    """Guidance of every shot; unset: the preset's or profile's."""
    dtype: Annotated[str, one_of(DTYPES)] = "float32"
    """Of the decoder."""
    device: Device = "auto"
    workers: int | None = None
    """Processes that draw and measure; unset: one for each core."""
    out: Path = Path("out/evaluate")
    """Folder for the report."""


def run(args: Options) -> int:
    """Measure, print and save row by row; 1 if a value misses its target or a row could not be measured.

    After an interrupt the measured rows stay in a report that is marked as partial.
    """
    import torch

    from ..evaluate.report import TABLE_HEAD, command_line
    from ..evaluate.toybox.context import EvalContext, Sampling
    from ..evaluate.toybox.rows import accept
    from ..evaluate.toybox.run import FULL, EvalRun, asked_plan
    from ..runtime.device import choose_device

    device = choose_device(args.device)
    plan = asked_plan(device, args.full, args.limit, args.seed)
    few = plan.games < FULL.games
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    on_progress = _show_progress if sys.stderr.isatty() else None
    preset = preset_for_device(get_preset(args.preset), device, print, args.dtype) if args.preset else None
    sampling = Sampling(args.steps, args.guidance, preset, args.dtype)
    world = open_with_adapters(args.world, args.lora)
    for line in world.warnings_for(DEFAULT_WINDOW):  # its rows are defined for this window
        print(f"warning: {line}", file=sys.stderr)
    context = EvalContext(world, device, args.workers, on_progress, sampling)
    if few:
        unsure = "`unsure`: the value misses its target, but its interval reaches it (see --full)"
        print(f"{counted(plan.games, 'game')}, few samples: {unsure}")
    print(TABLE_HEAD)
    begun = time.perf_counter()
    saved: list[Path] = []

    def save(report: Report) -> None:
        _show(report.outcomes[-1], few)
        saved[:] = replace(report, facts={**report.facts, "command": command_line()}).save(args.out)

    try:
        report = accept(EvalRun(context, plan, args.seed), args.rows, save)
    except KeyboardInterrupt:
        print(f"\nStopped; {f'{saved[0]} has the rows so far' if saved else 'no row was measured'}.", file=sys.stderr)
        return 130
    for path in saved:
        print(path)
    summary = ["a value misses its target" if report.short else "every value reaches its target"]
    summary += [f"not measured: {', '.join(report.failed)}"] if report.failed else []
    print(f"{'; '.join(summary)}; {time.perf_counter() - begun:.0f} s")
    return int(report.short or bool(report.failed))


def _show(outcome: Outcome, few: bool) -> None:
    """Print a measured row."""
    from ..evaluate.report import table_line

    for line in outcome.lines:
        print(table_line(line, few), flush=True)
    for note in outcome.notes:
        print(f"          ({note})", flush=True)


def _show_progress(what: str, done: int, count: int) -> None:
    overwrite(f"  {what} {done} of {count}" if done < count else "")
