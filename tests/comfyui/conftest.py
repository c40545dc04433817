"""Tests against a real ComfyUI server. Without one they are skipped, and a line at the end says so."""

import shutil
import time

import pytest
from comfy_server import SKIPPED, find_comfyui, server  # noqa: F401  a fixture
from tiny_world import save_tiny_world


@pytest.fixture(scope="module")
def tiny(server):  # noqa: F811
    """A world of random weights, for tests that ask what happens to turns and not what they show: it draws at once."""
    folder = server.models_dir / "animegamer" / "tiny"
    yield save_tiny_world(folder, encoder=True)
    shutil.rmtree(folder)


@pytest.fixture
def story(request):
    """A name that no other test uses."""
    return f"{request.node.name[:40].split('[')[0]} {time.monotonic_ns()}"


def pytest_terminal_summary(terminalreporter):
    if find_comfyui() is None:
        terminalreporter.write_line(f"SKIPPED the tests with a real ComfyUI: {SKIPPED}", red=True, bold=True)
