"""Stage gc: the text-to-video baseline learns in the one training loop, and stock diffusers opens what it leaves."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from diffusers import CogVideoXPipeline
from test_train import TINY, run, tiny_config, train

from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.encoder import ShotEncoder
from animegamer_core.spec import PROFILES
from animegamer_core.train.run import prepare
from animegamer_core.train.text_video import new_text_video, open_text_video
from animegamer_core.train.world_setup import words_tokenizer
from animegamer_core.weights import save_part, save_world

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def world(data, tmp_path_factory):
    """A tiny world of random weights."""
    torch.manual_seed(5)
    spec = dataclasses.replace(TINY, name="tiny")
    saved = save_world(tmp_path_factory.mktemp("world"), spec)
    tokenizer = words_tokenizer(data.folder.turns, spec)
    saved = save_part(saved, ShotEncoder(spec, tokenizer.backend))
    return save_part(saved, ShotDecoder(spec, PROFILES["paper"]))


@pytest.fixture(scope="module")
def ready(data, world):
    """The dataset with what stage gc reads."""
    return prepare("gc", tiny_config("gc"), new_text_video(world, data.folder, 0), data, CPU)


SMALL = "--steps 3 --batch 2 --lr-warmup 1 --log-every 1 --validate-every 0"
SCRATCH = f"{SMALL} --recipe scratch"


def draw(pipeline: CogVideoXPipeline, prompt: str, steps: int = 2) -> np.ndarray:
    """(F, H, W, 3) in [0, 1] as the stock pipeline draws a prompt."""
    pipeline.set_progress_bar_config(disable=True)
    length, numbers = pipeline.transformer.config.max_text_seq_length, torch.Generator().manual_seed(0)
    how = {"num_inference_steps": steps, "guidance_scale": 2.0, "max_sequence_length": length, "output_type": "np"}
    return pipeline(prompt, height=16, width=24, num_frames=17, generator=numbers, **how).frames[0]


def test_its_loss_falls(world, ready, tmp_path):
    parts = new_text_video(world, ready.folder, 0)
    _, lines = run("gc", parts, ready, tmp_path, steps=30, batch=8, lr=5e-3, ema=0.0)
    losses = [line["loss"] for line in lines]
    assert np.mean(losses[-5:]) < 0.95 * np.mean(losses[:5])
    assert not any(value.requires_grad for value in parts.decoder.parameters())


def test_the_command_leaves_a_folder_that_stock_diffusers_draws_from(world, dataset, tmp_path, capsys):
    before = {path: path.stat().st_mtime_ns for path in world.folder.rglob("*")}
    said: list[str] = []
    assert train("gc", dataset, world.folder, tmp_path, SCRATCH, said.append) == 0
    assert {path: path.stat().st_mtime_ns for path in world.folder.rglob("*")} == before
    pipeline = CogVideoXPipeline.from_pretrained(str(tmp_path / "gc"), local_files_only=True)
    one, again, other = (draw(pipeline, text) for text in ("red walk", "red walk", "blue rest"))
    assert one.shape == (17, 16, 24, 3) and np.isfinite(one).all()
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    assert str(tmp_path / "gc") in said[-1]
    sampling = json.loads((tmp_path / "gc" / "sampling.json").read_text())
    assert sampling == {"steps": 4, "guidance_scale": 6.0, "frames": 17}
    assert json.loads((tmp_path / "gc" / "model_index.json").read_text())["_class_name"] == "CogVideoXPipeline"


def test_a_stock_folder_gets_updates_that_diffusers_loads(world, dataset, data, tmp_path):
    """As for CogVideoX-2B: the file holds updates alone, and loaded they are the merged weights that training left."""
    stock = tmp_path / "CogVideoX"
    made = new_text_video(world, data.folder, 0).decoder
    torch.nn.init.normal_(made.transformer.proj_out.weight)
    made.pipeline.save_pretrained(str(stock))
    options = f"{SMALL} --lora-rank 4 --lora-alpha 8 --lr 1e-2 --per-card 0"
    assert train("gc", dataset, stock, tmp_path / "run", options) == 0
    files = [path.name for path in (tmp_path / "run" / "gc").iterdir()]
    assert files == ["pytorch_lora_weights.safetensors", "sampling.json"]

    parts = open_text_video(stock).with_stage_files([(tmp_path / "run" / "gc.safetensors", 1.0)])
    pipeline = CogVideoXPipeline.from_pretrained(str(stock), local_files_only=True)
    plain = draw(pipeline, "red walk")
    pipeline.load_lora_weights(str(tmp_path / "run" / "gc"))
    updated, merged = draw(pipeline, "red walk"), draw(parts.decoder.pipeline, "red walk")
    assert np.abs(updated - plain).max() > 1e-3
    np.testing.assert_allclose(updated, merged, atol=1e-3)
