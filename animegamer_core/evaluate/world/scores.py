"""The scores of one shot: its similarity to the character, to the shot before, to the true shot and to the text.

M images, E embedding width, F frames, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.benchmark import BenchmarkGame, BenchmarkTurn
from ..similarity import ScoringModels
from .motion import MotionMeter
from .references import CharacterReferences, true_shots

FRAMES_COMPARED = 4  # of each shot
ALONE = ("clip_i", "dreamsim", "clip_t", "clip_i_across", "dreamsim_across")  # scores that need no true shot
SHOT_SCORES = (*ALONE, "clip_i_true", "dreamsim_true")
TRUTH = "truth_"  # prefix of a score's name: the same score of the true shot, an upper bound
CEILINGS = tuple(f"{TRUTH}{name}" for name in ALONE)


@dataclass(frozen=True)
class Embeddings:
    """Unit vectors (M, E) of images by CLIP, and by DreamSim if there is one."""

    clip_ME: Tensor
    dreamsim_ME: Tensor | None


@dataclass(frozen=True)
class Scores:
    """A shot's motion value and level (None without edges), and SHOT_SCORES and CEILINGS (None if not applicable)."""

    motion_value: float
    motion_level: int | None
    by_name: dict[str, float | None]


class Scorer:
    """Scores games with the scoring models, the world's motion meter and the characters' reference pictures."""

    def __init__(self, models: ScoringModels, meter: MotionMeter, references: CharacterReferences) -> None:
        self.models = models
        self.meter = meter
        self.references = references
        self._embedded: dict[str, Embeddings] = {}

    def embed(self, frames_MHWC: NDArray[np.uint8]) -> Embeddings:
        """The embeddings of images of one size."""
        perceptual = self.models.dreamsim
        return Embeddings(
            self.models.clip.embed_images(frames_MHWC),
            None if perceptual is None else perceptual.embed_images(frames_MHWC),
        )

    def embed_character(self, name: str) -> Embeddings | None:
        """The embeddings of a character's reference pictures, which may differ in size; None without pictures."""
        pictures = self.references.pictures.get(name)
        if pictures is None:
            return None
        if name not in self._embedded:
            self._embedded[name] = _concatenated([self.embed(picture[None]) for picture in pictures])
        return self._embedded[name]


class GameScorer:
    """Scores the shots of one game in order."""

    def __init__(self, scorer: Scorer, game: BenchmarkGame) -> None:
        self._scorer = scorer
        self._game = game
        self._character = scorer.embed_character(game.character)
        self._true_shots = true_shots(game)
        self._before: Embeddings | None = None
        self._true_before: Embeddings | None = None
        self._turn = 0

    def score(self, frames_FHWC: NDArray[np.uint8]) -> Scores:
        """The scores of the next turn's shot; call this once for each turn, in order."""
        turn, meter = self._game.turns[self._turn], self._scorer.meter
        shot = self._scorer.embed(compared_frames(frames_FHWC))
        true = None
        if self._true_shots is not None:
            true = self._scorer.embed(compared_frames(self._true_shots[self._turn]))
        text_1E = self._scorer.models.clip.embed_texts([scored_text(turn)])
        found = self._similarities(shot, self._before, text_1E)
        found |= {
            f"{TRUTH}{name}": value for name, value in self._similarities(true, self._true_before, text_1E).items()
        }
        found["clip_i_true"] = None if true is None else rowwise_cosine(shot.clip_ME, true.clip_ME)
        found["dreamsim_true"] = None if true is None else rowwise_cosine(shot.dreamsim_ME, true.dreamsim_ME)
        self._turn, self._before, self._true_before = self._turn + 1, shot, true
        value = meter.value(frames_FHWC)
        return Scores(value, meter.level(value), {name: found[name] for name in (*SHOT_SCORES, *CEILINGS)})

    def _similarities(
        self, shot: Embeddings | None, before: Embeddings | None, text_1E: Tensor
    ) -> dict[str, float | None]:
        """A shot's similarity to the text, the character and the shot before it; None without a shot."""
        return {
            "clip_t": None if shot is None else mean_cosine(shot.clip_ME, text_1E),
            **_compared("", shot, self._character),
            **_compared("_across", shot, before),
        }


def compared_frames(frames_FHWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The four frames that are compared: evenly spaced, with the first and the last (0, 5, 11 and 16 of 17)."""
    return frames_FHWC[np.linspace(0, len(frames_FHWC) - 1, FRAMES_COMPARED).round().astype(int)]


def scored_text(turn: BenchmarkTurn) -> str:
    """The text that CLIP-T compares a shot with: `{adverb} {motion}, {background}`.

    It leaves out the characters' names, which a CLIP model does not know.
    """
    return f"{turn.adverb} {turn.motion}, {turn.background}".strip()


def mean_cosine(one_ME: Tensor | None, other_ME: Tensor | None) -> float | None:
    """The mean cosine over all pairs of two sets of unit vectors; None if a side is None."""
    if one_ME is None or other_ME is None:
        return None
    return float((one_ME.double() @ other_ME.double().T).mean())


def rowwise_cosine(one_ME: Tensor | None, other_ME: Tensor | None) -> float | None:
    """The mean cosine of rows with the same index; None if a side is None."""
    if one_ME is None or other_ME is None:
        return None
    return float((one_ME.double() * other_ME.double()).sum(-1).mean())


def _compared(ending: str, shot: Embeddings | None, others: Embeddings | None) -> dict[str, float | None]:
    """A shot's mean cosine with other images, by CLIP and DreamSim; None if a side is None."""
    if shot is None or others is None:
        return {f"clip_i{ending}": None, f"dreamsim{ending}": None}
    return {
        f"clip_i{ending}": mean_cosine(shot.clip_ME, others.clip_ME),
        f"dreamsim{ending}": mean_cosine(shot.dreamsim_ME, others.dreamsim_ME),
    }


def _concatenated(parts: list[Embeddings]) -> Embeddings:
    dreamsim = [part.dreamsim_ME for part in parts if part.dreamsim_ME is not None]
    return Embeddings(torch.cat([part.clip_ME for part in parts]), torch.cat(dreamsim) if dreamsim else None)
