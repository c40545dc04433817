"""`train --cache`: features are computed once, found by later stages, and gone on with after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from test_train import GAME_TURNS, GAMES, new_parts, tiny_config

from animegamer_core.data import dataset as dataset_module
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.model.encoder import ShotEncoder
from animegamer_core.train import training_data
from animegamer_core.train.parts import needed_parts
from animegamer_core.train.run import check_stage, prepare, train_stage
from animegamer_core.train.training_data import TrainingData, add_encoder_features, add_latents
from animegamer_core.weights import open_world, save_part
from animegamer_core.weights.adapter_files import save_adapter

CLIPS = GAMES * GAME_TURNS


@pytest.fixture(scope="module")
def world(places):
    return places[1]


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


def train(stage, dataset, world, cache, out):
    """Two steps of a stage as `train --cache` runs them."""
    data = TrainingData(DatasetFolder.open(dataset, clips=False), cache=cache)
    config = tiny_config(stage, steps=2, batch=2)
    parts = needed_parts(stage, config, open_world(world), data)
    assert all(value.is_meta for value in parts.encoder.text_tower.parameters()), "it is not loaded"
    return train_stage(stage, config, parts, data, out)


def cached(dataset, world, cache, stage="joint", on_progress=lambda *_: None, profile=None, **changes):
    """Compute what a stage reads; returns the features of which some was computed now."""
    fresh = set()

    def seen(name, done, count):
        fresh.add(name)
        on_progress(name, done)

    data = TrainingData(DatasetFolder.open(dataset), cache=cache, on_progress=seen)
    config = tiny_config(stage, **changes)
    read = open_world(world).with_profile(profile) if profile else open_world(world)
    prepare(stage, config, needed_parts(stage, config, read, data), data, torch.device("cpu"))
    return fresh


def test_stages_find_all_features_and_need_neither_clips_nor_encoders(dataset, world, tmp_path, monkeypatch):
    dataset, flushed = shutil.copytree(dataset, tmp_path / "dataset"), []
    monkeypatch.setattr(os, "fsync", lambda number: flushed.append(os.readlink(f"/proc/self/fd/{number}")))
    fresh = cached(dataset, world, tmp_path / "cache") | cached(dataset, world, tmp_path / "cache", "predict")
    assert {str(tmp_path / "cache" / f"{name}.bin") for name in fresh} <= set(flushed), "before their notes count rows"
    assert fresh == {"latents", "text", "image", "states"}
    before = {file.name: file.read_bytes() for file in (tmp_path / "cache").iterdir()}
    assert not [name for name in before if name.startswith("frames")]
    shutil.rmtree(dataset / "clips")
    for stage in ("joint", "predict"):
        with counted() as counts:
            assert train(stage, dataset, world, tmp_path / "cache", tmp_path / stage)
        assert set(counts.values()) == {0}
    file, config = tmp_path / "towers.safetensors", tiny_config("joint")
    save_adapter(file, "towers", config, {"encoder.text_tower.shared.weight": torch.zeros(1)}, {})
    data = TrainingData(DatasetFolder.open(dataset, clips=False), cache=tmp_path / "cache")
    parts = needed_parts("joint", config, open_world(world), data, start=[file])
    assert not any(value.is_meta for value in parts.encoder.parameters()), "it is loaded where an adapter changes it"
    with pytest.raises(ValueError, match="0000.mp4 is missing; restore"):
        check_stage("joint", config, parts, replace(data, cache=tmp_path / "empty"))
    assert {file.name: file.read_bytes() for file in (tmp_path / "cache").iterdir()} == before


def test_random_frames_are_the_same_however_many_clips_are_read_at_a_time(ready, data, dataset):
    encoder, found = new_parts(data).encoder, []
    for clips in (1000, 5):
        with mock.patch.object(training_data, "READ_PIXELS", clips * 17 * 16 * 24):
            found.append(add_encoder_features(data, encoder.train(), "random").store)
    for name in ("image_random", "text"):
        torch.testing.assert_close(*(store[name] for store in found), atol=1e-2, rtol=1e-2, msg=name)
    assert not torch.allclose(found[0]["image_random"], ready.store["image"], atol=1e-1)
    size = CLIPS * 17 * 16 * 24 * 3
    for kept in (size, size - 1):
        with mock.patch.object(training_data, "FRAMES_KEPT", kept):
            assert TrainingData(DatasetFolder.open(dataset)).fits is (kept == size), "more stay in their files"


def test_after_a_kill_only_what_is_missing_is_computed(dataset, world, tmp_path):
    class Killed(BaseException):
        pass

    def kill(name, done):
        if name == "latents" and done >= 6:
            raise Killed

    with mock.patch.object(training_data, "ENCODED_PIXELS", 2 * 17 * 16 * 24):
        with counted() as first, pytest.raises(Killed):
            cached(dataset, world, tmp_path / "cache", on_progress=kill)
        done = json.loads((tmp_path / "cache" / "latents.json").read_text())["done"]
        with counted() as second:
            after = cached(dataset, world, tmp_path / "cache")
        with counted() as third:
            again = cached(dataset, world, tmp_path / "cache")
        whole = tmp_path / "whole"
        cached(dataset, world, whole)
    assert (done, first["vae"]) == (4, 6), "the rows that were computed last were not written"
    assert second["vae"] == CLIPS - 4 and "latents" in after and third["vae"] == 0 and not again
    assert (whole / "latents.bin").read_bytes() == (tmp_path / "cache" / "latents.bin").read_bytes()
    (whole / "latents.bin").write_bytes((whole / "latents.bin").read_bytes()[:-5])
    with pytest.raises(ValueError, match="latents.bin is cut off; delete it"):
        cached(dataset, world, whole)


def test_other_weights_or_captions_are_computed_anew(data, dataset, world, tmp_path):
    folder = shutil.copytree(dataset, tmp_path / "dataset")

    def fresh(world):
        return cached(folder, world, tmp_path / "cache")

    assert fresh(world) == {"latents", "text", "image"}
    text = (folder / "turns.jsonl").read_text()
    (folder / "turns.jsonl").write_text(text.replace('"Red"', '"Blue"', 1))
    assert fresh(world) == {"text"}
    other, parts = shutil.copytree(world, tmp_path / "other"), new_parts(data, seed=9)
    mapped = np.memmap(tmp_path / "cache" / "latents.bin")
    before = mapped.tobytes()
    save_part(open_world(other), parts.decoder)
    assert fresh(other) == {"latents"} and mapped.tobytes() == before, "who still reads the old ones keeps them"
    save_part(open_world(other), parts.encoder)
    assert fresh(other) == {"text", "image"}
    first, second = (folder / turn.clip for turn in DatasetFolder.open(folder).turns[:2])
    shutil.copy(second, first)  # such as a repaired file
    assert fresh(other) == {"latents", "image"}
    data = TrainingData(DatasetFolder.open(folder), cache=tmp_path / "cache")
    config = tiny_config("vae", steps=1, batch=2)
    parts, data = train_stage("vae", config, needed_parts("vae", config, open_world(other), data), data, tmp_path)
    with counted() as counts:
        add_latents(data, parts.decoder)
    assert counts["vae"] == CLIPS, "once trained, a VAE is no longer the one of the world's files"


def test_predictions_of_another_profile_window_or_frame_are_computed_anew(dataset, world, tmp_path):
    def fresh(profile, window=4, frame="first"):
        return cached(dataset, world, tmp_path, "adapt", profile=profile, window=window, encoder_frame=frame)

    assert "predicted" in fresh("reference") and fresh("reference") == set()
    assert fresh("paper") == {"predicted"} == fresh("paper", window=3)
    assert fresh("paper", 3, "random") == {"image_random", "states", "predicted"}
