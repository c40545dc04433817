"""The key tables: released sizes fit strictly, and unknown names are errors."""

from dataclasses import replace

import published_files as made
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.engine import GameEngine
from animegamer_core.model.prompt import GameTokenizer
from animegamer_core.spec import PROFILES, RELEASE, VaeSpec
from animegamer_core.weights import CheckpointError, keys
from animegamer_core.weights.parts import build_model, part_names


class Shapes:
    """Names and shapes of a published file, without its tensors."""

    path, files = made.SPEC.name, ()

    def __init__(self, shapes):
        self.shapes = shapes

    def keys(self):
        return self.shapes.keys()

    def shape(self, key):
        return tuple(self.shapes[key])

    def dtype(self, key):
        return torch.float32

    def where(self, key):
        return f"{self.path}: {key!r}"


def expected_shapes(model, kind, part):
    state = model.state_dict()
    return {name: tuple(state[full].shape) for name, full in part_names(kind, part, state).items()}


def mapped_shapes(shapes, table):
    return {name: pieces[keys.BASE].shape for name, pieces in keys.map_keys(Shapes(shapes), table).items()}


def released_decoder_shapes():
    """Names and shapes of the released decoder file, from docs/reference.md, sections 2 and 5.6."""
    dit, width, time = "model.diffusion_model.", 1920, 512
    pair = lambda name, *shape: {f"{dit}{name}.weight": shape, f"{dit}{name}.bias": shape[:1]}  # noqa: E731
    out = {dit + "mixins.pos_embed.pos_embedding": (1, 6976, width)}
    for name in ("time_embed", "flow_embed"):
        out |= pair(f"{name}.0", time, width) | pair(f"{name}.2", time, time)
    patch = "mixins.patch_embed."
    out |= pair(patch + "proj", width, 16, 2, 2)
    for name, source in (("text_proj", 4096), ("ip_proj", 768)):
        out |= pair(f"{patch}{name}.0", width, source) | pair(f"{patch}{name}.2", width, width)
    for name in ("output_mix_layer_norm", "ip_mix_layer_norm", "txt_mix_layer_norm"):
        out |= pair(patch + name, width)
    for i in range(30):
        out |= pair(f"mixins.adaln_layer.adaLN_modulations.{i}.1", 12 * width, time)
        out |= pair(f"mixins.adaln_layer.query_layernorm_list.{i}", 64)
        out |= pair(f"mixins.adaln_layer.key_layernorm_list.{i}", 64)
        layer = f"transformer.layers.{i}."
        out |= pair(layer + "input_layernorm", width) | pair(layer + "post_attention_layernorm", width)
        out |= pair(layer + "attention.query_key_value.original", 3 * width, width)
        out |= pair(layer + "attention.dense.original", width, width)
        for name, count in (("query_key_value", 3), ("dense", 1)):
            for k in range(count):
                out[f"{dit}{layer}attention.{name}.matrix_A.{k}"] = (64, width)
                out[f"{dit}{layer}attention.{name}.matrix_B.{k}"] = (width, 64)
        out |= pair(layer + "mlp.dense_h_to_4h", 4 * width, width) | pair(layer + "mlp.dense_4h_to_h", width, 4 * width)
    out |= pair("transformer.final_layernorm", width) | pair("mixins.final_layer.norm_final", width)
    return (
        out
        | pair("mixins.final_layer.adaLN_modulation.1", 2 * width, time)
        | pair("mixins.final_layer.linear", 64, width)
    )


def test_the_released_decoder_fits_strictly():
    shapes = released_decoder_shapes()
    count = sum(torch.Size(shape).numel() for shape in shapes.values())
    assert count == 1_746_779_840, "the parameter count that was measured on the built reference"
    expected = expected_shapes(build_model(lambda: ShotDecoder(RELEASE)), "decoder", "decoder")
    assert mapped_shapes(shapes, keys.DECODER) == {k: v for k, v in expected.items() if k != "unconditional_ND"}


def test_the_released_engine_fits_strictly():
    model, spec = "llm.base_model.model.model.", RELEASE.engine
    shapes = {"llm.base_model.model.lm_head.weight": (32284, 4096), model + "embed_tokens.weight": (32284, 4096)}
    rows = {"q": 4096, "k": 1024, "v": 1024, "o": 4096}
    for i in range(spec.layers):
        sizes = {f"self_attn.{name}_proj": (count, 4096) for name, count in rows.items()}
        sizes |= {"mlp.gate_proj": (14336, 4096), "mlp.up_proj": (14336, 4096), "mlp.down_proj": (4096, 14336)}
        for name, (out, width) in sizes.items():
            shapes[f"{model}layers.{i}.{name}.base_layer.weight"] = (out, width)
            shapes[f"{model}layers.{i}.{name}.lora_A.default.weight"] = (32, width)
            shapes[f"{model}layers.{i}.{name}.lora_B.default.weight"] = (out, 32)
        for name in ("input_layernorm", "post_attention_layernorm"):
            for copy in ("original_module", "modules_to_save.default"):
                shapes[f"{model}layers.{i}.{name}.{copy}.weight"] = (4096,)
    for copy in ("original_module", "modules_to_save.default"):
        shapes[f"{model}norm.{copy}.weight"] = (4096,)
    for side, first, last in (("input", 1920, 4096), ("output", 4096, 1920)):
        shapes |= {f"{side}_resampler.proj.0.weight": (last, first), f"{side}_resampler.proj.0.bias": (last,)}
        shapes |= {f"{side}_resampler.proj.2.weight": (last, last), f"{side}_resampler.proj.2.bias": (last,)}
    tokenizer = GameTokenizer.from_words(["word"], 226)
    empty = build_model(lambda: GameEngine(RELEASE, tokenizer, PROFILES["reference"]))
    assert mapped_shapes(shapes, keys.ENGINE) == expected_shapes(empty, "engine", "engine")


def test_the_released_vae_has_436_tensors():
    vae = build_model(lambda: ShotDecoder(replace(RELEASE, decoder=replace(RELEASE.decoder, layers=1)))).vae
    assert len(vae.state_dict()) == 436
    assert sum(p.numel() for p in vae.parameters()) == 215_583_907


@given(st.lists(st.sampled_from([32, 64]), min_size=2, max_size=5), st.integers(1, 3))
@settings(max_examples=3)
def test_the_vae_table_covers_any_size(channels, depth):
    sizes = replace(made.SPEC.decoder, vae=VaeSpec(tuple(channels), depth, 4), height=64, width=64)
    model = build_model(lambda: ShotDecoder(replace(made.SPEC, decoder=sizes)))
    published = made.vae_tensors(model.vae, levels=len(channels))
    shapes = {name: tuple(value.shape) for name, value in published.items()}
    assert mapped_shapes(shapes, keys.vae_table(len(channels))) == expected_shapes(model, "decoder", "vae")


@given(st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="._"), min_size=1, max_size=30))
@settings(max_examples=100)
def test_no_table_swallows_a_name_of_its_own_that_it_does_not_know(name):
    own = {
        "model.diffusion_model.mixins." + name: keys.DECODER,
        "model.diffusion_model.transformer.layers.0." + name + ".w": keys.DECODER,
        "encoder.down.0." + name + ".w": keys.vae_table(2),
        "llm.base_model.model.model.layers.0." + name + ".w": keys.ENGINE,
        "visual." + name + "_": keys.IMAGE_ENCODER,
    }
    for key, table in own.items():
        with pytest.raises(CheckpointError, match="unknown"):
            keys.map_keys(Shapes({key: (2, 2)}), table)
