"""`dataset stats`: the table says what the tables hold, and the picture is drawn from the same counts."""

import re

import numpy as np
import pytest
from tables import rows_of, write_rows

from animegamer_core.data.dataset import DatasetError, DatasetFolder
from animegamer_core.data.records import CAPTION_FIELDS
from animegamer_core.data.stats import stats, write_stats


def row(text, name):
    """The cells of a table's line that begins with a name."""
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return re.split(r"\s{2,}", line.strip())


def test_the_table_counts_what_is_there(folder):
    turns = DatasetFolder.open(folder).turns
    text = stats(folder)
    assert row(text, "clips")[1] == f"{len(turns)} of 3 films, 0:00:{2 * len(turns)}"
    assert row(text, "games")[1].startswith("3 (1 held out) of 3 to 4 clips, median ")
    assert row(text, "captions")[1] == f"whole {len(turns)}, in part 0, none 0, set aside 0"
    for level, name in enumerate(("still", "gentle", "brisk", "fast", "wild"), start=1):
        values = [turn.motion_value for turn in turns if turn.motion_level == level]
        share, lowest = f"{100 * len(values) / len(turns):.0f} %", f"{min(values):.2f} .. {max(values):.2f}"
        assert row(text, f"{level} {name}")[1:] == [str(len(values)), share, lowest, f"{np.median(values):.2f}"]
    for name in {name for turn in turns for name in turn.character}:
        assert row(text, name)[1] == str(sum(name in turn.character for turn in turns))
    gauges = [turn.stats["stamina"] for turn in turns]
    assert row(text, "stamina")[1:] == [str(gauges.count(-1)), "0", str(gauges.count(1)), "0"]


def test_what_is_missing_and_what_was_left_out_is_counted(folder):
    turns = rows_of(folder / "turns.jsonl")
    for turn in turns[::2]:
        turn |= dict.fromkeys(CAPTION_FIELDS)
    write_rows(folder / "turns.jsonl", *turns)
    reasons = ["still", "duplicate of clips/a.mp4", "duplicate of clips/b.mp4"]
    dropped = [{"film": "other", "start": 0.0, "end": 2.0, "reason": reason} for reason in reasons]
    path = write_rows(folder / "dropped.jsonl", *dropped)
    path.write_text(path.read_text() + "{cut of")
    aside = {"clip": turns[0]["clip"], "reason": "no tag", "reply": "", "record": turns[0]}
    write_rows(folder / "set_aside.jsonl", aside)
    text = stats(folder)
    empty = (len(turns) + 1) // 2
    assert row(text, "captions")[1] == f"whole {len(turns) - empty}, in part 0, none {empty}, set aside 1"
    assert row(text, "dropped")[1] == "3 segments: duplicate 2, still 1"
    assert row(text, "other")[1:] == ["0", "0 %", "3"]
    assert row(text, "social")[4] == str(empty)


def test_the_picture_is_written_whole(folder):
    path = write_stats(folder)
    assert path == folder / "stats.png" and path.read_bytes().startswith(b"\x89PNG")
    assert not list(folder.glob("part-*"))
    with pytest.raises(DatasetError, match="is this a dataset folder"):
        stats(folder / "clips")
