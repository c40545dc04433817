"""Read other people's files as the parts of a world: a published world, for `convert`, or free base models, for `new`.

The base models are stock CogVideoX-2B and a Mistral.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import nn

from ..model.prompt import RELEASE_SLOTS, GameTokenizer, read_pieces, read_tokenizer, tag_tokens
from ..spec import RELEASE, ModelSpec, get_profile
from . import initial, keys
from .downloads import LANGUAGE_MODELS, BaseFolders, Downloads, LanguageModel
from .initial import EMBED, UNCONDITIONAL
from .keys import BASE, LazyTensor, MappedSource, Rule, map_keys
from .parts import check_parts, load_model
from .storage import CheckpointError, TensorSource, number, read_json
from .weight_files import PickleSource, decoder_file, open_weights

ADDED_TOKENS = len(tag_tokens(RELEASE_SLOTS))  # that a game adds to a language model's own
HALF = "float16"  # what the published scripts compute in, except for the engine
SIZES = "spec.json"  # next to weights whose sizes are not the released ones: a ModelSpec


def stated_sizes(*folders: Path | None) -> ModelSpec:
    """The sizes that a spec.json in one of these folders states; without any, the released ones."""
    path = next((folder / SIZES for folder in folders if folder and (folder / SIZES).is_file()), None)
    return RELEASE if path is None else read_json(path, ModelSpec)


def rope_theta(mistral: Path) -> float:
    """The base of the periods of a Mistral's positions, by which v0.1 and v0.2 differ."""
    path = mistral / "config.json"
    config = read_json(path)
    holder = config if config.get("rope_theta") else config.get("rope_parameters") or {}  # of transformers 5
    return number(holder, "rope_theta", path, 10000.0)


@dataclass
class ForeignParts:
    """A spec, and for each part its tensors under our names and the files that decide what it is.

    profile: the name of the profile that the engine is read by. mistral, t5: the folders of the tokenizers, if given.
    """

    spec: ModelSpec
    profile: str
    mistral: Path | None
    t5: Path | None
    sources: dict[str, MappedSource] = field(default_factory=dict)
    files: dict[str, tuple[Path, ...]] = field(default_factory=dict)

    def add(self, part: str, source: MappedSource, *beside: Path) -> None:
        """Add a part. beside: further files that decide what it is, where they exist."""
        self.sources[part] = source
        self.files[part] = (*source.files, *(path for path in beside if path.is_file()))

    @property
    def engine_files(self) -> tuple[Path, Path]:
        """Mistral's configuration and tokenizer."""
        tokenizer = self.mistral / "tokenizer.json"
        return self.mistral / "config.json", tokenizer if tokenizer.is_file() else self.mistral / "tokenizer.model"

    def add_text_encoder(self, source: TensorSource) -> None:
        """Add T5."""
        mapped = map_keys(source, keys.TEXT_ENCODER)
        beside = (self.t5 / "tokenizer.json", self.t5 / "spiece.model")
        self.add("text_tower", MappedSource(source.path, HALF, mapped), *beside)

    def add_image_encoder(self, source: TensorSource) -> None:
        """Add CLIP's image encoder."""
        self.add("image_tower", MappedSource(source.path, HALF, map_keys(source, keys.IMAGE_ENCODER)))

    def build(self, kind: str) -> nn.Module:
        """A new engine, decoder or encoder of these sizes with its tokenizer."""
        from ..model.decoder import ShotDecoder
        from ..model.encoder import ShotEncoder
        from ..model.engine import GameEngine

        if kind == "engine":
            entries = self.spec.engine.vocab_size - ADDED_TOKENS
            return GameEngine(self.spec, GameTokenizer.from_mistral(self.mistral, entries), get_profile(self.profile))
        if kind == "decoder":
            return ShotDecoder(self.spec, get_profile(self.profile))
        return ShotEncoder(self.spec, self.text_tokenizer())

    def text_tokenizer(self) -> Tokenizer | None:
        """T5's tokenizer; None without its folder."""
        if self.t5 is None:
            return None
        if (self.t5 / "tokenizer.json").is_file():
            return read_tokenizer(self.t5 / "tokenizer.json")
        return read_pieces(self.t5, "T5TokenizerFast")


def tokenizer_folder(t5: Path | None) -> Path | None:
    """The folder of T5's tokenizer: its own, or the one next to it in the diffusers layout."""
    if t5 is None or any((t5 / name).is_file() for name in ("tokenizer.json", "spiece.model")):
        return t5
    return t5.parent / "tokenizer"


# ---- a published world

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
    models = check_parts(parts.sources, parts.build)
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
    mapped = map_keys(source, keys.ENGINE, _base_model(source, parts.mistral))
    theta, expected = rope_theta(parts.mistral), parts.spec.engine.rope_theta
    if theta != expected:  # v0.2 differs from v0.1 in nothing else
        raise CheckpointError(
            f"{parts.mistral / 'config.json'}: rope_theta is {theta:g}; expected {expected:g} of "
            "Mistral-7B-Instruct-v0.1"
        )
    parts.add("engine", MappedSource(source.path, "bfloat16", mapped, alpha=alpha), adapter, *parts.engine_files)


def _base_model(source: TensorSource, mistral: Path) -> TensorSource | None:
    """Mistral's weights, where the engine's file holds only what was trained."""
    if any(".base_layer." in key or key.endswith("q_proj.weight") for key in source.keys()):  # noqa: SIM118
        return None
    return open_weights(mistral, f"Mistral-7B-Instruct-v0.1, since {source.path} holds only what was trained")


def _open_decoder(parts: ForeignParts, source: TensorSource) -> None:
    mixed = MappedSource(source.path, HALF, map_keys(source, keys.ENCODER))
    shape = (parts.spec.state.tokens, parts.spec.state.width)
    unconditional = LazyTensor(shape, torch.float32, lambda: _unconditional(parts.spec, mixed))
    parts.add("encoder", mixed)
    mapped, computed = map_keys(source, keys.DECODER), {UNCONDITIONAL: unconditional}
    parts.add("decoder", MappedSource(source.path, HALF, mapped, computed, keys.DECODER_ALPHA))


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
    parts.add("vae", MappedSource(source.path, HALF, map_keys(source, table)))


def _check_positions(source: TensorSource, decoder: torch.nn.Module) -> None:
    """CheckpointError unless the published table of positions is the computed one, which replaces it: a decoder for
    other shots would draw wrongly.
    """
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


# ---- free base models

_TEXT_PROJECTION = r"patch_embed\.text_proj\."
TRANSFORMER = (
    Rule(_TEXT_PROJECTION + "(weight|bias)", None),  # a state is as wide as the transformer
    Rule(r"patch_embed\.pos_embedding", None),  # computed
    Rule(rf"(?!{_TEXT_PROJECTION}|patch_embed\.pos_embedding)(.+)", r"transformer.\1"),
)
TEXT_PROJECTION = (Rule(_TEXT_PROJECTION + "(weight|bias)", r"\1"), Rule(rf"(?!{_TEXT_PROJECTION}).+", None))
MISTRAL = (Rule(r".+\.rotary_emb\.inv_freq", None), Rule(r"(?!.+\.rotary_emb\.)(.+)", r"llm.\1"))


def open_base(folders: BaseFolders, seed: int = 0) -> ForeignParts:
    """Open base models. Reads names and shapes only; CheckpointError says what does not fit.

    seed: of the random initial weights.
    """
    folders = folders.checked()
    llm = open_weights(folders.mistral, "a Mistral-7B-Instruct")
    mistral = map_keys(llm, MISTRAL)
    model = _language_model(folders.mistral, mistral[EMBED][BASE].shape[0] if EMBED in mistral else 0)
    spec = stated_sizes(folders.cogvideox)
    engine = replace(spec.engine, vocab_size=model.entries + ADDED_TOKENS, rope_theta=model.rope_theta)
    spec = replace(spec, engine=engine)
    parts = ForeignParts(
        RELEASE if spec == RELEASE else replace(spec, name="custom"),
        "paper",
        folders.mistral,
        tokenizer_folder(folders.t5),
    )

    vae = open_weights(folders.cogvideox / "vae", "CogVideoX-2b's VAE")
    parts.add("vae", MappedSource(vae.path, HALF, map_keys(vae, keys.VAE_DIFFUSERS)))
    transformer = open_weights(folders.cogvideox / "transformer", "CogVideoX-2b's transformer")
    projection = map_keys(transformer, TEXT_PROJECTION)
    if "bias" not in projection:
        raise CheckpointError(f"{transformer.path}: has no text projection; expected CogVideoX-2b's transformer")
    zeros_D = initial.zero_text(projection["bias"][BASE])
    made = initial.initial_decoder(parts.spec, zeros_D, seed)
    parts.add("decoder", MappedSource(transformer.path, HALF, map_keys(transformer, TRANSFORMER), made))
    made = initial.initial_encoder(parts.spec, zeros_D, seed)
    parts.add("encoder", MappedSource(transformer.path, HALF, {}, made), *transformer.files)
    made = initial.initial_engine(parts.spec, mistral, seed)
    parts.add("engine", MappedSource(llm.path, "bfloat16", mistral, made), *parts.engine_files)
    if folders.t5 is not None:
        parts.add_text_encoder(open_weights(folders.t5, "t5-v1_1-xxl"))
    if folders.clip is not None:
        parts.add_image_encoder(open_weights(folders.clip, "CLIP ViT-B-16 laion2b_s34b_b88k"))
    check_parts(parts.sources, parts.build)
    return parts


def _language_model(folder: Path, entries: int) -> LanguageModel:
    """The row of a Mistral with so many entries; CheckpointError without one."""
    theta = rope_theta(folder)
    for model in LANGUAGE_MODELS:
        if (model.entries, model.rope_theta) == (entries, theta):
            return model
    known = ", ".join(f"{model.entries} and {model.rope_theta:g} of {model.name}" for model in LANGUAGE_MODELS)
    raise CheckpointError(f"{folder}: has {entries} token rows and rope_theta {theta:g}; expected {known}")
