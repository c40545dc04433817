"""Worlds of published files, read in place without conversion."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from ..model.prompt import GameTokenizer, read_tokenizer
from ..spec import RELEASE, EncoderSpec, ModelSpec, StateSpec, get_profile
from . import keys, sizes
from .downloads import DIFFUSERS_VAE, Downloads, file_signature
from .folders import Notes
from .lora_files import LoraUpdates
from .parts import PARTS, check_parts, load_model
from .recipes import ComputedTensor, RecipeSource, map_keys
from .storage import CheckpointError, FileNote, SafetensorsSource, TensorSource, find_safetensors, number, read_json
from .weight_files import OPEN_CLIP, PickleSource, decoder_file, open_weights

if typing.TYPE_CHECKING:
    from tokenizers import Tokenizer

PUBLISHED_STATE = StateSpec()  # 30 text and 196 image tokens at every width: the vocabulary has no others
# Sizes of parts that are not found: the released ones, with one layer and small shots, as empty models need them.
_UNKNOWN = replace(
    RELEASE,
    state=PUBLISHED_STATE,
    encoder=replace(RELEASE.encoder, text=replace(RELEASE.encoder.text, layers=1)),
    engine=replace(RELEASE.engine, layers=1),
    decoder=replace(RELEASE.decoder, layers=1, height=64, width=64),
)
TABLE_TOLERANCE = 1e-2  # of positions in -1..1; bfloat16 rounds them by 4e-3
UNCONDITIONAL = "unconditional_ND"
HALF = "float16"  # what the published scripts compute in, except for the engine


@dataclass
class Published:
    """A download's spec, and for each part a source of tensors under our names and the files it reads."""

    downloads: Downloads
    spec: ModelSpec
    sources: dict[str, RecipeSource] = field(default_factory=dict)
    files: dict[str, tuple[Path, ...]] = field(default_factory=dict)

    @property
    def origins(self) -> dict[str, str]:
        """Part -> the file that holds its weights, below the folder of downloads."""
        return {
            part: source.path.relative_to(self.downloads.folder).as_posix() for part, source in self.sources.items()
        }


class PublishedFolder:
    """The storage of a world in a folder of downloads. Checksums are of both ends of a file."""

    def __init__(self, published: Published) -> None:
        self.folder = published.downloads.folder
        self._published = published
        known = {path: file_signature(path) for paths in published.files.values() for path in paths}
        self._notes = {
            part: {path.relative_to(self.folder).as_posix(): known[path] for path in paths}
            for part, paths in published.files.items()
        }

    def notes(self, part: str) -> Notes:
        """The downloaded files that a part is read from."""
        return self._notes.get(part, {})

    def note(self, path: str) -> FileNote:
        """Size and signature."""
        return file_signature(self.folder / path)

    def remedy(self, part: str) -> str:
        """The folder, and that `fetch` downloads the part."""
        return f"in {self.folder}; it is read from {PARTS[part].source}, which `fetch` downloads"

    def source(self, part: str) -> TensorSource:
        """Tensors that are made from the published ones when they are read."""
        return self._published.sources[part]

    def lora(self, part: str) -> LoraUpdates:
        """The LoRA that the published file holds beside its base weights."""
        return self._published.sources[part].lora()

    def tokenizer(self) -> GameTokenizer:
        """Mistral's own, with the game's tokens added."""
        mistral = self._published.downloads.mistral
        if mistral is None:
            raise CheckpointError(f"{self.folder}: no Mistral-7B-Instruct-v0.1 folder, which holds the tokenizer")
        return GameTokenizer.from_mistral(mistral)

    def text_tokenizer(self) -> Tokenizer | None:
        """T5's own."""
        folder = self._published.downloads.text_encoder
        return None if folder is None else text_tokenizer(folder)


def open_published(downloads: Downloads) -> Published:
    """Open the downloads that are there. Reads names and shapes only; CheckpointError says what does not fit."""
    published = Published(downloads, replace(_UNKNOWN, name=downloads.name))
    decoder = None if downloads.decoder is None else PickleSource(decoder_file(downloads.decoder), "module")
    _open_vae(published, decoder)
    if decoder is not None:
        _open_decoder(published, decoder)
    if downloads.engine is not None:
        _open_engine(published)
    _open_image_encoder(published, decoder)
    _open_text_encoder(published, decoder)
    _check(published)
    return published


def _open_engine(published: Published) -> None:
    folder, mistral = published.downloads.engine, published.downloads.mistral
    if mistral is None:
        raise CheckpointError(
            f"{folder}: the engine also needs the Mistral-7B-Instruct-v0.1 folder (config.json and tokenizer) beside it"
        )
    source = open_weights(folder, ("pytorch_model", "model"))
    if source is None:
        raise CheckpointError(f"{folder / 'pytorch_model.bin'}: no such file; expected the published engine")
    adapter = folder / "adapter_config.json"  # peft's own note of a LoRA; the release has none: alpha = r = 32
    facts = read_json(adapter) if adapter.is_file() else {}
    alpha = None if facts.get("lora_alpha") is None else number(facts, "lora_alpha", adapter, 0)
    recipes = map_keys(source, keys.ENGINE, alpha, base=_base_model(source, mistral))
    engine, width = sizes.engine_spec(recipes, mistral)
    _set_width(published, width, source.path)
    published.spec = replace(published.spec, engine=engine)
    tokenizer = mistral / "tokenizer.json"
    tokenizer = tokenizer if tokenizer.is_file() else mistral / "tokenizer.model"
    _add(
        published, "engine", RecipeSource(source.path, "bfloat16", recipes), adapter, mistral / "config.json", tokenizer
    )


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


def _open_decoder(published: Published, source: TensorSource) -> None:
    recipes = map_keys(source, keys.DECODER, keys.DECODER_ALPHA)
    mixing = map_keys(source, keys.ENCODER)
    spec = published.spec
    vae = spec.decoder.vae
    if "vae" not in published.sources:  # the VAE is not known yet, but its channels must fit
        vae = replace(vae, latent_channels=sizes.latent_channels(recipes))
    decoder = sizes.decoder_spec(recipes, sizes.find_positions(source), vae, spec.state)
    text, image = sizes.feature_widths(mixing)
    heads = spec.encoder.image.heads if image % spec.encoder.image.heads == 0 else 1  # not known yet
    tower = replace(spec.encoder.image, width=image, heads=heads)
    encoder = EncoderSpec(replace(spec.encoder.text, width=text), tower)
    state = replace(spec.state, width=decoder.heads * decoder.head_width)
    published.spec = replace(spec, state=state, decoder=decoder, encoder=encoder)
    mixed = RecipeSource(source.path, HALF, mixing)
    _add(published, "encoder", mixed)
    shape = (state.tokens, state.width)
    unconditional = ComputedTensor(shape, torch.float32, lambda: _unconditional(published.spec, mixed))
    _add(published, "decoder", RecipeSource(source.path, HALF, recipes, {UNCONDITIONAL: unconditional}))


def _unconditional(spec: ModelSpec, mixing: TensorSource) -> torch.Tensor:
    """(N, D) fp32: the unconditional state, which the published scripts compute in every step."""
    from ..model.encoder import ShotEncoder

    with torch.inference_mode():
        return load_model(lambda: ShotEncoder(spec), {"encoder": mixing}, "cpu", torch.float32).unconditional().clone()


def _open_vae(published: Published, decoder: TensorSource | None) -> None:
    path, inside = published.downloads.vae, "first_stage_model."
    if path is None and not _has(decoder, inside):
        return
    if path is None:
        source, table = decoder, keys.vae_table(_vae_levels(decoder))
    elif path.is_dir():
        source, table = SafetensorsSource(find_safetensors(path, DIFFUSERS_VAE)), keys.VAE_DIFFUSERS
    else:
        source = PickleSource(path, "state_dict")
        table = keys.vae_table(_vae_levels(source))
    recipes = map_keys(source, table)
    spec = published.spec
    published.spec = replace(spec, decoder=replace(spec.decoder, vae=sizes.vae_spec(recipes)))
    _add(published, "vae", RecipeSource(source.path, HALF, recipes))


def _vae_levels(source: TensorSource) -> int:
    pattern = r"(?:first_stage_model\.)?decoder\.up\.(\d+)\..+"
    return sizes.count_numbers(pattern, source.keys())


def _open_image_encoder(published: Published, decoder: TensorSource | None) -> None:
    folder = published.downloads.image_encoder
    source = decoder if _has(decoder, "clip_img_encoder.") else None
    if folder is not None:
        source = open_weights(folder, OPEN_CLIP)
        if source is None:
            raise CheckpointError(f"{folder}: no weights; expected open_clip_pytorch_model.bin of laion2b_s34b_b88k")
    if source is None:
        return
    recipes = map_keys(source, keys.IMAGE_ENCODER)
    encoder = replace(published.spec.encoder, image=sizes.image_encoder_spec(recipes, folder))
    published.spec = replace(published.spec, encoder=encoder)
    configs = [] if folder is None else [folder / "open_clip_config.json", folder / "config.json"]
    _add(published, "image_tower", RecipeSource(source.path, HALF, recipes), *configs)


def _open_text_encoder(published: Published, decoder: TensorSource | None) -> None:
    folder = published.downloads.text_encoder
    if folder is None:  # its tokenizer and sizes are in no other file
        return
    source = open_weights(folder) or (decoder if _has(decoder, "conditioner.embedders.0.") else None)
    if source is None:
        raise CheckpointError(f"{folder}: no weights; expected those of t5-v1_1-xxl (safetensors or .bin)")
    recipes = map_keys(source, keys.TEXT_ENCODER)
    encoder = replace(published.spec.encoder, text=sizes.text_encoder_spec(recipes, folder))
    published.spec = replace(published.spec, encoder=encoder)
    beside = [folder / name for name in ("config.json", "tokenizer.json", "spiece.model")]
    _add(published, "text_tower", RecipeSource(source.path, HALF, recipes), *beside)


def _check(published: Published) -> None:
    """Every part against an empty model of the spec, so that nothing is written before all of it fits."""
    models = check_parts(published.sources, lambda kind: empty_model(published, kind))
    if "decoder" in published.sources:
        _check_positions(published, models["decoder"])
    patches = (published.spec.encoder.image.image_size // published.spec.encoder.image.patch) ** 2
    if {"encoder", "image_tower"} <= set(published.sources) and patches != published.spec.state.image_tokens:
        raise CheckpointError(
            f"{published.sources['image_tower'].path}: sees a picture as {patches} patches; "
            f"expected {published.spec.state.image_tokens}, as the decoder was trained with"
        )


def empty_model(published: Published, kind: str) -> torch.nn.Module:
    """An engine, decoder or encoder of the published sizes with its own tokenizer, to be built without memory."""
    return new_model(kind, published.spec, "reference", published.downloads.mistral, published.downloads.text_encoder)


def new_model(kind: str, spec: ModelSpec, profile: str, mistral: Path, t5: Path | None) -> torch.nn.Module:
    """A new engine, decoder or encoder. mistral, t5: the folders of the tokenizers; t5 None for no text tokenizer."""
    if kind == "engine":
        from ..model.engine import GameEngine

        return GameEngine(spec, GameTokenizer.from_mistral(mistral), get_profile(profile))
    if kind == "decoder":
        from ..model.decoder import ShotDecoder

        return ShotDecoder(spec, get_profile(profile))
    from ..model.encoder import ShotEncoder

    return ShotEncoder(spec, None if t5 is None else text_tokenizer(t5))


def text_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer in a T5 folder."""
    if (folder / "tokenizer.json").is_file():
        return read_tokenizer(folder / "tokenizer.json")
    from transformers import T5TokenizerFast

    try:
        return T5TokenizerFast.from_pretrained(str(folder), local_files_only=True).backend_tokenizer
    except (ImportError, OSError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{folder}: no readable tokenizer ({type(error).__name__}); expected tokenizer.json, "
            "or spiece.model with `pip install sentencepiece protobuf`"
        ) from error


def _check_positions(published: Published, decoder: torch.nn.Module) -> None:
    """CheckpointError unless the published table of positions is the computed one, which replaces it."""
    source = PickleSource(decoder_file(published.downloads.decoder), "module")
    table = sizes.find_positions(source)
    computed = decoder.transformer.patch_embed.pos_embedding
    if table is None:
        return
    if table.shape != computed.shape or not (table - computed).abs().max() <= TABLE_TOLERANCE:  # nor nan
        raise CheckpointError(
            f"{source.path}: its table of positions {tuple(table.shape)} is not the one computed for shots of "
            f"{published.spec.decoder.height} x {published.spec.decoder.width}; expected the released interpolation"
        )


def _set_width(published: Published, width: int, path: Path) -> None:
    """Give the spec a state width; engine and decoder of one world must agree on it."""
    spec = published.spec
    if "decoder" in published.sources and spec.state.width != width:
        raise CheckpointError(
            f"{path}: predicts states {width} wide, the decoder reads {spec.state.width}; expected one world's pair"
        )
    if spec.state.width != width:  # without a decoder its sizes are not known, but must fit
        decoder = replace(spec.decoder, heads=1, head_width=width)
        published.spec = replace(spec, state=replace(spec.state, width=width), decoder=decoder)


def _add(published: Published, part: str, source: RecipeSource, *beside: Path) -> None:
    """Add a part. beside: further files that decide what it is, where they exist."""
    published.sources[part] = source
    published.files[part] = (*source.files, *(path for path in beside if path.is_file()))


def _has(source: TensorSource | None, prefix: str) -> bool:
    return source is not None and any(key.startswith(prefix) for key in source.keys())  # noqa: SIM118
