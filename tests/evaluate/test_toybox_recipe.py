"""The recipe of the embedded world: its dataset, its calibration and its judges."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from build_worker import SMALL

from animegamer_core.data.motion import motion_value
from animegamer_core.evaluate.toybox_recipe.build import main
from animegamer_core.evaluate.toybox_recipe.calibrate import Response
from animegamer_core.evaluate.toybox_recipe.recipe import FULL, QUICK, STAGES
from animegamer_core.evaluate.toybox_recipe.stages import BuildDir, Deadline, build
from animegamer_core.toybox.calibration import uncalibrated_table
from animegamer_core.toybox.dataset import DatasetGames, write_dataset
from animegamer_core.toybox.probes import load_probes
from animegamer_core.toybox.splits import TRAINED_LIFE
from animegamer_core.toybox.world import ADVERBS, vocabulary
from animegamer_core.weights import open_world

ROOT = Path(__file__).parents[2]
BUILD_WORKER = ROOT / "tests" / "support" / "build_worker.py"
DRAWN = DatasetGames(games=2, held_out=1, turns=2)


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    """Starting processes would take longer than their work here."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("toybox"), DRAWN, workers=1)


def test_games_become_a_dataset_that_training_reads(folder):
    games = DRAWN.scenes()
    assert [len(game.clips) for game in folder.games] == [len(row) for row in games.values()]
    assert [game.held_out for game in folder.games] == [False, False, True]
    assert len(games["train-00000"]) == 3  # every fourth game opens with a picture
    for turn, scene in zip(folder.turns, [scene for row in games.values() for scene in row], strict=True):
        assert (turn.character[0], turn.background) == (scene.character, f"{scene.time} {scene.place}")
        assert turn.adverb in ADVERBS[turn.motion_level]


def test_levels_are_those_of_the_measured_clips(folder):
    edges = folder.info["settings"]["motion"]["edges"]
    for turn in folder.turns:
        assert turn.motion_value > 0
        assert turn.motion_level == 1 + sum(turn.motion_value > edge for edge in edges)
    kept = motion_value(folder.frames(0))
    assert folder.turns[0].motion_value == pytest.approx(kept, rel=0.15)  # H.264 costs a little


def test_a_decoder_that_moves_half_as_much_gets_twice_the_value_up_to_where_it_moves_most():
    conditions = np.geomspace(0.4, 45, 8)
    half = Response(conditions, conditions / 2)
    assert half.to_measure((1.0, 2.0, 4.0, 8.0, 16.0)) == pytest.approx((2, 4, 8, 16, 32), rel=1e-3)
    assert Response((1, 2, 4, 8), (1, 2, 4, 3)).to_measure((2, 100)) == pytest.approx((2, 4), rel=1e-3)


def test_a_folder_of_another_recipe_is_refused(tmp_path):
    small = replace(QUICK, dataset_games=DatasetGames(games=1, held_out=1, turns=2))
    work = BuildDir(tmp_path, small, "cpu", lambda line: None)
    work.note("data", 1.0, finished=True)
    work.note("vae", 1.0, finished=True)
    for recipe, stages in ((FULL, ["data"]), (FULL, ["joint"]), (replace(small, changes={}), ["vae"])):
        with pytest.raises(ValueError, match="in another --work folder"):
            build(replace(work, recipe=recipe), stages, Deadline())
    assert build(work, ["data", "vae"], Deadline())
    fifth = FULL.part(0.2)
    assert (fifth.dataset_games.games, fifth.engine_games.games, fifth.probes.clips) == (380, 4000, 2400)
    assert (fifth.changes["vae"]["steps"], fifth.changes["warmup"]["lr_warmup"]) == (1200, 12)
    with pytest.raises(ValueError, match="part is 2.0"):
        main(["--work", str(tmp_path), "--part", "2"])


def test_the_shipped_world_states_what_its_models_read_and_its_calibration():
    world = open_world("toybox")
    table, data, notes = world.motion_table, uncalibrated_table(world), world.provenance
    retrained = replace(world, motion_table=replace(table, values=(1.0, 2.0, 4.0, 8.0, 16.0)))
    assert uncalibrated_table(retrained) == retrained.motion_table, "other weights brought a table of their own"
    assert data.edges == table.edges
    assert [table.level(value) for value in data.values] == [1, 2, 3, 4, 5], "a median lies in its own level"
    assert table.values == pytest.approx(data.values, rel=0.1) and table.values != data.values, "a little corrected"
    assert notes["encoder and decoder trained on"].startswith(FULL.dataset_games.trained_on)
    assert "Big Buck Bunny" in notes["VAE began with"]


def test_the_shipped_world_is_small():
    world = open_world("toybox")
    files = [path for path in world.folder.rglob("*") if path.is_file()]
    assert max(path.stat().st_size for path in files) < 16e6
    assert sum(path.stat().st_size for path in files) <= 36e6
    assert world.tokenizer().size <= 1000
    assert world.tokenizer().unknown_words(" ".join(vocabulary(references=True))) == ()


def test_a_build_runs_from_drawing_to_calibration(tmp_path, monkeypatch):
    """Every stage in miniature, in two calls. Whoever measures motion can do so without the values that were found by
    inverting the measure itself.
    """
    monkeypatch.setattr("animegamer_core.evaluate.toybox_recipe.calibrate.VALUES", 2)
    monkeypatch.setattr("animegamer_core.evaluate.toybox_recipe.build.QUICK", SMALL)
    said, words = [], ["--quick", "--work", str(tmp_path)]
    work = BuildDir(tmp_path, SMALL, "cpu", said.append)
    assert not build(work, ["data", "games"], Deadline(0)) and not work.is_finished("games"), "the time is over"
    assert build(work, ["data"], Deadline()) and work.is_finished("data")
    said.clear()
    assert build(work, ["data"], Deadline()) and said == [], "what is finished is skipped"
    assert open_world(work.world).motion_table == work.measured_table() == uncalibrated_table(open_world(work.world))
    assert main([*words, "--stages", ",".join(STAGES[:8])]) == 0
    assert main(words) == 0
    assert all(map(work.is_finished, STAGES))
    world = open_world(tmp_path / "world")
    world.verify()
    assert world.missing() == () and world.life == TRAINED_LIFE
    assert world.tokenizer().unknown_words(" ".join(vocabulary(references=True))) == ()
    load_probes(world.folder)
    assert uncalibrated_table(world) == work.measured_table() != world.motion_table
    assert world.provenance["encoder and decoder trained on"] == "7 clips of 2 games", "held-out games are not read"
    assert STAGES.index("probes") < STAGES.index("vae"), "before what they judge"


def test_two_processes_share_a_build(tmp_path):
    """As `accelerate launch` starts them; tests/train/test_train_many.py compares the numbers with one process's."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(BUILD_WORKER)]
    words = ["--quick", "--work", str(tmp_path), "--stages", "data,vae,warmup"]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *launch, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(BuildDir(tmp_path, SMALL, "cpu", print).is_finished(stage) for stage in ("data", "vae", "warmup"))
    open_world(tmp_path / "world").verify()
