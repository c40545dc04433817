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
from ..similarity.choose import open_scoring_models
from ..similarity.models import ScoringModels
from .charts import draw_pictures
from .job import EvaluationJob, open_job, read_games, save_table
from .player import WorldPlayer

if TYPE_CHECKING:
    from PIL import Image

OnProgress = Callable[[str, int, int], None]  # (what, done, of how many)


@dataclass(frozen=True)
class SmallTable:
    """The table as text, and its charts above the first game's contact sheet. folder: everything else."""

    text: str
    sheet: Image.Image
    folder: Path


def evaluate_small(
    player: WorldPlayer, root: Path, games: int, seed: int, on_progress: OnProgress, models: ScoringModels | None = None
) -> SmallTable:
    """Play and measure, in a folder below `root` whose name depends on everything that decides the numbers.

    An exception from on_progress ends it after that turn; finished games are not played again. models None: the
    Toybox's.
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
