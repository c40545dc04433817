"""A game in several takes: branches of one story, shown side by side; nothing is drawn twice."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from animegamer_core.__main__ import main
from animegamer_core.media.video import read_clip, write_clip
from animegamer_core.runtime.models import SEEDS, LoadedModels
from animegamer_core.story.story import Story
from animegamer_core.story.takes import _write_grid, take_seeds


@pytest.fixture
def takes_of(world, tmp_path, capsys):
    """Run the verb with three takes of a game of two turns: its status, stdout and stderr."""
    game = tmp_path / "tale.txt"
    game.write_text("# a game\nMiko runs\n\nYuzu sleeps\n", encoding="utf-8")

    def run(out):
        words = ["--takes", "3", "--seed", "5", "--steps", "1", "--world", str(world.folder), "--out", str(out)]
        return (main(["takes", str(game), *words]), *capsys.readouterr())

    return run


def shots_in(out):
    return {path.relative_to(out): path.stat().st_mtime_ns for path in out.glob("*/shots/*")}


def test_a_game_is_played_in_takes_and_again_for_nothing(takes_of, tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr("animegamer_core.story.takes._PICTURE_TURNS", 1)
    status, said, drawn = takes_of(out)
    assert status == 0 and (drawn.count("(drawn)"), drawn.count("(known)")) == (6, 0)
    films = [str(out / "tale" / "films" / name) for name in ("takes.mp4", "takes.png")]
    seeds = [f"seed {seed}  branch {name}" for seed, name in ((5, "main"), (1014, "branch-2"), (2023, "branch-3"))]
    assert said.splitlines() == [*seeds, *films]
    story = Story.read(out, "tale")
    assert (story.branches(), story.branch, len(story.entries)) == (["main", "branch-2", "branch-3"], "main", 2)
    film, last = read_clip(Path(films[0])).frames, np.asarray(Image.open(films[1])).astype(int)
    assert film.shape == (2 * 17, 2 * 192, 2 * 288, 3) and last.shape == (192, 3 * 288, 3)
    cells = [np.concatenate([film[at, :192], film[at, 192:, :288]], 1) for at in (17 + 8, 8)]
    assert np.abs(last - cells[0]).mean() < 3 < np.abs(last - cells[1]).mean(), "the last turn"
    assert film[:, 192:, 288:].max() < 9, "no fourth take"
    assert take_seeds(2, SEEDS - 1) == (SEEDS - 1, 1008)
    before = shots_in(out)
    for models in ("engine", "decoder"):
        monkeypatch.setattr(LoadedModels, models, lambda _: pytest.fail("a model is loaded"))
    status, again, known = takes_of(out)
    assert status == 0 and again == said and (known.count("(drawn)"), known.count("(known)")) == (0, 6)
    assert shots_in(out) == before
    (tmp_path / "tale.txt").write_text("Miko runs", encoding="utf-8")
    assert takes_of(out)[0] == 0 and len(read_clip(Path(films[0])).frames) == 17, "only the turns that are asked for"


def test_takes_of_large_shots_are_not_enlarged(tmp_path):
    write_clip(tmp_path / "clip.mp4", np.zeros((2, 480, 720, 3), np.uint8), 8)
    film, picture = _write_grid(Story.open(tmp_path, "tale", "w", "f"), (1, 2), [[tmp_path / "clip.mp4"]] * 2)
    assert read_clip(film).frames.shape == (2, 480, 1440, 3) and Image.open(picture).height == 192
