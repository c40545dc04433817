"""What lets large stages fit into memory: frozen weights in bf16, micro-batches, contact sheets."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image
from test_train import JOINT, TINY, losses_of, new_parts, run, same_tensors

from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.train.learners import DiffusionLearner
from animegamer_core.train.parts import needed_parts
from animegamer_core.train.stages import LORA, STAGES, matching
from animegamer_core.weights import save_world

GPU, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture(scope="module")
def world(ready, tmp_path_factory):
    return new_parts(ready).save(save_world(tmp_path_factory.mktemp("fit") / "world", TINY))


@pytest.mark.parametrize("stage", ["joint", "predict"])
def test_frozen_weights_are_loaded_in_bf16_and_trained_ones_in_fp32(stage, world, ready):
    config, exact = LORA[stage], new_parts(ready)
    parts = needed_parts(stage, config, world, ready, GPU)
    halved = 0
    fp32 = (*config.trainable, r"^encoder\.", r"^decoder\.vae\.", "unconditional")
    for model, loaded in parts.models.items():
        wanted = exact.of(model).state_dict()
        for name, value in loaded.state_dict().items():
            whole = matching(fp32, [f"{model}.{name}"])
            assert value.dtype is (torch.float32 if whole else torch.bfloat16), name
            assert torch.equal(value, wanted[name].to(value.dtype)), name
            halved += not whole
    assert halved > 10
    models = needed_parts(stage, config, world, ready, CPU).models
    assert set(models) == set(STAGES[stage].needs), "none that only sheets would need"
    for model in models.values():
        assert {value.dtype for value in model.parameters()} == {torch.float32}, "the CPU computes in fp32"


@pytest.mark.parametrize("stage", ["joint", "predict"])
def test_sheets_show_clips_and_shots_and_change_nothing(stage, ready, tmp_path):
    row = LORA[stage]
    changes = {**JOINT, "lora_dropout": 0.2, "trainable": row.trainable, "lora_targets": row.lora_targets}
    _, without = run(stage, new_parts(ready), ready, tmp_path / "plain", **changes)
    drawing = {"shots_every": 4, "shots_steps": 9}
    with mock.patch.object(ShotDecoder, "sample", autospec=True, side_effect=ShotDecoder.sample) as sample:
        _, drawn = run(stage, new_parts(ready), ready, tmp_path / "shown", **changes, **drawing)
    steps = {call.args[4] if len(call.args) > 4 else call.kwargs["steps"] for call in sample.call_args_list}
    assert steps == {4}, "at most those of play"
    assert losses_of(drawn) == losses_of(without)
    assert same_tensors(*(tmp_path / out / f"{stage}.safetensors" for out in ("plain", "shown")))
    sheets = sorted((tmp_path / "shown" / "shots").iterdir())
    assert [path.name for path in sheets] == ["step-0000004.png", "step-0000006.png"]
    picture = np.asarray(Image.open(sheets[-1]).convert("RGB")).astype(int)
    middle = picture.shape[1] // 2
    clips, shots = picture[:, :middle], picture[:, middle:]
    red = clips[..., 0] - clips[..., 1]
    assert (red > 100).mean() > 0.02 and red.min() > -100, "of the held-out game, whose squares are red"
    assert (shots.std(axis=-1) > 3).mean() > 0.1, "noise of an untrained decoder"
    assert not (tmp_path / "plain" / "shots").exists()


def test_settings_that_do_not_fit_are_refused_before_features_are_computed(data, tmp_path):
    wrong = {"'.decoder.\\(none' is not a valid regular expression": ("^decoder.(none",), "nothing to train: ": ()}
    for sentence, trainable in wrong.items():
        with mock.patch("animegamer_core.train.run.prepare", side_effect=AssertionError("hours of work")):
            with pytest.raises(ValueError, match=sentence):
                run("joint", new_parts(data), data, tmp_path, trainable=trainable)


def test_micro_batches_change_no_loss_and_held_out_losses_take_no_more_memory(ready, tmp_path):
    sizes, forward, steps = [], DiffusionLearner.forward, {"steps": 2, "batch": 8, "validate_every": 1}

    def counting(self, batch):
        sizes.append((self.training, len(batch["clean"])))
        return forward(self, batch)

    with mock.patch.object(DiffusionLearner, "forward", counting):
        _, parted = run("joint", new_parts(ready), ready, tmp_path / "1", per_card=3, **steps)
    assert set(sizes) == {(True, 2), (False, 2)}, "equal parts, so that each sample counts as much"
    _, whole = run("joint", new_parts(ready), ready, tmp_path / "2", **steps)
    for loss in ("loss", "held_out_loss", "grad_norm"):
        assert [line[loss] for line in parted] == pytest.approx([line[loss] for line in whole], rel=1e-5)
