"""A clone by Git for Windows, which may write other line ends, plays the Toybox."""

import shutil
import subprocess
from pathlib import Path

import pytest

from animegamer_core.weights.world import EMBEDDED, open_world

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not in a clone")
def test_a_clone_with_autocrlf_has_the_files_as_they_are(tmp_path):
    subprocess.run(["git", "-c", "core.autocrlf=true", "clone", "-q", "--shared", ROOT, tmp_path / "pack"], check=True)
    world = open_world(tmp_path / "pack" / EMBEDDED["toybox"].relative_to(ROOT))
    world.verify()
    world.load_engine()
    changed = ["git", "-C", tmp_path / "pack", "grep", "-lI", "\r$"]
    assert subprocess.run(changed, capture_output=True, text=True).stdout == ""


def test_other_line_ends_are_no_other_world(tmp_path):
    folder = shutil.copytree(EMBEDDED["toybox"], tmp_path / "world")
    for path in folder.rglob("*.json"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    world = open_world(folder)
    assert not world.missing()
    world.verify()
    world.load_engine()
    assert world.fingerprint == open_world("toybox").fingerprint
