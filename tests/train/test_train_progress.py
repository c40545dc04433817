"""What `train` prints while it runs: features, the first step, the pace, and how to continue after an interrupt."""

from __future__ import annotations

import argparse
import signal
import time
from unittest import mock

import pytest
import torch
from test_train import new_parts, run
from test_train_worlds import FEW, train

from animegamer_core.cli.train import add_arguments
from animegamer_core.train.checkpoints import list_checkpoints
from animegamer_core.train.learners import ContrastiveLearner, DiffusionLearner
from animegamer_core.train.log import read_log
from animegamer_core.train.progress import RunProgress, duration


def test_the_first_step_is_logged_whatever_log_every_is(ready, tmp_path):
    run("joint", new_parts(ready), ready, tmp_path, steps=6, log_every=4)
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == [1, 4, 6]


@pytest.mark.parametrize("recipe", ["scratch", "lora"])
def test_features_are_reported_before_the_first_step(recipe, places, tmp_path):
    said = []
    options = f"{FEW} --recipe {recipe} --accumulation 1 --cache {tmp_path / 'cache'}"
    assert train("joint", *places, tmp_path / "run", options, said.append) == 0
    heads = [line.partition(": ")[0] for line in said]
    first = next(number for number, line in enumerate(said) if line.startswith("joint 1/2 "))
    for feature in ("latents", "text", "image"):
        assert 0 <= heads.index(f"computing {feature} of clips") < first
    assert sum(line.endswith("24 of 24") for line in said) == 3
    said.clear()
    assert train("joint", *places, tmp_path / "again", options, said.append) == 0
    assert not any("of clips" in line for line in said), "cached"


def test_reading_clips_is_reported_too(places, tmp_path):
    said = []
    assert train("vae", *places, tmp_path / "run", f"{FEW} --clip-lengths 1", said.append) == 0
    assert "reading clips: 16 of 24" in said and "reading clips: 24 of 24" in said


def test_a_long_feature_is_reported_every_ten_seconds():
    said, now = [], 100.0
    progress = RunProgress("joint", said.append)
    for done in range(1, 41):
        now += 1.0
        with mock.patch.object(time, "monotonic", lambda now=now: now):
            progress.feature("latents", done, 40)
    assert said == [f"computing latents of clips: {done} of 40" for done in (1, 11, 21, 31, 40)]


def test_steps_report_their_pace_and_the_time_left():
    said = []
    progress = RunProgress("vae", said.append)
    for step, seconds in ((1, 60.0), (21, 70.0), (4000, 2000.0)):  # the first compiles
        progress.step(step, 4000, {"loss": 0.5, "seconds": seconds})
    assert said[0] == "vae 1/4000  loss 0.5  60 s a step, 66 h 39 min left"
    assert said[1] == "vae 21/4000  loss 0.5  0.5 s a step, 33 min left"
    assert said[2] == "vae 4000/4000  loss 0.5  0.49 s a step"
    assert [duration(value) for value in (0.2, 89, 91, 3599, 7500)] == [
        "0 s",
        "89 s",
        "2 min",
        "1 h 00 min",
        "2 h 05 min",
    ]


def test_a_continued_run_reports_the_pace_of_its_earlier_steps():
    said = []
    RunProgress("vae", said.append).step(120, 200, {"loss": 0.5, "seconds": 60.0})
    assert said == ["vae 120/200  loss 0.5  0.5 s a step, 40 s left"]


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(places, tmp_path, capsys):
    said = []

    def hear(line: str) -> None:
        said.append(line)
        if line.startswith("predict 2/"):
            signal.raise_signal(signal.SIGINT)

    options = FEW.replace("--steps 2", "--steps 4") + " --recipe lora --lora-rank 2 --accumulation 1"
    assert train("predict", *places, tmp_path / "run", options, hear) == 130
    (kept,) = list_checkpoints(tmp_path / "run" / "checkpoints")[-1:]
    step = int(kept.name.removeprefix("step-"))
    assert step in (2, 3) and said[-1] == f"stopped after step {step}; the same command with --resume continues"
    assert "finishing and saving the current step" in capsys.readouterr().err
    assert (tmp_path / "run" / "loss.png").is_file()
    assert train("predict", *places, tmp_path / "run", f"{options} --resume", said.append) == 0
    assert said[-1] == f"wrote {tmp_path / 'run' / 'predict.safetensors'}"


def test_without_matplotlib_a_run_trains_and_says_how_to_get_the_plot(places, tmp_path):
    said = []
    with mock.patch.dict("sys.modules", {"matplotlib": None, "matplotlib.backends.backend_agg": None}):
        assert train("predict", *places, tmp_path / "run", FEW, said.append) == 0
    assert any(line.startswith("no loss.png is drawn") and "pip install matplotlib" in line for line in said)
    assert not (tmp_path / "run" / "loss.png").exists() and (tmp_path / "run" / "predict.safetensors").is_file()


def test_ctrl_c_before_the_first_step_says_that_nothing_is_kept(places, tmp_path):
    said = []

    def hear(line: str) -> None:
        said.append(line)
        if "latents" in line:
            raise KeyboardInterrupt

    options = f"{FEW} --recipe lora --lora-rank 2 --accumulation 1"
    assert train("adapt", *places, tmp_path / "run", options, hear) == 130
    assert said[-1] == "stopped before a step was saved; the same command starts again"
    assert not (tmp_path / "run" / "loss.png").exists()
    assert train("adapt", *places, tmp_path / "run", options) == 0


def test_the_help_says_which_stage_leaves_what(monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    shown = parser.format_help()
    for words in (
        "vae, towers, warmup, joint, predict, adapt in this order",
        "distill: the decoder learns to draw with one pass a step; leaves an adapter with every recipe",
        "leaves a folder gc in --out",
        "a small one is trained in place",
        "both leave an adapter, and the world as it is",
        "scratch: all weights, written into the world folder (default for specs tiny and toybox)",
    ):
        assert words in shown, words


def test_a_cpu_computes_few_samples_at_a_time_and_says_so(places, tmp_path):
    """A row's whole batch of Toybox-size clips takes 50 GiB there, and the system kills the process without a word."""
    sizes, forward = [], DiffusionLearner.forward

    def counting(self, batch):
        sizes.append(len(batch["clean"]))
        return forward(self, batch)

    def trained(out, options):
        sizes.clear()
        said = []
        with mock.patch.object(DiffusionLearner, "forward", counting):
            assert train("joint", *places, tmp_path / out, FEW.replace("--batch 2", options), said.append) == 0
        return set(sizes), any(line.startswith("on a CPU at most 2 samples are computed at a time") for line in said)

    assert trained("few", "--batch 6") == ({2}, True)
    assert trained("asked", "--batch 6 --per-card 3") == ({3}, False)
    assert trained("whole", "--batch 6 --per-card 0") == ({6}, False)
    assert trained("small", "--batch 2") == ({2}, False)


def test_a_contrastive_batch_is_not_split_on_a_cpu(places, tmp_path):
    sizes, forward = [], ContrastiveLearner.forward

    def counting(self, batch):
        sizes.append(len(batch["images"]))
        return forward(self, batch)

    with mock.patch.object(ContrastiveLearner, "forward", counting):
        assert train("towers", *places, tmp_path / "run", FEW.replace("--batch 2", "--batch 6")) == 0
    assert set(sizes) == {6}


def test_a_gpu_without_enough_memory_is_reported_with_a_remedy(places, tmp_path):
    def forward(self, batch):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")

    with mock.patch.object(DiffusionLearner, "forward", forward):
        with pytest.raises(ValueError, match=r"stage joint does not fit .* \(CUDA out of memory\); .* smaller --per-"):
            train("joint", *places, tmp_path / "run", FEW)
