"""The page of clips: every game a row of shots with what was asked, predicted and measured, and how each one scored.

One HTML file beside the clips, opened from the disk without a server. Its parts lie in clips_page/.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...page import write_page as write_html
from ..similarity.towers import STAND_IN
from .metrics import GAUGES, METRICS
from .records import GAMES, GameRecord, TurnRecord
from .report import PaperTable, number
from .scores import SIMILARITIES

PAGE = "index.html"
_PARTS = Path(__file__).with_name("clips_page")


def write_page(table: PaperTable, out: Path) -> Path:
    """Write index.html into a run's folder; returns its path."""
    return write_html(out / PAGE, _PARTS, ["page.js"], shown(table))


def shown(table: PaperTable) -> dict[str, Any]:
    """What the page is told: the table's rows, what games can be sorted by, and the games."""
    ours = table.ours
    measured = [metric for metric in METRICS if ours.figures[metric.key].count]
    return {
        "heading": table.heading,
        "remarks": list(table.said),
        "towers": STAND_IN if table.run.asked["towers"]["stand_in"] else "",
        "rows": [
            [table.marked(metric), number(ours.figures[metric.key].value, metric.unit), _interval(table, metric.key)]
            for metric in measured
        ],
        "scores": [
            {"key": metric.key, "name": table.label(metric), "higher": metric.higher}
            for metric in measured
            if metric.key in SIMILARITIES
        ],
        "games": [_game(game) for game in table.run.games],
    }


def _interval(table: PaperTable, key: str) -> str:
    figure = table.ours.figures[key]
    return f"{number(figure.low)} .. {number(figure.high)}, n = {figure.count}"


def _game(game: GameRecord) -> dict[str, Any]:
    return {"name": game.name, "character": game.character, "turns": [_turn(game, turn) for turn in game.turns]}


def _turn(game: GameRecord, turn: TurnRecord) -> dict[str, Any]:
    asked, change = turn.asked, turn.change
    gauges = [[name, getattr(asked.change, name), None if change is None else getattr(change, name)] for name in GAUGES]
    return {
        "number": turn.number,
        "clip": f"{GAMES}/{game.name}/{turn.shown}",
        "who": ", ".join(asked.characters),
        "motion": f"{asked.adverb} {asked.motion}".strip(),
        "where": asked.background,
        "asked": asked.level,
        "predicted": turn.level,
        "measured": turn.motion_level,
        "value": turn.motion_value,
        "gauges": gauges,
        "scores": {name: turn.scores.get(name) for name in SIMILARITIES},
        "seconds": turn.seconds,
    }
