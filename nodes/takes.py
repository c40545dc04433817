"""Judged takes: their widgets, how a node draws and chooses them, and how it reports them."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence

from comfy_api.v0_0_2 import io

from ..animegamer_core.evaluate.judges import open_judge
from ..animegamer_core.story.takes import MOST_TAKES, Judgement, Takes, best_take, judged, needs_judge, scores_text
from .values import Shot, bytes_of
from .widgets import optional_number_input

if typing.TYPE_CHECKING:
    from ..animegamer_core.story.takes import JudgedTake
    from .models import GameModel


def takes_input() -> io.Input:
    """How many takes are drawn. Optional, and a node's last one, so that older graphs still work."""
    tooltip = (
        "Draw this many takes, each with its own noise, let a judge score them, and keep the best. A Toybox world is "
        "judged by its probes, any other by the scoring models in its folder judge. 1: draw one, unjudged."
    )
    return optional_number_input("takes", 1, 1, MOST_TAKES, tooltip)


def bar_inputs() -> list[io.Input]:
    """When further takes are drawn."""
    return [
        io.Float.Input(
            "bar",
            default=0.0,
            min=0.0,
            max=1.0,
            step=0.01,
            optional=True,
            tooltip="While the best take scores below this, draw another one, up to most_takes. 0: never.",
        ),
        optional_number_input(
            "most_takes", 0, 0, MOST_TAKES, "Maximum number of takes per turn if a bar is set. 0: as many as takes."
        ),
    ]


def takes_of(model: GameModel, takes: int, bar: float = 0.0, most: int = 0) -> Takes | None:
    """The takes that the widgets ask for; None if one is drawn without a judge. ValueError if nothing can judge."""
    return Takes(open_judge(model.world), takes, bar, most) if needs_judge(takes, bar, most) else None


def best_shot(draw: Callable[[int], Shot], takes: Takes, first: int) -> tuple[Shot, list[str]]:
    """Draw takes with their seeds until there are enough; returns the best one, and the judge's scores of all."""
    best, said = None, []
    scores: list[float] = []
    for seed in takes.seeds(first):
        shot = draw(seed)
        turn = shot.moment.turn
        found = judged(takes.judge, turn.instruction, shot.key.motion, bytes_of(shot.image_FHWC))
        scores.append(found.score)
        said.append((seed, found))
        if best_take(scores) == len(scores) - 1:
            best = shot
        if takes.enough(scores):
            break
    assert best is not None
    return best, [_note(best.moment.turn.number, said, best.key.seed)]


def played_notes(number: int, takes: Sequence[JudgedTake], kept: int) -> list[str]:
    """The judge's scores of a played turn's takes; empty if there was no choice. kept: the chosen one's seed."""
    return [_note(number, [(take.seed, take.judged) for take in takes], kept)] if takes else []


def _note(number: int, takes: Sequence[tuple[int, Judgement]], kept: int) -> str:
    return f"Turn {number}, takes: {scores_text(takes, kept)}."
