"""The task `evaluate toybox`: the acceptance table of a Toybox world."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoint.adapters import open_with_adapters
from ..data.stats import counted
from ..runtime.presets import PRESETS, get_preset, preset_for_device
from ..spec import DTYPES, GUIDANCE_NAMES
from ..state import DEFAULT_WINDOW
from .options import add_adapter_option
from .progress_line import overwrite

if TYPE_CHECKING:
    from ..evaluate.report import Outcome, Report

TABLE = ("probes", "vae", "shots", "motion", "override", "games", "colour", "memory", "unseen", "speed")
HARDER = ("sharp", "new", "references", "conflict")
ROWS = (*TABLE[:-1], "takes", *HARDER, TABLE[-1])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate toybox`."""
    parser.add_argument("--world", default="toybox", help="toybox, or a Toybox build's folder (default %(default)s)")
    add_adapter_option(parser)
    parser.add_argument(
        "--full", action="store_true", help="use all samples; always on with a GPU, takes hours on a CPU"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="number of games; all other sample sizes scale with it")
    about = (
        f"some of {', '.join(ROWS)}; by default {' and '.join(HARDER)} only for a world with the harder games, and "
        "never takes"
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=TABLE, metavar="ROW", help=about)
    parser.add_argument("--seed", type=int, default=0, help="another seed plays other games (default %(default)s)")
    parser.add_argument(
        "--preset", choices=tuple(PRESETS), help="preset for drawing shots; also compared with preset exact"
    )
    parser.add_argument("--steps", type=int, help="sampling steps of every shot (default: the preset's or world's)")
    parser.add_argument("--guidance", choices=GUIDANCE_NAMES, help="of every shot (default: the preset's or profile's)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the decoder (default %(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default %(default)s)")
    parser.add_argument("--workers", type=int, help="processes that draw and measure (default: one for each core)")
    parser.add_argument("--out", type=Path, default=Path("out/evaluate"), help="for the report (default %(default)s)")


def run(args: argparse.Namespace) -> int:
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
    world = open_with_adapters(args.world, args.stage_file)
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
        report = accept(EvalRun(context, plan, args.seed), None if args.rows is TABLE else args.rows, save)
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
