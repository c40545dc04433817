"""A small drawn dataset that several files of tests copy and change."""

import shutil

import pytest

from animegamer_core.toybox.dataset import DatasetGames, write_dataset


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn") / "dataset"
    write_dataset(folder, DatasetGames(games=2, held_out=1, turns=3), workers=1)
    return folder


@pytest.fixture
def folder(drawn, tmp_path):
    return shutil.copytree(drawn, tmp_path / "dataset")
