"""The task `evaluate ablations`: train variants of the recipe in the Toybox, and score them next to the paper's.

One command does everything; with --minutes it stops, and the same command continues. For several GPUs use --share 1/2
and 2/2, or `accelerate launch`, where each process takes its share and its own GPU. Several processes may also use one
GPU: run the command several times with the same --work and different --variants or --seeds. Each variant and seed has
its own lock, and the process that finishes last writes the whole table.
"""
# ruff: noqa: T201

from __future__ import annotations

import os
import sys
import time
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..evaluate.similarity.choose import KINDS
from ..research.ablations.variants import BUDGET_NAMES, VARIANTS, chosen
from .options import Device, Flag, one_of

if TYPE_CHECKING:
    from ..research.ablations.run_dir import RunDir

NO_MODELS = "none"
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")  # set by a launcher
UNFINISHED = 3  # exit status


@dataclass(frozen=True, kw_only=True)
class Options:
    work: Path
    """Work folder; the same command continues in it."""
    variants: tuple[Annotated[str, one_of(VARIANTS)], ...] | None = None
    """Unset: all."""
    share: str | None = None
    """I/N: only every N-th variant, starting with the I-th."""
    budget: Annotated[str, one_of(BUDGET_NAMES)] = "short"
    """full: the recipe's steps; short: a quarter, for one session; quick: a miniature."""
    minutes: float | None = None
    """Stop after this many minutes; the same command continues."""
    score_only: Flag = False
    """Do not train: score what is trained, and write the table."""
    seed: int = 0
    """Decides weights, order and noise of training."""
    seeds: tuple[int, ...] | None = None
    """Several seeds instead of --seed; claims are decided from 3 on."""
    device: Device = "auto"
    compile: Flag = False
    """Compile the decoders for training: slow start, faster steps."""
    workers: int | None = None
    """Processes that draw and measure; unset: one for each core."""
    world: str = "toybox"
    """World to take the VAE, text encoder, image encoder and probes from."""
    towers: Annotated[str, one_of((*KINDS, NO_MODELS))] = "toybox"
    """Scoring models for CLIP-I and DreamSim."""
    clip: Path | None = None
    """Published scoring models: folder of a CLIP model."""
    dreamsim: Path | None = None
    """Published scoring models: folder of DreamSim's weights; it contains DINO code that is executed, so download it
    yourself."""
    out: Path | None = None
    """Folder for the table; unset: table in --work."""


def run(args: Options) -> int:
    """Train, score and write the table; 3 if the time ran out before all variants were scored."""
    share, device = own_part(args, os.environ)
    import torch

    from ..evaluate.report import command_line
    from ..evaluate.similarity.choose import open_scoring_models
    from ..research.ablations.run import run_ablations
    from ..research.ablations.run_dir import Deadline
    from ..research.ablations.scores import VariantScorer
    from ..research.ablations.table import write_table

    variants, seeds = chosen(args.variants, share), _checked_seeds(args.seeds or [args.seed])
    deadline = Deadline(args.minutes)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    run_dir = _open_run_dir(args, device)
    run_dir.begin()
    models = None
    if args.towers != NO_MODELS:
        models = open_scoring_models(args.towers, clip=args.clip, dreamsim=args.dreamsim, device=run_dir.device)
    scorer = VariantScorer(run_dir, models)
    finished = run_ablations(scorer, variants, seeds, deadline, args.score_only)
    for path in write_table(run_dir, args.out or args.work / "table", command_line()):
        print(path)
    return 0 if finished else UNFINISHED


def own_part(args: Options, environment: MutableMapping[str, str]) -> tuple[str | None, str]:
    """(--share, torch device) of this process. Under a launcher the share is the process's rank.

    The launcher's variables are then removed, since one process alone trains a variant.
    """
    from ..runtime.device import choose_device

    device, count = choose_device(args.device), int(environment.get("WORLD_SIZE", "1"))
    if count < 2:
        return args.share, device
    if args.share is not None:
        raise ValueError(
            "--share cannot be used with a launcher, which distributes the variants itself; use only one of them"
        )
    share = f"{int(environment['RANK']) + 1}/{count}"
    device = f"cuda:{environment['LOCAL_RANK']}" if device == "cuda" else device
    for name in LAUNCHED:
        environment.pop(name, None)
    return share, device


def _checked_seeds(seeds: Sequence[int]) -> list[int]:
    """The seeds, each once; ValueError for a negative one."""
    for seed in seeds:
        if seed < 0:
            raise ValueError(f"--seeds has {seed}; give numbers of 0 or more")
    return list(dict.fromkeys(seeds))


def _open_run_dir(args: Options, device: str) -> RunDir:
    from ..checkpoint import open_world
    from ..research.ablations.budgets import BUDGETS
    from ..research.ablations.run_dir import RunDir

    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - begun:6.1f} s] {line}", file=sys.stderr, flush=True)

    world, budget = open_world(args.world), BUDGETS[args.budget]
    return RunDir(args.work, world, budget, say, device, args.workers, args.compile)
