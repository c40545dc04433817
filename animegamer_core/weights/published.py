"""Read the files of a published world as the parts of a world folder, for `convert`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from ..spec import ModelSpec
from . import keys
from .downloads import Downloads
from .foreign import HALF, ForeignParts, rope_theta, stated_sizes, tokenizer_folder
from .initial import UNCONDITIONAL
from .keys import ComputedTensor, RecipeSource, map_keys
from .parts import load_model
from .storage import CheckpointError, TensorSource, number, read_json
from .weight_files import PickleSource, decoder_file, open_weights

TABLE_TOLERANCE = 1e-2  # of positions in -1..1; bfloat16 rounds them by 4e-3
POSITIONS = "model.diffusion_model.mixins.pos_embed.pos_embedding"


def open_published(downloads: Downloads, known: ModelSpec | None = None) -> ForeignParts:
    """Open the downloads that are there. Reads names and shapes only; CheckpointError says what does not fit.

    known: the sizes of the world that they are added to.
    """
    spec = known or stated_sizes(downloads.engine, downloads.decoder, downloads.folder)
    folder = tokenizer_folder(downloads.text_encoder)
    parts = ForeignParts(replace(spec, name=downloads.name), "reference", downloads.mistral, folder)
    decoder = None if downloads.decoder is None else PickleSource(decoder_file(downloads.decoder), "module")
    _open_vae(parts, downloads.vae, decoder)
    if decoder is not None:
        _open_decoder(parts, decoder)
    if downloads.engine is not None:
        _open_engine(parts, downloads.engine)
    clip, t5 = downloads.image_encoder, downloads.text_encoder
    if clip is not None or _has(decoder, "clip_img_encoder."):
        parts.add_image_encoder(decoder if clip is None else open_weights(clip, "CLIP ViT-B-16 laion2b_s34b_b88k"))
    if t5 is not None:  # its tokenizer is in no other file
        inside = _has(decoder, "conditioner.embedders.0.")
        parts.add_text_encoder(decoder if inside else open_weights(t5, "t5-v1_1-xxl"))
    models = parts.check()
    if decoder is not None:
        _check_positions(decoder, models["decoder"])
    return parts


def _open_engine(parts: ForeignParts, folder: Path) -> None:
    if parts.mistral is None:
        raise CheckpointError(
            f"{folder}: the engine also needs the Mistral-7B-Instruct-v0.1 folder (config.json and tokenizer) next to "
            "it"
        )
    source = open_weights(folder, "the published engine")
    adapter = folder / "adapter_config.json"  # peft's own note of a LoRA; the release has none: alpha = r = 32
    facts = read_json(adapter) if adapter.is_file() else {}
    alpha = None if facts.get("lora_alpha") is None else number(facts, "lora_alpha", adapter, 0)
    recipes = map_keys(source, keys.ENGINE, alpha, base=_base_model(source, parts.mistral))
    theta, expected = rope_theta(parts.mistral), parts.spec.engine.rope_theta
    if theta != expected:  # v0.2 differs from v0.1 in nothing else
        raise CheckpointError(
            f"{parts.mistral / 'config.json'}: rope_theta is {theta:g}; expected {expected:g} of "
            "Mistral-7B-Instruct-v0.1"
        )
    parts.add("engine", RecipeSource(source.path, "bfloat16", recipes), adapter, *parts.engine_files)


def _base_model(source: TensorSource, mistral: Path) -> TensorSource | None:
    """Mistral's weights, where the engine's file holds only what was trained."""
    if any(".base_layer." in key or key.endswith("q_proj.weight") for key in source.keys()):  # noqa: SIM118
        return None
    return open_weights(mistral, f"Mistral-7B-Instruct-v0.1, since {source.path} holds only what was trained")


def _open_decoder(parts: ForeignParts, source: TensorSource) -> None:
    mixed = RecipeSource(source.path, HALF, map_keys(source, keys.ENCODER))
    shape = (parts.spec.state.tokens, parts.spec.state.width)
    unconditional = ComputedTensor(shape, torch.float32, lambda: _unconditional(parts.spec, mixed))
    recipes = map_keys(source, keys.DECODER, keys.DECODER_ALPHA)
    parts.add("encoder", mixed)
    parts.add("decoder", RecipeSource(source.path, HALF, recipes, {UNCONDITIONAL: unconditional}))


def _unconditional(spec: ModelSpec, mixing: TensorSource) -> torch.Tensor:
    """(N, D) fp32: the unconditional state, which the published scripts compute in every step."""
    from ..model.encoder import ShotEncoder

    with torch.inference_mode():
        return load_model(lambda: ShotEncoder(spec), {"encoder": mixing}, "cpu", torch.float32).unconditional().clone()


def _open_vae(parts: ForeignParts, path: Path | None, decoder: TensorSource | None) -> None:
    source: TensorSource
    table = keys.vae_table(len(parts.spec.decoder.vae.channels))
    if path is not None and path.is_dir():
        source, table = open_weights(path, "CogVideoX-2b's VAE"), keys.VAE_DIFFUSERS
    elif path is not None:
        source = PickleSource(path, "state_dict")
    elif _has(decoder, "first_stage_model."):
        source = decoder
    else:
        return
    parts.add("vae", RecipeSource(source.path, HALF, map_keys(source, table)))


def _check_positions(source: TensorSource, decoder: torch.nn.Module) -> None:
    """CheckpointError unless the published table of positions is the computed one, which replaces it."""
    if POSITIONS not in set(source.keys()):
        return
    table, computed = source.tensor(POSITIONS).float(), decoder.transformer.patch_embed.pos_embedding
    if table.shape != computed.shape or not (table - computed).abs().max() <= TABLE_TOLERANCE:  # nor nan
        raise CheckpointError(
            f"{source.path}: its table of positions {tuple(table.shape)} is not the one computed for shots of "
            f"{decoder.spec.decoder.height} x {decoder.spec.decoder.width}; expected the released interpolation"
        )


def _has(source: TensorSource | None, prefix: str) -> bool:
    return source is not None and any(key.startswith(prefix) for key in source.keys())  # noqa: SIM118
