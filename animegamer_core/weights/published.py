"""Read the files of a published world as the parts of a world folder, for `convert`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from ..spec import RELEASE, EncoderSpec, ModelSpec, StateSpec
from . import keys, sizes
from .downloads import DIFFUSERS_VAE, Downloads
from .foreign import HALF, ForeignParts, tokenizer_folder
from .initial import UNCONDITIONAL
from .keys import ComputedTensor, RecipeSource, map_keys
from .parts import load_model
from .storage import CheckpointError, SafetensorsSource, TensorSource, find_safetensors, number, read_json
from .weight_files import OPEN_CLIP, PickleSource, decoder_file, open_weights

# Sizes of parts that are not found: the released ones, with one layer and small shots, as empty models need them.
_UNKNOWN = replace(
    RELEASE,
    state=StateSpec(),  # 30 text and 196 image tokens at every width: the vocabulary has no others
    encoder=replace(RELEASE.encoder, text=replace(RELEASE.encoder.text, layers=1)),
    engine=replace(RELEASE.engine, layers=1),
    decoder=replace(RELEASE.decoder, layers=1, height=64, width=64),
)
TABLE_TOLERANCE = 1e-2  # of positions in -1..1; bfloat16 rounds them by 4e-3
_VAE_LEVEL = r"(?:first_stage_model\.)?decoder\.up\.(\d+)\..+"


def open_published(downloads: Downloads, known: ModelSpec | None = None) -> ForeignParts:
    """Open the downloads that are there. Reads names and shapes only; CheckpointError says what does not fit.

    known: the sizes of the world that they are added to.
    """
    spec = replace(known or _UNKNOWN, name=downloads.name)
    parts = ForeignParts(spec, "reference", downloads.mistral, tokenizer_folder(downloads.text_encoder))
    decoder = None if downloads.decoder is None else PickleSource(decoder_file(downloads.decoder), "module")
    _open_vae(parts, downloads.vae, decoder)
    if decoder is not None:
        _open_decoder(parts, decoder)
    if downloads.engine is not None:
        _open_engine(parts, downloads.engine)
    clip, t5 = downloads.image_encoder, downloads.text_encoder
    if clip is not None or _has(decoder, "clip_img_encoder."):
        parts.add_image_encoder(decoder if clip is None else open_weights(clip, OPEN_CLIP), clip)
    if t5 is not None:  # its tokenizer and sizes are in no other file
        inside = decoder if _has(decoder, "conditioner.embedders.0.") else None
        parts.add_text_encoder(open_weights(t5) or inside, t5)
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
    source = open_weights(folder, ("pytorch_model", "model"))
    if source is None:
        raise CheckpointError(f"{folder / 'pytorch_model.bin'}: no such file; expected the published engine")
    adapter = folder / "adapter_config.json"  # peft's own note of a LoRA; the release has none: alpha = r = 32
    facts = read_json(adapter) if adapter.is_file() else {}
    alpha = None if facts.get("lora_alpha") is None else number(facts, "lora_alpha", adapter, 0)
    recipes = map_keys(source, keys.ENGINE, alpha, base=_base_model(source, parts.mistral))
    engine = sizes.mistral_spec(recipes, parts.mistral)
    _set_width(parts, sizes.shape_of(recipes, "project_in.0.weight", 2)[1], source.path)
    parts.spec = replace(parts.spec, engine=engine)
    parts.add("engine", RecipeSource(source.path, "bfloat16", recipes), adapter, *parts.engine_files)


def _base_model(source: TensorSource, mistral: Path) -> TensorSource | None:
    """Mistral's weights, where the engine's file holds only what was trained."""
    if any(".base_layer." in key or key.endswith("q_proj.weight") for key in source.keys()):  # noqa: SIM118
        return None
    base = open_weights(mistral)
    if base is None:
        raise CheckpointError(
            f"{source.path}: holds only the trained weights, and {mistral} has none; "
            "add the weights of Mistral-7B-Instruct-v0.1 there (safetensors or .bin)"
        )
    return base


def _open_decoder(parts: ForeignParts, source: TensorSource) -> None:
    recipes = map_keys(source, keys.DECODER, keys.DECODER_ALPHA)
    mixing = map_keys(source, keys.ENCODER)
    spec = parts.spec
    vae = spec.decoder.vae
    if "vae" not in parts.sources:  # the VAE is not known yet, but its channels must fit
        vae = replace(vae, latent_channels=sizes.latent_channels(recipes))
    decoder = sizes.decoder_spec(recipes, sizes.find_positions(source), vae, spec.state)
    text, image = (sizes.shape_of(mixing, f"{side}_proj.0.weight", 2)[1] for side in ("text", "image"))
    heads = spec.encoder.image.heads if image % spec.encoder.image.heads == 0 else 1  # not known yet
    clip = replace(spec.encoder.image, width=image, heads=heads)
    encoder = EncoderSpec(replace(spec.encoder.text, width=text), clip)
    state = replace(spec.state, width=decoder.heads * decoder.head_width)
    parts.spec = replace(spec, state=state, decoder=decoder, encoder=encoder)
    mixed = RecipeSource(source.path, HALF, mixing)
    parts.add("encoder", mixed)
    shape = (state.tokens, state.width)
    unconditional = ComputedTensor(shape, torch.float32, lambda: _unconditional(parts.spec, mixed))
    parts.add("decoder", RecipeSource(source.path, HALF, recipes, {UNCONDITIONAL: unconditional}))


def _unconditional(spec: ModelSpec, mixing: TensorSource) -> torch.Tensor:
    """(N, D) fp32: the unconditional state, which the published scripts compute in every step."""
    from ..model.encoder import ShotEncoder

    with torch.inference_mode():
        return load_model(lambda: ShotEncoder(spec), {"encoder": mixing}, "cpu", torch.float32).unconditional().clone()


def _open_vae(parts: ForeignParts, path: Path | None, decoder: TensorSource | None) -> None:
    source: TensorSource
    table: tuple[keys.Rule, ...]
    if path is not None and path.is_dir():
        source, table = SafetensorsSource(find_safetensors(path, DIFFUSERS_VAE)), keys.VAE_DIFFUSERS
    elif path is not None or _has(decoder, "first_stage_model."):
        source = decoder if path is None else PickleSource(path, "state_dict")
        table = keys.vae_table(sizes.count_numbers(_VAE_LEVEL, source.keys()))
    else:
        return
    recipes = map_keys(source, table)
    parts.spec = replace(parts.spec, decoder=replace(parts.spec.decoder, vae=sizes.vae_spec(recipes)))
    parts.add("vae", RecipeSource(source.path, HALF, recipes))


def _check_positions(source: TensorSource, decoder: torch.nn.Module) -> None:
    """CheckpointError unless the published table of positions is the computed one, which replaces it."""
    table = sizes.find_positions(source)
    computed = decoder.transformer.patch_embed.pos_embedding
    if table is None:
        return
    if table.shape != computed.shape or not (table - computed).abs().max() <= TABLE_TOLERANCE:  # nor nan
        raise CheckpointError(
            f"{source.path}: its table of positions {tuple(table.shape)} is not the one computed for shots of "
            f"{decoder.spec.decoder.height} x {decoder.spec.decoder.width}; expected the released interpolation"
        )


def _set_width(parts: ForeignParts, width: int, path: Path) -> None:
    """Give the spec a state width; engine and decoder of one world must agree on it."""
    spec = parts.spec
    if "decoder" in parts.sources and spec.state.width != width:
        raise CheckpointError(
            f"{path}: predicts states of width {width}, but the decoder reads {spec.state.width}; expected both from "
            "one world"
        )
    if spec.state.width != width:  # without a decoder its sizes are not known, but must fit
        decoder = replace(spec.decoder, heads=1, head_width=width)
        parts.spec = replace(spec, state=replace(spec.state, width=width), decoder=decoder)


def _has(source: TensorSource | None, prefix: str) -> bool:
    return source is not None and any(key.startswith(prefix) for key in source.keys())  # noqa: SIM118
