"""Training that ends early, however that comes, goes on from a checkpoint and comes to the same weights."""

import os
import shutil
import signal
from unittest import mock

import pytest
import torch
from kills import kill_often
from small_disk import resize, small_disk
from test_train import same_tensors, train
from test_train_worlds import FEW

from animegamer_core.train.checkpoints import list_checkpoints, step_of
from animegamer_core.train.learners import DiffusionLearner
from animegamer_core.train.log import read_log

OPTIONS = "--steps 4 --batch 2 --log-every 1 --lr-warmup 1 --save-every 1"


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
        assert train("predict", places[0], folder / "world", folder / "run", f"{OPTIONS} --resume") == 0

    def check():
        assert same_run(out, whole)

    begin(whole)
    work(whole)
    kill_often(begin, work, lambda: steps_done(out), check, tmp_path / "log.txt", kills, seed=0)


def test_a_stage_goes_on_once_there_is_room(places, tmp_path):
    dataset, world = places
    whole, full = tmp_path / "whole", tmp_path / "full"
    for name in ("one", "other"):  # a stage without LoRA trains its world in place
        shutil.copytree(world, tmp_path / name)
    assert train("predict", dataset, tmp_path / "one", whole, OPTIONS) == 0
    size = sum(path.stat().st_size for path in whole.rglob("*") if path.is_file()) // 1024
    with small_disk(full, 64):
        for kilobytes in (64, size // 2):
            resize(full, kilobytes)
            with pytest.raises(OSError, match=r"MB free\); finished work is kept; free some space"):
                train("predict", dataset, tmp_path / "other", full / "run", f"{OPTIONS} --resume")
        resize(full, 4 * size + 10_000)
        assert train("predict", dataset, tmp_path / "other", full / "run", f"{OPTIONS} --resume") == 0
        assert same_tensors(whole / "predict.safetensors", full / "run" / "predict.safetensors")


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_says_what_is_kept_and_how_to_go_on(presses, places, tmp_path, capsys):
    said = []

    def hear(line: str) -> None:
        said.append(line)
        if line.startswith("predict 2/"):
            for _ in range(presses):
                signal.raise_signal(signal.SIGINT)

    options = FEW.replace("--steps 2", "--steps 4") + " --recipe lora --lora-rank 2"
    before = signal.getsignal(signal.SIGINT)
    assert train("predict", *places, tmp_path / "run", options, hear) == 130
    assert signal.getsignal(signal.SIGINT) is before
    (kept,) = list_checkpoints(tmp_path / "run" / "checkpoints")[-1:]
    step = 3 if presses == 1 else 2  # a second press does not wait for the step
    assert step_of(kept) == step and said[-1] == f"stopped after step {step}; the same command with --resume continues"
    assert "finishing and saving the current step" in capsys.readouterr().err
    assert (tmp_path / "run" / "loss.png").is_file()
    assert train("predict", *places, tmp_path / "run", f"{options} --resume", said.append) == 0
    assert said[-1] == f"wrote {tmp_path / 'run' / 'predict.safetensors'}"


def test_a_gpu_without_enough_memory_is_reported_with_a_remedy(places, tmp_path):
    def forward(self, batch):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")

    with mock.patch.object(DiffusionLearner, "forward", forward):
        with pytest.raises(ValueError, match=r"stage joint does not fit .* \(CUDA out of memory\); .* smaller --per-"):
            train("joint", *places, tmp_path / "run", FEW)
