"""Real steps of the paper's stages at the published sizes, with random weights; needs a GPU of 80 GB or more.

Only under `pytest -m gpu -s`, which prints each stage's loss, seconds a step and peak memory.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import time

import pytest
import torch
from test_train import small_world

from animegamer_core.data.cache import FeatureStore
from animegamer_core.data.dataset import DatasetFolder, GameRecord
from animegamer_core.spec import PROFILES, RELEASE
from animegamer_core.train.log import read_log
from animegamer_core.train.loop import RunOptions
from animegamer_core.train.parts import WorldParts
from animegamer_core.train.run import train_stage
from animegamer_core.train.stages import LORA, STAGES
from animegamer_core.train.trainable import is_trained_lora, read_adapter
from animegamer_core.train.training_data import TrainingData
from animegamer_core.train.world_setup import words_tokenizer

TURNS = 4
STEPS = 3
GIB = 2**30

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def clips(tmp_path_factory) -> TrainingData:
    """One game of noisy clips at the published size, 17 frames of 480 x 720."""
    if not torch.cuda.is_available() or torch.cuda.get_device_properties(0).total_memory < 75 * GIB:
        pytest.skip("needs a GPU of 80 GB or more")
    turns = small_world()[0][:TURNS]
    folder = DatasetFolder(tmp_path_factory.mktemp("noise"), turns, (GameRecord("game", tuple(range(TURNS))),))
    numbers = torch.Generator().manual_seed(0)
    coarse = torch.randint(0, 256, (TURNS, 17, 15, 20, 3), dtype=torch.uint8, generator=numbers)
    frames = coarse.repeat_interleave(32, 2).repeat_interleave(36, 3)
    return TrainingData(folder, FeatureStore.of(frames=frames))


@pytest.mark.parametrize("stage", ["warmup", "joint", "predict", "adapt"])
def test_a_stage_steps_at_the_published_sizes(stage, clips, tmp_path):
    torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    with torch.device("cuda"):
        parts = WorldParts.new(
            RELEASE, words_tokenizer(clips.folder.turns, RELEASE), PROFILES["paper"], models=STAGES[stage].needs
        )
    built = time.perf_counter()
    config = dataclasses.replace(LORA[stage], steps=STEPS, batch=2, accumulation=1, lr_warmup=1, log_every=1)
    result = train_stage(stage, config, parts, clips, tmp_path, RunOptions())
    assert result.done and result.step == STEPS
    lines = read_log(tmp_path / "log.jsonl")
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert all(math.isfinite(line["loss"]) and line["grad_norm"] > 0 for line in lines)
    named, _, tensors = read_adapter(result.file)
    assert named == stage and any(value.abs().max() > 0 for value in tensors.values())
    assert any(is_trained_lora(name) for name in tensors) == bool(config.lora_rank)
    print(  # noqa: T201  the figures are what this is run for
        f"\n{stage}: loss {lines[-1]['loss']:.4f}, {lines[-1]['seconds'] - lines[-2]['seconds']:.2f} s a step at batch "
        f"{config.batch}, peak {torch.cuda.max_memory_allocated() / GIB:.1f} GiB, made in {built - begun:.0f} s, "
        f"features and {STEPS} steps in {time.perf_counter() - built:.0f} s, "
        f"{sum(value.numel() for value in tensors.values()) / 1e6:.1f} M trained"
    )
    del parts, result
    gc.collect()
    torch.cuda.empty_cache()
