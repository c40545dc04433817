"""Fixtures that all training tests see: a small dataset in memory, with every feature, and in a folder with a world."""

import dataclasses

import pytest
import torch
from test_train import TINY, new_parts, small_world, tiny_config, written_dataset

from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.train.run import prepare
from animegamer_core.train.training_data import TrainingData
from animegamer_core.weights import save_world


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """The dataset, with its frames alone."""
    turns, games, frames = small_world()
    folder = DatasetFolder(tmp_path_factory.mktemp("squares"), turns, games)
    return TrainingData(folder, {"frames": frames})


@pytest.fixture(scope="session")
def ready(data):
    """The data with every feature, from untrained parts."""
    return prepare("adapt", tiny_config("adapt"), new_parts(data), data, torch.device("cpu"))


@pytest.fixture(scope="session")
def places(data, tmp_path_factory):
    """(dataset folder, a tiny world whose stages are all begun), to be read only."""
    folder = tmp_path_factory.mktemp("all")
    spec = dataclasses.replace(TINY, name="tiny")
    parts = dataclasses.replace(new_parts(data), spec=spec)
    parts.decoder.unconditional_ND.copy_(parts.encoder.unconditional())  # as stage joint leaves it
    parts.save(save_world(folder / "world", spec))
    return written_dataset(data, folder / "dataset"), folder / "world"


@pytest.fixture(scope="session")
def smaller_dataset(tmp_path_factory):
    """Clips of 8 x 12, the size that the tiny CogVideoX and the tiny published files were made for."""
    turns, games, frames = small_world()
    folder = tmp_path_factory.mktemp("smaller")
    store = {"frames": frames[:, :, ::2, ::2].contiguous()}
    return written_dataset(TrainingData(DatasetFolder(folder, turns, games), store), folder / "dataset")


@pytest.fixture(scope="session")
def dataset(places):
    return places[0]
