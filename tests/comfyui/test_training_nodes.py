"""Training, measuring and converting inside a real ComfyUI."""

import json
import shutil

import numpy as np
import published_files as made
import pytest
import stock_files
import torch
from comfy_server import message, nodes_run
from graphs import START, WAVE, draw, load, node, predict, save_video, saved_file, train
from PIL import Image
from safetensors.torch import load_file
from table_world import save_judged_world

from animegamer_core.media.video import read_clip
from animegamer_core.train.checkpoints import list_checkpoints, step_of
from animegamer_core.train.log import read_log
from animegamer_core.weights import open_world

PATIENCE_S = 600  # a busy machine takes ten times as long


def convert(source, world="made", precision="keep"):
    return {"convert": node("ConvertAnimeGamer", source=source, world=world, precision=precision)}


def shot_of(server, world):
    """The frames of one turn that is played and saved in a world."""
    prompt = {"load": load(world=world), "history": node("GameHistory", **START)}
    prompt |= {"predict": predict(["history", 0], WAVE), "draw": draw(["predict", 0]), "save": save_video("draw")}
    return read_clip(saved_file(server, server.run(prompt, PATIENCE_S))).frames


def losses(folder):
    return [line["loss"] for line in read_log(folder / "log.jsonl")]


@pytest.fixture(scope="module")
def trained(server):
    """(history entry, run folder) of four steps of training."""
    entry = server.run(train(), PATIENCE_S)
    return entry, server.output_dir / "animegamer" / "runs" / "my-run" / "adapt"


def test_a_trained_stage_is_reported_with_its_loss(server, trained):
    entry, folder = trained
    assert len(losses(folder)) == 4 and all(np.isfinite(losses(folder)))
    (report,) = entry["outputs"]["train"]["text"]
    assert "4 steps" in report and str(folder / "adapt.safetensors") in report
    assert len(Image.open(saved_file(server, entry, "train")).convert("P").getcolors()) > 3, "a picture of a curve"


def test_a_deleted_run_is_made_again_and_continues_with_the_same_losses_after_an_interrupt(server, trained):
    _, folder = trained
    assert nodes_run(server.run(train(), PATIENCE_S)) == set()
    wanted, weights = losses(folder), load_file(folder / "adapt.safetensors")
    shutil.rmtree(folder)  # the features, which all stages of a run share, are kept
    queued = server.queue(train())
    server.wait_until(lambda: losses(folder), PATIENCE_S)
    server.post("/interrupt", {})
    assert message(server.wait(queued, PATIENCE_S), "execution_interrupted") is not None
    reached = len(losses(folder))
    assert 1 <= reached < 4 and losses(folder) == wanted[:reached]
    assert [step_of(path) for path in list_checkpoints(folder / "checkpoints")] == [reached]
    server.run(train(), PATIENCE_S)
    assert losses(folder) == wanted
    again = load_file(folder / "adapt.safetensors")
    assert weights.keys() == again.keys() and all(torch.equal(weights[name], again[name]) for name in weights)


def test_settings_that_do_not_fit_are_refused_in_one_sentence(server, trained):
    cases = {
        "already holds a run; resume it": {"resume": False},
        "was trained with steps 4, now it is 3": {"steps": 3},
        "is not a valid folder name": {"run": "../elsewhere"},
        "'output/../runs' was not found": {"dataset": "output/../runs"},
    }
    for sentence, inputs in cases.items():
        said = server.refusal(train(**inputs), PATIENCE_S)
        assert sentence in said if said else "dataset" in inputs, said
        assert "--" not in (said or ""), "nodes have no flags"  # None: ComfyUI refused the value itself


def test_a_finished_run_continues_if_its_steps_are_raised(server, trained):
    _, folder = trained
    entry = server.run(train(run="my-run", steps=6), PATIENCE_S)
    (report,) = entry["outputs"]["train"]["text"]
    assert len(losses(folder)) == 6 and "6 steps" in report


@pytest.fixture(scope="module")
def measured_world(server):
    """A world with random weights and probes, small enough to be measured in a moment."""
    return save_judged_world(server.models_dir / "animegamer" / "measured").name


def test_a_world_is_measured(server, measured_world):
    entry = server.run({"measure": node("EvaluateGame", world=measured_world, games=1, seed=3)}, PATIENCE_S)
    (report,) = entry["outputs"]["measure"]["text"]
    rows = {line.split()[0] for line in report.splitlines()[1:] if not line.startswith("(")}
    assert rows == {"probes", "vae", "shots", "motion", "override", "games", "colour"}
    assert "short" in report, "random weights pass for nothing"
    assert Image.open(saved_file(server, entry, "measure")).width > 600


def test_a_world_gets_the_papers_table(server, measured_world):
    inputs = {"world": measured_world, "games": 1, "seed": 3}
    entry = server.run({"measure": node("EvaluateGame", **inputs, table="paper")}, PATIENCE_S)
    (report,) = entry["outputs"]["measure"]["text"]
    assert "| CLIP" not in report and "| ACC-F " in report and "1 game, 10 turns" in report
    assert Image.open(saved_file(server, entry, "measure")).width > 600
    (folder,) = (server.output_dir / "animegamer" / "evaluations").iterdir()
    assert {"report.json", "report.md", "games"} <= {path.name for path in folder.iterdir()}
    assert str(folder) in report and len(list(folder.glob("games/*/turn-*.mp4"))) == 10


@pytest.fixture
def downloads(server):
    """A folder of downloads in the model folder; removed after the test, with the converted world."""
    yield server.models_dir / "animegamer" / "downloads"
    for name in ("downloads", "made"):
        shutil.rmtree(server.models_dir / "animegamer" / name, ignore_errors=True)


def listed_sources(server):
    """The sources that the node offers, as text."""
    return json.dumps(server.get("/object_info/ConvertAnimeGamer")["ConvertAnimeGamer"]["input"]["required"]["source"])


def test_published_files_become_a_world_that_plays(server, downloads):
    made.write_mistral(downloads / "Mistral-7B-Instruct-v0.1")
    originals = made.make_originals(downloads / "Mistral-7B-Instruct-v0.1")
    made.write_all(downloads, originals)
    assert "downloads/qiqi" in listed_sources(server)
    prompt = convert("downloads/qiqi")
    (report,) = server.run(prompt, PATIENCE_S)["outputs"]["convert"]["text"]
    assert "made" in report and "European Union" in report
    assert not nodes_run(server.run(prompt, PATIENCE_S)), "the world is there"
    originals.engine.project_in[0].bias.data += 1
    made.write_all(downloads, originals)
    server.run(prompt, PATIENCE_S)
    world = open_world(server.models_dir / "animegamer" / "made")
    world.verify()
    assert not world.missing(("engine", "decoder", "vae"))
    moved = world.load_engine().project_in[0].bias - originals.engine.project_in[0].bias
    assert moved.abs().max() < 1e-3, "the world is made of the new download"
    shutil.rmtree(world.folder)
    assert nodes_run(server.run(prompt, PATIENCE_S)) == {"convert"} and world.folder.is_dir()
    # This small VAE has two levels, so it doubles five latent frames once.
    assert shot_of(server, "made").shape == (9, 8, 12, 3)
    whole = sorted(downloads.rglob("*"))
    for name in ("toybox", "downloads"):
        assert "is taken" in server.refusal(convert("downloads/qiqi", name), PATIENCE_S)
    assert sorted(downloads.rglob("*")) == whole


def test_free_base_models_become_a_new_world_that_can_be_trained(server, downloads):
    stock_files.write_base(downloads)
    assert "downloads/new world" in listed_sources(server)
    prompt = convert("downloads/new world", precision="released")
    (report,) = server.run(prompt, PATIENCE_S)["outputs"]["convert"]["text"]
    assert "made" in report and "Apache-2.0" in report and "European Union" not in report
    world = open_world(server.models_dir / "animegamer" / "made")
    world.verify()
    assert not world.missing() and world.profile.name == "paper"
    assert not nodes_run(server.run(prompt, PATIENCE_S)), "the world is there"
    assert shot_of(server, "made").shape == (9, 8, 12, 3)
    shutil.rmtree(downloads / "CogVideoX-2b" / "transformer")
    status, answer = server.post("/prompt", {"prompt": prompt})
    assert status == 400 and "a new world needs CogVideoX-2b" in json.dumps(answer)
