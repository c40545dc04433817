"""LoRA files of other programs on a world's decoder: every spelling gives the same weights, and others are refused."""

import json
import re

import pytest
import torch
from diffusers import CogVideoXPipeline
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file

from animegamer_core.__main__ import main
from animegamer_core.story.story import Story
from animegamer_core.weights.adapter_files import adapter_facts, fits_decoder, read_outside
from animegamer_core.weights.adapters import open_with_adapters, with_adapters

TARGETS = r"(transformer_blocks\.\d+\.(attn1\.(to_q|to_out\.0)|ff\.net\.0\.proj|norm1\.linear)|proj_out)"
RANK, ALPHA = 2, 6.0


@pytest.fixture(scope="module")
def trained(world):
    """The decoder's transformer with peft's own LoRA of random weights: (model, lora_A and lora_B by layer)."""
    torch.manual_seed(3)
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, init_lora_weights=False)
    model = get_peft_model(world.load_decoder().transformer, config)
    lora = get_peft_model_state_dict(model).items()
    return model, {key.removeprefix("base_model.model."): value for key, value in lora}


@pytest.fixture(scope="module")
def merged(trained):
    """What peft itself makes of the weights."""
    model = trained[0]
    model.merge_adapter()
    weights = {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): value.clone()
        for name, value in model.state_dict().items()
        if "lora_" not in name
    }
    model.unmerge_adapter()
    return weights


def kohya(name, prefix="lora_unet_"):
    layer, _, matrix = name.removesuffix(".weight").rpartition(".lora_")
    return f"{prefix}{layer.replace('.', '_')}.lora_{'down' if matrix == 'A' else 'up'}.weight"


def write(folder, spelling, trained):
    """A file in one spelling; its path."""
    model, lora = trained
    path = folder / f"{spelling}.safetensors"
    if spelling == "diffusers":
        notes = {"transformer_lora_adapter_metadata": {"r": RANK, "lora_alpha": ALPHA}}
        CogVideoXPipeline.save_lora_weights(folder, lora, weight_name=path.name, **notes)
    elif spelling == "peft":
        model.save_pretrained(folder)
        path = folder / "adapter_model.safetensors"
    else:
        respell = {
            "kohya": kohya,
            "video fun": lambda name: kohya(name, "lora_unet__"),
            "comfyui": "diffusion_model.{}".format,
        }[spelling]
        named = {respell(name): value for name, value in lora.items()}
        dotted = {f"{key.split('.lora')[0]}.alpha": torch.tensor(ALPHA) for key in named}
        save_file({**named, **dotted}, path, metadata={"format": "pt"})
    return path


@pytest.mark.parametrize("spelling", ["diffusers", "peft", "kohya", "video fun", "comfyui"])
def test_every_spelling_gives_the_weights_that_peft_gives(world, trained, merged, tmp_path, spelling):
    path = write(tmp_path, spelling, trained)
    assert fits_decoder(path) and adapter_facts(path).parts == {"decoder"}
    adapted = open_with_adapters(world.folder, [str(path)], playing=True)
    changed = adapted.load_decoder().transformer.state_dict()
    plain = world.load_decoder().transformer.state_dict()
    assert changed.keys() == plain.keys() == merged.keys()
    for name, value in changed.items():
        torch.testing.assert_close(value, merged[name], msg=name)
    assert sum(not torch.equal(changed[name], plain[name]) for name in plain) == len(trained[1]) // 2
    assert adapted.fingerprint != world.fingerprint and not adapted.warnings


@pytest.mark.parametrize("spelling", ["diffusers", "peft", "kohya"])
def test_a_few_step_lora_plays_with_the_timesteps_of_its_author(world, trained, tmp_path, spelling):
    path, game = write(tmp_path, spelling, trained), tmp_path / "game.txt"
    game.write_text("Character: Miko; Motion: gently run; Background: day beach.")
    words = ["--steps", "999,856,665,399", "--solver", "ddim", "--guidance", "distilled", "--out", str(tmp_path)]
    assert main(["play", str(game), "--world", str(world.folder), "--lora", str(path), *words]) == 0
    story = Story.read(tmp_path, "game")
    key = story.shots.record(story.entries[0].shot)["key"]
    assert (key["steps"], key["solver"], key["guidance"]) == ([999, 856, 665, 399], "ddim", "distilled")


def test_a_strength_scales_it_and_the_world_is_restored(world, trained, merged, tmp_path):
    path = write(tmp_path, "diffusers", trained)
    plain = world.load_decoder()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    with_adapters(world, ((str(path), 0.5),)).refit("decoder", plain)
    name = "proj_out.weight"
    half = (before[f"transformer.{name}"] + merged[name]) / 2
    torch.testing.assert_close(plain.transformer.get_parameter(name), half)
    world.refit("decoder", plain)
    assert all(torch.equal(value, before[key]) for key, value in plain.state_dict().items())


@pytest.mark.parametrize(
    "tensors, says",
    [
        ({"transformer_blocks.0.attn2.to_q.lora_A.weight": (2, 4)}, "is not a LoRA for a linear layer of CogVideoX"),
        ({}, "has no tensors"),
        ({"proj_out.lora_A.weight": (2, 4)}, "the other matrix of its layer is missing"),
        ({"proj_out.lora_A.weight": (2, 4), "proj_out.lora_B.weight": (9, 2)}, "for a layer of "),
        ({"proj_out.lora_A.weight": (2, 32), "proj_out.lora_B.weight": (16, 3)}, "for a layer of "),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_its_first_key(world, tmp_path, tensors, says):
    path = tmp_path / "other.safetensors"
    save_file({name: torch.zeros(shape) for name, shape in tensors.items()}, path)
    with pytest.raises(ValueError, match=re.escape(says)) as caught:
        open_with_adapters(world.folder, [str(path)])
    assert str(path) in str(caught.value) and "choose a LoRA file" in str(caught.value)


def test_peft_s_patterns_and_rank_stabilised_scale_count(tmp_path):
    layer = "transformer_blocks.0.attn1.to_q"
    path = tmp_path / "adapter_model.safetensors"
    save_file({f"{layer}.lora_A.weight": torch.ones(4, 8), f"{layer}.lora_B.weight": torch.ones(8, 4)}, path)
    config = {"lora_alpha": 4, "alpha_pattern": {r"transformer_blocks\.[0-2]\..*to_q": 32}}
    first = {"alpha_pattern": {"to_q": 8, "attn1.to_q": 32}}
    for extra, scale in (({}, 8), ({"use_rslora": True}, 16), ({"alpha_pattern": {"attn1|to_k": 32}}, 1), (first, 2)):
        (tmp_path / "adapter_config.json").write_text(json.dumps(config | extra))
        assert read_outside(path)[layer].scale == scale
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"alpha_pattern": {f"^transformer.{layer}": 32}}))
    assert read_outside(path)[layer].scale == 8
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"init_lora_weights": "pissa_niter_4"}))
    with pytest.raises(ValueError, match="trained by pissa_niter_4, on other weights"):
        read_outside(path)
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"alpha_pattern": ["to_q"]}))
    with pytest.raises(ValueError, match="alpha_pattern is no object of regular expressions"):
        read_outside(path)
    assert read_outside(path.rename(tmp_path / "other.safetensors"))[layer].scale == 1, "the notes are of another file"


def test_an_update_without_alpha_that_outweighs_its_base_is_named_with_its_factor(world, trained, tmp_path):
    layer = "proj_out"  # the others keep within their base
    lora = {name: value * (16 if name.startswith(f"{layer}.lora_B") else 1) for name, value in trained[1].items()}
    path = tmp_path / "sat.safetensors"
    save_file(lora, path)
    (warning,) = open_with_adapters(world.folder, [str(path)]).warnings
    update = lora[f"{layer}.lora_B.weight"] @ lora[f"{layer}.lora_A.weight"]
    factor = update.norm() / world.load_decoder().transformer.get_parameter(f"{layer}.weight").norm()
    assert f"changes {layer} by {factor:.1f} times its weights" in warning and factor > 1


@pytest.mark.parametrize(
    "name, key, says",
    [
        ("lora.bin", "", "no safetensors file; save its tensors by"),
        ("x.safetensors", "lycoris_transformer_blocks_0_attn1_to_q.lokr_w1", "is of LyCORIS or peft (LoKr"),
        ("x.safetensors", "transformer_blocks.0.attn1.to_q.lora_magnitude_vector", "is a DoRA"),
        ("x.safetensors", "transformer_blocks.0.attn1.to_q.lora_A.my-style.v2.weight", "is an adapter with a name"),
        ("x.safetensors", "transformer_blocks.0.attn1.to_q.lora_B.bias", "is no LoRA alone, it has whole weights"),
        ("x.safetensors", "base_model.model.proj_out.weight", "is no LoRA alone, it has whole weights"),
        ("x.safetensors", "lora_te1_fc1.lora_up.weight", "is also for a text encoder"),
        ("peft/adapter_model.safetensors", "", "peft is a folder; give its safetensors file with the LoRA (adapter_"),
    ],
)
def test_what_is_no_plain_lora_is_named(world, tmp_path, name, key, says):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    save_file({key or "proj_out.lora_A.weight": torch.zeros(2, 4)}, path)
    with pytest.raises(ValueError, match=re.escape(says)):
        open_with_adapters(world.folder, [str(path.parent if "/" in name else path)])


def test_values_that_are_no_numbers_are_refused(world, trained, tmp_path):
    lora = {name: value.clone() for name, value in trained[1].items()}
    next(iter(lora.values()))[0, 0] = float("nan")
    path = tmp_path / "nan.safetensors"
    save_file(lora, path)
    with pytest.raises(ValueError, match="holds NaN"):
        open_with_adapters(world.folder, [str(path)]).load_decoder()
