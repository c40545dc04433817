"""What `train` prints while it runs: features, the first step, the pace, and how to continue after an interrupt."""

from __future__ import annotations

import signal
from unittest import mock

import pytest
import torch
from test_train import train
from test_train_worlds import FEW

from animegamer_core.train.checkpoints import list_checkpoints, step_of
from animegamer_core.train.learners import DiffusionLearner


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
    step = step_of(kept)
    assert step in (2, 3) and said[-1] == f"stopped after step {step}; the same command with --resume continues"
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
