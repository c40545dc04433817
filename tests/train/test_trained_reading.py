"""What is trained is what is played: trained files state their reading and their motion table."""

import json

import pytest
import torch
from test_train import TINY, new_parts, train, written_dataset

from animegamer_core.__main__ import main
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.data.records import GameRecord
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.spec import TRAINED_PROFILES
from animegamer_core.story.story import Story
from animegamer_core.train.training_data import TrainingData
from animegamer_core.weights import save_world
from animegamer_core.weights.adapter_files import adapter_facts
from animegamer_core.weights.adapters import open_with_adapters, with_adapters

TURNS = 3
QUICK = "--lr-warmup 5 --log-every 50 --recipe lora --lora-rank 0 --per-card 0 --ema 0"


@pytest.fixture(scope="module")
def dataset(data, tmp_path_factory):
    """One game of three turns: what a tiny engine learns by heart in seconds."""
    turns = data.folder.turns[:TURNS]
    folder = DatasetFolder(tmp_path_factory.mktemp("three"), turns, (GameRecord("game", tuple(range(TURNS)), False),))
    frames = data.store["frames"][:TURNS]
    return written_dataset(TrainingData(folder, {"frames": frames}), folder.path / "dataset")


@pytest.fixture(scope="module")
def published(data, tmp_path_factory):
    """A world that says of itself what a converted one says: profile reference, table released, no window."""
    parts = new_parts(data)
    parts.decoder.unconditional_ND.copy_(parts.encoder.unconditional())  # as stage joint leaves it
    return parts.save(save_world(tmp_path_factory.mktemp("published"), TINY, profile="reference"))


def trained(stage, dataset, world, out, options):
    """The file that the stage leaves."""
    assert train(stage, dataset, world.folder, out, options) == 0
    return out / f"{stage}.safetensors"


def targets(dataset, world):
    """(turns, N, D): the representations of the dataset's clips, which the engine is to predict."""
    encoder, folder = world.load_encoder(), DatasetFolder.open(dataset)
    pictures = torch.stack([torch.from_numpy(folder.frames(index)[0]) for index in range(TURNS)])
    with torch.no_grad():
        return encoder([turn.motion_text for turn in folder.turns], pictures.permute(0, 3, 1, 2) / 127.5 - 1)


def played(world, dataset, out, *files):
    """(turns, N, D): the representations of a game that was played by the command line, and its story."""
    game = out / "game.txt"
    game.write_text("\n".join(turn.instruction for turn in DatasetFolder.open(dataset).turns))
    staged = [word for file in files for word in ("--lora", str(file))]
    assert main(["play", str(game), "--world", str(world.folder), "--out", str(out), "--steps", "2", *staged]) == 0
    story = Story.read(out, "game")
    return torch.stack([story.read_representation(entry.state) for entry in story.entries]), story


def test_play_computes_what_training_reached_and_draws_it(dataset, published, tmp_path, monkeypatch):
    """A tiny engine learns one game by heart, on top of a world that is read by profile reference."""
    profile, other = TRAINED_PROFILES
    trainable = r"--trainable ^engine\. --steps 200 --batch 4 --lr 3e-3 --window 2"
    predict = trained("predict", dataset, published, tmp_path / "p", f"{QUICK} {trainable} --profile {profile}")
    trainable = r"--trainable ^decoder\.transformer\. --steps 3 --batch 3 --lr 1e-3 --window 1"
    adapt = trained("adapt", dataset, published, tmp_path / "a", f"{QUICK} {trainable} --start {predict}")
    assert adapter_facts(adapt).reading.window == 1, "as asked for, not the engine's 2"

    reached = json.loads((tmp_path / "p" / "log.jsonl").read_text().splitlines()[-1])["mse"]
    wanted = targets(dataset, published)
    drawn, sample = [], ShotDecoder.sample

    def seen(decoder, states, motion, seeds, **how):
        drawn.append((states[0], float(motion)))
        return sample(decoder, states, motion, seeds, **how)

    monkeypatch.setattr(ShotDecoder, "sample", seen)
    states, story = played(published, dataset, tmp_path, predict, adapt)
    error = (states - wanted).square().mean().item()
    assert reached < 0.05 * wanted.var() and error < max(2 * reached, 1e-3), (error, reached)

    misread = with_adapters(published, ((str(predict), 1.0),), other).load_engine()
    first = misread.predict((), DatasetFolder.open(dataset).turns[0].instruction).representation
    assert (first - wanted[0]).square().mean() > 10 * error, "read otherwise, the same weights predict something else"

    world = open_with_adapters(published.folder, [str(predict), str(adapt)])
    assert (world.profile.name, world.window, world.warnings_for(2)) == (profile, 2, ()) != world.warnings_for(3)
    levels = [turn.state.motion for turn in story.session(TURNS, 2).turns]
    assert [motion for _, motion in drawn] == [world.motion_table.value(level) for level in levels]
    assert torch.equal(torch.stack([state for state, _ in drawn]), states)
