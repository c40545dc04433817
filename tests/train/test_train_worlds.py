"""Which worlds `train` takes: whatever `play` opens, and never one that a recipe must not write into."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from unittest import mock

import pytest
from test_train import TINY, new_parts, train

from animegamer_core.weights import open_world, save_world
from animegamer_core.weights.adapter_files import adapter_facts
from animegamer_core.weights.adapters import open_with_adapters
from animegamer_core.weights.save import writing
from animegamer_core.weights.world import EMBEDDED

FEW = "--steps 2 --batch 2 --log-every 1 --lr-warmup 1 --lr 1e-3"
LORA = f"{FEW} --recipe lora --lora-rank 2"


@pytest.fixture(scope="module")
def kept_world(places):
    """A tiny world of spec tiny, in the place of the embedded one."""
    with mock.patch.dict(EMBEDDED, {"toybox": places[1]}):
        yield places[1]


@pytest.fixture
def copied(kept_world, tmp_path):
    """A copy of that world, which may be trained in place."""
    return shutil.copytree(kept_world, tmp_path / "world")


def ages(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(("stage", "recipe"), [("predict", "--recipe lora --lora-rank 2"), ("distill", "")])
def test_the_embedded_world_is_trained_on_top(stage, recipe, kept_world, dataset, tmp_path):
    """Stage distill leaves an adapter with every recipe."""
    before, said = ages(kept_world), []
    assert train(stage, dataset, "toybox", tmp_path / "run", f"{FEW} {recipe}", said.append) == 0
    file = tmp_path / "run" / f"{stage}.safetensors"
    assert said[-1] == f"wrote {file}" and adapter_facts(file).stage == stage
    assert ages(kept_world) == before, "the world stays as it is"
    assert open_with_adapters("toybox", [str(file)], playing=True).fingerprint != open_world("toybox").fingerprint


def test_stages_in_the_wrong_order_are_refused_by_name(data, dataset, tmp_path):
    spec, world = dataclasses.replace(TINY, name="tiny"), tmp_path / "world"
    parts = dataclasses.replace(new_parts(data), spec=spec)
    for models, stage, sentence in (
        ({"decoder": None, "engine": None}, "joint", "world has no decoder yet.*train stage vae first"),
        ({"decoder": None, "engine": None}, "predict", "stage predict .*has not learned to .*train stage joint"),
        ({"engine": None}, "adapt", "world has no engine yet.*train stage predict first"),
        ({}, "adapt", "stage adapt .*has not learned to .*train stage joint"),
    ):
        dataclasses.replace(parts, **models).save(save_world(world, spec))
        before = open_world(world).fingerprint
        with pytest.raises(ValueError, match=sentence):
            train(stage, dataset, world, tmp_path / "run", FEW)
        assert open_world(world).fingerprint == before


@pytest.mark.parametrize("shared", ["world", "run"])
def test_two_trainings_never_write_to_one_folder(shared, copied, kept_world, dataset, tmp_path):
    world, options = (copied, FEW) if shared == "world" else (kept_world, LORA)
    refused = []

    def hear(line: str) -> None:
        if line.startswith("predict 1/"):
            out, begun = tmp_path / ("other" if shared == "world" else "run"), ages(tmp_path)
            with pytest.raises(ValueError, match="another .*training .*; wait for it, stop it, or choose") as caught:
                train("predict", dataset, world, out, f"{options} --resume")
            refused.append(str(caught.value))
            assert ages(tmp_path) == begun, "who is refused changes nothing"

    assert train("predict", dataset, world, tmp_path / "run", options, hear) == 0
    assert len(refused) == 1 and str(tmp_path / shared) in refused[0]

    def late(folder):  # another program writes to the world just before it is locked
        save_world(folder, open_world(folder).spec, trained_window=2)
        return writing(folder)

    with mock.patch("animegamer_core.train.job.writing", late):
        assert train("predict", dataset, copied, tmp_path / "later", FEW) == 0, "the lock is given back"
    assert adapter_facts(tmp_path / "later" / "predict.safetensors").reading.window == 2, "as it is while locked"


def test_a_run_that_ended_is_not_put_over_what_later_stages_trained(copied, kept_world, dataset, tmp_path):
    world, said = copied, []
    assert train("predict", dataset, world, tmp_path / "first", FEW) == 0
    assert train("predict", dataset, world, tmp_path / "second", FEW) == 0
    before = open_world(world).fingerprint
    assert train("predict", dataset, world, tmp_path / "first", f"{FEW} --resume", said.append) == 0
    assert "choose another --out" in said[0] and len(said) == 1
    assert open_world(world).fingerprint == before
    with pytest.raises(ValueError, match="with another stage"):
        train("towers", dataset, world, tmp_path / "first", f"{FEW} --resume")
    shutil.copytree(kept_world, tmp_path / "other")
    with pytest.raises(ValueError, match=f"{world} has its weights, not .*other; choose another"):
        train("predict", dataset, tmp_path / "other", tmp_path / "first", f"{FEW} --resume")
    assert open_world(tmp_path / "other").fingerprint == open_world(kept_world).fingerprint
