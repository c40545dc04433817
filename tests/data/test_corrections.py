"""Corrections of a dataset's captions: applied whole or not at all, and again without harm."""

import contextlib
import json
import shutil
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import correct, rows_of, write_rows

from animegamer_core.data import corrections
from animegamer_core.data.check import check
from animegamer_core.data.corrections import apply_corrections
from animegamer_core.data.dataset import DatasetError, DatasetFolder
from animegamer_core.data.records import CAPTION_FIELDS, LOCK, ClipRecord
from animegamer_core.files import locked

TABLES = ("turns.jsonl", "games.jsonl", "dataset.json", "dropped.jsonl", "set_aside.jsonl")


@pytest.fixture(scope="module")
def base(drawn, tmp_path_factory):
    """The drawn dataset; its third clip is set aside, and it has a dropped segment."""
    folder = shutil.copytree(drawn, tmp_path_factory.mktemp("base") / "dataset")
    rows = (folder / "turns.jsonl").read_text().splitlines()
    aside = json.loads(rows.pop(2))
    write_rows(folder / "turns.jsonl", *rows)
    facts = {"clip": aside["clip"], "reason": "[ID] 7 is no picture", "reply": "[Num]1[ID]7"}
    write_rows(folder / "set_aside.jsonl", facts | {"record": aside | dict.fromkeys(CAPTION_FIELDS)})
    dropped = {"film": aside["film"], "start": 90.0, "end": 92.0, "reason": "still"}
    write_rows(folder / "dropped.jsonl", dropped)
    games = (folder / "games.jsonl").read_text().replace(f'"{aside["clip"]}", ', "")
    (folder / "games.jsonl").write_text(games)
    assert aside["clip"] == ASIDE
    return folder


FIRST, SECOND, ASIDE, FOURTH = (f"clips/train-00000-{turn:02d}.mp4" for turn in range(4))
HELD = "clips/heldout-00000-00.mp4"
WHOLE = {"character": ["Miko"], "motion": "run", "background": "day beach", "adverb": ""}
WHOLE |= {"stats": {"social": 0, "entertainment": 1, "stamina": -1}}


@pytest.fixture
def folder(base, tmp_path):
    return shutil.copytree(base, tmp_path / "dataset")


def tables(folder) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


def turns(folder) -> dict[str, ClipRecord]:
    return {turn.clip: turn for turn in DatasetFolder.open(folder).turns}


def test_only_what_was_corrected_changes(folder):
    before = turns(folder)
    change = {"character": ["Miko", "Zo\u00eb"], "motion": "ride a broom", "stats": WHOLE["stats"], "adverb": ""}
    assert correct(folder, {"clip": FIRST, **change}, {"clip": FOURTH, "motion": before[FOURTH].motion}) == 1
    after = turns(folder)
    wanted = {**change, "character": ("Miko", "Zo\u00eb")}
    assert after.pop(FIRST) == msgspec.structs.replace(before.pop(FIRST), **wanted)
    assert after == before and list(after) == list(before)
    assert not [problem for problem in check(folder) if problem.serious]


def test_a_dropped_clip_leaves_every_table_and_can_come_back(folder):
    before = tables(folder)
    assert correct(folder, {"clip": SECOND, "drop": True}) == 1
    assert SECOND not in turns(folder) and SECOND not in (folder / "games.jsonl").read_text()
    row = rows_of(folder / "dropped.jsonl")[-1]
    assert (row["film"], row["start"], row["end"]) == ("train-00000", 2.0, 4.0) and row["reason"] == "dropped in review"
    assert not [problem for problem in check(folder) if problem.serious]
    assert correct(folder, {"clip": SECOND, "drop": False}) == 1
    after = tables(folder)
    assert all(after[name] == before[name] for name in ("turns.jsonl", "dropped.jsonl"))


@pytest.mark.parametrize("gone", [slice(1, 2), slice(None)])
def test_a_clip_that_was_held_out_comes_back_held_out(folder, gone):
    (game,) = (row for row in rows_of(folder / "games.jsonl") if row["held_out"])
    for _ in range(2):
        for drop in (True, False):
            rows = [{"clip": clip, "drop": drop} for clip in game["clips"][gone]]
            assert correct(folder, *rows) == len(rows)
        opened = DatasetFolder.open(folder)
        assert {opened.turns[clip].clip for clip in opened.held_out_clips} == set(game["clips"])
        assert not {opened.turns[clip].clip for clip in opened.training_clips} & set(game["clips"])
        assert not [problem for problem in check(folder) if problem.serious]


def test_a_clip_set_aside_takes_its_place_once_its_caption_is_whole_or_is_dropped(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "other" / "dataset")
    assert correct(other, {"clip": ASIDE, "drop": True}) == 1
    assert rows_of(other / "set_aside.jsonl") == [] and rows_of(other / "dropped.jsonl")[-1]["record"]["clip"] == ASIDE
    assert correct(folder, {"clip": ASIDE, **WHOLE}) == 1
    assert list(turns(folder))[:4] == [FIRST, SECOND, ASIDE, FOURTH]
    assert turns(folder)[ASIDE].captioned and rows_of(folder / "set_aside.jsonl") == []
    assert correct(folder, {"clip": ASIDE, "drop": True}) == 1


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"clip": FIRST, "motion_value": 3.0}, "motion_value cannot be corrected"),
        ({"clip": FIRST, "motion": "run; Background: x"}, "remove the `;`"),
        ({"clip": FIRST, "drop": True, "motion": "run"}, "drop (true or false) alone"),
        ({"clip": "clips/other.mp4", "motion": "run"}, "'clips/other.mp4' is not a clip of this dataset"),
        ({"clip": ASIDE, "motion": "run"}, "was set aside, and character is still missing"),
        ('{"clip": "cut o', "not JSON"),
    ],
)
def test_one_bad_line_is_named_and_nothing_changes(folder, row, sentence):
    before = tables(folder)
    good = {"clip": SECOND, "motion": "swim"}
    with pytest.raises(DatasetError) as caught:
        correct(folder, good, {"clip": FOURTH, "drop": True}, row)
    assert "corrections.jsonl:3: " in str(caught.value) and sentence in str(caught.value)
    assert tables(folder) == before


def killed_after(writes: int, work) -> None:
    """Do a piece of work that is killed before it replaces one file more than so many."""
    written = []

    def write(path, text):
        if len(written) == writes:
            raise KeyboardInterrupt
        written.append(path)
        path.write_text(text, encoding="utf-8", newline="\n")

    with mock.patch.object(corrections, "write_text", write), contextlib.suppress(KeyboardInterrupt):
        work()


MEETS = {"character": ["Beni", "Miko"], "stats": {"social": 1, "entertainment": 1, "stamina": -1}}
CHANGES = st.sampled_from([{"drop": True}, {"motion": "hop"}, MEETS, {"adverb": "calmly"}])


@settings(max_examples=8, deadline=None)
@given(st.data(), st.dictionaries(st.sampled_from([FIRST, SECOND, FOURTH, HELD]), CHANGES, min_size=1))
def test_a_kill_anywhere_loses_nothing_and_the_same_call_completes_it(base, tmp_path_factory, data, changes):
    """Killed before any of its writes, the folder still reads; applied again it is as if it had never been killed."""
    rows = [{"clip": clip, **change} for clip, change in changes.items()] + [{"clip": ASIDE, **WHOLE}]
    place = tmp_path_factory.mktemp("kill")
    whole, killed = (shutil.copytree(base, place / name / "dataset") for name in ("whole", "killed"))
    assert correct(whole, *rows) >= 1
    killed_after(data.draw(st.integers(0, 6)), lambda: correct(killed, *rows))
    held = {row["record"]["clip"] for name in TABLES[3:] for row in rows_of(killed / name) if "record" in row}
    assert held | set(turns(killed)) == {ASIDE, *turns(base)}
    correct(killed, *rows)
    assert tables(killed) == tables(whole)
    assert correct(killed, *rows) == 0


def test_it_waits_for_no_build_and_writes_into_no_other_folder(folder, tmp_path):
    with locked(folder / LOCK, ""), pytest.raises(ValueError, match="a build is finishing"):
        correct(folder, {"clip": FIRST, "motion": "run"})
    (tmp_path / "other").mkdir()
    with pytest.raises(DatasetError, match="is this a dataset folder"):
        apply_corrections(tmp_path / "other", tmp_path / "corrections.jsonl")
    assert not list((tmp_path / "other").iterdir())
