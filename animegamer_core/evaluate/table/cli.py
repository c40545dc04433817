"""The task `evaluate world`: the paper's table for a world, or for a baseline in its place."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...data.flow import BACKENDS
from ...data.stats import counted
from ...spec import DTYPES, GUIDANCE_NAMES, PROFILES
from ...train.staged import add_stage_files, open_staged
from ..baselines import add_arguments as add_baseline_arguments
from ..baselines import check_unused
from ..similarity.towers import DREAMSIM_HELP, KINDS

if TYPE_CHECKING:
    from ...checkpoint import World
    from ..players import GamePlayer
    from .job import OpenJob, TableJob
    from .records import GameRecord

CPU_GAMES = 4  # that are played where there is no GPU and nothing was asked for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate world`."""
    add = parser.add_argument
    add("--world", default="toybox", help="toybox, or a world's folder (default %(default)s)")
    add_stage_files(parser)
    add("--games", type=Path, metavar="FILE", help="benchmark file (default: the Toybox's frozen 50 games)")
    add("--limit", type=int, metavar="N", help=f"play the first N games (default: all; without a GPU {CPU_GAMES})")
    add("--out", type=Path, required=True, metavar="DIR", help="folder of this run; the same command goes on with it")
    add("--beside", type=Path, nargs="+", default=[], metavar="DIR", help="finished runs whose columns are added")
    add("--true-shots", action="store_true", help="the Toybox's true shots in the world's place: what is to be reached")
    add("--window", type=int, help="past turns that the engine reads (default: as many as it was trained with)")
    add("--profile", choices=tuple(PROFILES), help="how turns are read (default: as the engine was trained to be read)")
    add("--steps", type=int, help="sampling steps (default: the world's)")
    add("--guidance", choices=GUIDANCE_NAMES, help="guidance schedule (default: the profile's)")
    add("--seed", type=int, default=0, help="decides every game's noise (default %(default)s)")
    add("--device", default="auto", help="auto, cpu, cuda or mps (default %(default)s)")
    add("--dtype", choices=("auto", *DTYPES), default="auto", help="number format (default %(default)s)")
    _add_scoring(parser)
    add_baseline_arguments(parser)


def _add_scoring(parser: argparse.ArgumentParser) -> None:
    """What shots are compared with, and by what."""
    add = parser.add_argument_group("scoring").add_argument
    add("--characters", type=Path, metavar="DIR", help="pictures: NAME.png or NAME/ for each main character")
    add("--towers", choices=KINDS, default="toybox", help="the Toybox's own, or published ones (default %(default)s)")
    add("--clip", type=Path, metavar="DIR", help="published: folder of a CLIP model")
    add("--dreamsim", type=Path, metavar="DIR", help=f"published: {DREAMSIM_HELP}")
    add("--motion-edges", metavar="A,B,C,D", help="borders between motion levels, for worlds that never measured them")
    add("--flow", choices=BACKENDS, help="what measures motion (default: what measured the world's own)")
    add("--flow-weights", type=Path, metavar="FILE", help="raft, memflow: file of weights")
    add("--flow-python", type=Path, metavar="FILE", help="memflow: python of an environment that has ptlflow")
    add(
        "--flow-device",
        default="auto",
        help="raft, memflow: auto (where shots are drawn), cpu or cuda (default %(default)s)",
    )
    add("--threshold", type=float, help="px a frame under which a pixel is still (default: the world's)")


def run(args: argparse.Namespace) -> int:
    """Play, score, print and save as asked; of the processes of `accelerate launch`, the main one alone speaks."""
    from ...train.spread import processes

    state = processes()
    parts = state.num_processes
    job = _job(args, str(state.device) if parts > 1 and args.device == "auto" else args.device)
    if args.limit is None and len(job.played) < len(job.games) and state.is_main_process:
        print(f"no GPU here: the first {len(job.played)} of {len(job.games)} games; --limit N plays others")
    return carry_out(job, args.beside, state.process_index, parts)


def carry_out(job: TableJob, beside: Sequence[Path] = (), part: int = 0, parts: int = 1) -> int:
    """Play this process's part of a job; part 0 waits for the others', prints the table and saves it.

    Returns the exit status. Interrupted, finished games stay and the same command goes on.
    """
    from .job import Listeners, open_job

    main = part == 0
    said = _Said(main and sys.stderr.isatty(), len(job.played))
    with open_job(job, main) as opened:
        if main:
            opened.check_beside(beside)
            print(f"{job.player.name}: {counted(len(job.played), 'game')}, into {job.out}", flush=True)
            for remark in opened.remarks():
                print(f"({remark})", flush=True)
        try:
            opened.play(Listeners(said.turn, said.game), part, parts)
            for done in opened.awaited() if main else ():
                said.waiting(done)
        except KeyboardInterrupt:
            if main:
                print("\nStopped; finished games are kept, and the same command goes on.", file=sys.stderr)
            return 130
        return _end(opened, beside) if main else 0


def _job(args: argparse.Namespace, device: str) -> TableJob:
    """What the arguments ask for; ValueError for what is not there or does not fit."""
    from ...play import choose_device
    from ..similarity.towers import open_towers
    from .job import TableJob, games_of
    from .motion import flow_of

    if not 0 <= args.seed < 1 << 64:
        raise ValueError(f"--seed is {args.seed}; seeds run from 0 to 2**64 - 1")
    check_unused(args)
    device = choose_device(device)
    world = open_staged(args.world, args.stage_file, playing=True, profile=args.profile)
    games = games_of(args.games)
    for line in world.warnings:
        print(f"warning: {line}", file=sys.stderr)
    flow_device = device if args.flow_device == "auto" else choose_device(args.flow_device)
    given = {"weights": args.flow_weights, "python": args.flow_python, "device": flow_device}
    edges = None if args.motion_edges is None else _edges(args.motion_edges)
    return TableJob(
        world=world,
        player=_player(args, world, device),
        towers=open_towers(args.towers, clip=args.clip, dreamsim=args.dreamsim, device=device),
        games=games,
        out=args.out,
        limit=CPU_GAMES if args.limit is None and device == "cpu" else args.limit,
        seed=args.seed,
        characters=args.characters,
        flow=flow_of(world, args.flow, args.threshold, **given),
        edges=edges,
        device=device,
    )


def _player(args: argparse.Namespace, world: World, device: str) -> GamePlayer:
    import torch

    if args.true_shots and args.baseline is not None:
        raise ValueError(
            f"--true-shots and --baseline {args.baseline} both play in the world's place; give one of them"
        )
    if args.true_shots:
        from .player import TruePlayer

        return TruePlayer()
    if args.baseline is not None:
        from ..baselines import open_baseline, settings_of

        return open_baseline(args.baseline, settings_of(argparse.Namespace(**{**vars(args), "device": device})))
    from ...play import PlaySettings
    from .player import WorldPlayer

    dtype = None if args.dtype == "auto" else getattr(torch, args.dtype)
    settings = PlaySettings(args.window, steps=args.steps, guidance=args.guidance, device=device, dtype=dtype)
    return WorldPlayer(world, settings)


def _edges(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"--motion-edges is {text!r}; expected four rising numbers, as 1.2,2.3,4.7,10") from error


def _end(opened: OpenJob, beside: Sequence[Path]) -> int:
    """Print the table, save everything."""
    from ..report import command_line
    from .job import save_table

    table = opened.report(beside, {"command": command_line()})
    paths = save_table(table)  # first, whoever reads on or not
    print("", table.text, "", *paths, sep="\n")
    return 0


class _Said:
    """A line for each finished game; where somebody watches, one that is overwritten at each turn."""

    def __init__(self, watched: bool, games: int) -> None:
        self.watched = watched
        self.games = games

    def turn(self, name: str, done: int, of: int) -> None:
        """A turn is played and scored."""
        if self.watched:
            print(f"\r\x1b[K  {name} turn {done} of {of}", end="", file=sys.stderr, flush=True)

    def game(self, game: GameRecord) -> None:
        """A game is finished."""
        from .metrics import BY_KEY, figure_of
        from .report import number

        found = {key: figure_of(BY_KEY[key], [game]) for key in ("clip_i", "acc_f", "state", "seconds")}
        shown = [
            f"{BY_KEY[key].name} {number(figure.value, BY_KEY[key].unit)}"
            for key, figure in found.items()
            if figure.count
        ]
        end = "\r\x1b[K" if self.watched else ""
        print(f"{end}{game.name}  {counted(len(game.turns), 'turn')}  {'  '.join(shown)}", flush=True)

    def waiting(self, done: int) -> None:
        """Other processes still play."""
        if self.watched:
            print(f"\r\x1b[K  {done} of {self.games} games", end="", file=sys.stderr, flush=True)
