"""Training is killed: it goes on from a checkpoint and comes to the same weights."""

import os
import shutil

import pytest
from kills import kill_often
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_kills_change_nothing(places, tmp_path, kills):
    whole, out = tmp_path / "whole", tmp_path / "killed"

    def begin(folder=out):
        """A world of its own, since this stage writes to it."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(places[1], folder / "world")

    def work(folder=out):
        assert train("predict", places[0], folder / "world", folder / "run", OPTIONS) == 0

    def check():
        assert same_run(out, whole)

    begin(whole)
    work(whole)
    kill_often(begin, work, lambda: steps_done(out), check, tmp_path / "log.txt", kills, seed=0)
