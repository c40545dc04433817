"""The page of clips: one row per game with its shots, and each shot's request, prediction, measurement and scores.

It is one HTML file next to the clips, and opens from disk without a server. Its sources are in clips_page/.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...media.page import write_page as write_html
from ..estimates import Estimate
from ..similarity import STAND_IN
from .metrics import METRICS
from .records import GAMES, GameRecord, TurnRecord
from .report import PaperTable, number
from .scores import SHOT_SCORES

PAGE = "index.html"
_PARTS = Path(__file__).with_name("clips_page")


def write_page(table: PaperTable, out: Path) -> Path:
    """Write index.html into a run's folder; returns its path."""
    return write_html(out / PAGE, _PARTS, ["page.js"], shown(table))


def shown(table: PaperTable) -> dict[str, Any]:
    """The page's data: the table's rows, the scores by which games can be sorted, and the games."""
    ours = table.ours
    measured = [metric for metric in METRICS if ours.estimates[metric.key].count]
    return {
        "heading": table.heading,
        "remarks": list(table.all_remarks),
        "towers": STAND_IN if table.run.asked["towers"]["stand_in"] else "",
        "rows": [[table.marked(metric), *_cells(ours.estimates[metric.key], metric.unit)] for metric in measured],
        "scores": [
            {"key": metric.key, "name": table.label(metric), "higher": metric.higher}
            for metric in measured
            if metric.key in SHOT_SCORES
        ],
        "games": [
            {"name": game.name, "character": game.character, "turns": [_turn(game, turn) for turn in game.turns]}
            for game in table.run.games
        ],
    }


def _cells(estimate: Estimate, unit: str) -> list[str]:
    interval = f"{number(estimate.low)} .. {number(estimate.high)}, n = {estimate.count}"
    return [number(estimate.value, unit), interval]


def _turn(game: GameRecord, turn: TurnRecord) -> dict[str, Any]:
    asked, change = turn.asked, turn.change
    stats = [[name, units, None if change is None else change[name]] for name, units in asked.change.items()]
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
        "gauges": stats,
        "scores": {name: turn.scores.get(name) for name in SHOT_SCORES},
        "seconds": turn.seconds,
    }
