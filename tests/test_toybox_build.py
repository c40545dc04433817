"""The recipe of the embedded world: its dataset, its calibration and what it hands on."""

import io
import json
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from animegamer_core.checkpoint import open_world
from animegamer_core.data.motion import motion_value
from animegamer_core.prompt import GameTokenizer
from animegamer_core.spec import PROFILES
from animegamer_core.state import MotionTable
from animegamer_core.toybox.build import FULL, OWN_STAGES, QUICK, STAGES, Workshop, build, export, main
from animegamer_core.toybox.calibrate import (
    CALIBRATED_VALUES,
    DATA_VALUES,
    calibrated_table,
    calibration_remark,
    inverted,
    uncalibrated_table,
)
from animegamer_core.toybox.dataset import Casting, write_dataset
from animegamer_core.toybox.scorer_checks import ScorerRecipe
from animegamer_core.toybox.scorers import load_scorers, read_card
from animegamer_core.toybox.world import ADVERBS, UNSEEN_PAIRS, vocabulary
from animegamer_core.train.checkpoints import RunState, load_checkpoint, save_checkpoint
from animegamer_core.train.parts import WorldParts
from animegamer_core.train.stages import stage_config

SMALL = Casting(games=2, held_out=1, turns=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("toybox")
    return write_dataset(path, SMALL, workers=1)


def test_games_become_a_dataset_that_training_reads(folder):
    games = SMALL.scenes()
    assert [len(game.clips) for game in folder.games] == [len(row) for row in games.values()]
    assert [game.held_out for game in folder.games] == [False, False, True]
    assert len(games["train-00000"]) == 3  # every fourth game opens with a picture
    for turn, scene in zip(folder.turns, [scene for row in games.values() for scene in row], strict=True):
        assert (turn.character[0], turn.background) == (scene.character, f"{scene.time} {scene.place}")
        assert turn.adverb in ADVERBS[turn.motion_level]
        assert (scene.character, scene.motion) not in UNSEEN_PAIRS


def test_levels_are_those_of_the_measured_clips(folder):
    edges = folder.info["settings"]["motion"]["edges"]
    for turn in folder.turns:
        assert turn.motion_value > 0
        assert turn.motion_level == 1 + sum(turn.motion_value > edge for edge in edges)
    kept = motion_value(folder.frames(0))
    assert folder.turns[0].motion_value == pytest.approx(kept, rel=0.15)  # H.264 costs a little


def test_clips_that_did_not_travel_are_drawn_again_and_not_measured(folder, monkeypatch):
    clip = folder.path / folder.turns[1].clip
    before, lines = clip.read_bytes(), (folder.path / "turns.jsonl").read_bytes()
    clip.unlink()
    monkeypatch.setattr("animegamer_core.toybox.dataset.motion_value", lambda frames: pytest.fail("measured again"))
    again = write_dataset(folder.path, SMALL, workers=1)
    assert clip.read_bytes() == before
    assert (again.path / "turns.jsonl").read_bytes() == lines


@given(st.lists(st.floats(0.05, 30), min_size=8, max_size=8))
def test_an_inverted_response_gives_rising_values_inside_the_told_ones(measured):
    told = np.geomspace(0.4, 45, 8)
    values = inverted(told, measured, (0.9, 1.7, 3.3, 6.9, 15.0))
    assert list(values) == sorted(values)
    assert all(told[0] - 1e-3 <= value <= told[-1] + 1e-3 for value in values)


def test_a_decoder_that_moves_half_as_much_is_told_twice_as_much():
    told = np.geomspace(0.4, 45, 8)
    assert inverted(told, told / 2, (1.0, 2.0, 4.0, 8.0, 16.0)) == pytest.approx((2, 4, 8, 16, 32), rel=1e-3)


def test_a_response_that_falls_again_is_followed_to_its_top_only():
    assert inverted((1, 2, 4, 8), (1, 2, 4, 3), (2, 100)) == pytest.approx((2, 4), rel=1e-3)


def test_calibration_keeps_the_borders(tiny_decoder):
    table = MotionTable("toybox", (0.9, 1.7, 3.3, 6.9, 15.0), (1.2, 2.3, 4.7, 10.1))
    states = torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(0))
    found = calibrated_table(table, tiny_decoder, states)
    assert found.edges == table.edges and list(found.values) == sorted(found.values)
    assert found == calibrated_table(table, tiny_decoder, states)


def test_a_build_draws_passes_over_what_is_done_and_exports(tmp_path):
    said = []
    recipe = replace(QUICK, casting=Casting(games=1, held_out=1, turns=3))
    shop = Workshop(tmp_path / "work", recipe, "cpu", said.append)
    assert build(shop, ["data"]) and shop.is_finished("data")
    table = json.loads((shop.world / "world.json").read_text())["motion_table"]
    assert table["edges"] == pytest.approx(shop.measured_table().edges)
    said.clear()
    assert build(shop, ["data"]) and said == []
    pieces = export(shop, tmp_path / "out")
    whole = tmp_path / "whole.tar.gz"
    whole.write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    with tarfile.open(whole) as archive:
        assert {"world/world.json", "stages.json", "dataset/turns.jsonl"} <= set(archive.getnames())


def test_a_build_states_what_its_table_was_before_calibration(tmp_path, monkeypatch):
    """Whoever measures motion can then do so without the values that were found by inverting the measure itself."""
    monkeypatch.setattr("animegamer_core.toybox.calibrate.TOLD", 2)
    spec = replace(QUICK.spec, decoder=replace(QUICK.spec.decoder, steps=1))
    recipe = replace(QUICK, spec=spec, casting=Casting(games=2, held_out=1, turns=3))
    shop = Workshop(tmp_path / "work", recipe, "cpu", lambda line: None)
    assert build(shop, ["data"])
    world = open_world(shop.world)
    assert world.motion_table == shop.measured_table() == uncalibrated_table(world)
    tokenizer = GameTokenizer.from_words(vocabulary(), spec.state.tokens)
    WorldParts.new(spec, tokenizer, PROFILES["paper"]).save(world, dtype=torch.float16)
    OWN_STAGES["calibrate"](shop)
    world = open_world(shop.world)
    assert world.motion_table != shop.measured_table(), "its values were found by inversion"
    assert uncalibrated_table(world) == shop.measured_table()
    assert world.provenance["encoder and decoder trained on"] == "7 clips of 2 games", "held-out games are not read"


def test_a_table_is_without_calibration_only_where_that_is_known():
    shipped = open_world("toybox")
    other = replace(shipped.motion_table, values=(1.0, 2.0, 4.0, 8.0, 16.0))
    silent = {name: text for name, text in shipped.provenance.items() if name not in (DATA_VALUES, CALIBRATED_VALUES)}
    assert uncalibrated_table(replace(shipped, provenance=silent)) is None, (
        "an older build: calibrated, by what unknown"
    )
    assert uncalibrated_table(replace(shipped, provenance={})) == shipped.motion_table, "no build of ours"
    retrained = replace(shipped, motion_table=other)
    assert uncalibrated_table(retrained) == other, "other weights brought a table of their own"
    for wrong in ("1 2 3", "1 2 3 4 many", "1 2 3 4 nan", ""):
        with pytest.raises(ValueError, match="expected 5 numbers"):
            uncalibrated_table(replace(shipped, provenance={**shipped.provenance, DATA_VALUES: wrong}))


def test_a_report_says_whether_motion_was_calibrated():
    before, after = (MotionTable("toybox", (low, 2.0, 4.0, 8.0, 16.0)) for low in (1.0, 1.5))
    assert calibration_remark(after, after) is None
    assert "medians of its training data" in calibration_remark(after, before)
    assert "does not state the medians" in calibration_remark(after, None)


def test_scoring_towers_are_built_once_and_before_what_they_judge(tmp_path):
    said = []
    recipe = replace(QUICK, scorers=ScorerRecipe(scenes=8, held_out=4, steps=2, control_steps=1))
    shop = Workshop(tmp_path / "work", recipe, "cpu", said.append)
    assert build(shop, ["scorers"]) and shop.is_finished("scorers")
    assert load_scorers(shop.world).training is False
    assert read_card(shop.world)["facts"]["recipe"]["scenes"] == 8
    said.clear()
    assert build(shop, ["scorers"]) and said == []
    assert STAGES.index("probes") < STAGES.index("scorers") < STAGES.index("vae")


def test_a_folder_is_not_built_on_by_another_recipe(tmp_path):
    small = replace(QUICK, casting=Casting(games=1, held_out=1, turns=2))
    shop = Workshop(tmp_path, small, "cpu", lambda line: None)
    shop.note("data", 1.0, finished=True)
    shop.note("vae", 1.0, finished=True)
    for recipe, stages in ((FULL, ["data"]), (FULL, ["joint"]), (replace(small, changes={}), ["vae"])):
        with pytest.raises(ValueError, match="in another --work folder"):
            build(replace(shop, recipe=recipe), stages)
    assert build(shop, ["data", "vae"])


def test_an_unfinished_stage_travels_with_its_checkpoint(tmp_path):
    def state(seed):
        torch.manual_seed(seed)
        layer = torch.nn.Linear(40, 30)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
        average = {name: value.detach() + 1 for name, value in layer.named_parameters()}
        return layer, RunState("joint", stage_config("joint"), dict(layer.named_parameters()), optimizer, average)

    layer, left = state(1)
    for left.step in range(1, 4):
        layer(torch.randn(5, 40)).square().mean().backward()
        left.optimizer.step()
    shop = Workshop(tmp_path / "work", QUICK, "cpu", lambda line: None)
    save_checkpoint(shop.folder / "runs" / "joint" / "checkpoints", left)
    shop.note("joint", 5.0, finished=False)
    whole = tmp_path / "whole.tar.gz"
    whole.write_bytes(b"".join(piece.read_bytes() for piece in export(shop, tmp_path / "out")))
    with tarfile.open(whole) as archive:
        archive.extractall(tmp_path / "fresh", filter="data")
    other, right = state(2)
    load_checkpoint(tmp_path / "fresh" / "runs" / "joint" / "checkpoints" / "step-0000003", right)
    assert right.step == 3 and torch.equal(layer.weight, other.weight)
    torch.testing.assert_close(right.average["weight"], left.average["weight"], atol=0, rtol=1e-3)
    for kind in ("exp_avg", "exp_avg_sq"):
        moved, kept = (each.optimizer.state[model.weight][kind] for each, model in ((right, other), (left, layer)))
        torch.testing.assert_close(moved, kept, atol=0, rtol=1e-2)
    layer(torch.ones(1, 40)).sum().backward()
    left.optimizer.step()  # and the optimizer goes on
    shop.note("joint", 5.0, finished=True)
    with tarfile.open(fileobj=io.BytesIO(b"".join(p.read_bytes() for p in export(shop, tmp_path / "out")))) as archive:
        assert not [name for name in archive.getnames() if "checkpoints" in name]


def test_an_export_that_would_be_too_large_leaves_checkpoints_out(tmp_path, monkeypatch):
    said = []
    shop = Workshop(tmp_path / "work", QUICK, "cpu", said.append)
    folder = shop.folder / "runs" / "vae" / "checkpoints" / "step-0000001"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{}")
    monkeypatch.setattr("animegamer_core.train.checkpoints.write_slimmed", lambda path, to: path)
    monkeypatch.setattr("animegamer_core.toybox.build.EXPORT_PIECES", 0)
    shop.note("vae", 1.0, finished=False)
    export(shop, tmp_path / "out")
    assert "runs/vae/checkpoints/step-0000001 left out" in said[0]


def test_games_are_counted_from_the_first():
    scenes = Casting(games=2, held_out=0, turns=2, first=7).scenes()
    assert list(scenes) == ["train-00007", "train-00008"]
    assert scenes["train-00008"] == Casting(games=9, held_out=0, turns=2).scenes()["train-00008"]


def test_an_unknown_stage_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown stage 'paint'"):
        main(["--work", str(tmp_path), "--stages", "data,paint"])


def test_the_shipped_world_states_its_calibration_and_keeps_its_fingerprint():
    """Provenance is no part of the fingerprint: stories and runs of the shipped world go on."""
    world = open_world("toybox")
    assert world.fingerprint == "57dbada201965958f4ac37c84060bd4c913c7caed67c4dd4130e754d2047a92b"
    table, data = world.motion_table, uncalibrated_table(world)
    assert data != table and data.edges == table.edges
    assert [table.level(value) for value in data.values] == [1, 2, 3, 4, 5], "a median lies in its own level"
    assert all(before < after for before, after in zip(data.values, table.values, strict=True)), "its shots are softer"


def test_the_shipped_world_says_what_each_of_its_models_read():
    notes = open_world("toybox").provenance
    assert notes["encoder and decoder trained on"] == FULL.casting.trained_on == "10,250 clips of 1,000 games"
    assert notes["engine trained on"].startswith(FULL.played.trained_on) and "3,000 games" in FULL.played.trained_on


def test_the_shipped_world_is_small_and_whole():
    world = open_world("toybox")
    world.verify()
    assert world.missing() == ()
    files = [path for path in world.folder.rglob("*") if path.is_file()]
    assert max(path.stat().st_size for path in files) < 16e6
    assert sum(path.stat().st_size for path in files) <= 36e6
    assert world.tokenizer().size <= 1000
    assert world.tokenizer().unknown_words(" ".join(vocabulary())) == ()
