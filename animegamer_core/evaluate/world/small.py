"""A small version of the paper's table in one call: a few games of the frozen benchmark."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..report import stacked
from ..similarity import ScoringModels, open_scoring_models
from .charts import draw_pictures
from .job import EvaluationJob, open_job, read_games, save_table
from .player import WorldPlayer

if TYPE_CHECKING:
    from PIL import Image

OnProgress = Callable[[str, int, int], None]  # (unit, such as "turns"; how many are done; how many in all)


@dataclass(frozen=True)
class SmallTable:
    """The table as text, and its charts above the first game's contact sheet. folder: of the run."""

    text: str
    sheet: Image.Image
    folder: Path


def evaluate_small(
    player: WorldPlayer, root: Path, games: int, seed: int, on_progress: OnProgress, models: ScoringModels | None = None
) -> SmallTable:
    """Play the first `games` games and measure their shots, in a folder below `root`.

    The folder's name is a hash of the world, its settings, the models and the seed, so finished games are not played
    again. An exception from on_progress ends the run after that turn. models: None for the Toybox's.
    """
    models = models or open_scoring_models("toybox", device=player.settings.device)
    decides = json.dumps([player.facts, models.facts, seed], sort_keys=True)
    job = EvaluationJob(
        world=player.world,
        player=player,
        models=models,
        games=read_games(None),
        out=root / f"{player.world.fingerprint[:8]}-{hashlib.sha256(decides.encode()).hexdigest()[:8]}",
        limit=games,
        seed=seed,
        device=player.settings.device,
    )
    counted, total = itertools.count(1), sum(len(game.turns) for game in job.played)
    with open_job(job) as opened:
        opened.play(lambda *_: on_progress("turns", next(counted), total))
        table = opened.report()
        save_table(table)
    return SmallTable(f"{table.text}\n\nclips: {job.out}", stacked(list(draw_pictures(table).values())), job.out)
