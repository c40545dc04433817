"""A study with people: clips under letters, one CSV that is read strictly, and ranks as scores with intervals."""

import csv
import json

import pytest
from judging_world import make_run

from animegamer_core.cli.judge import Raters
from animegamer_core.evaluate.judging.comparison import open_comparison
from animegamer_core.evaluate.judging.ratings import CRITERIA, read_study, write_study

AGENTS = ("Zeta", "Quux", "Vega")


@pytest.fixture
def runs(tmp_path):
    games = {f"game-{number:03}": 2 for number in range(1, 5)}
    return tuple(make_run(tmp_path / name, name, games, 60 * index) for index, name in enumerate(AGENTS))


def fill(out, change=lambda line, cells: cells, mark=","):
    """Rank the agents in their own order in every line."""
    orders = json.loads((out / "key.json").read_text("utf-8"))["orders"]
    head, *lines = csv.reader((out / "ratings.csv").read_text("utf-8-sig").splitlines())
    rows = [[*row, *(agent + 1 for agent in orders[int(row[1]) - 1])] for row in lines]
    rows = [change(number, row) for number, row in enumerate(rows, start=2)]
    (out / "ratings.csv").write_text("\n".join(mark.join(map(str, row)) for row in [head, *rows]), "utf-8")


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_ranks_by_letter_become_points_of_agents(runs, tmp_path, capsys, mark):
    out = tmp_path / "study"
    assert Raters(runs=runs, out=out, raters=2, games=3).run() == 0
    clips = sorted(path.name for path in (out / "clips").iterdir())
    assert len(clips) == 3 * 2 * 3 and clips[0].startswith("game-01-turn-01-A")
    key = json.loads((out / "key.json").read_text("utf-8"))
    for number, (game, order) in enumerate(zip(key["games"], key["orders"], strict=True), start=1):
        for letter, agent in zip("ABC", order, strict=True):
            clip = next((out / "clips").glob(f"game-{number:02}-turn-02-{letter}.*"))
            assert clip.read_bytes() == open_comparison(runs).clips(agent, game)[1].read_bytes()
    fill(out, mark=mark)
    assert Raters(out=out).run() == 0
    assert "Zeta" in capsys.readouterr().out
    scores = json.loads((out / "ranks.json").read_text("utf-8"))
    assert [scores["scores"][name]["Overall"]["value"] for name in AGENTS] == [10, 7, 4]


@pytest.mark.parametrize("wrong", [lambda cells: [*cells[:3], 1, 1, 2], lambda cells: [0, *cells[1:]]])
def test_a_wrong_or_missing_line_is_named(runs, tmp_path, wrong):
    out = tmp_path / "study"
    write_study(open_comparison(runs), out, raters=2, games=2)
    fill(out, lambda line, cells: cells if line > 2 else wrong(cells))
    with pytest.raises(ValueError, match="rater 1, game 1, Overall: ranks .* each once"):
        read_study(out)


def test_a_study_is_not_overwritten_and_needs_enough_runs(runs, tmp_path):
    out = tmp_path / "study"
    write_study(open_comparison(runs), out, raters=1, games=1)
    assert len((out / "ratings.csv").read_text("utf-8-sig").splitlines()) == 1 + len(CRITERIA)
    with pytest.raises(ValueError, match="new folder"):
        write_study(open_comparison(runs), out, raters=1, games=1)
    with pytest.raises(ValueError, match="expected 2 to 4"):
        write_study(open_comparison(runs[:1]), tmp_path / "other", raters=1, games=1)
    with pytest.raises(ValueError, match="no study"):
        read_study(tmp_path)
