"""Fixtures that all training tests see: a small dataset in memory, with every feature, and in a folder with a world."""

import dataclasses

import pytest
from test_train import TINY, data, new_parts, one_thread, ready, written_dataset

from animegamer_core.checkpoint import save_world

__all__ = ["data", "one_thread", "ready"]


@pytest.fixture(scope="module")
def places(data, tmp_path_factory):
    """(dataset folder, a tiny world whose stages are all begun)."""
    folder = tmp_path_factory.mktemp("all")
    spec = dataclasses.replace(TINY, name="tiny")
    parts = dataclasses.replace(new_parts(data), spec=spec)
    parts.decoder.unconditional_ND.copy_(parts.encoder.unconditional())
    parts.save(save_world(folder / "world", spec))
    return written_dataset(data, folder / "dataset"), folder / "world"
