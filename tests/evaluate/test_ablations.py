"""Ablations in miniature: every variant trains and is scored, what is done is skipped, and the table has them all."""

import shutil
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from table_world import TABLE
from tiny_world import save_tiny_world

from animegamer_core.__main__ import main
from animegamer_core.evaluate.ablations import run
from animegamer_core.evaluate.ablations.run import Ablations, Budget, Samples
from animegamer_core.evaluate.ablations.variants import FULL, GAMES, PRETRAIN, RECONSTRUCTION, VARIANTS, chosen
from animegamer_core.evaluate.similarity import ScoringModels
from animegamer_core.evaluate.toybox_recipe.recipe import QUICK
from animegamer_core.evaluate.toybox_recipe.stages import Deadline
from animegamer_core.spec import SPECS
from animegamer_core.toybox import probes
from animegamer_core.toybox.dataset import DatasetGames
from animegamer_core.weights import open_world
from animegamer_core.weights.adapter_files import read_adapter
from animegamer_core.weights.storage import read_json

GAMES_DRAWN = DatasetGames(games=2, held_out=1, turns=3)
TINY = Budget(
    replace(QUICK, dataset_games=GAMES_DRAWN, engine_games=GAMES_DRAWN, calibrated_on=1), clips=2, games=1, turns=2
)
NEVER = Deadline()


@dataclass(frozen=True)
class MeanColour:
    """A model that sees nothing but a picture's mean colour."""

    name: str = "mean colour"
    facts: dict[str, Any] = field(default_factory=lambda: {"files": {"colours.safetensors": "0" * 64}})

    def embed_images(self, frames_MHWC):
        return torch.nn.functional.normalize(torch.from_numpy(frames_MHWC).float().mean((1, 2)) + 1, dim=-1)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Tiny models of random weights that read and draw clips of the Toybox's size."""
    tiny = SPECS["tiny"]
    spec = replace(tiny, decoder=replace(tiny.decoder, height=192, width=288, patch=8, steps=2))
    folder = tmp_path_factory.mktemp("base")
    world = save_tiny_world(folder, 8, spec, encoder=True, references=True, motion_table=TABLE)
    shutil.copytree(open_world("toybox").folder / probes.FOLDER, folder / probes.FOLDER)
    return world


# One row for each way in which a variant differs from full.
TRAINED = (FULL, "random_frame", "cross_attention", "no_warm_up", "no_motion_scope", "text_history", "window_0")


@pytest.fixture(scope="module")
def done(world, tmp_path_factory):
    """Everything trained and scored, full with a second seed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("animegamer_core.evaluate.toybox_recipe.calibrate.VALUES", 2)
        models = ScoringModels(MeanColour(), MeanColour())
        job = Ablations(tmp_path_factory.mktemp("work"), world, TINY, models, lambda line: None, workers=1)
        job.begin()
        assert job.run(chosen(TRAINED), [0], NEVER)
        assert job.run(chosen([FULL]), [1], NEVER)
        yield job


def weights(job, name, stage, seed=0):
    """(settings, tensors) of a finished stage."""
    trained = "joint" if stage == PRETRAIN else stage
    notes, tensors = read_adapter(job.step(VARIANTS[name], seed, stage).folder / f"runs/{stage}/{trained}.safetensors")
    return notes.config, tensors


def test_every_variant_is_trained_and_scored_and_is_what_it_says(done):
    for row in chosen(TRAINED):
        for family in row.families:
            samples = read_json(done.seed_folder(row, 0) / f"{family}.json", Samples)
            count = TINY.clips if family == RECONSTRUCTION else TINY.games * TINY.turns
            assert {len(column) for column in (samples.groups, *samples.columns.values())} == {count}
            wanted = {"clip_i", "dreamsim", "acc_f", "mae_f", "psnr", "character", "place", "time", "motion"}
            wanted |= {"states_right", "remembered"} if family == GAMES else set()
            assert wanted <= set(samples.columns)
    assert any("attention" in name for name in weights(done, "cross_attention", "joint")[1])
    assert weights(done, "random_frame", "joint")[0]["encoder_frame"] == "random"
    assert not weights(done, "no_motion_scope", "warmup")[0]["motion_scope"]
    assert weights(done, "no_warm_up", "joint")[0]["steps"] == 4
    assert not done.step(VARIANTS["no_warm_up"], 0, "warmup").folder.exists()
    assert not list(done.seed_folder(VARIANTS["window_0"], 0).glob("*/runs"))


def test_training_begins_with_a_decoder_that_can_draw_and_an_encoder_that_knows_nothing(done):
    taught, warmed = weights(done, FULL, PRETRAIN)[1], weights(done, FULL, "warmup")[1]
    begun = open_world(done.step(VARIANTS[FULL], 0, "warmup").world)
    name = "decoder.transformer.proj_out.weight"
    assert name in taught and name not in warmed, "warm-up leaves the decoder as it is"
    kept = begun.load_decoder(dtype=torch.float32).get_parameter(name.partition(".")[2])
    assert torch.allclose(kept, taught[name].float(), atol=1e-3)
    encoders = [{key: row for key, row in each.items() if key.startswith("encoder.")} for each in (taught, warmed)]
    assert encoders[0] and not any(torch.equal(encoders[0][key], encoders[1][key]) for key in encoders[1])
    other = weights(done, FULL, "joint", seed=1)[1]
    mine = weights(done, FULL, "joint")[1]
    assert not any(torch.equal(mine[key], other[key]) for key in mine if "weight" in key), "another seed"


def test_a_history_of_text_hides_the_representations_of_past_turns_from_the_engine(done):
    for name, told_apart in (("text_history", False), (FULL, True)):
        engine = open_world(done.step(VARIANTS[name], 0, "adapt").world).load_engine(dtype=torch.float32)
        states = torch.randn(2, 1, engine.spec.state.tokens, engine.spec.state.width)
        seen = [engine.project_in(state) for state in states]
        assert torch.equal(*seen) != told_apart and bool(seen[0].any()) == told_apart


def test_what_is_done_is_skipped_and_a_stopped_one_goes_on_to_the_same_weights(done, tmp_path, monkeypatch):
    row, said = VARIANTS["no_motion_scope"], []
    again = replace(done, folder=tmp_path, say=said.append, known={})
    for name in ("dataset", "games"):
        (tmp_path / name).symlink_to(done.folder / name)
    assert not again.run([row], [0], Deadline(0)) and "the same command continues" in said[-1]
    assert again.run([row], [0], NEVER)
    whole, halves = (weights(job, row.name, "joint")[1] for job in (done, again))
    assert all(torch.equal(whole[name], halves[name]) for name in whole)
    monkeypatch.setattr(run, "build", lambda *args: pytest.fail("trained"))
    assert done.run(chosen(TRAINED), [0], NEVER)


def test_a_folder_of_another_job_is_refused(done):
    with pytest.raises(ValueError, match="another world or other scoring models"):
        replace(done, models=ScoringModels()).begin()


def test_the_command_trains_scores_and_stops_in_time(done, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "BUDGET", TINY)
    for name in ("dataset", "games"):
        (tmp_path / name).symlink_to(done.folder / name)
    words = ["evaluate", "ablations", "--work", str(tmp_path), "--world", str(done.world.folder)]
    words += ["--variants", "addition", "--device", "cpu", "--workers", "1"]
    assert main([*words, "--minutes", "0"]) == 3
    assert main(words) == 0
    assert "ablations.md" in capsys.readouterr().out
    written = (tmp_path / "ablations.md").read_text()
    assert "| addition | 1 |" in written and "left out: CLIP-I, CLIP-T, DreamSim;" in written
