"""`dataset cache`: computed once, in bounded memory, gone on with after a kill, and found by `train --cache`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shutil
from unittest import mock

import pytest
import torch

from animegamer_core.data import dataset as dataset_module
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.media.video import write_clip
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.encoder import ShotEncoder
from animegamer_core.model.engine import GameEngine
from animegamer_core.model.prompt import GameTokenizer
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.toybox.dataset import DatasetGames, write_dataset
from animegamer_core.toybox.world import vocabulary
from animegamer_core.train import cache as cache_module
from animegamer_core.train import training_data
from animegamer_core.train.cache import FeatureStore
from animegamer_core.train.parts import needed_parts
from animegamer_core.train.run import cache_features, train_stage
from animegamer_core.train.stages import stage_config
from animegamer_core.train.training_data import TrainingData
from animegamer_core.weights import open_world, save_part, save_world

SPEC = SPECS["tiny"]
HEIGHT, WIDTH = SPEC.decoder.height, SPEC.decoder.width
CLIPS = 11


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn") / "dataset"
    drawn = write_dataset(folder, DatasetGames(games=2, held_out=1, turns=3), workers=1)
    for index, turn in enumerate(drawn.turns):
        write_clip(folder / turn.clip, drawn.frames(index)[:, ::3, ::3], 8)
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    torch.manual_seed(0)
    tokenizer = GameTokenizer.from_words(vocabulary(), SPEC.state.tokens)
    made = save_world(tmp_path_factory.mktemp("worlds") / "small", SPEC, profile="paper")
    made = save_part(made, ShotEncoder(SPEC, tokenizer.backend))
    made = save_part(made, ShotDecoder(SPEC, PROFILES["paper"]))
    return save_part(made, GameEngine(SPEC, tokenizer, PROFILES["paper"])).folder


@contextlib.contextmanager
def counted():
    """Counts while the block runs: clips read, and rows that the VAE and the encoders computed."""
    from diffusers import AutoencoderKLCogVideoX

    counts = dict.fromkeys(("clips", "vae", "text", "image"), 0)

    def counting(owner, method, name, rows):
        plain = getattr(owner, method)

        def wrapped(*given, **named):
            counts[name] += rows(given)
            return plain(*given, **named)

        return mock.patch.object(owner, method, wrapped)

    with contextlib.ExitStack() as stack:
        stack.enter_context(counting(dataset_module, "read_clip", "clips", lambda given: 1))
        stack.enter_context(counting(AutoencoderKLCogVideoX, "encode", "vae", lambda given: len(given[1])))
        stack.enter_context(counting(ShotEncoder, "text_features", "text", lambda given: len(given[1])))
        stack.enter_context(counting(ShotEncoder, "image_features", "image", lambda given: len(given[1])))
        yield counts


def shards_of(size: int):
    """A patch that makes shards of about so many bytes."""
    return mock.patch.dict(cache_module.write_feature.__kwdefaults__, {"shard_bytes": size})


def train(stage, dataset, world, cache, out):
    """Two steps of a stage as `train --cache` runs them."""
    data = TrainingData(DatasetFolder.open(dataset), FeatureStore(), cache=cache)
    config = dataclasses.replace(stage_config(stage, "scratch"), steps=2, batch=2, lr_warmup=1, validate_every=0)
    return train_stage(stage, config, needed_parts(stage, config, open_world(world), data), data, out)


def test_stages_find_all_features_and_decode_no_clip(dataset, world, tmp_path):
    cached = cache_features(dataset, world, tmp_path / "cache", ("latents", "text", "image", "states"))
    assert cached == dict.fromkeys(("latents", "text", "image", "states"), True)
    before = {file.name: file.read_bytes() for file in (tmp_path / "cache").iterdir()}
    assert not [name for name in before if name.startswith("frames")]
    for stage in ("joint", "predict"):
        with counted() as counts:
            assert train(stage, dataset, world, tmp_path / "cache", tmp_path / stage)
        assert set(counts.values()) == {0}
    assert {file.name: file.read_bytes() for file in (tmp_path / "cache").iterdir()} == before


def test_after_a_kill_only_what_is_missing_is_computed(dataset, world, tmp_path):
    class Killed(BaseException):
        pass

    def kill(name, done, count):
        if name == "latents" and done >= 6:
            raise Killed

    row = 2 * 2 * math.prod(SPEC.decoder.latent_shape)
    with shards_of(2 * row), mock.patch.object(training_data, "ENCODED_PIXELS", 17 * HEIGHT * WIDTH):
        with counted() as first, pytest.raises(Killed):
            cache_features(dataset, world, tmp_path / "cache", ("latents",), kill)
        done = json.loads((tmp_path / "cache" / "latents.json").read_text())["done"]
        with counted() as second:
            after = cache_features(dataset, world, tmp_path / "cache", ("latents",))
        with counted() as third:
            again = cache_features(dataset, world, tmp_path / "cache", ("latents",))
    assert done == 2 and first["vae"] == 1 + 6, "one to learn a row's size, then shard after shard"
    assert second["vae"] == CLIPS - 4 and after["latents"]
    assert third["vae"] == 0 and not again["latents"]


def test_other_weights_or_captions_are_computed_anew(dataset, world, tmp_path):
    folder = shutil.copytree(dataset, tmp_path / "dataset")

    def fresh(world):
        found = cache_features(folder, world, tmp_path / "cache", ("latents", "text", "image"))
        return {name for name, is_new in found.items() if is_new}

    assert fresh(world) == {"latents", "text", "image"}
    text = (folder / "turns.jsonl").read_text()
    (folder / "turns.jsonl").write_text(text.replace("Miko", "Beni", 1))
    assert fresh(world) == {"text"}
    other = shutil.copytree(world, tmp_path / "other")
    torch.manual_seed(9)
    save_part(open_world(other), ShotDecoder(SPEC, PROFILES["paper"]))
    assert fresh(other) == {"latents"}
    tokenizer = GameTokenizer.from_words(vocabulary(), SPEC.state.tokens)
    save_part(open_world(other), ShotEncoder(SPEC, tokenizer.backend))
    assert fresh(other) == {"text", "image"}
