"""Scores a variant on held-out clips that are encoded and decoded again, or on games of the frozen benchmark.

Every variant gets the same clips and games with the same noise, so that variants can be compared sample by sample.
M clips, N state tokens, D state width, F frames, H height, W width.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...checkpoint import World, save_world
from ...checkpoint.storage import read_json, write_json
from ...data.benchmark import BenchmarkGame, BenchmarkTurn, read_benchmark
from ...evaluate.estimates import psnr
from ...evaluate.similarity.models import ScoringModels
from ...evaluate.toybox.batched_play import Script, play_games
from ...evaluate.toybox.context import Clips, EvalContext, TrueShots
from ...evaluate.world.scores import compared_frames, rowwise_cosine, scored_text
from ...files import replacing
from ...model.decoder import UNCONDITIONAL_MOTION
from ...state import GameState, MotionTable
from ...toybox.benchmark import BENCHMARK, true_game
from ...toybox.games import sample_game
from ...toybox.probes import FOLDER
from ...toybox.scenes import HEADS, NONE, Labels, labels_of
from ...train.sampling import generator
from ..toybox_recipe.calibrate import decoder_response, played_states
from .run_dir import RunDir
from .seed_runs import Done, SeedRuns
from .variants import GAMES, RECONSTRUCTION, Variant

FIRST = 800_000  # first seed of the games that clips come from; the benchmark's seeds begin at 900,000
MOST_DB = 100.0  # used for equal clips, since JSON has no infinity
Column = list[float | None]


@dataclass(frozen=True)
class Samples:
    """The scores of one variant for each shot. groups: the game of each shot.

    columns: by metric; 1 means right and 0 wrong, None that a shot has nothing to score, such as no prop's colour.
    """

    groups: tuple[str, ...]
    columns: Mapping[str, Column]
    facts: Mapping[str, Any]

    def save(self, path: Path) -> None:
        """Write the scores as JSON."""
        write_json(path, {"facts": self.facts, "groups": self.groups, "columns": self.columns})

    @classmethod
    def read(cls, path: Path) -> Samples:
        """Read the file that `save` wrote."""
        values = read_json(path)
        return cls(tuple(values["groups"]), values["columns"], values["facts"])


class VariantScorer:
    """Scores variants on clips and games that are drawn only once. models: None to score no similarities."""

    def __init__(self, run_dir: RunDir, models: ScoringModels | None) -> None:
        self.run_dir = run_dir
        self.models = models
        self._base = EvalContext(run_dir.world, run_dir.device, run_dir.workers)
        self._tables: dict[tuple[int, Done], MotionTable] = {}  # by seed and stages; all windows share one

    @cached_property
    def true(self) -> TrueShots:
        """Held-out clips, each from a different game, evenly over all turn numbers."""
        games = (sample_game(FIRST + number, split="heldout") for number in range(self.run_dir.budget.clips))
        return self._base.draw([game.scenes[number % len(game.scenes)] for number, game in enumerate(games)])

    @cached_property
    def benchmark(self) -> tuple[BenchmarkGame, ...]:
        """The first games of the frozen benchmark, each up to the budget's number of turns."""
        games, turns = read_benchmark(BENCHMARK)[: self.run_dir.budget.games], self.run_dir.budget.turns
        return tuple(replace(game, turns=game.turns[:turns]) for game in games)

    @cached_property
    def played_truth(self) -> TrueShots:
        """The true shots of all turns of the benchmark games."""
        games = ((true_game(game.name), len(game.turns)) for game in self.benchmark)
        return self._base.draw([scene for game, turns in games for scene in game.scenes[:turns]])

    @cached_property
    def training(self) -> TrueShots:
        """The first clips of training games, on whose states the motion of a variant's shots is calibrated."""
        scenes = [game[0] for game in self.run_dir.budget.casting.scenes().values()]
        return self._base.draw(scenes[: self.run_dir.budget.calibrated_on])

    @property
    def _measured(self) -> MotionTable:
        """The dataset's own motion values by level."""
        return MotionTable("toybox", self.run_dir.dataset.motion_table.values, self.run_dir.world.motion_table.edges)

    def _calibrated(self, runs: SeedRuns, variant: Variant, context: EvalContext) -> MotionTable:
        """The calibrated motion values by level for the variant's decoder in play."""
        trained = runs.seed, variant.path(GAMES)
        if trained not in self._tables:
            table = self._measured
            known = played_states(self.training.scenes, table, context.engine, context.encoder)
            response = decoder_response(table, context.decoder, known, workers=context.workers)
            self._tables[trained] = response.calibrated(table)
        return self._tables[trained]

    def score(self, runs: SeedRuns, variant: Variant, family: str) -> Samples:
        """Score one family of a variant that was trained with one seed."""
        with tempfile.TemporaryDirectory(dir=self.run_dir.folder) as folder:
            world = scored_world(runs, variant, family, Path(folder))
            context = EvalContext(world, self.run_dir.device, self.run_dir.workers)
            if family == RECONSTRUCTION:
                return self._rebuilt(variant, context)
            return self._played(variant, context, self._calibrated(runs, variant, context))

    def _rebuilt(self, variant: Variant, context: EvalContext) -> Samples:
        """Score true clips, encoded and decoded again; the decoder gets their measured motion values, calibrated."""
        true, values = self.true, np.full(len(self.true.scenes), UNCONDITIONAL_MOTION)
        if variant.motion_scope:
            known = _encoded(variant, context, self.training)
            response = decoder_response(self._measured, context.decoder, known, workers=context.workers)
            values = np.asarray(response.to_measure(true.values))
        clips = context.shoot(_encoded(variant, context, true), values, range(FIRST, FIRST + len(values)))
        columns = self._shot_scores(context, clips, true.levels, true)
        return Samples(tuple(str(FIRST + index) for index in range(len(values))), columns, self._facts(context))

    def _played(self, variant: Variant, context: EvalContext, table: MotionTable) -> Samples:
        """Score games that the engine plays; each shot is drawn with the table's value of the predicted level."""
        scripts = [Script(tuple(turn.instruction for turn in game.turns)) for game in self.benchmark]
        played = [turn.state for turns in play_games(context.engine, scripts, variant.window) for turn in turns]
        values = [table.value(state.motion) for state in played]
        clips = context.shoot([state.representation for state in played], values, range(FIRST, FIRST + len(played)))
        asked = [turn for game in self.benchmark for turn in game.turns]
        columns = {
            **_states(played, asked),
            **self._shot_scores(context, clips, [turn.level for turn in asked], self.played_truth),
            "clip_t": self._text_similarities(clips, [scored_text(turn) for turn in asked]),
        }
        named_before = [scene.prop is not None and not scene.prop_told for scene in self.played_truth.scenes]
        pairs = zip(columns["colour"], named_before, strict=True)
        columns["remembered"] = [right if before else None for right, before in pairs]
        groups = tuple(game.name for game in self.benchmark for _ in game.turns)
        facts = {**self._facts(context), "window": variant.window, "motion_values": table.values}
        return Samples(groups, columns, facts)

    def _shot_scores(
        self, context: EvalContext, clips: Clips, asked: Sequence[int], true: TrueShots
    ) -> dict[str, Column]:
        """The scores of both families: similarity to the true clip, motion level, and what the probes recognise."""
        measured = context.levels(context.measure(clips))
        return {
            **self._image_similarities(clips, true.clips),
            "acc_f": [float(one == other) for one, other in zip(asked, measured, strict=True)],
            "mae_f": [float(abs(one - other)) for one, other in zip(asked, measured, strict=True)],
            "psnr": [min(MOST_DB, psnr(*pair)) for pair in zip(clips, true.clips, strict=True)],
            **_recognised(context.recognise(clips), labels_of(true.scenes)),
        }

    def _image_similarities(self, clips: Clips, true: Clips) -> dict[str, Column]:
        """Mean cosines of four frames with the same frames of the true clip."""
        if self.models is None:
            return {}
        models = {"clip_i": self.models.clip, "dreamsim": self.models.dreamsim}
        return {
            name: [
                rowwise_cosine(model.embed_images(compared_frames(shot)), model.embed_images(compared_frames(other)))
                for shot, other in zip(clips, true, strict=True)
            ]
            for name, model in models.items()
            if model is not None
        }

    def _text_similarities(self, clips: Clips, texts: Sequence[str]) -> Column:
        """Mean cosines of four frames with the turn's text."""
        if self.models is None:
            return [None] * len(clips)
        model = self.models.clip
        return [
            float((model.embed_images(compared_frames(shot)).double() @ model.embed_texts([text]).double().T).mean())
            for shot, text in zip(clips, texts, strict=True)
        ]

    def _facts(self, context: EvalContext) -> dict[str, Any]:
        decoder = context.world.spec.decoder
        return {
            "steps": decoder.steps,
            "guidance": context.world.profile.guidance,
            "guidance_scale": decoder.guidance_scale,
            "towers": None if self.models is None else self.models.facts,
        }


def scored_world(runs: SeedRuns, variant: Variant, family: str, folder: Path) -> World:
    """Write a trained variant as a world in fp16, as it would be shipped, with the base world's probes and edges."""
    parts, base = runs.parts(variant, variant.path(family)), runs.run_dir.world
    world = save_world(folder, parts.spec, motion_table=base.motion_table)
    world = parts.save(world, dtype=torch.float16)
    for path in (base.folder / FOLDER).iterdir():
        with replacing(folder / FOLDER / path.name) as part:
            shutil.copyfile(path, part)
    return world


def _encoded(variant: Variant, context: EvalContext, shots: TrueShots) -> Tensor:
    """(M, N, D): the shots' representations, each from the frame that the variant's encoder reads."""
    frames = read_frames(variant, shots.clips)
    return context.encode(replace(shots, clips=shots.clips[np.arange(len(frames)), frames][:, None]))


def read_frames(variant: Variant, clips: Clips) -> np.ndarray:
    """(M,): the index of the frame that a variant's encoder reads in each clip, the first or a random one."""
    count, frames = clips.shape[:2]
    if variant.encoder_frame == "first":
        return np.zeros(count, np.int64)
    return torch.randint(frames, (count,), generator=generator("cpu", "scored frame")).numpy()


def _states(played: Sequence[GameState], asked: Sequence[BenchmarkTurn]) -> dict[str, Column]:
    """Predictions compared with requests: all three changes right, their mean error in units, motion level right."""
    error = np.abs(np.array([astuple(row.change) for row in played]) - [astuple(turn.change) for turn in asked])
    columns = {
        "states_right": (error == 0).all(1),
        "states_mae": error.mean(1),
        "level_right": np.equal([state.motion for state in played], [turn.level for turn in asked]),
    }
    return {name: [float(value) for value in values] for name, values in columns.items()}


def _recognised(seen: Labels, truth: Labels) -> dict[str, Column]:
    """Whether the probes are right; None if the scene has no partner or no colour."""
    columns = {}
    for head, classes in HEADS.items():
        absent = classes.index(NONE) if NONE in classes else -1
        pairs = zip(seen[head].tolist(), truth[head].tolist(), strict=True)
        columns[head] = [None if true == absent else float(found == true) for found, true in pairs]
    return columns
