"""The key tables: released sizes fit strictly, and unknown names are errors."""

import re
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


def test_the_released_sizes_have_as_many_numbers_as_the_published_models():
    tokenizer = GameTokenizer.from_words(["word"], 226)
    engine = build_model(lambda: GameEngine(RELEASE, tokenizer, PROFILES["reference"]))
    decoder = build_model(lambda: ShotDecoder(RELEASE))
    counts = [sum(p.numel() for p in model.parameters()) for model in (engine, decoder.transformer, decoder.vae)]
    # The published file, as counted on the built reference, also has positions, LoRA and layers of the encoder.
    width, of_encoder = 1920, 4096 * 1920 + 768 * 1920 + 2 * 1920**2 + 4 * 1920 + 6 * 1920
    assert counts == [7_280_262_912, 1_746_779_840 - 6976 * width - 30 * 4 * 2 * 64 * width - of_encoder, 215_583_907]
    assert len(decoder.vae.state_dict()) == 436


def test_the_tables_know_layers_of_two_digits(originals):
    files = (made.engine_tensors(originals.engine)[0], keys.ENGINE)
    for tensors, table in (files, (made.decoder_tensors(originals.decoder, originals.encoder), keys.DECODER)):
        shapes = {name: tuple(value.shape) for name, value in tensors.items()}
        later = {re.sub(r"(layers|list|modulations)\.1\.", r"\1.29.", name): shape for name, shape in shapes.items()}
        named = {re.sub(r"(layers|blocks)\.1\.", r"\1.29.", name) for name in mapped_shapes(shapes, table)}
        assert later != shapes and set(mapped_shapes(later, table)) == named


def test_a_base_model_gives_what_a_file_lacks_and_no_more():
    layer = "model.layers.0.self_attn.{}_proj"
    halves = {f"llm.{layer.format('q')}.lora_{half}.default.weight": (2, 2) for half in "AB"}
    own, base = {f"llm.{layer.format('k')}.weight": (2, 2)}, {f"{layer.format(name)}.weight": (3, 3) for name in "qkv"}
    mapped = keys.map_keys(Shapes(own | halves), keys.ENGINE, Shapes(base))
    shapes = {name: pieces[keys.BASE].shape for name, pieces in mapped.items()}
    assert shapes == {f"llm.{layer.format(name)}.weight": size for name, size in {"k": (2, 2), "q": (3, 3)}.items()}


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
