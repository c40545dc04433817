"""The task `evaluate toybox`: the acceptance table of a Toybox world, and where it falls short."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...data.stats import counted
from ...presets import PRESETS, get_preset, preset_on
from ...spec import DTYPES, GUIDANCE_NAMES
from ...state import DEFAULT_WINDOW
from ...train.staged import add_stage_files, open_staged

if TYPE_CHECKING:
    from ..report import Outcome, Report

ROWS = ("probes", "vae", "shots", "motion", "override", "games", "colour", "unseen", "speed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate toybox`."""
    parser.add_argument("--world", default="toybox", help="toybox, or a Toybox build's folder (default %(default)s)")
    add_stage_files(parser)
    parser.add_argument("--full", action="store_true", help="all samples; always so on a GPU, hours on a CPU")
    parser.add_argument("--limit", type=int, metavar="N", help="games to play; everything else in proportion")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, metavar="ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--seed", type=int, default=0, help="another seed asks other games (default %(default)s)")
    parser.add_argument("--preset", choices=tuple(PRESETS), help="how shots are drawn; told beside preset exact")
    parser.add_argument("--steps", type=int, help="sampling steps of every shot (default: the preset's or world's)")
    parser.add_argument("--guidance", choices=GUIDANCE_NAMES, help="of every shot (default: the preset's or profile's)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the decoder (default %(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default %(default)s)")
    parser.add_argument("--workers", type=int, help="processes that draw and measure (default: one a core)")
    parser.add_argument("--out", type=Path, default=Path("out/evaluate"), help="for the report (default %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Measure, print and save as asked, row by row; 1 if a figure falls short of its target, or a row has none.

    Interrupted, the rows that were measured stay in a report that says that it is partial.
    """
    import torch

    from ...play import choose_device
    from ..report import TABLE_HEAD, command_line
    from .lab import Lab, Sampling
    from .table import accept
    from .trial import FULL, Trial, asked_plan

    device = choose_device(args.device)
    plan = asked_plan(device, args.full, args.limit, args.seed)
    few = plan.games < FULL.games
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    told = _show_progress if sys.stderr.isatty() else None
    preset = preset_on(get_preset(args.preset), device, print, args.dtype) if args.preset else None
    sampling = Sampling(args.steps, args.guidance, preset, args.dtype)
    world = open_staged(args.world, args.stage_file)
    for line in world.warnings_for(DEFAULT_WINDOW):  # which its rows are defined by
        print(f"warning: {line}", file=sys.stderr)
    lab = Lab(world, device, args.workers, told, sampling)
    if few:
        unsure = "`unsure` misses a target that its interval still reaches (see --full)"
        print(f"{counted(plan.games, 'game')}, few samples: {unsure}")
    print(TABLE_HEAD)
    begun = time.perf_counter()
    kept: list[Path] = []

    def keep(report: Report) -> None:
        _show(report.outcomes[-1], few)
        kept[:] = replace(report, facts={**report.facts, "command": command_line()}).save(args.out)

    try:
        report = accept(Trial(lab, plan, args.seed), args.rows, keep)
    except KeyboardInterrupt:
        print(f"\nStopped; {f'{kept[0]} has the rows so far' if kept else 'no row was measured'}.", file=sys.stderr)
        return 130
    for path in kept:
        print(path)
    told = ["a figure falls short" if report.short else "nothing falls short"]
    told += [f"not measured: {', '.join(report.failed)}"] if report.failed else []
    print(f"{'; '.join(told)}; {time.perf_counter() - begun:.0f} s")
    return int(report.short or bool(report.failed))


def _show(outcome: Outcome, few: bool) -> None:
    """Print a row that is done."""
    from ..report import table_line

    for line in outcome.lines:
        print(table_line(line, few), flush=True)
    for note in outcome.notes:
        print(f"          ({note})", flush=True)


def _show_progress(what: str, done: int, count: int) -> None:
    """One line on the terminal that is overwritten as work goes on."""
    end = "\r" if done < count else "\r\x1b[K"
    print(f"  {what} {done} of {count}", end=end, file=sys.stderr, flush=True)
