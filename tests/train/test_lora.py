"""LoRA keeps its whole effect beside 16-bit weights, and its strength changes in place."""

import copy
import dataclasses

import pytest
import torch
from safetensors.torch import load_file
from test_train import TINY, UPDATES, new_parts, run

from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.spec import RELEASE, VaeSpec
from animegamer_core.train import trainer
from animegamer_core.train.parts import WorldParts
from animegamer_core.train.run import train_stage
from animegamer_core.train.stages import LORA, StageConfig
from animegamer_core.train.training_data import weights_digest
from animegamer_core.weights import save_world
from animegamer_core.weights.adapter_files import save_adapter
from animegamer_core.weights.adapters import with_adapters
from animegamer_core.weights.lora import WORLD, adapters_of, apply_adapter, attach, inject, left_out, lora_of, restore
from animegamer_core.weights.parts import LoraUpdate

BF16 = torch.bfloat16
RANK, SCALE = 64, 1 / 64  # as released
ATTENTION = [f"transformer.transformer_blocks.0.attn1.{name}" for name in ("to_q", "to_k", "to_v", "to_out.0")]
JOINT = StageConfig(trainable=("x",), lora_rank=RANK, lora_alpha=1.0, lora_targets=LORA["joint"].lora_targets)


@pytest.fixture(scope="module")
def wide():
    """A decoder with one layer of the published width."""
    vae = VaeSpec(channels=(32, 32), layers_per_block=1, latent_channels=4)
    decoder = dataclasses.replace(RELEASE.decoder, layers=1, height=16, width=16, vae=vae)
    torch.manual_seed(0)
    return ShotDecoder(dataclasses.replace(RELEASE, decoder=decoder))


def update_of(weight, size, rank=RANK):
    """A random LoRA update whose length is `size` times the weight's."""
    down, up = torch.randn(rank, weight.shape[1]) / weight.shape[1] ** 0.5, torch.randn(len(weight), rank)
    up *= size * weight.float().norm() / (SCALE * (up @ down)).norm()
    return LoraUpdate(down, up, SCALE)


def effect_error(layer, before, update, rows):
    """Of what an update does to rows, in float32: how far the layer, as it holds it, is off (share of its length)."""
    held, plain = copy.deepcopy(layer).float(), copy.deepcopy(before).float()
    wanted = rows @ update.delta().T
    return ((held(rows) - plain(rows) - wanted).norm() / wanted.norm()).item()


def test_an_update_of_a_thousandth_keeps_its_effect_beside_16_bit_weights(wide, tmp_path):
    """Through a stage file, as play loads it. Added to the weights, it would lose up to 71 % (bf16) or 14 % (fp16)."""
    decoder, rows = copy.deepcopy(wide).to(BF16), torch.randn(16, 1920)
    weights = {name: wide.get_submodule(name).weight for name in ATTENTION}
    updates = {name: update_of(weight, 0.0015, RANK - at) for at, (name, weight) in enumerate(weights.items())}
    tensors = {}
    for name, update in updates.items():
        tensors[f"decoder.{name}.lora_A.default.weight"] = update.down
        tensors[f"decoder.{name}.lora_B.default.weight"] = update.up
    save_adapter(tmp_path / "joint.safetensors", "joint", JOINT, tensors, {})
    before = {name: copy.deepcopy(decoder.get_submodule(name)) for name in ATTENTION}
    apply_adapter(tmp_path / "joint.safetensors", "decoder", decoder)
    for name, update in updates.items():
        assert effect_error(decoder.get_submodule(name), before[name], update, rows) <= 0.01
    apply_adapter(tmp_path / "joint.safetensors", "decoder", decoder)
    twice = lora_of(decoder)[name].delta() - 2 * update.delta()
    assert twice.norm() <= 0.01 * update.delta().norm()


def test_a_whole_weight_of_some_strength_takes_the_lora_before_it_with_it(wide, tmp_path):
    decoder, name = copy.deepcopy(wide).to(BF16), ATTENTION[0]
    update, whole = update_of(wide.get_submodule(name).weight, 0.5), torch.randn(1920, 1920)
    before = decoder.get_submodule(name).weight.float()
    attach(decoder, {name: update}, WORLD)
    save_adapter(tmp_path / "whole.safetensors", "joint", JOINT, {f"decoder.{name}.weight": whole}, {})
    apply_adapter(tmp_path / "whole.safetensors", "decoder", decoder, 0.25)
    layer = decoder.get_submodule(name)
    torch.testing.assert_close(layer.base_layer.weight.float(), 0.75 * before + 0.25 * whole, atol=0.01, rtol=0.01)
    assert layer.scaling == {WORLD: 0.75 * SCALE}
    with left_out(decoder, WORLD):
        assert not layer.active_adapters
    assert not layer.lora_A[WORLD].weight.requires_grad, "nor is it trained afterwards"
    digest = weights_digest(decoder)
    restore(decoder, (), None, None)
    assert layer.scaling == {WORLD: SCALE} and weights_digest(decoder) != digest
    inject(decoder, {name: 2}, "default")
    assert layer.active_adapters == [WORLD, "default"], "another one counts beside it"


@pytest.fixture(scope="module")
def tiny(ready, tmp_path_factory):
    """A world of the trained tests' size, and a file of stage joint: whole modules and low-rank updates."""
    parts = new_parts(ready)
    parts.decoder.unconditional_ND.copy_(parts.encoder.unconditional())
    world = parts.save(save_world(tmp_path_factory.mktemp("tiny"), TINY))
    changes = {"lora_rank": 2, "lr": 1e-2, "trainable": LORA["joint"].trainable, **UPDATES}
    out = tmp_path_factory.mktemp("joint")
    run("joint", parts, ready, out, **changes)
    return world, out / "joint.safetensors"


def test_a_stage_on_16_bit_weights_trains_beside_those_before_it(tiny, ready, tmp_path, monkeypatch):
    """As on a GPU, where frozen weights are kept in bf16: stage adapt begins from what joint really learned."""
    monkeypatch.setattr(trainer, "autocast", lambda *_: torch.autocast("cpu", BF16))  # which a CPU does without
    world, joint = tiny
    parts = WorldParts.load(world)
    for block in parts.decoder.transformer.transformer_blocks:
        for layer in (block.attn1.to_q, block.attn1.to_k, block.attn1.to_v, block.attn1.to_out[0]):
            layer.to(BF16)
    parts = parts.with_stage_files([(joint, 1.0)])
    began = lora_of(parts.decoder)
    assert len(began) == 4 * len(parts.decoder.transformer.transformer_blocks)
    config = dataclasses.replace(
        LORA["adapt"], steps=3, batch=4, per_card=0, lora_rank=2, lr=1e-2, lr_warmup=1, checkpointing=False, log_every=1
    )
    parts, _ = train_stage("adapt", config, parts, ready, tmp_path)
    file = tmp_path / "adapt.safetensors"
    names = load_file(file)
    assert {name.split(".lora_")[1] for name in names if ".lora_" in name} == {"A.default.weight", "B.default.weight"}
    assert len(adapters_of(parts.decoder)) == 2, "both stages' updates lie beside the weights"
    loaded = with_adapters(world, ((str(joint), 1.0), (str(file), 1.0))).load_decoder(dtype=BF16)
    theirs, ours = lora_of(parts.decoder), lora_of(loaded)
    for name in ours:
        torch.testing.assert_close(theirs[name].delta(), ours[name].delta(), atol=1e-5, rtol=0.02)
        moved = ours[name].delta() - began[name].delta() if name in began else ours[name].delta()
        assert moved.norm() > 0
