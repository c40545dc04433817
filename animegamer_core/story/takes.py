"""Judged takes: a turn is drawn several times with different noise, a judge scores each take, and the best is kept.

The judge is passed in (evaluate/judges.py), like the models. Imports no torch.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ..json_files import JsonError, to_type
from ..runtime.models import SEEDS

if typing.TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TAKE_STRIDE = 1009  # between the seeds of two takes, as in the Play tab: a story's turn n is drawn with seed + n - 1
MOST_TAKES = 64


class ShotJudge(typing.Protocol):
    """Scores how well a shot shows what was requested."""

    @property
    def name(self) -> str:
        """Identifies everything that the scores depend on; it is stored with them. Loads no model."""

    def judge(self, instruction: str, motion: float, frames_FHWC: NDArray[np.uint8]) -> Mapping[str, float]:
        """Part -> how well it fits, 0..1. motion: the motion condition, px per frame."""


_Fit = typing.Annotated[float, msgspec.Meta(ge=-1, le=2)]  # 0..1, with room for rounding; a file may hold any number


@dataclass(frozen=True)
class Judgement:
    """A judge's score of a shot. by: the judge's name. parts: what it looked at -> how well it fits, 0..1.

    A shot's record in a story holds it under `judged`.
    """

    by: str
    parts: Mapping[str, _Fit]

    @property
    def score(self) -> float:
        """The mean of the parts; 1 if there are none."""
        return sum(self.parts.values()) / len(self.parts) if self.parts else 1.0


@dataclass(frozen=True)
class JudgedTake:
    """A judged take of a turn: the address of its shot, its seed, and the judge's score."""

    shot: str
    seed: int
    judged: Judgement


def judged(judge: ShotJudge, instruction: str, motion: float, frames_FHWC: NDArray[np.uint8]) -> Judgement:
    """A judge's score of a shot. motion: its motion condition."""
    parts = judge.judge(instruction, motion, frames_FHWC)
    return Judgement(judge.name, {name: float(value) for name, value in parts.items()})


def scores_text(takes: Sequence[tuple[int, Judgement]], kept: int) -> str:
    """The scores of a turn's takes (seed, judgement), and the kept seed, as text."""
    return ", ".join(f"{found.score:.3f} (seed {seed}{', kept' if seed == kept else ''})" for seed, found in takes)


def judgement_of(record: Mapping[str, typing.Any] | None) -> Judgement | None:
    """The judgement in a shot's record; None if there is none, or it is damaged."""
    try:
        return None if record is None else to_type(record.get("judged"), Judgement, "record")
    except JsonError:
        return None


def needs_judge(count: int, bar: float, most: int) -> bool:
    """Whether these settings of `Takes` differ from one take without a bar, which is drawn without a judge."""
    return (count, bar, most) != (1, 0, 0)


@dataclass(frozen=True)
class Takes:
    """How many takes of a turn are drawn. count: always; 1 is drawn without choosing.

    bar: while the best take's score is below it, another take is drawn, until there are `most` (0: `count`).
    """

    judge: ShotJudge
    count: int = 1
    bar: float = 0.0
    most: int = 0

    def __post_init__(self) -> None:
        check_count(self.count)
        if self.most and not self.count <= self.most <= MOST_TAKES:
            raise ValueError(f"most takes is {self.most}; expected {self.count} (takes) to {MOST_TAKES}")
        if not 0 <= self.bar <= 1:
            raise ValueError(f"the bar is {self.bar}; expected a score from 0 to 1")
        if self.bar and self.most <= self.count:
            raise ValueError(
                f"a bar of {self.bar:g} has no effect with at most {self.most or self.count} takes; allow more than "
                f"{self.count}"
            )

    def seeds(self, first: int) -> tuple[int, ...]:
        """The noise seeds of a turn's takes, the first one given."""
        return take_seeds(max(self.count, self.most), first)

    def enough(self, scores: Sequence[float]) -> bool:
        """Whether these takes are all that should be drawn."""
        drawn = len(scores)
        return drawn >= self.count and (drawn >= self.most or max(scores) >= self.bar)


def best_take(scores: Sequence[float]) -> int:
    """The index of the highest score; the first of equal ones, so that the choice is stable."""
    return max(range(len(scores)), key=lambda index: (scores[index], -index))


def take_seeds(count: int, seed: int = 0) -> tuple[int, ...]:
    """The seeds of this many takes, starting with the given one. ValueError for none, or more than MOST_TAKES."""
    check_count(count)
    return tuple((seed + TAKE_STRIDE * number) % SEEDS for number in range(count))


def check_count(count: int) -> None:
    """ValueError unless a turn can have this many takes."""
    if not 1 <= count <= MOST_TAKES:
        raise ValueError(f"takes is {count}; expected 1 to {MOST_TAKES}")
