"""The scripts for machines with GPUs: what they would run is what the programs accept."""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from animegamer_core.__main__ import main

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(os.name == "nt" or shutil.which("bash") is None, reason="a script for bash")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """{name: words of the command} of tests/measure/gpus.sh."""
    work = tmp_path_factory.mktemp("work") / "new"
    done = subprocess.run(
        ["bash", "tests/measure/gpus.sh", str(work), "--dry"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not work.exists(), "nothing is made where nothing is measured"
    found = re.findall(r"^(\w+) \[([\d,]*)\] (.*(?:\n(?!\w+ \[).*)*)", done.stdout, re.MULTILINE)
    return {name: shlex.split(command) for name, _, command in found}


def help_of(program, capsys, monkeypatch):
    """What a script or a command of the program prints for --help, in this process."""
    script = program[0].endswith(".py")
    monkeypatch.setattr("sys.argv", [*program, "--help"])
    monkeypatch.setattr("sys.path", [str((ROOT / program[0]).parent), *sys.path])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(ROOT / program[0]), run_name="__main__") if script else main([*program, "--help"])
    assert left.value.code == 0
    return capsys.readouterr().out


def test_every_option_is_one_that_the_program_knows(jobs, capsys, monkeypatch):
    assert len(jobs) > 15
    known = {}
    for name, words in jobs.items():
        script = next((word for word in words if word.startswith("tests/measure/")), None)
        if script is not None:
            program, arguments = (script,), words[words.index(script) :]
        elif "animegamer_core" in words:
            arguments = words[words.index("animegamer_core") + 1 :]
            program = tuple(arguments[: 2 if arguments[0] in ("evaluate", "train") else 1])
        else:
            continue
        if program not in known:
            known[program] = help_of(program, capsys, monkeypatch)
        options = [word for word in arguments if word.startswith("--")]
        assert [word for word in options if not re.search(rf"{re.escape(word)}(?![\w-])", known[program])] == [], name


def run(tmp_path, fake):
    """(exit status, what it printed, jobs that were called) of the script with a program in python's place."""
    (tmp_path / "calls").unlink(missing_ok=True)
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho call >> {tmp_path}/calls\n{fake}\n")
    program.chmod(0o755)
    call = ["bash", "tests/measure/gpus.sh", str(tmp_path / "work")]
    environment = {**os.environ, "PYTHON": str(program)}
    done = subprocess.run(call, cwd=ROOT, env=environment, timeout=120, capture_output=True, text=True)
    calls = tmp_path / "calls"
    return done.returncode, done.stdout, len(calls.read_text().split()) if calls.exists() else 0


def test_what_ended_well_is_not_run_again(tmp_path):
    status, printed, count = run(tmp_path, "true")
    assert (status, printed) == (0, "") and count > 15
    assert len(list((tmp_path / "work" / "logs").iterdir())) == count
    assert run(tmp_path, "true") == (0, "", 0)


def test_what_failed_is_named_and_run_again_alone(tmp_path):
    status, printed, count = run(tmp_path, 'case "$*" in *no_gelu*|*two_gpus*) exit 3;; esac')
    failed = {Path(line).stem for line in printed.split()}
    assert status == 1 and failed == {"no_gelu", "two_gpus"}
    assert "exit 3 after" in (tmp_path / "work" / "logs" / "no_gelu.log").read_text()
    assert run(tmp_path, "true") == (0, "", 2) and count > 15


def test_one_process_trains_as_the_first_of_four_that_do_not_exist(tmp_path):
    """It holds what a card among four would hold, and its steps end though nobody answers."""
    rows = tmp_path / "rows.jsonl"
    arguments = "--spec toybox --share-of 4 --rows lora24:joint:1 --steps 1 --out".split()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "tests/measure/release.py", *arguments, str(rows)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=300)
    row = json.loads(rows.read_text())
    assert (row["mode"], row["cards"]) == ("share", 4) and row["seconds"] > 0
