"""What `train` prints while it runs: features, the first step, the pace, and how to continue after an interrupt."""

from __future__ import annotations

import shutil
import signal
from unittest import mock

import pytest
import torch
from test_train import train
from test_train_worlds import FEW

from animegamer_core.train.checkpoints import list_checkpoints
from animegamer_core.train.learners import ContrastiveLearner, DiffusionLearner


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(places, tmp_path, capsys):
    said = []

    def hear(line: str) -> None:
        said.append(line)
        if line.startswith("predict 2/"):
            signal.raise_signal(signal.SIGINT)

    options = FEW.replace("--steps 2", "--steps 4") + " --recipe lora --lora-rank 2 --accumulation 1"
    before = signal.getsignal(signal.SIGINT)
    assert train("predict", *places, tmp_path / "run", options, hear) == 130
    assert signal.getsignal(signal.SIGINT) is before
    (kept,) = list_checkpoints(tmp_path / "run" / "checkpoints")[-1:]
    step = int(kept.name.removeprefix("step-"))
    assert step in (2, 3) and said[-1] == f"stopped after step {step}; the same command with --resume continues"
    assert "finishing and saving the current step" in capsys.readouterr().err
    assert (tmp_path / "run" / "loss.png").is_file()
    assert train("predict", *places, tmp_path / "run", f"{options} --resume", said.append) == 0
    assert said[-1] == f"wrote {tmp_path / 'run' / 'predict.safetensors'}"


@pytest.mark.parametrize(
    ("stage", "learner", "options", "at_once"),
    [
        ("joint", DiffusionLearner, "--batch 6", 2),
        ("joint", DiffusionLearner, "--batch 6 --per-card 3", 3),
        ("joint", DiffusionLearner, "--batch 6 --per-card 0", 6),
        ("towers", ContrastiveLearner, "--batch 6", 6),  # its samples are told from one another
    ],
)
def test_a_cpu_computes_few_samples_at_a_time_and_says_so(stage, learner, options, at_once, places, tmp_path):
    """A row's whole batch of Toybox-size clips takes 50 GiB there, and the system kills the process without a word."""
    sizes, said, forward = [], [], learner.forward

    def counting(self, batch):
        sizes.append(len(batch["clean" if stage == "joint" else "images"]))
        return forward(self, batch)

    world = shutil.copytree(places[1], tmp_path / "world")
    with mock.patch.object(learner, "forward", counting):
        assert train(stage, places[0], world, tmp_path / "run", FEW.replace("--batch 2", options), said.append) == 0
    assert set(sizes) == {at_once}
    assert any(line.startswith("to save memory, a CPU computes at most 2 samples") for line in said) is (at_once == 2)


def test_a_gpu_without_enough_memory_is_reported_with_a_remedy(places, tmp_path):
    def forward(self, batch):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")

    with mock.patch.object(DiffusionLearner, "forward", forward):
        with pytest.raises(ValueError, match=r"stage joint does not fit .* \(CUDA out of memory\); .* smaller --per-"):
            train("joint", *places, tmp_path / "run", FEW)
