"""The paper's table in small, as one call: a few games of the frozen benchmark, scored by the Toybox's own towers."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..report import stacked
from ..similarity.towers import Towers, open_towers
from .job import Listeners, TableJob, games_of, open_job, save_table
from .pictures import draw_all
from .player import WorldPlayer

if TYPE_CHECKING:
    from PIL import Image

OnProgress = Callable[[str, int, int], None]  # (what, done, of how many)


@dataclass(frozen=True)
class SmallTable:
    """What is shown of it: the table in words, and its plots above the first game's contact sheet. folder: the rest."""

    text: str
    sheet: Image.Image
    folder: Path


def evaluate_small(
    player: WorldPlayer, root: Path, games: int, seed: int, on_progress: OnProgress, towers: Towers | None = None
) -> SmallTable:
    """Play and measure. What is played lies in a folder of its own below `root`, named after all that decides it.

    An exception from on_progress ends it after that turn; finished games are not played again. towers None: the
    Toybox's.
    """
    towers = towers or open_towers("toybox", device=player.settings.device)
    decides = json.dumps([player.facts, towers.facts, seed], sort_keys=True)
    job = TableJob(
        world=player.world,
        player=player,
        towers=towers,
        games=games_of(None),
        out=root / f"{player.world.fingerprint[:8]}-{hashlib.sha256(decides.encode()).hexdigest()[:8]}",
        limit=games,
        seed=seed,
        device=player.settings.device,
    )
    counted, total = itertools.count(1), sum(len(game.turns) for game in job.played)
    with open_job(job) as opened:
        opened.play(Listeners(lambda *_: on_progress("turns", next(counted), total)))
        table = opened.report()
        save_table(table)
    return SmallTable(f"{table.text}\n\nclips: {job.out}", stacked(list(draw_all(table).values())), job.out)
