"""The dataset folder and its caches: read, checked, written, continued after a kill."""

import json

import msgspec
import numpy as np
import pytest

from animegamer_core.data.dataset import ClipRecord, DatasetError, DatasetFolder, with_levels, write_tables
from animegamer_core.media.video import write_clip

KEYS = ("film start end clip character motion background adverb motion_value motion_level stats").split()


def record(number: int, **changes) -> ClipRecord:
    values = {"film": "squares", "start": 2.0 * number, "end": 2.0 * number + 2, "clip": f"clips/{number:04d}.mp4"}
    values |= {"character": ("Miko", "Taro"), "motion": "fly on a broomstick", "background": "night harbour"}
    values |= {"adverb": "quickly", "motion_value": 1.0 + number}
    values |= {"stats": {"social": 1, "entertainment": 1, "stamina": -1}}
    return ClipRecord(**{**values, **changes})


def frames(number: int) -> np.ndarray:
    return np.full((3, 4, 6, 3), 20 * number, np.uint8)


def finished(path, count: int = 10) -> DatasetFolder:
    for number in range(count):
        write_clip(path / record(number).clip, frames(number), 8)
    turns, levels = with_levels([record(number) for number in range(count)])
    games = [("first", [f"clips/{n:04d}.mp4" for n in range(5)], False)]
    games.append(("second", [f"clips/{n:04d}.mp4" for n in (7, 5, 6)], True))
    motion = {"backend": "dis", "threshold": 0.2, **levels}
    return write_tables(path, turns, games, {"film": "drawn"}, {"height": 4, "motion": motion})


def test_a_folder_reads_back_what_was_written(tmp_path):
    folder = finished(tmp_path)
    again = DatasetFolder.open(tmp_path)
    assert again.turns == folder.turns and again.games == folder.games
    assert [turn.motion_level for turn in again.turns] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert again.games[1].clips == (7, 5, 6) and again.games[1].held_out
    assert again.training_clips == (0, 1, 2, 3, 4, 8, 9) and again.held_out_clips == (5, 6, 7)
    assert np.abs(again.frames(4).astype(int) - frames(4)).max() <= 2
    assert again.motion_table.values == (1.5, 3.5, 5.5, 7.5, 9.5)
    assert all(again.motion_table.level(turn.motion_value) == turn.motion_level for turn in again.turns)
    assert json.loads((tmp_path / "turns.jsonl").read_text().splitlines()[0]).keys() == set(KEYS)


def test_a_record_says_its_instruction():
    turn = msgspec.structs.replace(record(1), motion_level=3)
    assert turn.captioned and not record(1).captioned, "training reads the level too"
    assert turn.instruction == (
        "Character: Miko, Taro; Motion: quickly fly on a broomstick; Background: night harbour."
    )
    assert turn.motion_text == "quickly fly on a broomstick"
    with pytest.raises(ValueError, match=r"clips/0001.*no caption"):
        _ = msgspec.structs.replace(turn, motion=None).instruction


def test_what_is_not_a_dataset_is_reported(tmp_path):
    with pytest.raises(DatasetError, match=r"turns.jsonl: is missing"):
        DatasetFolder.open(tmp_path)
    finished(tmp_path)
    (tmp_path / "dataset.json").write_text('{"format": 99}')
    with pytest.raises(DatasetError, match="dataset.json: field format"):
        DatasetFolder.open(tmp_path)
