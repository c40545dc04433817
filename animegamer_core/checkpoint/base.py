"""Read the free base models, stock CogVideoX-2B and Mistral-7B-Instruct-v0.1, as the parts of a new world.

Sizes come from the files. What the configuration files say is compared with the tensors beside them, and what our
models cannot compute, such as CogVideoX's relatives with rotary positions, is refused by name.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from ..model.prompt import RELEASE_BASE, RELEASE_SLOTS, tag_tokens
from ..spec import RELEASE, DecoderSpec, ModelSpec
from . import initial, keys, sizes
from .base_checks import (
    MISTRAL_FIXED,
    TRANSFORMER_FIXED,
    VAE_FIXED,
    check_fields,
    check_release,
    check_scheduler,
    check_stated,
    refuse_relatives,
)
from .base_folders import LAYOUT, BaseFolders
from .downloads import DIFFUSERS_VAE
from .parts import check_parts
from .published import new_model
from .recipes import ComputedTensor, Recipe, RecipeSource, Rule, map_keys
from .storage import CheckpointError, TensorSource, number, read_json, whole
from .weight_files import OPEN_CLIP, open_weights

CUSTOM = "custom"  # the name of a spec whose sizes are not the released ones
ROWS = RELEASE_BASE + len(tag_tokens(RELEASE_SLOTS))  # entries of the game's vocabulary

_TEXT_PROJECTION = r"patch_embed\.text_proj\."
TRANSFORMER = (
    Rule(_TEXT_PROJECTION + "(weight|bias)", None),  # a state is as wide as the transformer
    Rule(r"patch_embed\.pos_embedding", None),  # computed
    Rule(rf"(?!{_TEXT_PROJECTION}|patch_embed\.pos_embedding)(.+)", r"transformer.\1"),
)
TEXT_PROJECTION = (Rule(_TEXT_PROJECTION + "(weight|bias)", r"\1"), Rule(rf"(?!{_TEXT_PROJECTION}).+", None))
MISTRAL = (Rule(r".+\.rotary_emb\.inv_freq", None), Rule(r"(?!.+\.rotary_emb\.)(.+)", r"llm.\1"))


@dataclass
class BaseModels:
    """The spec of base models, each part's tensors under our names, and the files that decide what it is."""

    folders: BaseFolders
    spec: ModelSpec = replace(RELEASE, name=CUSTOM)
    sources: dict[str, RecipeSource] = field(default_factory=dict)
    files: dict[str, tuple[Path, ...]] = field(default_factory=dict)

    def build(self, kind: str) -> torch.nn.Module:
        """An engine, decoder or encoder of these sizes with its own tokenizer, to be built without memory."""
        return new_model(kind, self.spec, "paper", self.folders.mistral, _t5_tokenizer(self.folders.t5))

    def add(self, part: str, source: RecipeSource, *beside: Path) -> None:
        """Add a part. beside: further files that decide what it is, where they exist."""
        self.sources[part] = source
        self.files[part] = (*source.files, *(path for path in beside if path.is_file()))


def open_base(folders: BaseFolders, seed: int = 0, spec: str | None = None) -> BaseModels:
    """Open base models. Reads names, shapes and configurations only; CheckpointError says what does not fit.

    seed: of the random initial weights. spec: `release` refuses any other sizes; None takes those of the files.
    """
    base = BaseModels(folders.checked())
    check_scheduler(folders.cogvideox / "scheduler" / "scheduler_config.json")
    _open_vae(base)
    zeros_D, stock = _open_transformer(base)
    _open_text_encoder(base)
    _open_image_encoder(base)
    mistral = _open_mistral(base)
    if base.spec == replace(RELEASE, name=CUSTOM):
        base.spec = RELEASE
    if spec is not None:
        check_release(base.spec, base.folders)
    _add_initial(base, stock, zeros_D, mistral, seed)
    check_parts(base.sources, base.build)
    return base


def _open_vae(base: BaseModels) -> None:
    folder = base.folders.cogvideox / "vae"
    recipes, config, path = _stock(folder, keys.VAE_DIFFUSERS)
    check_fields(config, VAE_FIXED, path, "CogVideoX-2b")
    vae = sizes.vae_spec(recipes)
    stated = {
        "block_out_channels": list(vae.channels),
        "layers_per_block": vae.layers_per_block,
        "latent_channels": vae.latent_channels,
    }
    check_stated(config, stated, path)
    base.spec = replace(base.spec, decoder=replace(base.spec.decoder, vae=vae))
    base.add("vae", RecipeSource(_path(recipes), "float16", recipes), path)


def _open_transformer(base: BaseModels) -> tuple[ComputedTensor, dict[str, Recipe]]:
    """(the stock text projection of zeros, the transformer's recipes); the spec gets the transformer's sizes."""
    folder = base.folders.cogvideox / "transformer"
    refuse_relatives(read_json(folder / "config.json"), folder / "config.json")
    recipes, config, path = _stock(folder, TRANSFORMER)
    check_fields(config, TRANSFORMER_FIXED, path, "CogVideoX-2b")
    projection = map_keys(next(iter(recipes.values())).source, TEXT_PROJECTION)
    hidden, text = sizes.shape_of(projection, "weight", 2)
    sizes.shape_of(projection, "bias", 1)
    decoder = _decoder_spec(base.spec, recipes, config, path)
    own = decoder.heads * decoder.head_width
    if hidden != own:
        raise CheckpointError(f"{_path(recipes)}: its text projection is {hidden} wide; expected {own}, as its layers")
    check_stated(config, {"text_embed_dim": text}, path)
    encoder = replace(base.spec.encoder, text=replace(base.spec.encoder.text, width=text))
    state = replace(base.spec.state, width=hidden)
    base.spec = replace(base.spec, state=state, decoder=decoder, encoder=encoder)
    return initial.zero_text(projection["bias"]), recipes


def _decoder_spec(
    spec: ModelSpec, recipes: Mapping[str, Recipe], config: Mapping[str, typing.Any], path: Path
) -> DecoderSpec:
    """Sizes of the transformer from its tensors, and of its shots from its configuration."""
    decoder = sizes.decoder_spec(recipes, None, spec.decoder.vae, spec.state)
    channels = sizes.latent_channels(recipes)
    stated = {
        "num_attention_heads": decoder.heads,
        "attention_head_dim": decoder.head_width,
        "num_layers": decoder.layers,
        "time_embed_dim": decoder.time_width,
        "patch_size": decoder.patch,
        "in_channels": channels,
    }
    check_stated(config, stated, path)
    if channels != decoder.vae.latent_channels:
        raise CheckpointError(
            f"{path}: its transformer reads latents of {channels} channels; expected {decoder.vae.latent_channels}, as "
            "the VAE beside it makes"
        )
    pixels = decoder.vae.spatial_factor
    return replace(
        decoder,
        height=whole(config, "sample_height", path) * pixels,
        width=whole(config, "sample_width", path) * pixels,
        spatial_scale=number(config, "spatial_interpolation_scale", path, decoder.spatial_scale),
    )


def _open_text_encoder(base: BaseModels) -> None:
    folder = base.folders.t5
    if folder is None:
        return
    source = open_weights(folder)
    if source is None:
        raise CheckpointError(f"{folder}: no weights; expected those of t5-v1_1-xxl (safetensors or .bin)")
    recipes = map_keys(source, keys.TEXT_ENCODER)
    text, encoder = sizes.text_encoder_spec(recipes, folder), base.spec.encoder
    if text.width != encoder.text.width:
        raise CheckpointError(
            f"{source.path}: a text encoder {text.width} wide; expected {encoder.text.width}, as CogVideoX reads it"
        )
    tokenizer = _t5_tokenizer(folder)
    base.spec = replace(base.spec, encoder=replace(encoder, text=text))
    beside = [folder / "config.json", tokenizer / "tokenizer.json", tokenizer / "spiece.model"]
    base.add("text_tower", RecipeSource(source.path, "float16", recipes), *beside)


def _t5_tokenizer(folder: Path | None) -> Path | None:
    """The folder of T5's tokenizer: its own, or the one beside it in the diffusers layout."""
    if folder is None or any((folder / name).is_file() for name in ("tokenizer.json", "spiece.model")):
        return folder
    return folder.parent / "tokenizer"


def _open_image_encoder(base: BaseModels) -> None:
    folder = base.folders.clip
    if folder is None:
        return
    source = open_weights(folder, OPEN_CLIP)
    if source is None:
        raise CheckpointError(f"{folder}: no weights; expected open_clip_pytorch_model.bin of laion2b_s34b_b88k")
    recipes = map_keys(source, keys.IMAGE_ENCODER)
    image = sizes.image_encoder_spec(recipes, folder)
    patches = (image.image_size // image.patch) ** 2
    if patches != base.spec.state.image_tokens:
        raise CheckpointError(
            f"{source.path}: sees a picture as {patches} patches; expected {base.spec.state.image_tokens} of ViT-B-16"
        )
    base.spec = replace(base.spec, encoder=replace(base.spec.encoder, image=image))
    configs = (folder / "open_clip_config.json", folder / "config.json")
    base.add("image_tower", RecipeSource(source.path, "float16", recipes), *configs)


def _open_mistral(base: BaseModels) -> dict[str, Recipe]:
    folder = base.folders.mistral
    source = open_weights(folder)
    if source is None:
        raise CheckpointError(f"{folder}: no weights; expected those of Mistral-7B-Instruct-v0.1 (safetensors or .bin)")
    path = folder / "config.json"
    config, recipes = read_json(path), map_keys(source, MISTRAL)
    check_fields(config, MISTRAL_FIXED, path, "Mistral-7B-Instruct-v0.1")
    engine = sizes.mistral_spec(recipes, folder)
    if engine.vocab_size != RELEASE_BASE:
        raise CheckpointError(
            f"{source.path}: holds {engine.vocab_size} token rows; expected {RELEASE_BASE} of "
            "Mistral-7B-Instruct-v0.1, not of another version"
        )
    stated = {
        "vocab_size": engine.vocab_size,
        "hidden_size": engine.hidden,
        "intermediate_size": engine.intermediate,
        "num_hidden_layers": engine.layers,
    }
    check_stated(config, stated, path)
    base.spec = replace(base.spec, engine=replace(engine, vocab_size=ROWS))
    return recipes


def _add_initial(
    base: BaseModels, stock: dict[str, Recipe], zeros_D: ComputedTensor, mistral: dict[str, Recipe], seed: int
) -> None:
    """Add the three parts that have initial weights."""
    spec, folders = base.spec, base.folders
    transformer, llm = _path(stock), _path(mistral)
    made = initial.initial_decoder(spec, zeros_D, seed)
    base.add(
        "decoder", RecipeSource(transformer, "float16", stock, made), folders.cogvideox / "transformer/config.json"
    )
    made = initial.initial_encoder(spec, zeros_D, seed)
    base.add("encoder", RecipeSource(transformer, "float16", {}, made), *base.sources["decoder"].files)
    made = initial.initial_engine(spec, mistral, ROWS, seed)
    tokenizer = folders.mistral / "tokenizer.json"
    tokenizer = tokenizer if tokenizer.is_file() else folders.mistral / "tokenizer.model"
    base.add("engine", RecipeSource(llm, "bfloat16", mistral, made), folders.mistral / "config.json", tokenizer)


def _stock(folder: Path, table: tuple[Rule, ...]) -> tuple[dict[str, Recipe], dict[str, typing.Any], Path]:
    """(recipes, configuration, its path) of a folder of diffusers."""
    source = open_weights(folder, (DIFFUSERS_VAE,)) if folder.is_dir() else None
    if source is None:
        raise CheckpointError(f"{folder}: no weights; expected {DIFFUSERS_VAE}.safetensors in {LAYOUT}")
    return map_keys(source, table), read_json(folder / "config.json"), folder / "config.json"


def _path(recipes: Mapping[str, Recipe]) -> Path:
    source: TensorSource = next(iter(recipes.values())).source
    return source.path
