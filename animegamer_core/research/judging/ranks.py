"""Converts people's ranks to scores of 10, 7, 4 and 1 points: means with intervals, and the raters' agreement.

R raters, G games, A agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...evaluate.estimates import DRAWS, FEW, Estimate
from ...evaluate.world.paper import SOURCE
from ...files import write_text
from .agreement import concordance, mean_of_known
from .paper import RANKED
from .raters import Study
from .rating_sheets import CRITERIA, LETTERS, check, read_sheet
from .runs import as_json, plain
from .verdicts import interval_cell, number_cell, table

POINTS = (10, 7, 4, 1)  # for ranks 1 to 4 (supplement, section 5)
RANKS_JSON, RANKS_MD = "ranks.json", "ranks.md"
NOTES = (
    "Points: 10 for the first rank, 7 for the second, 4 for the third, 1 for the fourth; two agents get 10 and 7, "
    "three get 10, 7 and 4.",
    f"Intervals: 95 %, bootstrap over raters and games, both drawn with replacement ({DRAWS:,} draws; Owen 2007, the "
    "pigeonhole bootstrap), since the ranks of one rater are correlated, and those of one game too; with "
    f"fewer than {FEW} of either they are too narrow.",
    "W: Kendall's coefficient of concordance of the raters' ranks, mean over games; 1 is full agreement.",
    "Place: the mean points under that letter; unequal means show position bias.",
    f"(paper): the human scores of {SOURCE}, which ranked four players; `-`: not given.",
)


@dataclass(frozen=True)
class Ratings:
    """The ranks in the returned sheets.

    ranks[criterion]: (R, G, A) in the order of `raters`, `games` and the study's agents. places[criterion]: (R, G, A)
    in the order of letters, A first.
    """

    study: Study
    raters: tuple[str, ...]
    games: tuple[str, ...]
    ranks: Mapping[str, NDArray[np.int64]]
    places: Mapping[str, NDArray[np.int64]]

    def score(self, agent: int, key: str) -> Estimate:
        """An agent's mean points, with an interval over raters and games."""
        return mean_over_both(points_of(self.ranks[key][:, :, agent]))

    def agreement(self, key: str) -> float | None:
        """Kendall's W of the raters, averaged over games; None for one rater."""
        return mean_of_known([concordance(self.ranks[key][:, game]) for game in range(len(self.games))])

    def by_place(self, key: str) -> list[float]:
        """The mean points of each letter."""
        return [float(mean) for mean in points_of(self.places[key]).mean((0, 1))]


def points_of(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """The points of ranks 1 to 4, in the same shape."""
    return np.asarray(POINTS, dtype=float)[ranks - 1]


def mean_over_both(values_RG: NDArray[np.float64]) -> Estimate:
    """The mean with a bootstrap interval over rows and columns, both drawn with replacement (2.5 % to 97.5 %)."""
    chance = np.random.default_rng(0)
    # how often each row, and each column, was drawn
    times = [chance.multinomial(size, np.full(size, 1 / size), DRAWS) for size in values_RG.shape]
    means = np.einsum("dr,rg,dg->d", times[0], values_RG, times[1]) / values_RG.size
    middle = float(values_RG.mean())
    low, high = (float(end) for end in np.quantile(means, (0.025, 0.975)))
    return Estimate(middle, min(middle, low), max(middle, high), values_RG.size)


def read_ranks(study: Study, paths: Sequence[Path]) -> Ratings:
    """Read the filled-in sheets of a study; ValueError lists everything that is wrong, by file, line and cell."""
    if not paths:
        raise ValueError("no sheets; name the filled-in CSV files, or their folder with --folder")
    sheets = {rater: study.sheet(rater) for rater in study.raters}
    rater_of = {sheet.name: rater for rater, sheet in sheets.items()}
    by_name = {sheet.name: sheet for sheet in sheets.values()}
    found: dict[str, tuple[Path, dict[tuple[int, str], tuple[int, ...]]]] = {}
    problems: list[str] = []
    for path in paths:
        try:
            name, ranks = read_sheet(path, by_name)
        except ValueError as error:
            problems += str(error).split("\n")
            continue
        rater = rater_of[name]
        if rater in found:
            problems.append(f"{path}: a second sheet of {rater}, after {found[rater][0]}; keep one")
        found.setdefault(rater, (path, ranks))
    check(problems)
    return _combined(study, {rater: ranks for rater, (_, ranks) in sorted(found.items())})


def _combined(study: Study, found: Mapping[str, Mapping[tuple[int, str], tuple[int, ...]]]) -> Ratings:
    """The ranks of all raters, with letters mapped to agents, and games in the same order for all."""
    games = tuple(study.characters)
    shape = (len(found), len(games), len(study.agents))
    ranks = {key: np.zeros(shape, np.int64) for key in CRITERIA}
    places = {key: np.zeros(shape, np.int64) for key in CRITERIA}
    for row, (rater, rated) in enumerate(found.items()):
        for (number, key), shown in rated.items():
            game = study.games[rater][number - 1]
            places[key][row, games.index(game)] = shown
            for place, agent in enumerate(study.orders[rater][game]):
                ranks[key][row, games.index(game), agent] = shown[place]
    return Ratings(study, tuple(found), games, ranks, places)


def save_ranks(out: Path, returned: Ratings) -> list[Path]:
    """Write ranks.json and ranks.md; returns their paths."""
    study = returned.study
    values = {
        "study": study.name,
        "agents": study.agents,
        "raters": returned.raters,
        "raters_asked": len(study.raters),
        "games": returned.games,
        "points": POINTS[: len(study.agents)],
        "scores": {
            agent: {key: asdict(returned.score(number, key)) for key in CRITERIA}
            for number, agent in enumerate(study.agents)
        },
        "agreement": {key: returned.agreement(key) for key in CRITERIA},
        "places": {key: returned.by_place(key) for key in CRITERIA},
        "ranks": {key: ranks.tolist() for key, ranks in returned.ranks.items()},
        "paper": RANKED,
        "notes": list(NOTES),
    }
    paths = [out / RANKS_JSON, out / RANKS_MD]
    write_text(paths[0], as_json(values))
    write_text(paths[1], markdown(returned))
    return paths


def markdown(returned: Ratings) -> str:
    """The report as Markdown."""
    study, names = returned.study, [name for name, _ in CRITERIA.values()]
    rows = [
        [plain(agent), *(interval_cell(returned.score(number, key)) for key in CRITERIA)]
        for number, agent in enumerate(study.agents)
    ]
    rows += [[f"{agent} (paper)", *(number_cell(scores[key]) for key in CRITERIA)] for agent, scores in RANKED.items()]
    agreed = [
        [name, *map(number_cell, (returned.agreement(key), *returned.by_place(key)))]
        for key, (name, _) in CRITERIA.items()
    ]
    letters = [f"Place {letter}" for letter in LETTERS[: len(study.agents)]]
    summary = f"{len(returned.raters)} of {len(study.raters)} raters, {len(returned.games)} games, {study.name}."
    notes = "\n".join(f"- {note}" for note in NOTES)
    parts = ["# Ranked by people", summary, table(["Agent", *names], rows), "## Agreement and places"]
    return "\n\n".join([*parts, table(["Criterion", "W", *letters], agreed), "## How", notes]) + "\n"
