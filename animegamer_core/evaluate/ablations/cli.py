"""The task `evaluate ablations`: train variants of the recipe in the Toybox, and score them beside the paper's.

One command does everything; with --minutes it stops, and the same command goes on. Several GPUs run variants side by
side by --share 1/2 and 2/2, or under `accelerate launch`, where each process takes its share and its own GPU. Several
processes may also share one GPU: run the command several times with the same --work and other --variants. Each variant
has a lock of its own, and whoever finishes last writes the whole table.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..similarity.towers import DREAMSIM_HELP, KINDS
from .variants import BUDGET_NAMES, VARIANTS, chosen

if TYPE_CHECKING:
    from ..similarity.towers import Towers
    from .shop import Shop

NO_TOWERS = "none"
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")  # what tells a process that it is one of several
UNFINISHED = 3  # exit status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate ablations`."""
    add = parser.add_argument
    add("--work", type=Path, required=True, metavar="DIR", help="work folder; the same command goes on with it")
    add(
        "--variants",
        nargs="+",
        choices=tuple(VARIANTS),
        metavar="NAME",
        help=f"of {', '.join(VARIANTS)} (default: all)",
    )
    add("--share", metavar="I/N", help="every N-th of the variants, from the I-th on")
    add(
        "--budget",
        choices=BUDGET_NAMES,
        default="short",
        help="full: the recipe's steps; short: a quarter, for one session; quick: a miniature (default %(default)s)",
    )
    add("--minutes", type=float, help="stop, resumable, after so many minutes")
    add("--score-only", action="store_true", help="train nothing: score what is trained, and write the table")
    add("--seed", type=int, default=0, help="decides weights, order and noise of training (default %(default)s)")
    add("--device", default="auto", help="auto, cpu or cuda, also cuda:1 (default %(default)s)")
    add("--compile", action="store_true", help="compile the decoders that are trained: a slow start, faster steps")
    add("--workers", type=int, help="processes that draw and measure (default: one a core)")
    add("--world", default="toybox", help="whose VAE, towers and probes are taken as they are (default %(default)s)")
    add("--towers", choices=(*KINDS, NO_TOWERS), default="toybox", help="for CLIP-I and DreamSim (default %(default)s)")
    add("--clip", type=Path, metavar="DIR", help="published towers: folder of a CLIP model")
    add("--dreamsim", type=Path, metavar="DIR", help=f"published towers: {DREAMSIM_HELP}")
    add("--out", type=Path, metavar="DIR", help="for the table (default: table in --work)")
    add("--export", type=Path, metavar="DIR", help="afterwards write here what a fresh machine needs to go on")
    add("--export-mib", type=int, default=120, help="the export's largest size in MiB (default %(default)s)")
    add("--import", type=Path, dest="bring", metavar="DIR", help="first unpack what --export wrote into --work")


def run(args: argparse.Namespace) -> int:
    """Train, score and write the table; 3 if the time ran out before all asked variants were scored."""
    share, device = own_part(args, os.environ)
    import torch

    from ..report import command_line
    from .run import bring, export, run_ablations
    from .scores import Examiner
    from .shop import Deadline
    from .table import write_table

    variants = chosen(args.variants, share)
    deadline = Deadline(args.minutes)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    if args.bring is not None:
        bring(args.bring, args.work)
    shop = _shop(args, device)
    shop.begin()
    finished = run_ablations(shop, Examiner(shop, _towers(args, shop.device)), variants, deadline, args.score_only)
    for path in write_table(shop, args.out or args.work / "table", command_line()):
        print(path)
    if args.export is not None:
        export(shop, args.export, args.export_mib * 2**20)
    return 0 if finished else UNFINISHED


def own_part(args: argparse.Namespace, environment: MutableMapping[str, str]) -> tuple[str | None, str]:
    """(share, torch device) of this process. Under a launcher it takes the share of its rank, and forgets that there
    are others, since each variant is trained by one process alone.
    """
    from ...play import choose_device

    device, count = choose_device(args.device), int(environment.get("WORLD_SIZE", "1"))
    if count < 2:
        return args.share, device
    if args.share is not None:
        raise ValueError("--share is given, and a launcher shares the variants out already; leave one of them away")
    share = f"{int(environment['RANK']) + 1}/{count}"
    device = f"cuda:{environment['LOCAL_RANK']}" if device == "cuda" else device
    for name in LAUNCHED:
        environment.pop(name, None)
    return share, device


def _shop(args: argparse.Namespace, device: str) -> Shop:
    from ...checkpoint import open_world
    from .budgets import BUDGETS
    from .shop import Shop

    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - begun:6.1f} s] {line}", file=sys.stderr, flush=True)

    world, budget = open_world(args.world), BUDGETS[args.budget]
    return Shop(args.work, world, budget, say, args.seed, device, args.workers, args.compile)


def _towers(args: argparse.Namespace, device: str) -> Towers | None:
    from ..similarity.towers import open_towers

    if args.towers == NO_TOWERS:
        return None
    return open_towers(args.towers, clip=args.clip, dreamsim=args.dreamsim, device=device)
