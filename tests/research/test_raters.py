"""A study with people: blinded folders, sheets that are read strictly, and ranks as scores with intervals."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging_world import make_run

from animegamer_core.cli import ranks as cli_ranks
from animegamer_core.cli import raters as cli_raters
from animegamer_core.cli.options import parse
from animegamer_core.research.judging.ranks import POINTS, mean_over_both, read_ranks, save_ranks
from animegamer_core.research.judging.raters import Study, plan_study, read_key, write_study
from animegamer_core.research.judging.rating_sheets import CRITERIA, RatingSheet, harmless, read_sheet
from animegamer_core.research.judging.runs import open_comparison
from animegamer_core.state import StateChange

GAMES = {f"game-{number:03}": 2 for number in range(1, 5)}
AGENTS = ("Zeta", "Quux", "Vega")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    changes = (StateChange(1, 1, -1), None, StateChange(0, 0, 1))
    made = [make_run(folder / n, n, GAMES, 60 * i, changes[i]) for i, n in enumerate(AGENTS)]
    return open_comparison(made)


@pytest.fixture
def study(comparison, tmp_path):
    study = plan_study(comparison, raters=4, games=3, seed=0)
    write_study(study, comparison, tmp_path / "study")
    return study


SHOT = re.compile(r'<(?:video|img) src="([^"]+)".*?<b>(\w)</b> (.*?)</figcaption>')


def shots_of(study, folder, rater):
    """(file, agent, game, turn, caption) of each shot of a rater's page."""
    found = iter(SHOT.findall((folder / rater / "index.html").read_text("utf-8")))
    for game in study.games[rater]:
        for turn in range(2):
            for letter, agent in zip("ABC", study.orders[rater][game], strict=True):
                src, shown, caption = next(found)
                assert shown == letter
                yield folder / rater / src, agent, game, turn, caption
    assert not list(found)


def filled(study, rater, rank=lambda game, key, agent: agent + 1):
    """A rater's sheet in which each agent has the rank of a rule."""
    ranks = {}
    for number, game in enumerate(study.games[rater], start=1):
        for key in CRITERIA:
            ranks[number, key] = [rank(game, key, agent) for agent in study.orders[rater][game]]
    return study.sheet(rater).text(ranks)


def sheets(study, folder, rank=lambda rater: lambda game, key, agent: agent + 1, raters=None):
    folder.mkdir(exist_ok=True)
    paths = []
    for rater in raters or study.raters:
        paths.append(folder / f"{rater}.csv")
        paths[-1].write_bytes(filled(study, rater, rank(rater)).encode())
    return paths


# --- the folders ----------------------------------------------------------------------------------------------------


def test_each_rater_gets_a_folder_whose_letters_stand_for_the_agents_that_the_key_names(study, comparison, tmp_path):
    after = ("stamina 40, social 60, entertainment 60", "predicts no stats", "stamina 60, social 50, entertainment 50")
    for rater in study.raters:
        folder = tmp_path / "study" / rater
        assert sorted(path.name for path in folder.iterdir()) == ["clips", "index.html", "sheet.csv"]
        shots = list(shots_of(study, tmp_path / "study", rater))
        assert {path for path, *_ in shots} == {path for path in folder.rglob("*.mp4")} and len(shots) == 3 * 2 * 3
        for path, agent, game, turn, caption in shots:
            source = comparison.folder(agent, game) / comparison.record(agent, game).turns[turn].shown
            assert path.read_bytes() == source.read_bytes()
            assert turn == 0 or caption == after[agent]


def test_words_stay_words_on_the_page(tmp_path):
    runs = [make_run(tmp_path / name, name, {"game-001": 1}, 60) for name in AGENTS[:2]]
    comparison = open_comparison(runs)
    study = replace(plan_study(comparison, 1, 1, 0), characters={"game-001": "<img src=x onerror='x()'>"})
    page = write_study(study, comparison, tmp_path / "study")[0].read_text("utf-8")
    assert "<img" not in page and "a life of &lt;img src=x" in page
    assert "Turn 1: Miko; slowly walk round tree 1; day forest" in page


def test_nothing_that_a_rater_gets_names_an_agent(study, tmp_path):
    for rater in study.raters:
        for path in (tmp_path / "study" / rater).rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            for agent in AGENTS:
                assert agent.encode() not in data and agent not in path.name
    key = json.loads((tmp_path / "study" / "key.json").read_text("utf-8"))
    assert key["agents"] == list(AGENTS) and "Keep it from the raters" in key["note"]


def test_the_dates_of_clips_do_not_tell_which_were_played_together(tmp_path):
    runs = [make_run(tmp_path / name, name, {"game-001": 2, "game-002": 2}, 60 * n) for n, name in enumerate(AGENTS)]
    for day, run in enumerate(runs):
        for path in run.rglob("*.mp4"):
            os.utime(path, (1e9 + day, 1e9 + day))
    comparison = open_comparison(runs)
    study = plan_study(comparison, raters=3, games=2, seed=0)
    write_study(study, comparison, tmp_path / "study")
    clips = list((tmp_path / "study").rglob("*.mp4"))
    assert len({path.stat().st_mtime for path in clips}) == 1
    assert len({path.stat().st_ino for path in clips}) == 2 * 2 * 3, "each clip lies on the disk once for all raters"
    (comparison.folder(0, "game-001") / "turn-01.mp4").write_bytes(b"played anew")
    write_study(study, comparison, tmp_path / "study")
    shown = [path.read_bytes() for path in (tmp_path / "study").rglob("*.mp4")]
    assert shown.count(b"played anew") == 3 and len(shown) == len(clips)


def test_games_and_orders_differ_between_raters_and_are_balanced(comparison):
    study = plan_study(comparison, raters=30, games=4, seed=1)
    assert len({study.games[rater] for rater in study.raters}) > 5
    assert all(sorted(study.games[rater]) == sorted(GAMES) for rater in study.raters)
    for game in GAMES:
        firsts = Counter(study.orders[rater][game][0] for rater in study.raters)
        assert firsts == {0: 10, 1: 10, 2: 10}
    rows = [tuple(study.orders[rater][game] for game in GAMES) for rater in study.raters]
    assert len(set(rows)) > 10 and study == plan_study(comparison, 30, 4, 1) != plan_study(comparison, 30, 4, 2)
    assert len(set(plan_study(comparison, 1, 2, 1).characters)) == 2


def test_numbers_out_of_range_are_refused(comparison, tmp_path):
    for raters, games, expected in ((0, 1, "raters is 0"), (1, 5, "have 4 finished"), (1, 0, "games is 0")):
        with pytest.raises(ValueError, match=expected):
            plan_study(comparison, raters, games, 0)
    one = open_comparison([comparison.runs[0].folder])
    five = open_comparison([make_run(tmp_path / str(n), str(n), {"game-001": 1}, n) for n in range(5)])
    for wrong in (one, five):
        with pytest.raises(ValueError, match="expected 2 to 4, as"):
            plan_study(wrong, 1, 1, 0)


def test_the_same_call_again_keeps_what_is_filled_in_and_another_study_is_refused(study, comparison, tmp_path):
    out = tmp_path / "study"
    sheet = out / "rater-02" / "sheet.csv"
    sheet.write_text("filled in")
    (out / "rater-01" / "index.html").unlink()
    next((out / "rater-01" / "clips").rglob("*.mp4")).unlink()
    write_study(study, comparison, out)
    assert sheet.read_text() == "filled in" and (out / "rater-01" / "index.html").is_file()
    assert len(list((out / "rater-01" / "clips").rglob("*.mp4"))) == 18
    with pytest.raises(ValueError, match="holds another study"):
        write_study(plan_study(comparison, 4, 3, seed=9), comparison, out)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    with pytest.raises(ValueError, match="holds other files"):
        write_study(study, comparison, tmp_path / "other")


def test_a_disk_without_links_gets_copies(comparison, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(95, "not supported")

    monkeypatch.setattr(os, "link", refuse)
    study = plan_study(comparison, 1, 1, 0)
    write_study(study, comparison, tmp_path / "study")
    clips = list((tmp_path / "study").rglob("*.mp4"))
    assert len(clips) == 6 and all(clip.stat().st_nlink == 1 and clip.stat().st_size > 500 for clip in clips)
    write_study(study, comparison, tmp_path / "study")


def test_a_damaged_key_is_named(study, tmp_path):
    path = tmp_path / "study" / "key.json"
    assert read_key(tmp_path / "study") == study
    values = json.loads(path.read_text("utf-8"))
    values["raters"]["rater-01"]["orders"]["game-001"] = [0, 0, 1]
    fewer = json.loads(path.read_text("utf-8"))
    fewer["raters"]["rater-02"]["games"].pop()
    texts = ["{", "[]", '{"format": 2}', *map(json.dumps, ({**values, "agents": ["a"]}, values, fewer))]
    for text in texts:
        path.write_text(text)
        with pytest.raises(ValueError, match="not a study's key"):
            read_key(tmp_path / "study")
    with pytest.raises(ValueError, match="no study here"):
        read_key(tmp_path)


# --- the sheets -----------------------------------------------------------------------------------------------------

BLANK = RatingSheet("study-0-rater-01", ("Miko", "=1+1"), 3)


def test_an_empty_sheet_lists_games_and_criteria():
    rows = list(csv.reader(io.StringIO(BLANK.text())))
    assert rows[0] == ["sheet", "game", "character", "criterion", "A", "B", "C"]
    assert [row[1] for row in rows[1:]] == ["Game 1"] * 4 + ["Game 2"] * 4
    assert [row[3] for row in rows[1:5]] == [name for name, _ in CRITERIA.values()]
    assert all(row[4:] == ["", "", ""] and row[0] == "study-0-rater-01" for row in rows[1:])
    assert rows[5][2] == "'=1+1"


@given(st.text(max_size=20))
def test_no_cell_begins_a_formula(cell):
    cleaned = harmless(cell)
    assert not cleaned.startswith(("=", "+", "-", "@", "\t", "\r")) and cleaned.endswith(cell)
    rows = list(csv.reader(io.StringIO(RatingSheet(cell, (cell,), 2).text(), newline="")))
    assert not any(value.startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows for value in row)


RANKS = {(number, key): (1 + n % 3, 1 + (n + 1) % 3, 1 + (n + 2) % 3) for n, (number, key) in enumerate(
    (number, key) for number in (1, 2) for key in CRITERIA
)}  # fmt: skip


def read(tmp_path, text):
    path = tmp_path / "sheet.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_sheet(path, {BLANK.name: BLANK})


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: "\ufeff" + text,
        lambda text: text.replace(",", ";"),
        lambda text: text.replace(",", "\t").replace("\r\n", "\n"),
        lambda text: text + "\r\n,,,,,,\r\n",
        lambda text: re.sub(r"[^,\r\n]*[A-Za-z][^,\r\n]*", r'"\g<0>"', text),
        lambda text: re.sub(r"[^,\r\n]+", r'"\g<0>"', text).replace(",", ";"),
        lambda text: text.replace("'=1+1", "=1+1").replace(",1", ", 1 "),
        lambda text: text.replace("Miko", '"Mi""ko, the ""first"""'),
        lambda text: text.replace("Miko", "Mik\u00e9").encode("cp1252"),
        lambda text: "".join([text.splitlines(True)[0], *reversed(text.splitlines(True)[1:])]),
    ],
)
def test_a_sheet_is_read_as_spreadsheet_programs_save_it(tmp_path, change):
    assert read(tmp_path, change(BLANK.text(RANKS))) == ("study-0-rater-01", RANKS)


WRONG = {
    "line 2, column B: the rank is missing; expected one of 1, 2, 3": ("1,2,3", "1,,3"),
    "line 2, column C: '4' is not a rank": ("1,2,3", "1,2,4"),
    "line 2, column A: '0' is not a rank": ("1,2,3", "0,2,3"),
    "line 2, column A: '1.0' is not a rank": ("1,2,3", "1.0,2,3"),
    "line 2, column B: rank 1 is already in column A; ties are not allowed": ("1,2,3", "1,1,3"),
    'line 2, column A: "\'1" is not a rank': ("1,2,3", "'1,2,3"),
    "line 2: 6 cells; expected 7": ("1,2,3", "1,2"),
    "line 2, game and criterion: 'Game 9', 'Overall' is not in this sheet": ("Game 1,Miko,Ov", "Game 9,Miko,Ov"),
    "line 6, game and criterion: 'Game 1', 'Overall' is there twice": ("Game 2,'=1+1,Ov", "Game 1,'=1+1,Ov"),
    "no line for Game 2, Overall": ("Game 2,'=1+1,Ov", "Game 1,'=1+1,Ov"),
    "column sheet: found 'study-0-rater-01', 'study-0-rater-02'": ("01,Game 2,", "02,Game 2,"),
    "line 1: expected the columns sheet, game, character, criterion, A, B, C": ("A,B,C", "B,A,C"),
    "line 1: expected the columns": ("sheet,", "sheets,"),
    "not a line of CSV": ("1,2,3", '1,"2"x,3'),
}


@pytest.mark.parametrize("expected", WRONG)
def test_a_wrong_cell_is_named_with_file_and_line(tmp_path, expected):
    old, new = WRONG[expected]
    text = BLANK.text(RANKS)
    assert old in text
    with pytest.raises(ValueError) as raised:
        read(tmp_path, text.replace(old, new, 1) if "01,Game" not in old else text.replace(old, new))
    assert f"{tmp_path / 'sheet.csv'}" in str(raised.value) and expected in str(raised.value)


def test_all_that_is_wrong_is_named_up_to_twenty_lines(tmp_path):
    with pytest.raises(ValueError) as raised:
        read(tmp_path, BLANK.text())
    lines = str(raised.value).split("\n")
    assert len(lines) == 21 and lines[-1] == "... and 4 more"
    for text in ("", "\x00" * 50, "sheet,", "x" * 2_000_000, BLANK.text(RANKS).encode("utf-16")):
        with pytest.raises(ValueError, match="sheet.csv"):
            read(tmp_path, text)


@given(st.integers(0, 500), st.text(st.sampled_from('123,;"\n\r=A Game'), max_size=8), st.integers(0, 6))
def test_any_sheet_is_read_whole_or_refused(tmp_path_factory, at, noise, gone):
    text = BLANK.text(RANKS)
    text = text[: at % len(text)] + noise + text[at % len(text) + gone :]
    try:
        sheet, ranks = read(tmp_path_factory.getbasetemp(), text)
    except ValueError as error:
        assert len(str(error)) < 8000
        return
    assert sheet == BLANK.name and set(ranks) == set(RANKS)
    assert all(sorted(row) == [1, 2, 3] for row in ranks.values())


# --- the scores -----------------------------------------------------------------------------------------------------


def test_scores_and_agreement_by_hand(comparison, tmp_path):
    study = plan_study(comparison, raters=2, games=1, seed=0)
    ranks = {"rater-01": (1, 2, 3), "rater-02": (1, 3, 2)}
    back = sheets(study, tmp_path / "back", lambda rater: lambda game, key, agent: ranks[rater][agent])
    returned = read_ranks(study, back)
    assert [returned.score(agent, "overall").value for agent in range(3)] == [10, 5.5, 5.5]
    # rank sums 2, 5, 5: S = 4 + 1 + 1 = 6, W = 12 * 6 / (4 * 24) = 0.75
    assert returned.agreement("overall") == 0.75
    low, high = returned.score(1, "overall").low, returned.score(1, "overall").high
    assert (low, high) == (4, 7), "with two raters, a draw of one of them twice is in the interval"
    shown = [
        sum(POINTS[ranks[r][study.orders[r][study.games[r][0]][place]] - 1] for r in ranks) / 2 for place in range(3)
    ]
    assert returned.by_place("overall") == shown


def test_the_interval_draws_raters_and_games():
    by_rater = np.array([[1.0] * 50, [9.0] * 50])
    by_game = by_rater.T
    for values in (by_rater, by_game):
        figure = mean_over_both(values)
        assert (figure.value, figure.low, figure.high, figure.count) == (5, 1, 9, 100)
    even = mean_over_both(np.tile([[1.0, 9.0]], (40, 40)))
    assert 4 < even.low < 5 < even.high < 6 and even == mean_over_both(np.tile([[1.0, 9.0]], (40, 40)))
    # independent cells: close to the normal interval of the mean, 1.96 * s / sqrt(n), but wider by the product design
    noise = np.random.default_rng(1).normal(5, 1, (30, 30))
    figure = mean_over_both(noise)
    assert 0.9 < (figure.high - figure.low) / (2 * 1.96 / 30) < 2.2


def test_some_raters_may_be_missing_and_none_may_come_twice(study, comparison, tmp_path):
    paths = sheets(study, tmp_path / "back", raters=study.raters[:3])
    returned = read_ranks(study, paths)
    assert returned.raters == study.raters[:3] and returned.score(0, "overall").count == 9
    twin = tmp_path / "back" / "twin.csv"
    twin.write_bytes(paths[1].read_bytes())
    paths[2].write_text(paths[2].read_text("utf-8").replace(",1", ",x"), "utf-8")
    with pytest.raises(ValueError) as raised:
        read_ranks(study, [*paths, twin])
    assert "twin.csv: a second sheet of rater-02, after" in str(raised.value)
    assert f"{paths[2]}, line 2, column" in str(raised.value)
    with pytest.raises(ValueError, match="no sheets"):
        read_ranks(study, [])
    other = plan_study(comparison, raters=4, games=3, seed=5)
    with pytest.raises(ValueError, match="expected the name of one sheet of this study"):
        read_ranks(study, sheets(other, tmp_path / "other"))


def test_the_report_stands_beside_the_papers(study, tmp_path):
    returned = read_ranks(study, sheets(study, tmp_path / "back"))
    assert POINTS == (10, 7, 4, 1) and returned.score(0, "overall").count == 12
    paths = save_ranks(tmp_path, returned)
    values = json.loads(paths[0].read_text("utf-8"))
    assert values["scores"]["Zeta"]["context"]["value"] == 10 and values["points"] == [10, 7, 4]
    assert values["agreement"] == dict.fromkeys(CRITERIA, 1.0) and values["raters_asked"] == 4
    text = paths[1].read_text("utf-8")
    assert "| GC (paper) | 7.38 | 7.37 | 6.89 | 7.55 |" in text and "4 of 4 raters, 3 games" in text
    assert "| Quux | 7.00 (7.00 to 7.00) |" in text and "| Criterion | W | Place A | Place B | Place C |" in text


def test_names_are_escaped_in_the_report(tmp_path):
    rater = "rater-01"
    study = Study("study-1", ("a|b", "<i>c"), {"g": "Miko"}, {rater: ("g",)}, {rater: {"g": (1, 0)}})
    returned = read_ranks(study, sheets(study, tmp_path / "back"))
    text = save_ranks(tmp_path, returned)[1].read_text("utf-8")
    assert "| a\\|b |" in text and "\\<i\\>c" in text
    assert returned.agreement("overall") is None and "| Overall | - |" in text


def test_the_tasks_write_and_read(comparison, tmp_path, capsys):
    def run(task, *words):
        return task.run(parse(task.Options, [*map(str, words)], "evaluate", ""))

    out, folders = tmp_path / "out", [run.folder for run in comparison.runs]
    assert run(cli_raters, *folders, "--raters", 2, "--games", 2, "--out", out) == 0
    said = capsys.readouterr().out
    assert "2 folders for raters" in said and "keep it from the raters" in said
    study = read_key(out)
    paths = sheets(study, tmp_path / "back")
    (tmp_path / "back" / "notes.txt").touch()
    (tmp_path / "back" / f"._{paths[0].name}").write_bytes(b"\x00\x05\x16\x07 macOS keeps its own notes so")
    assert run(cli_ranks, out, "--folder", tmp_path / "back") == 0
    assert "| Zeta | 10.00" in capsys.readouterr().out and (out / "ranks.json").is_file()
    assert run(cli_ranks, out, paths[0]) == 0
    assert run(cli_raters, *folders, "--raters", 1, "--out", tmp_path / "all") == 0, "fewer games than nine"
    assert len(read_key(tmp_path / "all").characters) == len(comparison.games) < cli_raters.GAMES
    assert "1 of 2 raters" in (out / "ranks.md").read_text("utf-8")
    for words, expected in (((out,), "no sheets"), ((out, "--folder", tmp_path / "none"), "is not a folder")):
        with pytest.raises(ValueError, match=expected):
            run(cli_ranks, *words)
    with pytest.raises(ValueError, match="the rank is missing"):
        run(cli_ranks, out, out / "rater-01" / "sheet.csv")
