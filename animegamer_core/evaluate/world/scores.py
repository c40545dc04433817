"""The scores of one shot: its motion, and its similarity to the character, the shot before and the text.

M images, E embedding width, F frames, H height, W width.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.benchmark import BenchmarkTurn
from ...data.captions.pictures import evenly, open_picture, read_references
from ...data.motion import DEFAULT_THRESHOLD, FlowSettings, level_of, motion_facts, motion_value, open_flow
from ...toybox.scenes import reference_pictures
from ...toybox.world import CHARACTERS
from ...weights import World
from ...weights.storage import note_of
from ..similarity import ScoringModels
from .records import FRAMES_COMPARED, SHOT_SCORES

# provenance keys
BACKEND, THRESHOLD, FRACTION, WEIGHTS = "motion backend", "motion threshold", "motion slow_fraction", "motion sha256"
Picture = NDArray[np.uint8]  # (H, W, 3)
MOST = 16  # most pictures per character that are used, by file name
SHOWN = 8  # most names in a remark

Embeddings = dict[str, Tensor]  # by row, `clip_i` or `dreamsim`, if there is such a model: unit vectors (M, E)


class GameScorer:
    """Scores the shots of one game in order. pictures: of its main characters, who may change."""

    def __init__(self, models: ScoringModels, pictures: Mapping[str, Sequence[Picture]]) -> None:
        self._models, self._pictures = models, pictures
        self._characters: dict[str, Embeddings] = {}
        self._before: Embeddings = {}

    def score(self, turn: BenchmarkTurn, frames_FHWC: NDArray[np.uint8]) -> dict[str, float | None]:
        """The SHOT_SCORES of a turn's shot, None where there is nothing to compare it with."""
        shot = self._embed(compared_frames(frames_FHWC))
        found = {}
        if self._models.clip is not None:
            found["clip_t"] = mean_cosine(shot["clip_i"], self._models.clip.embed_texts([scored_text(turn)]))
        found |= {key: mean_cosine(shot[key], other) for key, other in self._character(turn.characters[0]).items()}
        found |= {f"{key}_across": mean_cosine(shot[key], other) for key, other in self._before.items()}
        self._before = shot
        return {name: found.get(name) for name in SHOT_SCORES}

    def _character(self, name: str) -> Embeddings:
        if name not in self._characters:
            rows = [self._embed(picture[None]) for picture in self._pictures.get(name, ())]  # of any sizes
            self._characters[name] = {key: torch.cat([row[key] for row in rows]) for key in rows[0]} if rows else {}
        return self._characters[name]

    def _embed(self, frames_MHWC: NDArray[np.uint8]) -> Embeddings:
        return {key: model.embed_images(frames_MHWC) for key, model in self._models.by_row.items()}


def compared_frames(frames_FHWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The four frames that are compared: evenly spaced, with the first and the last (0, 5, 11 and 16 of 17)."""
    return frames_FHWC[evenly(len(frames_FHWC), FRAMES_COMPARED)]


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
    """Reference pictures of characters by name. facts: where they come from. remarks: for a report."""

    pictures: Mapping[str, tuple[Picture, ...]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def references_of(names: Iterable[str], folder: Path | None = None) -> CharacterReferences:
    """Reference pictures of characters: from a folder, or drawn if all characters are the Toybox's.

    The folder is one of `read_references`, which says what raises ValueError; case does not matter.
    """
    names = tuple(dict.fromkeys(names))
    pictures: dict[str, tuple[Picture, ...]] = {}
    if folder is not None:
        given = {reference.name.casefold(): reference.pictures for reference in read_references(folder, MOST)}
        for name in names:
            # macOS stores accents as separate characters
            if paths := given.get(unicodedata.normalize("NFC", name).casefold()):
                pictures[name] = tuple(np.array(open_picture(path)) for path in paths)
    elif all(name in CHARACTERS for name in names):
        pictures = {name: tuple(reference_pictures(name)) for name in names}
    facts = {
        "from": "folder" if folder is not None else "drawn" if pictures else "none",
        "pictures": {name: _digest(own) for name, own in pictures.items()},
    }
    remarks = []
    if missing := [name for name in names if name not in pictures]:
        where = f"{folder} has none" if folder is not None else "on the command line, give some with --characters DIR"
        remarks.append(f"no picture of {listed(missing)}, so their shots do not count for CLIP-I and DreamSim; {where}")
    return CharacterReferences(pictures, facts, tuple(remarks))


def listed(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _digest(pictures: Sequence[Picture]) -> str:
    digest = hashlib.sha256()
    for picture in pictures:
        digest.update(repr(picture.shape).encode() + np.ascontiguousarray(picture).tobytes())
    return f"{len(pictures)} of sha256 {digest.hexdigest()[:16]}"


class MotionMeter:
    """Measures motion as in the world's dataset.

    edges: the four borders between levels, None if unknown; given ones replace the world's. facts: how it measures.
    remarks: what a report should say about that.
    """

    def __init__(self, world: World, flow: FlowSettings, edges: tuple[float, ...] | None = None) -> None:
        self._settings = flow
        self._flow = open_flow(flow)
        if list(edges or ()) != sorted(set(edges or ())):
            raise ValueError(f"--motion-edges are {edges}; expected four rising numbers, such as 1.2 2.3 4.7 10")
        self.edges = world.motion_table.edges if edges is None else edges
        measured = motion_facts(self._flow, flow.threshold, flow.slow_fraction)
        self.facts = {**measured, "edges": None if self.edges is None else list(self.edges)}
        self.remarks = []
        if edges is not None:
            self.remarks.append("the boundaries between motion levels come from --motion-edges, not from the world")
        elif self.edges is None:
            self.remarks.append(
                f"world {world.spec.name!r} has no measured boundaries between motion levels, so ACC-F and MAE-F are "
                "missing; on the command line, give them with --motion-edges A B C D"
            )
        if BACKEND not in world.provenance:
            self.remarks.append(f"world.json does not say what measured its motion; {flow.backend} is used here")

    def measure(self, frames_FHWC: NDArray[np.uint8]) -> tuple[float, int | None]:
        """The motion value of a shot, px per frame at 480 px height, and its level 1..5; None without edges."""
        value = motion_value(frames_FHWC, backend=self._flow, **self._settings.left_out)
        return value, None if self.edges is None else level_of(value, self.edges)


def flow_of(world: World, backend: str | None = None, **given: Any) -> FlowSettings:
    """The flow settings that measure motion as in the world's dataset.

    backend: None for the world's own, or DIS if its provenance names none. given: weights and device of FlowSettings.
    ValueError if the world was measured by another backend or other weights, or if weights are needed and not given.
    """
    notes, name = world.provenance, world.spec.name
    own = notes.get(BACKEND)
    threshold, slow = float(notes.get(THRESHOLD, DEFAULT_THRESHOLD)), float(notes.get(FRACTION, 0.0))
    wanted = FlowSettings(backend=backend or own or "dis", threshold=threshold, slow_fraction=slow, **given)
    if own is not None and own != wanted.backend:
        raise ValueError(
            f"the motion of world {name!r} was measured by the flow backend {own}, and backends differ by large "
            f"factors; choose {own}, not {wanted.backend}"
        )
    if wanted.backend == "memflow" and wanted.weights is None:
        raise ValueError(
            f"the motion of world {name!r} is measured by the flow backend {wanted.backend}; on the command line, give "
            "it --flow-weights FILE"
        )
    measured_by, weights = notes.get(WEIGHTS), wanted.weights
    if measured_by and weights is not None and weights.is_file() and note_of(weights).sha256 != measured_by:
        raise ValueError(
            f"the motion of world {name!r} was measured by flow weights of sha256 {measured_by[:16]}; its levels do "
            f"not hold for {weights}, so give that file"
        )
    return wanted
