"""How one shot scores: how alike its frames are to the character, to the shot before, to the true one, to the words.

M pictures, E embedding width, F frames, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...data.benchmark import BenchmarkGame, BenchmarkTurn
from ..similarity.towers import Towers
from .cast import Cast, true_shots
from .motion import MotionMeter

SHOWN = 4  # frames of a shot that are compared
SIMILARITIES = ("clip_i", "dreamsim", "clip_t", "clip_i_across", "dreamsim_across", "clip_i_true", "dreamsim_true")
TRUTH = "truth_"  # before a similarity's name: the true shot's own, which is the most that a row can tell
CEILINGS = tuple(f"{TRUTH}{name}" for name in SIMILARITIES[:5])


@dataclass(frozen=True)
class Seen:
    """What the towers made of pictures: unit rows (M, E) of CLIP and, where there is one, of DreamSim."""

    clip_ME: Tensor
    dreamsim_ME: Tensor | None


@dataclass(frozen=True)
class Scores:
    """A shot's motion value and level (None without edges), SIMILARITIES and CEILINGS (None: nothing to compare)."""

    motion_value: float
    motion_level: int | None
    similarities: dict[str, float | None]


class Scorer:
    """Towers, the world's measure of motion, and the characters' pictures, ready to score games."""

    def __init__(self, towers: Towers, meter: MotionMeter, cast: Cast) -> None:
        self.towers = towers
        self.meter = meter
        self.cast = cast
        self._references: dict[str, Seen] = {}

    def game(self, game: BenchmarkGame) -> GameScorer:
        """The scorer of one game's shots, turn after turn."""
        return GameScorer(self, game)

    def see(self, frames_MHWC: NDArray[np.uint8]) -> Seen:
        """What the towers make of pictures of one size."""
        perceptual = self.towers.dreamsim
        return Seen(
            self.towers.clip.pictures(frames_MHWC),
            None if perceptual is None else perceptual.pictures(frames_MHWC),
        )

    def references(self, name: str) -> Seen | None:
        """What the towers make of a character's pictures, which may have several sizes; None without any."""
        if name not in self.cast.pictures:
            return None
        if name not in self._references:
            self._references[name] = _together([self.see(picture[None]) for picture in self.cast.pictures[name]])
        return self._references[name]


class GameScorer:
    """Scores a game's shots in order, each against what it is to be like."""

    def __init__(self, scorer: Scorer, game: BenchmarkGame) -> None:
        self._scorer = scorer
        self._game = game
        self._references = scorer.references(game.character)
        self._truth = true_shots(game)
        self._before: Seen | None = None
        self._true_before: Seen | None = None
        self._turn = 0

    def score(self, frames_FHWC: NDArray[np.uint8]) -> Scores:
        """The scores of the next turn's shot."""
        turn, meter = self._game.turns[self._turn], self._scorer.meter
        shot, true = self._scorer.see(shown_frames(frames_FHWC)), self._true_shot()
        text_1E = self._scorer.towers.clip.texts([scored_text(turn)])
        found = self._likeness(shot, self._before, text_1E)
        found |= {f"{TRUTH}{name}": value for name, value in self._likeness(true, self._true_before, text_1E).items()}
        found["clip_i_true"] = None if true is None else pairwise(shot.clip_ME, true.clip_ME)
        found["dreamsim_true"] = None if true is None else pairwise(shot.dreamsim_ME, true.dreamsim_ME)
        self._turn, self._before, self._true_before = self._turn + 1, shot, true
        value = meter.value(frames_FHWC)
        return Scores(value, meter.level(value), {name: found[name] for name in (*SIMILARITIES, *CEILINGS)})

    def _true_shot(self) -> Seen | None:
        """What the towers make of the turn's true shot; None in a game without a truth."""
        return None if self._truth is None else self._scorer.see(shown_frames(self._truth[self._turn]))

    def _likeness(self, shot: Seen | None, before: Seen | None, text_1E: Tensor) -> dict[str, float | None]:
        """A shot's likeness to the words, the character and the shot before it; None without a shot."""
        return {
            "clip_t": None if shot is None else alike(shot.clip_ME, text_1E),
            **_compared("", shot, self._references),
            **_compared("_across", shot, before),
        }


def shown_frames(frames_FHWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The frames that are compared: four, evenly spaced, the first and the last among them (0, 5, 11, 16 of 17)."""
    return frames_FHWC[np.linspace(0, len(frames_FHWC) - 1, SHOWN).round().astype(int)]


def scored_text(turn: BenchmarkTurn) -> str:
    """The words that CLIP-T compares a shot with: `{adverb} {motion}, {background}`, without the characters' names,
    which a CLIP model cannot know.
    """
    return f"{turn.adverb} {turn.motion}, {turn.background}".strip()


def alike(one_ME: Tensor | None, other_ME: Tensor | None) -> float | None:
    """The mean cosine over all pairs of two sets of unit rows; None where a side is."""
    if one_ME is None or other_ME is None:
        return None
    return float((one_ME.double() @ other_ME.double().T).mean())


def pairwise(one_ME: Tensor | None, other_ME: Tensor | None) -> float | None:
    """The mean cosine of rows with rows of the same place; None where a side is."""
    if one_ME is None or other_ME is None:
        return None
    return float((one_ME.double() * other_ME.double()).sum(-1).mean())


def _compared(ending: str, shot: Seen | None, others: Seen | None) -> dict[str, float | None]:
    """A shot's mean cosine with other pictures, by both towers; None where a side is."""
    if shot is None or others is None:
        return {f"clip_i{ending}": None, f"dreamsim{ending}": None}
    return {
        f"clip_i{ending}": alike(shot.clip_ME, others.clip_ME),
        f"dreamsim{ending}": alike(shot.dreamsim_ME, others.dreamsim_ME),
    }


def _together(parts: list[Seen]) -> Seen:
    import torch

    rows = [part.dreamsim_ME for part in parts]
    return Seen(
        torch.cat([part.clip_ME for part in parts]),
        None if any(row is None for row in rows) else torch.cat([row for row in rows if row is not None]),
    )
