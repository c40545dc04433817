"""Read the free base models, stock CogVideoX-2B and a Mistral, as the parts of a new world.

Sizes come from the files. What our models cannot compute is refused by name, such as CogVideoX's relatives with rotary
positions.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..spec import RELEASE, DecoderSpec, ModelSpec
from . import initial, keys, sizes
from .base_folders import LANGUAGE_MODELS, LAYOUT, BaseFolders
from .downloads import DIFFUSERS_VAE
from .foreign import ADDED_TOKENS, HALF, ForeignParts, tokenizer_folder
from .initial import EMBED
from .keys import ComputedTensor, Recipe, RecipeSource, Rule, map_keys
from .sizes import (
    MISTRAL_FIXED,
    TRANSFORMER_FIXED,
    VAE_FIXED,
    check_fields,
    check_scheduler,
)
from .storage import CheckpointError, number, read_json, whole
from .weight_files import OPEN_CLIP, open_weights

CUSTOM = "custom"  # the name of a spec whose sizes are not the released ones

_TEXT_PROJECTION = r"patch_embed\.text_proj\."
TRANSFORMER = (
    Rule(_TEXT_PROJECTION + "(weight|bias)", None),  # a state is as wide as the transformer
    Rule(r"patch_embed\.pos_embedding", None),  # computed
    Rule(rf"(?!{_TEXT_PROJECTION}|patch_embed\.pos_embedding)(.+)", r"transformer.\1"),
)
TEXT_PROJECTION = (Rule(_TEXT_PROJECTION + "(weight|bias)", r"\1"), Rule(rf"(?!{_TEXT_PROJECTION}).+", None))
MISTRAL = (Rule(r".+\.rotary_emb\.inv_freq", None), Rule(r"(?!.+\.rotary_emb\.)(.+)", r"llm.\1"))


def open_base(folders: BaseFolders, seed: int = 0) -> ForeignParts:
    """Open base models. Reads names, shapes and configurations only; CheckpointError says what does not fit.

    seed: of the random initial weights.
    """
    folders = folders.checked()
    parts = ForeignParts(replace(RELEASE, name=CUSTOM), "paper", folders.mistral, tokenizer_folder(folders.t5))
    check_scheduler(folders.cogvideox / "scheduler" / "scheduler_config.json")
    _open_vae(parts, folders.cogvideox / "vae")
    zeros_D, stock = _open_transformer(parts, folders.cogvideox / "transformer")
    if folders.t5 is not None:
        _open_text_encoder(parts, folders.t5)
    if folders.clip is not None:
        parts.add_image_encoder(open_weights(folders.clip, OPEN_CLIP), folders.clip)
    mistral = _open_mistral(parts, folders.mistral)
    if parts.spec == replace(RELEASE, name=CUSTOM):
        parts.spec = RELEASE
    _add_initial(parts, folders.cogvideox / "transformer" / "config.json", stock, zeros_D, mistral, seed)
    parts.check()
    return parts


def _open_vae(parts: ForeignParts, folder: Path) -> None:
    recipes, _, path = _stock(folder, keys.VAE_DIFFUSERS, VAE_FIXED)
    parts.spec = replace(parts.spec, decoder=replace(parts.spec.decoder, vae=sizes.vae_spec(recipes)))
    parts.add("vae", RecipeSource(sizes.path_of(recipes), HALF, recipes), path)


def _open_transformer(parts: ForeignParts, folder: Path) -> tuple[ComputedTensor, dict[str, Recipe]]:
    """(the stock text projection of zeros, the transformer's recipes); the spec gets the transformer's sizes."""
    recipes, config, path = _stock(folder, TRANSFORMER, TRANSFORMER_FIXED)
    projection = map_keys(next(iter(recipes.values())).source, TEXT_PROJECTION)
    hidden, text = sizes.shape_of(projection, "weight", 2)
    sizes.shape_of(projection, "bias", 1)
    decoder = _decoder_spec(parts.spec, recipes, config, path)
    own = decoder.heads * decoder.head_width
    if hidden != own:
        raise CheckpointError(
            f"{sizes.path_of(recipes)}: its text projection is {hidden} wide; expected {own}, like its layers"
        )
    encoder = replace(parts.spec.encoder, text=replace(parts.spec.encoder.text, width=text))
    state = replace(parts.spec.state, width=hidden)
    parts.spec = replace(parts.spec, state=state, decoder=decoder, encoder=encoder)
    return initial.zero_text(projection["bias"]), recipes


def _decoder_spec(
    spec: ModelSpec, recipes: Mapping[str, Recipe], config: Mapping[str, typing.Any], path: Path
) -> DecoderSpec:
    """Sizes of the transformer from its tensors, and of its shots from its configuration."""
    decoder = sizes.decoder_spec(recipes, None, spec.decoder.vae, spec.state)
    channels = sizes.latent_channels(recipes)
    if channels != decoder.vae.latent_channels:
        raise CheckpointError(
            f"{path}: its transformer reads latents with {channels} channels; expected {decoder.vae.latent_channels}, "
            "as its VAE produces"
        )
    pixels = decoder.vae.spatial_factor
    return replace(
        decoder,
        height=whole(config, "sample_height", path) * pixels,
        width=whole(config, "sample_width", path) * pixels,
        spatial_scale=number(config, "spatial_interpolation_scale", path, decoder.spatial_scale),
    )


def _open_text_encoder(parts: ForeignParts, folder: Path) -> None:
    expected = parts.spec.encoder.text.width
    parts.add_text_encoder(open_weights(folder), folder)
    if (width := parts.spec.encoder.text.width) != expected:
        raise CheckpointError(
            f"{parts.sources['text_tower'].path}: a text encoder of width {width}; expected {expected}, which "
            "CogVideoX reads"
        )


def _open_mistral(parts: ForeignParts, folder: Path) -> dict[str, Recipe]:
    source = open_weights(folder)
    if source is None:
        raise CheckpointError(f"{folder}: no weights; expected those of a Mistral-7B-Instruct (safetensors or .bin)")
    path = folder / "config.json"
    config, recipes = read_json(path), map_keys(source, MISTRAL)
    entries = sizes.shape_of(recipes, EMBED, 2)[0]
    models = [model for model in LANGUAGE_MODELS if model.entries == entries]
    if not models:
        known = ", ".join(f"{model.entries} of {model.name}" for model in LANGUAGE_MODELS)
        raise CheckpointError(f"{source.path}: has {entries} token rows; expected {known}")
    check_fields(config, MISTRAL_FIXED, path, models[0].name)
    engine = sizes.mistral_spec(recipes, folder, models)
    parts.spec = replace(parts.spec, engine=replace(engine, vocab_size=entries + ADDED_TOKENS))
    return recipes


def _add_initial(
    parts: ForeignParts,
    config: Path,
    stock: dict[str, Recipe],
    zeros_D: ComputedTensor,
    mistral: dict[str, Recipe],
    seed: int,
) -> None:
    """Add the three parts that have initial weights. config: the transformer's."""
    spec, transformer, llm = parts.spec, sizes.path_of(stock), sizes.path_of(mistral)
    made = initial.initial_decoder(spec, zeros_D, seed)
    parts.add("decoder", RecipeSource(transformer, HALF, stock, made), config)
    made = initial.initial_encoder(spec, zeros_D, seed)
    parts.add("encoder", RecipeSource(transformer, HALF, {}, made), *parts.sources["decoder"].files)
    made = initial.initial_engine(spec, mistral, seed)
    parts.add("engine", RecipeSource(llm, "bfloat16", mistral, made), *parts.engine_files)


def _stock(
    folder: Path, table: tuple[Rule, ...], fixed: Mapping[str, typing.Any]
) -> tuple[dict[str, Recipe], dict[str, typing.Any], Path]:
    """(recipes, configuration, its path) of a folder of diffusers; fixed: what our models compute."""
    source = open_weights(folder, (DIFFUSERS_VAE,)) if folder.is_dir() else None
    if source is None:
        raise CheckpointError(f"{folder}: no weights; expected {DIFFUSERS_VAE}.safetensors in {LAYOUT}")
    path = folder / "config.json"
    config = read_json(path)
    check_fields(config, fixed, path, "CogVideoX-2b")
    return map_keys(source, table), config, path
