"""How models are found, loaded, shared, interrupted and let go, inside ComfyUI's own process."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from comfy_server import ROOT, SKIPPED, find_comfyui

INSIDE = Path(__file__).parent / "inside.py"
CHECKS = re.findall(r"^def check_that_(\w+)", INSIDE.read_text("utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """What inside.py found."""
    if find_comfyui() is None:
        pytest.skip(SKIPPED)
    comfy, python = find_comfyui()
    command = [python, INSIDE, comfy, ROOT, tmp_path_factory.mktemp("inside")]
    done = subprocess.run(command, cwd=comfy, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("check", CHECKS)
def test_inside_comfyui(inside, check):
    assert inside[check] == ""


def test_threads_of_torch_sleep_while_they_wait(server):
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in server.log_text()
