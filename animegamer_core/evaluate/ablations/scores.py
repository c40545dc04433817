"""What a variant is scored on: held-out clips encoded and decoded again, or games of the frozen benchmark.

Every variant meets the same clips and games with the same noise, so that two of them can be compared sample by sample.
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
from ...state import GameState, MotionTable
from ...toybox.benchmark import BENCHMARK, true_game
from ...toybox.calibrate import calibrated_table, decoder_response, played_states
from ...toybox.games import sample_game
from ...toybox.probes import FOLDER
from ...toybox.scenes import HEADS, NONE, Labels, labels_of
from ...train.learners import UNTOLD_MOTION
from ...train.order import generator
from ..acceptance.lab import Clips, Lab, TrueShots
from ..acceptance.lockstep import Script, play_games
from ..figures import psnr
from ..similarity.towers import Towers
from ..table.scores import pairwise, scored_text, shown_frames
from .shop import Shop
from .variants import GAMES, RECONSTRUCTION, Variant

FIRST = 800_000  # seeds of the games that clips are taken from; the benchmark has those from 900,000 on
MOST_DB = 100.0  # of equal clips, whose PSNR json cannot keep
Column = list[float | None]


@dataclass(frozen=True)
class Samples:
    """The scores of one variant, a row a shot. groups: the game that each shot is of.

    columns: by metric; shares are 0 or 1, None where a shot has nothing to score, such as the colour of no prop.
    """

    groups: tuple[str, ...]
    columns: Mapping[str, Column]
    facts: Mapping[str, Any]

    def save(self, path: Path) -> None:
        """Write them as json."""
        write_json(path, {"facts": self.facts, "groups": self.groups, "columns": self.columns})

    @classmethod
    def read(cls, path: Path) -> Samples:
        """What `save` wrote."""
        values = read_json(path)
        return cls(tuple(values["groups"]), values["columns"], values["facts"])


class Examiner:
    """The clips and games that all variants are scored on, made once, and what they are scored with.

    towers None: no similarities are scored.
    """

    def __init__(self, shop: Shop, towers: Towers | None) -> None:
        self.shop = shop
        self.towers = towers
        self._base = Lab(shop.world, shop.device, shop.workers)
        self._tables: dict[tuple[tuple[str, str], ...], MotionTable] = {}  # by what was trained: windows share theirs

    @cached_property
    def true(self) -> TrueShots:
        """Held-out clips, each of another game, at all turns of a game."""
        games = (sample_game(FIRST + number, split="heldout") for number in range(self.shop.budget.clips))
        return self._base.draw([game.scenes[number % len(game.scenes)] for number, game in enumerate(games)])

    @cached_property
    def benchmark(self) -> tuple[BenchmarkGame, ...]:
        """The first games of the frozen benchmark, each up to the budget's number of turns."""
        games, turns = read_benchmark(BENCHMARK)[: self.shop.budget.games], self.shop.budget.turns
        return tuple(replace(game, turns=game.turns[:turns]) for game in games)

    @cached_property
    def played_truth(self) -> TrueShots:
        """The true shots of all turns of those games."""
        games = ((true_game(game.name), len(game.turns)) for game in self.benchmark)
        return self._base.draw([scene for game, turns in games for scene in game.scenes[:turns]])

    @cached_property
    def training(self) -> TrueShots:
        """The first clips of games that every variant was trained on: how far it moves is measured on their states."""
        scenes = [game[0] for game in self.shop.budget.casting.scenes().values()]
        return self._base.draw(scenes[: self.shop.budget.calibrated_on])

    @property
    def _measured(self) -> MotionTable:
        """The dataset's own levels."""
        return MotionTable("toybox", self.shop.dataset.motion_table.values, self.shop.world.motion_table.edges)

    def _calibrated(self, variant: Variant, lab: Lab) -> MotionTable:
        """The levels as the variant's decoder has to be told them in play."""
        trained = variant.path(GAMES)
        if trained not in self._tables:
            known = played_states(self.training.scenes, self._measured, lab.engine, lab.encoder)
            self._tables[trained] = calibrated_table(self._measured, lab.decoder, known, workers=lab.workers)
        return self._tables[trained]

    def score(self, variant: Variant, family: str) -> Samples:
        """A trained variant's scores."""
        with tempfile.TemporaryDirectory(dir=self.shop.folder) as folder:
            lab = Lab(scored_world(self.shop, variant, family, Path(folder)), self.shop.device, self.shop.workers)
            return {RECONSTRUCTION: self._rebuilt, GAMES: self._played}[family](variant, lab)

    def _rebuilt(self, variant: Variant, lab: Lab) -> Samples:
        """True clips through encoder and decoder, which is asked for their measured motion values."""
        true, values = self.true, np.full(len(self.true.scenes), UNTOLD_MOTION)
        if variant.motion_scope:
            known = _encoded(variant, lab, self.training)
            response = decoder_response(self._measured, lab.decoder, known, workers=lab.workers)
            values = np.asarray(response.to_measure(true.values))
        clips = lab.shoot(_encoded(variant, lab, true), values, range(FIRST, FIRST + len(values)))
        columns = self._seen(lab, clips, true.levels, true)
        return Samples(tuple(str(FIRST + index) for index in range(len(values))), columns, self._facts(lab))

    def _played(self, variant: Variant, lab: Lab) -> Samples:
        """Games that the engine plays, each shot drawn at the level that the engine predicts."""
        scripts = [Script(tuple(turn.instruction for turn in game.turns)) for game in self.benchmark]
        played = [turn.state for turns in play_games(lab.engine, scripts, variant.window) for turn in turns]
        table = self._calibrated(variant, lab)
        values = [table.value(state.motion) for state in played]
        clips = lab.shoot([state.representation for state in played], values, range(FIRST, FIRST + len(played)))
        asked = [turn for game in self.benchmark for turn in game.turns]
        columns = {
            **_states(played, asked),
            **self._seen(lab, clips, [turn.level for turn in asked], self.played_truth),
            "clip_t": self._told(clips, [scored_text(turn) for turn in asked]),
        }
        told_before = [scene.prop is not None and not scene.prop_told for scene in self.played_truth.scenes]
        pairs = zip(columns["colour"], told_before, strict=True)
        columns["remembered"] = [right if before else None for right, before in pairs]
        groups = tuple(game.name for game in self.benchmark for _ in game.turns)
        return Samples(groups, columns, {**self._facts(lab), "window": variant.window, "motion_values": table.values})

    def _seen(self, lab: Lab, clips: Clips, asked: Sequence[int], true: TrueShots) -> dict[str, Column]:
        """What every family is scored by: likeness to the true clip, motion level, and what the probes recognise."""
        measured = lab.levels(lab.measure(clips))
        return {
            **self._alike(clips, true.clips),
            "acc_f": [float(one == other) for one, other in zip(asked, measured, strict=True)],
            "mae_f": [float(abs(one - other)) for one, other in zip(asked, measured, strict=True)],
            "psnr": [min(MOST_DB, psnr(*pair)) for pair in zip(clips, true.clips, strict=True)],
            **_recognised(lab.see(clips), labels_of(true.scenes)),
        }

    def _alike(self, clips: Clips, true: Clips) -> dict[str, Column]:
        """Mean cosines of four frames with the same frames of the true clip."""
        if self.towers is None:
            return {}
        towers = {"clip_i": self.towers.clip, "dreamsim": self.towers.dreamsim}
        return {
            name: [
                pairwise(tower.pictures(shown_frames(shot)), tower.pictures(shown_frames(other)))
                for shot, other in zip(clips, true, strict=True)
            ]
            for name, tower in towers.items()
            if tower is not None
        }

    def _told(self, clips: Clips, texts: Sequence[str]) -> Column:
        """Mean cosines of four frames with the turn's words."""
        if self.towers is None:
            return [None] * len(clips)
        tower = self.towers.clip
        return [
            float((tower.pictures(shown_frames(shot)).double() @ tower.texts([text]).double().T).mean())
            for shot, text in zip(clips, texts, strict=True)
        ]

    def _facts(self, lab: Lab) -> dict[str, Any]:
        decoder = lab.world.spec.decoder
        return {
            "steps": decoder.steps,
            "guidance": lab.world.profile.guidance,
            "guidance_scale": decoder.guidance_scale,
            "towers": None if self.towers is None else self.towers.facts,
        }


def scored_world(shop: Shop, variant: Variant, family: str, folder: Path) -> World:
    """A trained variant as a world folder in 16 bits, as worlds ship, with the base world's probes.

    Its levels lie between the base world's edges.
    """
    parts = shop.parts(variant, variant.path(family))
    world = save_world(folder, parts.spec, motion_table=shop.world.motion_table)
    world = parts.save(world, dtype=torch.float16)
    shutil.copytree(shop.world.folder / FOLDER, folder / FOLDER)
    return world


def _encoded(variant: Variant, lab: Lab, shots: TrueShots) -> Tensor:
    """(M, N, D): the shots' representations, each from the frame that the variant's encoder reads."""
    frames = read_frames(variant, shots.clips)
    return lab.encode(replace(shots, clips=shots.clips[np.arange(len(frames)), frames][:, None]))


def read_frames(variant: Variant, clips: Clips) -> np.ndarray:
    """(M,) the frame of each clip that a variant's encoder reads: the first, or one drawn for each clip."""
    count, frames = clips.shape[:2]
    if variant.encoder_frame == "first":
        return np.zeros(count, np.int64)
    return torch.randint(frames, (count,), generator=generator("cpu", "scored frame")).numpy()


def _states(played: Sequence[GameState], asked: Sequence[BenchmarkTurn]) -> dict[str, Column]:
    """The predicted numbers against the benchmark's: all three changes, their mean error in units, the motion level."""
    error = np.abs(np.array([astuple(row.change) for row in played]) - [astuple(turn.change) for turn in asked])
    columns = {
        "states_right": (error == 0).all(1),
        "states_mae": error.mean(1),
        "level_right": np.equal([state.motion for state in played], [turn.level for turn in asked]),
    }
    return {name: [float(value) for value in values] for name, values in columns.items()}


def _recognised(seen: Labels, truth: Labels) -> dict[str, Column]:
    """Whether the probes see what is true; partners and colours where there is one."""
    columns = {}
    for head, classes in HEADS.items():
        absent = classes.index(NONE) if NONE in classes else -1
        pairs = zip(seen[head].tolist(), truth[head].tolist(), strict=True)
        columns[head] = [None if true == absent else float(found == true) for found, true in pairs]
    return columns
