"""The task `evaluate world`: the paper's table for a world, or for a baseline in its place."""
# ruff: noqa: T201

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..checkpoint.adapters import open_with_adapters
from ..data.flow import BACKENDS
from ..data.stats import counted
from ..evaluate.similarity.choose import KINDS
from . import baseline_options
from .baseline_options import BaselineOptions
from .options import Adapters, Device, Dtype, Flag, Guidance, Profile, one_of
from .options import World as OptionWorld
from .progress_line import overwrite

if TYPE_CHECKING:
    from ..checkpoint import World
    from ..evaluate.players import GamePlayer
    from ..evaluate.world.job import EvaluationJob
    from ..evaluate.world.records import GameRecord

CPU_GAMES = 4  # games that are played by default without a GPU


@dataclass(frozen=True, kw_only=True)
class Options(BaselineOptions):
    world: OptionWorld = "toybox"
    lora: Adapters = ()
    games: Path | None = None
    """Benchmark file; unset: the Toybox's frozen 50 games."""
    limit: int | None = None
    """Play the first N games; unset: all; without a GPU 4."""
    out: Path
    """Folder of this run; the same command continues in it."""
    beside: tuple[Path, ...] = ()
    """Finished runs to add as columns."""
    true_shots: Flag = False
    """Show the Toybox's true shots instead of the world's: the upper bound."""
    window: int | None = None
    """Past turns that the engine reads; unset: as many as in its training."""
    profile: Profile | None = None
    """Prompt format; unset: the one the engine was trained with."""
    steps: int | None = None
    """Sampling steps; unset: the world's."""
    guidance: Guidance | None = None
    """Guidance schedule; unset: the profile's."""
    seed: int = 0
    """Noise seed for all games."""
    device: Device = "auto"
    dtype: Dtype = "auto"
    """Number format."""
    characters: Path | None = None
    """Reference pictures: NAME.png or NAME/ for each main character."""
    towers: Annotated[str, one_of(KINDS)] = "toybox"
    """Scoring models: the Toybox's, or published."""
    clip: Path | None = None
    """Published scoring models: folder of a CLIP model."""
    dreamsim: Path | None = None
    """Published scoring models: folder of DreamSim's weights; it contains DINO code that is executed, so download it
    yourself."""
    motion_edges: str | None = None
    """A,B,C,D: boundaries between motion levels, for a world without measured ones."""
    flow: Annotated[str, one_of(BACKENDS)] | None = None
    """Backend that measures motion; unset: the one used for the world's dataset."""
    flow_weights: Path | None = None
    """raft, memflow: file of weights."""
    flow_python: Path | None = None
    """memflow: python of an environment with ptlflow."""
    flow_device: Device = "auto"
    """raft, memflow: auto (where shots are drawn), cpu or cuda."""
    threshold: float | None = None
    """px per frame below which a pixel counts as still; unset: the world's."""


def run(args: Options) -> int:
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


def _job(args: Options, device: str) -> EvaluationJob:
    """What the arguments ask for; ValueError for a missing file or options that do not fit together."""
    from ..evaluate.similarity.choose import open_scoring_models
    from ..evaluate.world.job import EvaluationJob, read_games
    from ..evaluate.world.motion import edges_of, flow_of
    from ..runtime.device import choose_device

    if not 0 <= args.seed < 1 << 64:
        raise ValueError(f"--seed is {args.seed}; seeds run from 0 to 2**64 - 1")
    baseline_options.check_unused(args)
    device = choose_device(device)
    world = open_with_adapters(args.world, args.lora, playing=True, profile=args.profile)
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


def _player(args: Options, world: World, device: str) -> GamePlayer:
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
