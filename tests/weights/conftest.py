"""Published files, made once for all tests of this folder."""

import shutil

import published_files as made
import pytest
from tiny_world import save_tiny_world

from animegamer_core.weights.convert import convert


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A tiny world, to be read only."""
    return save_tiny_world(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def mistral(tmp_path_factory):
    return made.write_mistral(tmp_path_factory.mktemp("download") / "Mistral-7B-Instruct-v0.1")


@pytest.fixture(scope="session")
def originals(mistral):
    return made.make_originals(mistral)


@pytest.fixture(scope="session")
def download(tmp_path_factory, mistral, originals):
    """A whole download, to be read only."""
    src = tmp_path_factory.mktemp("whole")
    shutil.copytree(mistral, src / mistral.name)
    made.write_all(src, originals)
    return src


@pytest.fixture(scope="session")
def converted(download, tmp_path_factory):
    """A world of it in released precision, to be read only."""
    return convert(download, tmp_path_factory.mktemp("converted") / "w")


@pytest.fixture(scope="session")
def converted_exactly(download, tmp_path_factory):
    """(a world of the same numbers, to be read only; the progress that was reported)."""
    seen = []
    out = tmp_path_factory.mktemp("exactly") / "w"
    return convert(download, out, lambda *step: seen.append(step), precision="keep"), seen


@pytest.fixture
def own_copy(download, tmp_path):
    """A download that a test may change."""
    shutil.copytree(download, tmp_path / "src")
    return tmp_path / "src"
