"""The task `evaluate world`: the paper's table for a world, or for a baseline in its place."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoint.adapters import open_with_adapters
from ..data.flow import BACKENDS
from ..data.stats import counted
from ..evaluate.similarity.choose import KINDS
from ..spec import DTYPES, GUIDANCE_NAMES, PROFILES
from . import baseline_options
from .options import add_adapter_option, add_scoring_options
from .progress_line import overwrite

if TYPE_CHECKING:
    from ..checkpoint import World
    from ..evaluate.players import GamePlayer
    from ..evaluate.world.job import EvaluationJob
    from ..evaluate.world.records import GameRecord

CPU_GAMES = 4  # games that are played by default without a GPU


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate world`."""
    add = parser.add_argument
    add("--world", default="toybox", help="toybox, or a world's folder (default %(default)s)")
    add_adapter_option(parser)
    add("--games", type=Path, metavar="FILE", help="benchmark file (default: the Toybox's frozen 50 games)")
    add("--limit", type=int, metavar="N", help=f"play the first N games (default: all; without a GPU {CPU_GAMES})")
    add("--out", type=Path, required=True, metavar="DIR", help="folder of this run; the same command continues in it")
    add("--beside", type=Path, nargs="+", default=[], metavar="DIR", help="finished runs to add as columns")
    add(
        "--true-shots", action="store_true", help="show the Toybox's true shots instead of the world's: the upper bound"
    )
    add("--window", type=int, help="past turns that the engine reads (default: as many as in its training)")
    add("--profile", choices=tuple(PROFILES), help="prompt format (default: the one the engine was trained with)")
    add("--steps", type=int, help="sampling steps (default: the world's)")
    add("--guidance", choices=GUIDANCE_NAMES, help="guidance schedule (default: the profile's)")
    add("--seed", type=int, default=0, help="noise seed for all games (default %(default)s)")
    add("--device", default="auto", help="auto, cpu, cuda or mps (default %(default)s)")
    add("--dtype", choices=("auto", *DTYPES), default="auto", help="number format (default %(default)s)")
    add = parser.add_argument_group("scoring").add_argument
    add("--characters", type=Path, metavar="DIR", help="reference pictures: NAME.png or NAME/ for each main character")
    add_scoring_options(add, KINDS, "scoring models: the Toybox's, or published")
    add("--motion-edges", metavar="A,B,C,D", help="boundaries between motion levels, for a world without measured ones")
    add("--flow", choices=BACKENDS, help="backend that measures motion (default: the one used for the world's dataset)")
    add("--flow-weights", type=Path, metavar="FILE", help="raft, memflow: file of weights")
    add("--flow-python", type=Path, metavar="FILE", help="memflow: python of an environment with ptlflow")
    add(
        "--flow-device",
        default="auto",
        help="raft, memflow: auto (where shots are drawn), cpu or cuda (default %(default)s)",
    )
    add("--threshold", type=float, help="px per frame below which a pixel counts as still (default: the world's)")
    baseline_options.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Play, score, print and save; under `accelerate launch` only the main process prints."""
    from ..train.distributed import processes

    state = processes()
    parts = state.num_processes
    job = _job(args, str(state.device) if parts > 1 and args.device == "auto" else args.device)
    if args.limit is None and len(job.played) < len(job.games) and state.is_main_process:
        print(f"no GPU: playing the first {len(job.played)} of {len(job.games)} games; --limit N changes that")
    return carry_out(job, args.beside, state.process_index, parts)


def carry_out(job: EvaluationJob, beside: Sequence[Path] = (), part: int = 0, parts: int = 1) -> int:
    """Play this process's part of a job; part 0 waits for the others, prints the table and saves it.

    Returns the exit status. After an interrupt finished games stay, and the same command continues.
    """
    from ..evaluate.report import command_line
    from ..evaluate.world.job import open_job, save_table
    from ..evaluate.world.runner import silent, wait_for_games

    main = part == 0
    show = overwrite if main and sys.stderr.isatty() else silent
    with open_job(job, main) as opened:
        if main:
            opened.check_beside(beside)
            print(f"{job.player.name}: {counted(len(job.played), 'game')}, into {job.out}", flush=True)
            for remark in opened.remarks():
                print(f"({remark})", flush=True)

        def on_game(game: GameRecord) -> None:
            show("")
            print(_game_line(game), flush=True)

        try:
            opened.play(lambda game, done, of: show(f"  {game} turn {done} of {of}"), on_game, part, parts)
            for done in wait_for_games(job.out, job.played) if main else ():
                show(f"  {done} of {len(job.played)} games")
        except KeyboardInterrupt:
            if main:
                print("\nStopped. Finished games are kept, and the same command continues.", file=sys.stderr)
            return 130
        if main:
            table = opened.report(beside, {"command": command_line()})
            paths = save_table(table)  # before printing, which a broken pipe may end
            print("", table.text, "", *paths, sep="\n")
        return 0


def _job(args: argparse.Namespace, device: str) -> EvaluationJob:
    """What the arguments ask for; ValueError for a missing file or options that do not fit together."""
    from ..evaluate.similarity.choose import open_scoring_models
    from ..evaluate.world.job import EvaluationJob, read_games
    from ..evaluate.world.motion import edges_of, flow_of
    from ..runtime.device import choose_device

    if not 0 <= args.seed < 1 << 64:
        raise ValueError(f"--seed is {args.seed}; seeds run from 0 to 2**64 - 1")
    baseline_options.check_unused(args)
    device = choose_device(device)
    world = open_with_adapters(args.world, args.stage_file, playing=True, profile=args.profile)
    games = read_games(args.games)
    for line in world.warnings:
        print(f"warning: {line}", file=sys.stderr)
    flow_device = device if args.flow_device == "auto" else choose_device(args.flow_device)
    given = {"weights": args.flow_weights, "python": args.flow_python, "device": flow_device}
    return EvaluationJob(
        world=world,
        player=_player(args, world, device),
        models=open_scoring_models(args.towers, clip=args.clip, dreamsim=args.dreamsim, device=device),
        games=games,
        out=args.out,
        limit=CPU_GAMES if args.limit is None and device == "cpu" else args.limit,
        seed=args.seed,
        characters=args.characters,
        flow=flow_of(world, args.flow, args.threshold, **given),
        edges=None if args.motion_edges is None else edges_of(args.motion_edges),
        device=device,
    )


def _player(args: argparse.Namespace, world: World, device: str) -> GamePlayer:
    import torch

    if args.true_shots and args.baseline is not None:
        raise ValueError(f"--true-shots and --baseline {args.baseline} both replace the world; give only one of them")
    if args.true_shots:
        from ..evaluate.world.player import TruePlayer

        return TruePlayer()
    if args.baseline is not None:
        from ..research.baselines import open_baseline

        return open_baseline(args.baseline, baseline_options.settings_of(args, device))
    from ..evaluate.world.player import WorldPlayer
    from ..story.player import PlaySettings

    dtype = None if args.dtype == "auto" else getattr(torch, args.dtype)
    settings = PlaySettings(args.window, steps=args.steps, guidance=args.guidance, device=device, dtype=dtype)
    return WorldPlayer(world, settings)


def _game_line(game: GameRecord) -> str:
    """A finished game with some of its metrics."""
    from ..evaluate.world.metrics import BY_KEY, estimate_of
    from ..evaluate.world.report import number

    metrics = [BY_KEY[key] for key in ("clip_i", "acc_f", "state", "seconds")]
    found = [(metric, estimate_of(metric, [game])) for metric in metrics]
    shown = [f"{metric.name} {number(estimate.value, metric.unit)}" for metric, estimate in found if estimate.count]
    return f"{game.name}  {counted(len(game.turns), 'turn')}  {'  '.join(shown)}"
