"""Trains variants with the Toybox's recipe and scores them, until all are done or the time runs out.

dataset/ games/                   drawn games, which all variants share
variants/NAME/seed-N/STAGE/       the build of one stage (`toybox_recipe.stages`); its world is the next stage's start
variants/NAME/seed-N/FAMILY.json  a variant's scores; every variant gets the same clips and games with the same noise

M clips, N state tokens, D state width.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...data.benchmark import BenchmarkGame, read_benchmark
from ...files import locked
from ...game.state import MotionTable
from ...model.decoder import UNCONDITIONAL_MOTION
from ...spec import PROFILES
from ...toybox.games import BENCHMARK, sample_game, true_game
from ...toybox.probes import FOLDER
from ...toybox.scenes import HEADS, NONE, labels_of
from ...train.parts import WorldParts, with_guidance
from ...train.sampling import generator
from ...train.stages import LORA
from ...train.training_data import TrainingData
from ...weights import World, open_world, save_world
from ...weights.storage import read_json, write_json
from ..estimates import psnr
from ..similarity import FACTS, ScoringModels
from ..toybox.context import Clips, EvalContext, Script, TrueShots, play_games
from ..toybox_recipe.calibrate import Response, decoder_response, played_states
from ..toybox_recipe.recipe import FULL as RECIPE
from ..toybox_recipe.recipe import Recipe
from ..toybox_recipe.stages import BuildDir, Deadline, Say, build, draw_games
from ..world.scores import compared_frames, rowwise_cosine
from .variants import FULL, NOTHING, PRETRAIN, READS_SHOTS, RECONSTRUCTION, VARIANTS, Variant

FIRST = 800_000  # first seed of the games that clips come from; the benchmark's seeds begin at 900,000
DISCARDED = 1000  # added to the seed for the encoder of pretraining
MOST_DB = 100.0  # used for equal clips, since JSON has no infinity
WAIT_S = 1.0  # between attempts to get a lock that another process holds
Column = list[float | None]


@dataclass(frozen=True)
class Budget:
    """What all variants of a table share. clips: held-out clips that are encoded and decoded. games, turns: played
    games of the frozen benchmark.
    """

    recipe: Recipe
    clips: int
    games: int
    turns: int

    def recipe_of(self, variant: Variant, seed: int) -> Recipe:
        """The recipe with a variant's overrides.

        As in the paper, whose decoder was CogVideoX: it begins without motion values, and warm-up trains the encoder
        and leaves the decoder alone.
        """
        rows = {stage: dict(row) for stage, row in self.recipe.changes.items()}
        rows[PRETRAIN] = {**rows["joint"], "motion_scope": False}
        rows["warmup"]["trainable"] = LORA["warmup"].trainable
        for stage in variant.skipped:
            rows["joint"]["steps"] += rows[stage]["steps"]
        changes = {stage: {**row, **variant.changes.get(stage, NOTHING), "seed": seed} for stage, row in rows.items()}
        return replace(self.recipe, changes=changes)


BUDGET = Budget(RECIPE, clips=400, games=50, turns=10)


@dataclass(frozen=True)
class Samples:
    """The scores of one variant for each shot. groups: the game of each shot.

    columns: by metric; 1 means right and 0 wrong, None that a shot has nothing to score, such as no prop's colour.
    """

    groups: tuple[str, ...]
    columns: Mapping[str, Column]


@dataclass(frozen=True)
class Ablations:
    """A work folder. world: the base, whose VAE, text and image encoder, tokenizer and probes all variants use."""

    folder: Path
    world: World
    budget: Budget
    models: ScoringModels
    say: Say
    device: str = "cpu"
    workers: int | None = None
    known: dict[str, TrainingData] = field(default_factory=dict)  # datasets with the features computed so far

    def begin(self) -> None:
        """Draw the datasets; ValueError if the folder was begun with another base world or other scoring models."""
        job = {"world": self.world.fingerprint, FACTS: self.models.facts}
        path = self.folder / "job.json"
        if path.is_file() and read_json(path) != job:
            raise ValueError(f"{self.folder} holds ablations of another world or other scoring models; change --work")
        write_json(path, job)
        with _only_one(self.folder):
            for name in ("dataset", "games"):
                draw_games(self.step(VARIANTS[FULL], 0, PRETRAIN), name)

    def step(self, variant: Variant, seed: int, stage: str) -> BuildDir:
        folder = self.seed_folder(variant, seed) / stage
        return BuildDir(folder, self.budget.recipe_of(variant, seed), self.device, self.say, self.folder)

    def seed_folder(self, variant: Variant, seed: int) -> Path:
        return self.folder / "variants" / variant.name / f"seed-{seed}"

    def run(self, variants: Sequence[Variant], seeds: Sequence[int], deadline: Deadline) -> bool:
        """Train and score variants, seed after seed; skips what this or another process has finished.

        Returns False if the time ran out.
        """
        for seed, variant in itertools.product(seeds, variants):
            for family in variant.families:
                scores, name = self.seed_folder(variant, seed) / f"{family}.json", f"{variant.name}, seed {seed}"
                if scores.is_file():
                    continue
                trained = self._train(variant, family, seed, deadline)
                if trained is None:
                    self.say(f"{name}: time is up; the same command continues here")
                    return False
                context = EvalContext(open_world(trained.world), self.device, self.workers)
                write_json(scores, asdict(Scorer(self, variant, context).score(family)))
                self.say(f"{name}: {family} scored")
        return True

    def _train(self, variant: Variant, family: str, seed: int, deadline: Deadline) -> BuildDir | None:
        """Train the stages that a variant still lacks for a family of scores; None if the time ran out."""
        before = None
        for owner, stage in variant.path(family):
            step = self.step(owner, seed, stage)
            with _only_one(step.folder):
                if not step.world.is_dir():
                    self._begin(step, owner, stage, seed, before)
                if not build(step, [stage], deadline, self.known):
                    return None
            before = step
        return before

    def _begin(self, step: BuildDir, variant: Variant, stage: str, seed: int, before: BuildDir | None) -> None:
        """Write the world that a stage starts from: the last stage's, or a new one with the base's frozen parts.

        The encoder of pretraining is discarded, so after it, all but the decoder is new as well.
        """
        base = self.world
        if before is None or before.folder.name == PRETRAIN:
            spec = with_guidance(base.spec)
            spec = replace(spec, encoder=replace(spec.encoder, variant=variant.encoder))
            at = seed + DISCARDED if before is None else seed
            parts = WorldParts.new(spec, base.tokenizer(), PROFILES["paper"], at)
            if before is None:
                parts.decoder.vae = base.load_decoder(dtype=torch.float32, parts=("vae",)).vae
            else:
                parts = replace(parts, decoder=WorldParts.load(open_world(before.world), ("decoder",)).decoder)
            towers = base.load_encoder(dtype=torch.float32, parts=("text_tower", "image_tower"))
            for name in ("text_tower", "image_tower", "tokenizer"):
                setattr(parts.encoder, name, getattr(towers, name))
        else:
            parts = WorldParts.load(open_world(before.world))
        if stage == "predict" and not variant.reads_shots:  # with zero weights, past representations have no effect
            for parameter in getattr(parts.engine, READS_SHOTS).parameters():
                torch.nn.init.zeros_(parameter)
        step.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=step.folder) as scratch:
            world = save_world(Path(scratch) / "world", parts.spec, motion_table=base.motion_table)
            parts.save(world, dtype=torch.float16)
            shutil.copytree(base.folder / FOLDER, world.folder / FOLDER)
            world.folder.rename(step.world)

    @cached_property
    def table(self) -> MotionTable:
        """The medians of the dataset's levels, and the base world's edges; not calibrated."""
        measured = self.step(VARIANTS[FULL], 0, PRETRAIN).measured_table()
        return replace(measured, edges=self.world.motion_table.edges)

    @cached_property
    def true(self) -> TrueShots:
        """Held-out clips, each from a different game, evenly over all turn numbers."""
        games = (sample_game(FIRST + number, split="heldout") for number in range(self.budget.clips))
        return self._base.draw([game.scenes[number % len(game.scenes)] for number, game in enumerate(games)])

    @cached_property
    def benchmark(self) -> tuple[BenchmarkGame, ...]:
        """The first games of the frozen benchmark, each up to the budget's number of turns."""
        games = read_benchmark(BENCHMARK)[: self.budget.games]
        return tuple(replace(game, turns=game.turns[: self.budget.turns]) for game in games)

    @cached_property
    def played_truth(self) -> TrueShots:
        """The true shots of all turns of the benchmark games."""
        games = ((true_game(game.name), len(game.turns)) for game in self.benchmark)
        return self._base.draw([scene for game, turns in games for scene in game.scenes[:turns]])

    @cached_property
    def training(self) -> TrueShots:
        """The first clips of training games, on whose states the motion of a variant's shots is calibrated."""
        recipe = self.budget.recipe
        return self._base.draw([game[0] for game in recipe.dataset_games.scenes().values()][: recipe.calibrated_on])

    @cached_property
    def _base(self) -> EvalContext:
        return EvalContext(self.world, self.device, self.workers)


@dataclass(frozen=True)
class Scorer:
    """Scores a trained variant. context: its world with the probes."""

    job: Ablations
    variant: Variant
    context: EvalContext

    def score(self, family: str) -> Samples:
        return self._rebuilt() if family == RECONSTRUCTION else self._played()

    def _rebuilt(self) -> Samples:
        """Score true clips, encoded and decoded again; the decoder gets their measured motion values, calibrated."""
        true, values = self.job.true, np.full(len(self.job.true.scenes), UNCONDITIONAL_MOTION)
        if self.variant.changes.get("joint", NOTHING).get("motion_scope", True):
            values = np.array(self._response(self.encoded(self.job.training)).to_measure(true.values))
        seeds = range(FIRST, FIRST + len(values))
        clips = self.context.shoot(self.encoded(true), values, seeds)
        return Samples(tuple(map(str, seeds)), self._shot_scores(clips, true.levels, true))

    def _played(self) -> Samples:
        """Score games that the engine plays; each shot is drawn with the calibrated value of the predicted level."""
        context, games, true = self.context, self.job.benchmark, self.job.played_truth
        known = played_states(self.job.training.scenes, self.job.table, context.engine, context.encoder)
        table = self._response(known).calibrated(self.job.table)
        scripts = [Script(tuple(turn.instruction for turn in game.turns)) for game in games]
        played = [turn.state for turns in play_games(context.engine, scripts, self.variant.window) for turn in turns]
        values = [table.value(state.motion) for state in played]
        clips = context.shoot([state.representation for state in played], values, range(FIRST, FIRST + len(played)))
        asked = [turn for game in games for turn in game.turns]
        columns = self._shot_scores(clips, [turn.level for turn in asked], true)
        columns["states_right"] = [
            float(state.change == turn.change) for state, turn in zip(played, asked, strict=True)
        ]
        columns["remembered"] = [
            right if scene.prop is not None and not scene.prop_told else None
            for right, scene in zip(columns["colour"], true.scenes, strict=True)
        ]
        return Samples(tuple(game.name for game in games for _ in game.turns), columns)

    def _response(self, known: Tensor) -> Response:
        return decoder_response(self.job.table, self.context.decoder, known, workers=self.context.workers)

    def encoded(self, shots: TrueShots) -> Tensor:
        """(M, N, D): the shots' representations, from each one's first frame or, as trained, a random one."""
        if self.variant.changes.get("joint", NOTHING).get("encoder_frame") == "random":
            count, frames = shots.clips.shape[:2]
            chosen = torch.randint(frames, (count,), generator=generator("cpu", "scored frame")).numpy()
            shots = replace(shots, clips=shots.clips[np.arange(count), chosen][:, None])
        return self.context.encode(shots)

    def _shot_scores(self, clips: Clips, asked: Sequence[int], true: TrueShots) -> dict[str, Column]:
        """The scores of both families: similarity to the true clip, motion level, and what the probes recognise."""
        measured = self.context.levels(self.context.measure(clips))
        columns: dict[str, Column] = {}
        for name, model in self.job.models.by_row.items():
            embedded = ([model.embed_images(compared_frames(one)) for one in row] for row in (clips, true.clips))
            columns[name] = [rowwise_cosine(*pair) for pair in zip(*embedded, strict=True)]
        seen, truth = self.context.recognise(clips), labels_of(true.scenes)
        for head, classes in HEADS.items():
            absent = classes.index(NONE) if NONE in classes else -1  # no partner or no colour
            pairs = zip(seen[head].tolist(), truth[head].tolist(), strict=True)
            columns[head] = [None if right == absent else float(found == right) for found, right in pairs]
        return {
            **columns,
            "acc_f": [float(one == other) for one, other in zip(asked, measured, strict=True)],
            "mae_f": [float(abs(one - other)) for one, other in zip(asked, measured, strict=True)],
            "psnr": [min(MOST_DB, psnr(*pair)) for pair in zip(clips, true.clips, strict=True)],
        }


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold a folder's lock while the block runs; waits while another process holds it."""
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(folder / "lock", "held"))
                break
            except ValueError:
                time.sleep(WAIT_S)
        yield
