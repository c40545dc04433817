"""The scripts for machines with GPUs: what they would run is what the programs accept."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(os.name == "nt" or shutil.which("bash") is None, reason="a script for bash")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """{name: words of the command} of tests/measure_gpus.sh."""
    work = tmp_path_factory.mktemp("work") / "new"
    done = subprocess.run(
        ["bash", "tests/measure_gpus.sh", str(work), "--dry"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not work.exists(), "nothing is made where nothing is measured"
    found = re.findall(r"^(\w+) \[([\d,]*)\] (.*(?:\n(?!\w+ \[).*)*)", done.stdout, re.MULTILINE)
    return {name: shlex.split(command) for name, _, command in found}


def test_every_option_is_one_that_the_program_knows(jobs):
    assert len(jobs) > 15
    for name, words in jobs.items():
        script = next((word for word in words if word.startswith("tests/measure_")), None)
        if script is not None:
            call, told = [script], words[words.index(script) :]
        elif "animegamer_core" in words:
            told = words[words.index("animegamer_core") :]
            call = ["-m", *told[: 3 if told[1] in ("evaluate", "train") else 2]]
        else:
            continue
        helped = subprocess.run([sys.executable, *call, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert [word for word in told if word.startswith("--") and word not in helped.stdout] == [], name


def test_what_ended_well_is_not_run_again(tmp_path):
    """A fake python notes each call; the second run of the script makes none."""
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\necho called >> {tmp_path}/calls\n")
    fake.chmod(0o755)
    run = ["bash", "tests/measure_gpus.sh", str(tmp_path / "work")]
    counts = []
    for _ in range(2):
        subprocess.run(run, cwd=ROOT, env={**os.environ, "PYTHON": str(fake)}, check=True, timeout=120)
        counts.append(len((tmp_path / "calls").read_text().split()))
    assert counts[0] == counts[1] > 15
    assert all("exit 0" in log.read_text() for log in (tmp_path / "work" / "logs").iterdir())
