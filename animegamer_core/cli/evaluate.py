"""The verb `evaluate`: its tasks measure what a world can do."""
# ruff: noqa: T201

from __future__ import annotations

import time
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes

from ..data.motion import BACKENDS
from ..data.stats import counted
from ..evaluate.ablations.variants import VARIANTS, chosen
from ..evaluate.baselines import NAMES, BaselineSettings
from ..game.state import DEFAULT_WINDOW
from ..runtime.presets import PRESETS, preset_for_device
from ..spec import DTYPES
from ..weights.adapters import open_with_adapters
from .dataset import FLOW, Flow
from .judge import Judge, Raters, Write
from .options import Device, Drawing, Dtype, Flag, Preset, Profile, note, one_of, overwrite, typed, unprefixed

if typing.TYPE_CHECKING:
    from ..evaluate.players import GamePlayer
    from ..evaluate.report import Report
    from ..evaluate.similarity import ScoringModels
    from ..evaluate.world.records import GameRecord
    from ..evaluate.world.runner import EvaluationJob

CPU_GAMES = 4  # games that are played by default without a GPU
ROWS = (
    *("probes", "vae", "shots", "motion", "override", "games", "colour", "memory"),
    *("likeness", "new", "switch", "takes", "two-sample", "references", "conflict"),
)
UNFINISHED = 3  # exit status
BASELINE = "baseline_"
_OF_THE_RUN = ("device", "dtype", "steps")  # settings of a baseline that are options of the whole run
BaselineOptions = OmitArgPrefixes[
    typed(BaselineSettings, [name for name in BaselineSettings.__annotations__ if name not in _OF_THE_RUN], BASELINE)
]


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The options of the scoring models."""

    clip: Path | None = None
    """Folder of a published CLIP model, for CLIP-I and CLIP-T; unset: without them."""
    dreamsim: Path | None = None
    """Folder of DreamSim's published weights, for DreamSim; unset: without it. It contains DINO code that is executed,
    so download it yourself."""

    def models(self, device: str) -> ScoringModels:
        from ..evaluate.similarity import open_scoring_models

        return open_scoring_models(clip=self.clip, dreamsim=self.dreamsim, device=device)


@dataclass(frozen=True, kw_only=True)
class World(Drawing, Scoring):
    """The paper's table for any world or baseline; the default of `evaluate`."""

    games: Path | None = None
    """Benchmark file; unset: the Toybox's frozen 50 games."""
    limit: int | None = None
    """Play the first N games; unset: all; without a GPU 4."""
    out: Path
    """Folder of this run; the same command continues in it."""
    true_shots: Flag = False
    """Show the Toybox's true shots instead of the world's: the upper bound."""
    window: int | None = None
    """Past turns that the engine reads; unset: as many as in its training."""
    profile: Profile | None = None
    """Prompt format; unset: the one the engine was trained with."""
    dtype: Dtype = "auto"
    """Number format."""
    characters: Path | None = None
    """Reference pictures: NAME.png or NAME/ for each main character."""
    motion_edges: tuple[float, float, float, float] | None = None
    """The four boundaries between motion levels, for a world without measured ones."""
    flow: Annotated[str, one_of(BACKENDS)] | None = None
    """Backend that measures motion; unset: the one used for the world's dataset."""
    flow_model: Flow = field(default_factory=dict)
    baseline: Annotated[str, one_of(NAMES)] | None = None
    """Play a baseline instead of the world: text to video, FLUX to video, StoryDiffusion to video."""
    baseline_options: BaselineOptions = field(default_factory=dict)

    def run(self) -> int:
        """Play, score, print and save."""
        job = self.job()
        if self.limit is None and len(job.played) < len(job.games):
            print(f"no GPU: playing the first {len(job.played)} of {len(job.games)} games; --limit N changes that")
        return carry_out(job)

    def job(self) -> EvaluationJob:
        """What the options ask for; ValueError for a missing file or options that do not fit together."""
        from ..evaluate.world.runner import EvaluationJob, read_games
        from ..evaluate.world.scores import flow_of
        from ..runtime.device import choose_device

        if self.baseline is None and self.baseline_options:
            option = next(iter(self.baseline_options)).replace("_", "-")
            raise ValueError(f"--{option} needs a baseline; drop it, or add --baseline {' or '.join(NAMES)}")
        device = choose_device(self.device)
        world = open_with_adapters(self.world, self.lora, playing=True, profile=self.profile)
        for line in world.warnings:
            note(f"warning: {line}")
        flow = unprefixed(self.flow_model, FLOW)
        flow["device"] = choose_device(flow.get("device", device))
        return EvaluationJob(
            world=world,
            player=self._player(world, device),
            models=self.models(device),
            games=read_games(self.games),
            out=self.out,
            limit=CPU_GAMES if self.limit is None and device == "cpu" else self.limit,
            seed=self.seed,
            characters=self.characters,
            flow=flow_of(world, self.flow, **flow),
            edges=self.motion_edges,
        )

    def _player(self, world: typing.Any, device: str) -> GamePlayer:
        import torch

        from ..evaluate.baselines import open_baseline
        from ..evaluate.players import TruePlayer, WorldPlayer
        from ..story.player import PlaySettings

        if self.true_shots:
            return TruePlayer()
        if self.baseline is not None:
            steps = self.sampling.steps
            if isinstance(steps, tuple):
                raise ValueError("a baseline takes a number of steps, no timesteps; give --steps 50")
            given = unprefixed(self.baseline_options, BASELINE)
            how = BaselineSettings(**given, device=device, dtype=self.dtype, steps=steps)
            return open_baseline(self.baseline, how)
        dtype = None if self.dtype == "auto" else getattr(torch, self.dtype)
        settings = PlaySettings(self.window, **self.sampling.stated(), device=device, dtype=dtype)
        return WorldPlayer(world, settings)


def carry_out(job: EvaluationJob) -> int:
    """Play a job, save its table and print it."""
    from ..evaluate.report import command_line
    from ..evaluate.world.runner import open_job

    def on_game(game: GameRecord) -> None:
        overwrite("")
        print(f"{game.name}  {counted(len(game.turns), 'turn')}", flush=True)

    with open_job(job):
        print(f"{job.player.name}: {counted(len(job.played), 'game')}, into {job.out}", flush=True)
        for remark in job.remarks():
            print(f"({remark})", flush=True)
        job.play(lambda game, done, of: overwrite(f"  {game} turn {done} of {of}"), on_game)
        table = job.report({"command": command_line()})
        paths = table.save(job.out)  # before printing, which a broken pipe may end
        print("", table.text, "", *paths, sep="\n")
        return 0


@dataclass(frozen=True, kw_only=True)
class Toybox(Drawing):
    """The acceptance table for a Toybox world, where the true scenes are known."""

    rows: tuple[Annotated[str, one_of(ROWS)], ...] | None = None
    """Rows of the table; unset: all."""
    preset: Preset | None = None
    """Preset for drawing shots; also compared with preset exact."""
    dtype: Annotated[str, one_of(DTYPES)] = "float32"
    """Of the decoder."""
    out: Path = Path("out/evaluate")
    """Folder for the report."""
    full: Flag = False
    """Use all samples; always on with a GPU, takes hours on a CPU."""
    limit: int | None = None
    """Number of games; all other sample sizes scale with it."""
    workers: int | None = None
    """Processes that draw and measure; unset: one for each core."""

    def run(self) -> int:
        """Measure, print and save row by row; 1 if a value misses its target or a row could not be measured."""
        import torch

        from ..evaluate.report import TABLE_HEAD, command_line, table_line
        from ..evaluate.toybox.context import EvalContext
        from ..evaluate.toybox.rows import accept
        from ..evaluate.toybox.run import FULL, QUICK, EvalRun
        from ..runtime.device import choose_device

        device = choose_device(self.device)
        if self.seed < 0:
            raise ValueError(f"--seed is {self.seed}; expected 0 or more, because training uses the negative ones")
        plan = FULL if self.full or device.startswith("cuda") else QUICK
        plan = plan if self.limit is None else plan.limited(self.limit)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        preset = preset_for_device(PRESETS[self.preset], device, print, self.dtype) if self.preset else None
        world = open_with_adapters(self.world, self.lora)
        for line in world.warnings_for(DEFAULT_WINDOW):  # its rows are defined for this window
            note(f"warning: {line}")
        how = self.sampling, preset, self.dtype
        context = EvalContext(world, device, self.workers, _show_progress, *how)
        if plan.games < FULL.games:
            print(f"{counted(plan.games, 'game')}, few samples: `unsure` values may reach their targets (--full)")
        print(TABLE_HEAD)
        begun = time.perf_counter()

        def save(report: Report) -> None:
            row = report.outcomes[-1]
            lines = [table_line(line, report.few) for line in row.lines]
            print(*lines, *(f"          ({remark})" for remark in row.notes), sep="\n", flush=True)
            report.save(self.out)

        try:
            report = accept(EvalRun(context, plan, self.seed), self.rows, save, {"command": command_line()})
        except KeyboardInterrupt:
            note(f"\nStopped; {self.out} has the rows that were measured.")
            return 130
        print(*report.save(self.out), sep="\n")
        failed = f"not measured: {', '.join(report.failed)}; " if report.failed else ""
        summary = "a value misses its target" if report.short else "every value reaches its target"
        print(f"{summary}; {failed}{time.perf_counter() - begun:.0f} s")
        return int(report.short or bool(report.failed))


def _show_progress(what: str, done: int, count: int) -> None:
    overwrite(f"  {what} {done} of {count}" if done < count else "")


@dataclass(frozen=True, kw_only=True)
class Ablations(Scoring):
    """Train and score the paper's ablations in the Toybox.

    For several GPUs, run it several times with the same --work and different --variants or --seeds. The process that
    finishes last writes the whole table.
    """

    work: Path
    """Work folder; the same command continues in it."""
    variants: tuple[Annotated[str, one_of(VARIANTS)], ...] | None = None
    """Unset: all."""
    minutes: float | None = None
    """Stop after this many minutes; the same command continues."""
    seeds: tuple[int, ...] = (0,)
    """Decide weights, order and noise of training."""
    device: Device = "auto"
    workers: int | None = None
    """Processes that draw and measure; unset: one for each core."""
    world: str = "toybox"
    """World to take the VAE, text encoder, image encoder and probes from."""
    out: Path | None = None
    """Folder for the table; unset: --work."""

    def run(self) -> int:
        """Train, score and write the table; 3 if the time ran out before all variants were scored."""
        import torch

        from ..evaluate.ablations import run, table
        from ..evaluate.report import command_line
        from ..evaluate.toybox_recipe.stages import Deadline
        from ..runtime.device import choose_device
        from ..weights import open_world

        variants, deadline, begun = chosen(self.variants), Deadline(self.minutes), time.monotonic()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        device = choose_device(self.device)

        def say(line: str) -> None:
            note(f"[{time.monotonic() - begun:6.1f} s] {line}")

        models, world = self.models(device), open_world(self.world)
        job = run.Ablations(self.work, world, run.BUDGET, models, say, device, self.workers)
        job.begin()
        finished = job.run(variants, tuple(dict.fromkeys(self.seeds)), deadline)
        print(table.write_table(job, self.out or self.work, command_line()))
        return 0 if finished else UNFINISHED


Options = World | Toybox | Ablations | Write | Judge | Raters
