"""Ranks by people: one CSV with a line for each rater, game and criterion, and a column for each agent's letter.

Agents are shown as A, B, C, D in an order that differs between games; key.json says which is which, and must be kept
from the raters. R raters, G games, A agents.
"""

from __future__ import annotations

import csv
import itertools
import random
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...files import make_folder, replacing
from ...json_files import read_json, read_text
from ...weights.storage import write_json
from ..estimates import DRAWS, FEW, Estimate
from ..world.metrics import SOURCE
from .comparison import Comparison, save_scores, shown_order

CSV, KEY, CLIPS = "ratings.csv", "key.json", "clips"
LETTERS = "ABCD"
POINTS = (10, 7, 4, 1)  # for ranks 1 to 4 (supplement, section 5)
CRITERIA = ("Overall", "Instruction following", "Context consistency", "Character consistency")
# The paper's scores by people, out of 10.
RANKED: dict[str, dict[str, float]] = {
    "AnimeGamer": dict(zip(CRITERIA, (10.0, 9.95, 9.95, 9.86), strict=True)),
    "GC": dict(zip(CRITERIA, (7.38, 7.37, 6.89, 7.55), strict=True)),
}


def mean_points(ranks_RG: NDArray[np.int64]) -> Estimate:
    """An agent's mean points, with a bootstrap interval over raters and games, both drawn (2.5 % to 97.5 %)."""
    points_RG = np.asarray(POINTS, dtype=float)[ranks_RG - 1]
    chance = np.random.default_rng(0)
    # how often each rater, and each game, was drawn with replacement
    times = [chance.multinomial(size, np.full(size, 1 / size), DRAWS) for size in points_RG.shape]
    means = np.einsum("dr,rg,dg->d", times[0], points_RG, times[1]) / points_RG.size
    middle = float(points_RG.mean())
    low, high = (float(end) for end in np.quantile(means, (0.025, 0.975)))
    return Estimate(middle, min(middle, low), max(middle, high), points_RG.size)


def write_study(comparison: Comparison, out: Path, raters: int, games: int, seed: int = 0) -> Path:
    """Write an empty CSV, the clips under the agents' letters, and the key; returns the path of the CSV.

    All raters see the same randomly chosen games. ValueError for numbers out of range or an existing study.
    """
    count = len(comparison.agents)
    if not 2 <= count <= len(LETTERS):
        raise ValueError(f"{count} runs; expected 2 to {len(LETTERS)}, as the paper's scale has")
    if raters < 1 or not 1 <= games <= len(comparison.games):
        raise ValueError(f"{raters} raters of {games} games; expected 1 or more, and 1 to {len(comparison.games)}")
    if (out / KEY).exists():
        raise ValueError(f"{out} holds a study; choose a new folder")
    chosen = random.Random(f"raters/{seed}").sample(list(comparison.games), games)
    orders = {game: shown_order(f"raters/{seed}", number, count) for number, game in enumerate(chosen)}
    make_folder(out / CLIPS)
    for number, game in enumerate(chosen, start=1):
        for letter, agent in zip(LETTERS, orders[game], strict=False):
            for turn, clip in enumerate(comparison.clips(agent, game), start=1):
                shutil.copyfile(clip, out / CLIPS / f"game-{number:02}-turn-{turn:02}-{letter}{clip.suffix}")
    with replacing(out / CSV) as part, part.open("w", newline="", encoding="utf-8-sig") as file:
        lines = csv.writer(file)
        lines.writerow(["rater", "game", "criterion", *LETTERS[:count]])
        for rater in range(1, raters + 1):
            lines.writerows([rater, number, name] for number in range(1, games + 1) for name in CRITERIA)
    key = {"agents": comparison.agents, "raters": raters, "orders": [orders[game] for game in chosen], "games": chosen}
    write_json(out / KEY, {"note": "Keep this from the raters: it says which agent is which.", **key})
    return out / CSV


def read_study(out: Path) -> tuple[list[str], dict[str, NDArray[np.int64]]]:
    """(the agents, criterion -> ranks (R, G, A)) of a filled-in CSV; ValueError names a line that is missing or wrong.

    Each line has the ranks 1 to N, each once, since the paper's scores have no ties. Spreadsheet programs save the CSV
    with commas, semicolons or tabs; all are read.
    """
    if not (out / KEY).is_file():
        raise ValueError(f"{out}: no study here (no {KEY}); give the --out folder of `evaluate raters`")
    key = read_json(out / KEY, dict)
    agents, orders = key["agents"], key["orders"]
    text = read_text(out / CSV)
    delimiter = next((mark for mark in ",;\t" if text.startswith(f"rater{mark}")), ",")
    reader = csv.DictReader(text.splitlines(), delimiter=delimiter)
    lines = {(line.get("rater"), line.get("game"), line.get("criterion")): line for line in reader}
    ranks = {name: np.zeros((key["raters"], len(orders), len(agents)), np.int64) for name in CRITERIA}
    for rater, game, name in itertools.product(range(key["raters"]), range(len(orders)), CRITERIA):
        line = lines.get((str(rater + 1), str(game + 1), name), {})
        given = [(line.get(letter) or "").strip() for letter in LETTERS[: len(agents)]]
        if sorted(given) != [str(rank) for rank in range(1, len(agents) + 1)]:
            raise ValueError(
                f"{out / CSV}: rater {rater + 1}, game {game + 1}, {name}: ranks {', '.join(given)!r}; expected 1 to "
                f"{len(agents)}, each once; rank every line, and keep its first three columns"
            )
        ranks[name][rater, game, orders[game]] = list(map(int, given))
    return agents, ranks


def save_ratings(out: Path) -> list[Path]:
    """Write ranks.json and ranks.md of a filled-in study; returns their paths."""
    agents, ranks = read_study(out)
    notes = (
        "Points: 10, 7, 4 and 1 for ranks 1 to 4. Intervals: 95 %, bootstrap over raters and games, both drawn with "
        f"replacement (Owen 2007); with fewer than {FEW} of either they are too narrow. (paper): {SOURCE}; `-`: not "
        "given."
    )
    return save_scores(
        out / "ranks",
        "Ranked by people",
        dict(zip(CRITERIA, CRITERIA, strict=True)),
        {name: {key: mean_points(ranks[key][..., index]) for key in CRITERIA} for index, name in enumerate(agents)},
        RANKED,
        notes,
    )
