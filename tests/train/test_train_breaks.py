"""Training is killed, or the power fails: it goes on from a checkpoint and comes to the same weights."""

import os
import shutil

import pytest
from kills import kill_often
from power_cut import recorded, sample
from test_train import same_tensors, train

from animegamer_core.train.checkpoints import list_checkpoints, step_of
from animegamer_core.train.log import read_log

OPTIONS = "--steps 4 --batch 2 --log-every 1 --lr-warmup 1 --save-every 1 --accumulation 1 --resume"


def steps_done(out):
    """The steps that a run would go on after."""
    found = list_checkpoints(out / "run" / "checkpoints")
    return step_of(found[-1]) if found else 0


def same_run(one, other):
    """Whether two folders hold the same trained weights, world and log."""
    logs = [[(line["step"], line["loss"]) for line in read_log(out / "run" / "log.jsonl")] for out in (one, other)]
    worlds = [{path.name: path.read_bytes() for path in (out / "world").rglob("*.safetensors")} for out in (one, other)]
    adapters = [out / "run" / "predict.safetensors" for out in (one, other)]
    return logs[0] == logs[1] and worlds[0] == worlds[1] and same_tensors(*adapters)


@pytest.fixture(scope="module")
def work(places):
    """Train in a folder that has a world of its own, since this stage writes to it."""

    def run(out, said=lambda line: None):
        assert train("predict", places[0], out / "world", out / "run", OPTIONS, said) == 0

    return run


@pytest.fixture(scope="module")
def trained(places, work, tmp_path_factory):
    """(a finished run, what the disk may have held)."""
    out = tmp_path_factory.mktemp("trained")
    shutil.copytree(places[1], out / "world")
    with recorded(out) as disk:
        work(out, disk.note)
    return out, disk


def go_on_after(trained, work, moment, seed, out):
    whole, disk = trained
    disk.cut(moment, seed, out)
    if (result := out / "run" / "result.json").is_file():  # it names the world by its whole path
        result.write_text(result.read_text().replace(str(whole), str(out)))
    reported = sum(line.startswith("predict ") for line in map(str, disk.noted(moment)))
    assert steps_done(out) >= reported - 1, f"moment {moment}, seed {seed}: more than the step in progress was lost"
    work(out)
    assert same_run(out, whole), f"moment {moment}, seed {seed}"


def test_a_power_cut_loses_the_step_in_progress_only(trained, work, tmp_path):
    for moment, seed in sample(trained[1], 6):
        go_on_after(trained, work, moment, seed, tmp_path / f"{moment}-{seed}")


def train_with_kills(places, work, whole, tmp_path, kills, seed):
    out = tmp_path / "killed"

    def begin():
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(places[1], out / "world")

    def check():
        assert same_run(out, whole)

    kill_often(begin, lambda: work(out), lambda: steps_done(out), check, tmp_path / "log.txt", kills, seed)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_kills_change_nothing(places, work, trained, tmp_path):
    train_with_kills(places, work, trained[0], tmp_path, 3, seed=0)
