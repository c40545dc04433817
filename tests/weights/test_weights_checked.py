"""Weights are checked before they cost memory, and as they are placed: sizes against tensors, no NaN, no infinity."""

import json
import math
import shutil

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_world import save_tiny_world

from animegamer_core.train.stages import stage_config
from animegamer_core.weights import CheckpointError, open_world
from animegamer_core.weights.adapter_files import read_tensors, save_adapter


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    save_tiny_world(folder)
    return folder


@pytest.mark.parametrize(
    ("model", "where", "sizes"),
    [
        ("engine", ("engine",), {"hidden": 1 << 20}),
        ("decoder", ("decoder",), {"height": 1 << 16, "width": 1 << 16}),
        ("decoder", ("decoder", "vae"), {"channels": [1 << 20, 1 << 20]}),
    ],
)
def test_sizes_beyond_the_files_are_refused_without_memory(folder, tmp_path, model, where, sizes):
    values = json.loads((folder / "world.json").read_text())
    place = values["spec"]
    for name in where:
        place = place[name]
    place.update(sizes)
    for path in folder.iterdir():
        if path.name != "world.json":
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "world.json").write_text(json.dumps(values))
    before = psutil.Process().memory_info().rss
    with pytest.raises(CheckpointError, match="expect|has no such tensor"):
        getattr(open_world(tmp_path), f"load_{model}")()
    assert psutil.Process().memory_info().rss - before < 300 << 20


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize(("model", "part"), [("engine", "engine"), ("decoder", "decoder"), ("decoder", "vae")])
def test_a_number_that_is_none_is_named_with_its_file(folder, tmp_path, model, part, value):
    shutil.copytree(folder, tmp_path / "world")
    (path,) = (tmp_path / "world" / part).glob("model*")
    tensors = load_file(path)
    name = sorted(name for name, tensor in tensors.items() if tensor.is_floating_point())[-1]
    tensors[name].view(-1)[0] = value
    save_file(tensors, path, {"format": "pt"})  # a file of another size would count as cut off
    for dtype in (None, torch.bfloat16):
        with pytest.raises(CheckpointError, match="holds NaN or infinity") as caught:
            getattr(open_world(tmp_path / "world"), f"load_{model}")(dtype=dtype)
        assert str(path) in str(caught.value) and repr(name) in str(caught.value)


def test_an_adapter_with_a_nan_is_refused(tmp_path):
    tensors = {"engine.layer.weight": torch.ones(2, 2)}
    save_adapter(tmp_path / "whole.safetensors", "joint", stage_config("joint"), tensors, {})
    assert read_tensors(tmp_path / "whole.safetensors")
    tensors["engine.layer.weight"][0] = math.nan
    save_adapter(tmp_path / "spoilt.safetensors", "joint", stage_config("joint"), tensors, {})
    with pytest.raises(ValueError, match=r"spoilt\.safetensors: .* holds NaN or infinity"):
        read_tensors(tmp_path / "spoilt.safetensors")
