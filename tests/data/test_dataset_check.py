"""`dataset check`: each thing that can be wrong with a dataset folder is named with its file and line."""

import json

import numpy as np
import pytest
from tables import rows_of, write_rows

from animegamer_core.data.check import check
from animegamer_core.data.dataset import DatasetError, DatasetFolder
from animegamer_core.data.records import CAPTION_FIELDS
from animegamer_core.media.video import write_clip

CLIP = "clips/train-00000-01.mp4"  # line 2 of turns.jsonl, clip 2 of the first game


def edit(folder, name, number, **changes):
    """Change values of a line."""
    rows = rows_of(folder / name)
    rows[number - 1] |= changes
    write_rows(folder / name, *rows)


def problems(folder):
    return [str(problem) for problem in check(folder)]


def test_a_good_dataset_has_no_problem(folder):
    heard = []
    assert check(folder, lambda done, count: heard.append((done, count))) == []
    assert heard == [(number, 11) for number in range(1, 12)]


@pytest.mark.parametrize(
    ("number", "changes", "sentence"),
    [
        (2, {"stats": {"social": 1, "entertainment": 0, "stamina": 0}}, "stamina is 0; expected -1 or 1"),
        (2, {"end": 5.0}, "the clip lasts 3 s; 17 frames at 8 fps take 2 s"),
        (3, {"start": 3.0, "end": 5.0}, "start 3 is inside clips/train-00000-01.mp4, which ends at 4"),
        (2, {"motion_value": 0.5}, "but motion_value 0.5 is in level 1; levels come from measurement, so set it to 1"),
        (2, {"motion": None, "stats": None}, "incomplete caption: motion, stats is null"),
        (2, dict.fromkeys(CAPTION_FIELDS), "clips without a caption: 1 of 11, this is the first"),
    ],
)
def test_a_wrong_line_is_named(folder, number, changes, sentence):
    edit(folder, "turns.jsonl", number, **changes)
    problems = [problem for problem in check(folder) if problem.serious]
    assert f"turns.jsonl:{number}: " in str(problems[0]) and sentence in str(problems[0]), problems


def test_games_keep_the_order_of_the_film_and_what_is_held_out_stays_out(folder):
    games = rows_of(folder / "games.jsonl")
    edit(folder, "games.jsonl", 1, clips=games[0]["clips"][::-1])
    edit(folder, "games.jsonl", 2, clips=[*games[1]["clips"], games[2]["clips"][0]])
    first, *rest = problems(folder)
    assert first.startswith("games.jsonl:1: clips/train-00000-02.mp4 (4 s) follows clips/train-00000-03.mp4 (6 s)")
    assert rest[-1].startswith("games.jsonl:2: clips that are also in a held-out game: 1, the first is clips/heldout-0")
    edit(folder, "games.jsonl", 3, held_out=1)
    with pytest.raises(DatasetError, match="games.jsonl:3: field held_out"):
        DatasetFolder.open(folder)
    (folder / "games.jsonl").unlink()
    assert any(line.startswith("games.jsonl: note: no game") for line in problems(folder))


def test_motion_has_four_edges_and_five_medians(folder):
    known = json.loads((folder / "dataset.json").read_text())
    motion = known["settings"]["motion"] | {"edges": [1, 2, 3]}
    (folder / "dataset.json").write_text(json.dumps({**known, "settings": {"motion": motion}}))
    assert problems(folder)[0].startswith("dataset.json: ") and "edges" in problems(folder)[0]
    (folder / "dataset.json").write_text(json.dumps({**known, "settings": {}}))
    assert "dataset.json: has no settings.motion.edges" in problems(folder)[0]
    with pytest.raises(DatasetError, match=r"edges \(four rising numbers\) and values \(five\); finish"):
        assert DatasetFolder.open(folder).motion_table


def test_a_cut_off_clip_is_noticed_without_decoding(folder):
    data = (folder / CLIP).read_bytes()
    for left in (b"", data[:5000], data[:-1]):
        (folder / CLIP).write_bytes(left)
        (line,) = problems(folder)
        assert line.startswith(f"turns.jsonl:2: {CLIP} cannot be used: ")


def test_clips_agree_in_size_length_and_frame_rate(folder):
    clips = sorted((folder / "clips").iterdir())
    frames = np.random.default_rng(0).integers(0, 255, (17, 192, 288, 3), np.uint8)
    write_clip(clips[0], frames[:, :64], 8)
    write_clip(clips[1], frames[:9], 8)
    write_clip(clips[2], frames, 12)
    assert sorted(line.split(": ")[1] for line in problems(folder)) == [
        "clips/heldout-00000-00.mp4 has size (288, 64); the dataset's is (288, 192)",
        "clips/heldout-00000-01.mp4 has frames 9; the dataset's is 17",
        "clips/heldout-00000-02.mp4 has fps 12.0; the dataset's is 8.0",
    ]
