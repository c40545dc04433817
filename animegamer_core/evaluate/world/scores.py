"""The scores of one shot: its motion, and its similarity to the character, the shot before, the true shot and the text.

M images, E embedding width, F frames, H height, W width.
"""

from __future__ import annotations

import hashlib
import itertools
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.benchmark import BenchmarkGame, BenchmarkTurn
from ...data.captions.pictures import is_picture, open_picture
from ...data.flow import Flow, FlowSettings, motion_facts, open_flow
from ...data.motion import DEFAULT_THRESHOLD, level_of, motion_value
from ...messages import quoted
from ...toybox.benchmark import true_game
from ...toybox.drawing.draw import draw_shot
from ...toybox.references import reference_pictures
from ...toybox.world import CHARACTERS, Scene, characters, motion_text
from ...weights import World
from ..similarity import ScoringModels
from .records import FRAMES_COMPARED, SHOT_SCORES

BACKEND, THRESHOLD, FRACTION = "motion backend", "motion threshold", "motion slow_fraction"  # provenance keys
Picture = NDArray[np.uint8]  # (H, W, 3)
MOST = 16  # most pictures per character that are used
SHOWN = 5  # most names in a remark

Embeddings = dict[str, Tensor]  # `clip_i`, and `dreamsim` if there is such a model: unit vectors (M, E) of images


class Scorer:
    """Scores shots with the scoring models and the characters' reference pictures."""

    def __init__(self, models: ScoringModels, references: CharacterReferences) -> None:
        self.models = models
        self.references = references
        self._characters: dict[str, Embeddings] = {}

    def embed(self, frames_MHWC: NDArray[np.uint8]) -> Embeddings:
        """The embeddings of images of one size."""
        embedded = {"clip_i": self.models.clip.embed_images(frames_MHWC)}
        if self.models.dreamsim is not None:
            embedded["dreamsim"] = self.models.dreamsim.embed_images(frames_MHWC)
        return embedded

    def embed_character(self, name: str) -> Embeddings | None:
        """The embeddings of a character's reference pictures, which may differ in size; None without pictures."""
        if name not in self._characters and name in self.references.pictures:
            parts = [self.embed(picture[None]) for picture in self.references.pictures[name]]
            self._characters[name] = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
        return self._characters.get(name)


class GameScorer:
    """Scores the shots of one game in order."""

    def __init__(self, scorer: Scorer, game: BenchmarkGame) -> None:
        self._scorer = scorer
        self._character = scorer.embed_character(game.character)
        self._turns = iter(zip(game.turns, true_shots(game) or itertools.repeat(None)))  # noqa: B905
        self._before: Embeddings | None = None

    def score(self, frames_FHWC: NDArray[np.uint8]) -> dict[str, float | None]:
        """The SHOT_SCORES of the next turn's shot, None where there is nothing to compare it with."""
        turn, true_FHWC = next(self._turns)
        shot = self._scorer.embed(compared_frames(frames_FHWC))
        found = {"clip_t": mean_cosine(shot["clip_i"], self._scorer.models.clip.embed_texts([scored_text(turn)]))}
        if self._character is not None:
            found |= {key: mean_cosine(shot[key], self._character[key]) for key in shot}
        if self._before is not None:
            found |= {f"{key}_across": mean_cosine(shot[key], self._before[key]) for key in shot}
        if true_FHWC is not None:
            true = self._scorer.embed(compared_frames(true_FHWC))
            found |= {f"{key}_true": rowwise_cosine(shot[key], true[key]) for key in shot}
        self._before = shot
        return {name: found.get(name) for name in SHOT_SCORES}


def compared_frames(frames_FHWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The four frames that are compared: evenly spaced, with the first and the last (0, 5, 11 and 16 of 17)."""
    return frames_FHWC[np.linspace(0, len(frames_FHWC) - 1, FRAMES_COMPARED).round().astype(int)]


def scored_text(turn: BenchmarkTurn) -> str:
    """The text that CLIP-T compares a shot with: `{adverb} {motion}, {background}`.

    It leaves out the characters' names, which a CLIP model does not know.
    """
    return f"{turn.adverb} {turn.motion}, {turn.background}".strip()


def mean_cosine(one_ME: Tensor, other_ME: Tensor) -> float:
    """The mean cosine over all pairs of two sets of unit vectors."""
    return float((one_ME.double() @ other_ME.double().T).mean())


def rowwise_cosine(one_ME: Tensor, other_ME: Tensor) -> float:
    """The mean cosine of rows with the same index."""
    return float((one_ME.double() * other_ME.double()).sum(-1).mean())


@dataclass(frozen=True)
class CharacterReferences:
    """Reference pictures of main characters.

    pictures: by name, (H, W, 3) uint8 RGB. facts: where they come from, as plain JSON values. remarks: for a report.
    """

    pictures: Mapping[str, tuple[Picture, ...]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def references_of(games: Sequence[BenchmarkGame], folder: Path | None = None) -> CharacterReferences:
    """Reference pictures of the games' main characters: from a folder, or drawn if all characters are the Toybox's.

    The folder holds NAME.png (or .jpg, .webp, .bmp), or NAME/ with such pictures; case does not matter, nor how accents
    are stored. Only the first MOST pictures of a character are used, by file name. ValueError if the folder is missing.
    """
    mains = tuple(dict.fromkeys(game.character for game in games))
    found: dict[str, tuple[Picture, ...]] = {}
    remarks = []
    if folder is not None:
        for name in mains:
            found[name] = character_pictures(folder, name)
            if (count := len(_pictures_of(folder, name))) > MOST:
                remarks.append(f"{name} has {count} pictures; only the first {MOST} are used")
    elif _is_toybox(games):
        found = {name: tuple(reference_pictures(name)) for name in mains}
    pictures = {name: own for name, own in found.items() if own}
    facts = {"from": "folder" if folder is not None else "drawn" if pictures else "none"}
    facts |= {"pictures": {name: _digest(own) for name, own in pictures.items()}}
    if missing := [name for name in mains if name not in pictures]:
        names = ", ".join(missing[:SHOWN]) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
        where = f"{folder} has none" if folder is not None else "on the command line, give some with --characters DIR"
        remarks.insert(0, f"no picture of {names}, so their games do not count for CLIP-I and DreamSim; {where}")
    return CharacterReferences(pictures, facts, tuple(remarks))


def character_pictures(folder: Path, name: str) -> tuple[Picture, ...]:
    """At most MOST pictures of a character in the user's folder; ValueError if there is no such folder."""
    return tuple(np.array(open_picture(path)) for path in _pictures_of(folder, name)[:MOST])


def _is_toybox(games: Sequence[BenchmarkGame]) -> bool:
    """Whether every character of the games is one of the Toybox's."""
    return all(name in CHARACTERS for game in games for turn in game.turns for name in turn.characters)


def true_shots(game: BenchmarkGame) -> tuple[NDArray[np.uint8], ...] | None:
    """The true shots (F, H, W, 3) of a game's turns; None if the game is not one of the Toybox benchmark."""
    truth = true_game(game.name)
    if truth is None or len(truth.scenes) < len(game.turns) or not all(map(_describes, game.turns, truth.scenes)):
        return None
    return tuple(draw_shot(scene) for scene in truth.scenes[: len(game.turns)])


def _describes(turn: BenchmarkTurn, scene: Scene) -> bool:
    """Whether a line describes a true scene; other benchmarks may use the same game names."""
    expected = (characters(scene), motion_text(scene), f"{scene.time} {scene.place}")
    return (turn.characters, turn.motion, turn.background) == expected


def _pictures_of(folder: Path, name: str) -> list[Path]:
    """A character's picture files in the user's folder, sorted by name."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give --characters a folder with NAME.png or NAME/ for each name")
    paths: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and _normalised(path.name) == _normalised(name):
            paths += sorted(filter(is_picture, path.iterdir()))
        elif is_picture(path) and _normalised(path.stem) == _normalised(name):
            paths.append(path)
    return paths


def _normalised(name: str) -> str:
    """A name in the form in which names are compared; macOS stores accents as separate characters."""
    return unicodedata.normalize("NFC", name).casefold()


def _digest(pictures: Sequence[Picture]) -> str:
    digest = hashlib.sha256()
    for picture in pictures:
        digest.update(repr(picture.shape).encode() + np.ascontiguousarray(picture).tobytes())
    return f"{len(pictures)} of sha256 {digest.hexdigest()[:16]}"


@dataclass(frozen=True)
class MotionMeter:
    """Measures motion with an open flow backend.

    threshold: px per frame; slower pixels count as still. slow_fraction: see `data.motion.motion_value`. edges: the
    four borders between levels, None if unknown. facts: the settings, for a report. remarks: what a report should say
    about them.
    """

    flow: Flow
    threshold: float
    slow_fraction: float
    edges: tuple[float, ...] | None
    facts: Mapping[str, Any]
    remarks: tuple[str, ...] = ()

    def value(self, frames_FHWC: NDArray[np.uint8]) -> float:
        """The motion value of a shot, px per frame at 480 px height."""
        return motion_value(frames_FHWC, backend=self.flow, threshold=self.threshold, slow_fraction=self.slow_fraction)

    def level(self, value: float) -> int | None:
        """The level 1..5 of a motion value; None without edges."""
        return None if self.edges is None else level_of(value, self.edges)


def flow_of(world: World, backend: str | None = None, threshold: float | None = None, **given: Any) -> FlowSettings:
    """The flow settings that measure motion as in the world's dataset.

    backend: None for the world's own, or DIS if its provenance names none. threshold: px per frame, None for the
    world's own, or 0.2. given: weights and device of FlowSettings. ValueError if the world was measured by
    another backend than the requested one, or if weights are needed and not given.
    """
    own = world.provenance.get(BACKEND)
    wanted = FlowSettings(
        backend=backend or own or "dis",
        threshold=_number(world, THRESHOLD, DEFAULT_THRESHOLD) if threshold is None else threshold,
        slow_fraction=_number(world, FRACTION, 0.0),
        **given,
    )
    if own is not None and own != wanted.backend:
        raise ValueError(
            f"the motion of world {world.spec.name!r} was measured by the flow backend {own}, and backends differ by "
            f"large factors; choose {own}, not {wanted.backend}"
        )
    if wanted.backend != "dis" and wanted.weights is None:
        raise ValueError(
            f"the motion of world {world.spec.name!r} is measured by the flow backend {wanted.backend}; on the "
            f"command line, give it --flow-weights FILE"
        )
    return wanted


def edges_of(text: str) -> tuple[float, ...]:
    """Parse the borders between motion levels, `A,B,C,D`; ValueError unless they are four rising numbers."""
    try:
        edges = tuple(float(part) for part in text.split(","))
    except ValueError:
        edges = ()
    if len(edges) != 4 or not np.isfinite(edges).all() or any(low >= high for low, high in itertools.pairwise(edges)):
        raise ValueError(f"--motion-edges is {text!r}; expected four rising numbers, such as 1.2,2.3,4.7,10")
    return edges


def open_meter(world: World, flow: FlowSettings, edges: tuple[float, ...] | None = None) -> MotionMeter:
    """The world's motion meter. edges: used instead of the world's. ValueError if the backend cannot be opened."""
    borders = world.motion_table.edges if edges is None else edges
    remarks = tuple(_meter_remarks(world, flow, edges is not None))
    opened = open_flow(flow)
    measured = motion_facts(opened, flow.threshold, flow.slow_fraction)
    facts = {**measured, "edges": None if borders is None else list(borders)}
    return MotionMeter(opened, flow.threshold, flow.slow_fraction, borders, facts, remarks)


def _number(world: World, key: str, default: float) -> float:
    """A number of the world's provenance, or the default if it has none; ValueError for any other text."""
    text = world.provenance.get(key)
    try:
        return default if text is None else float(text)
    except ValueError as error:
        raise ValueError(f"world.json says {key} {quoted(text, 40)}; expected a number") from error


def _meter_remarks(world: World, flow: FlowSettings, by_hand: bool) -> Iterator[str]:
    if by_hand:
        yield "the boundaries between motion levels come from --motion-edges, not from the world"
    elif world.motion_table.edges is None:
        yield (
            f"world {world.spec.name!r} has no measured boundaries between motion levels, so ACC-F and MAE-F are "
            "missing; on the command line, give them with --motion-edges A,B,C,D"
        )
    if BACKEND not in world.provenance:
        yield f"world.json does not say which backend measured its motion; {flow.backend} is used here"
    own = _number(world, THRESHOLD, DEFAULT_THRESHOLD)
    if flow.threshold != own:
        yield f"pixels count as still below {flow.threshold} px per frame here, but below {own} in the world's dataset"
