import pytest
from tiny_world import save_tiny_world


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return save_tiny_world(tmp_path_factory.mktemp("tiny"))
