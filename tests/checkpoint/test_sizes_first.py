"""Sizes that a world states are compared with its tensors before any model of them is built."""

import json

import psutil
import pytest
from tiny_world import save_tiny_world

from animegamer_core.checkpoint import CheckpointError, open_world


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    save_tiny_world(folder)
    return folder


@pytest.mark.parametrize(
    ("model", "where", "sizes"),
    [
        ("engine", ("engine",), {"hidden": 1 << 20}),
        ("engine", ("engine",), {"intermediate": 1 << 24}),
        ("engine", ("engine",), {"layers": 1 << 24}),
        ("engine", ("engine",), {"vocab_size": 1 << 24}),
        ("decoder", ("decoder",), {"layers": 200}),
        ("decoder", ("decoder",), {"height": 1 << 16, "width": 1 << 16}),
        ("decoder", ("decoder",), {"time_width": 1 << 24}),
        ("decoder", ("decoder", "vae"), {"channels": [1 << 20, 1 << 20]}),
        ("decoder", ("decoder", "vae"), {"layers_per_block": 1 << 20}),
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
