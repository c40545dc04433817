"""Batches of games: their files, what is checked before the first is played, and the size of the grid's picture."""

import numpy as np
import pytest
from PIL import Image

from animegamer_core.__main__ import main
from animegamer_core.media.video import read_clip, write_clip
from animegamer_core.story import batch
from animegamer_core.story.batch import Take, read_game_files, write_grid
from animegamer_core.story.story import Story


def test_a_folder_among_the_files_of_games_is_passed_over(tmp_path):
    (tmp_path / "folder.txt").mkdir()
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("Miko runs\n", encoding="utf-8")
    assert [game.name for game in read_game_files([tmp_path])] == ["one", "two"]
    with pytest.raises(ValueError, match="two games are called 'two'"):
        read_game_files([tmp_path, tmp_path / "two.txt"])


@pytest.mark.parametrize("name, says", [("con", "is not a valid folder name"), ("taken", "taken")])
def test_a_game_that_cannot_be_saved_is_refused_before_any_is_played(world, tmp_path, capsys, name, says):
    games, out = tmp_path / "games", tmp_path / "out"
    for path in (games / "a.txt", games / f"{name}.txt", out / "taken" / "notes.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Miko runs\n", encoding="utf-8")
    assert main(["batch", str(games), "--world", str(world.folder), "--out", str(out), "--steps", "1"]) == 2
    assert says in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["taken"]


def test_the_picture_of_very_many_takes_is_made_smaller(world, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "_PICTURE_PIXELS", 200_000)  # of 2.7 million
    story = Story.open(tmp_path, "tale", world.spec.name, world.fingerprint)
    write_clip(tmp_path / "shot.mp4", np.zeros((1, 32, 48, 3), np.uint8), 8)
    takes = [Take(seed, "main", (tmp_path / "shot.mp4",) * 24) for seed in range(2)]
    film, grid = write_grid(story, takes)
    with Image.open(grid) as picture:
        width, height = picture.size
    assert 180_000 < width * height <= 200_000
    assert width / height == pytest.approx(2 * 48 / (24 * 32), rel=0.03)
    assert read_clip(film).frames.shape == (24, 192, 2 * 288, 3), "the film keeps its size"
