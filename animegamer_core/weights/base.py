"""Read the free base models, stock CogVideoX-2B and a Mistral, as the parts of a new world."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..spec import RELEASE
from . import initial, keys
from .base_folders import LANGUAGE_MODELS, BaseFolders, LanguageModel
from .foreign import ADDED_TOKENS, HALF, ForeignParts, rope_theta, stated_sizes, tokenizer_folder
from .initial import EMBED
from .keys import RecipeSource, Rule, map_keys
from .storage import CheckpointError
from .weight_files import open_weights

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
    model = _language_model(folders.mistral, mistral[EMBED].shape[0] if EMBED in mistral else 0)
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
    parts.add("vae", RecipeSource(vae.path, HALF, map_keys(vae, keys.VAE_DIFFUSERS)))
    transformer = open_weights(folders.cogvideox / "transformer", "CogVideoX-2b's transformer")
    projection = map_keys(transformer, TEXT_PROJECTION)
    if "bias" not in projection:
        raise CheckpointError(f"{transformer.path}: has no text projection; expected CogVideoX-2b's transformer")
    zeros_D = initial.zero_text(projection["bias"])
    made = initial.initial_decoder(parts.spec, zeros_D, seed)
    parts.add("decoder", RecipeSource(transformer.path, HALF, map_keys(transformer, TRANSFORMER), made))
    made = initial.initial_encoder(parts.spec, zeros_D, seed)
    parts.add("encoder", RecipeSource(transformer.path, HALF, {}, made), *transformer.files)
    made = initial.initial_engine(parts.spec, mistral, seed)
    parts.add("engine", RecipeSource(llm.path, "bfloat16", mistral, made), *parts.engine_files)
    if folders.t5 is not None:
        parts.add_text_encoder(open_weights(folders.t5, "t5-v1_1-xxl"))
    if folders.clip is not None:
        parts.add_image_encoder(open_weights(folders.clip, "CLIP ViT-B-16 laion2b_s34b_b88k"))
    parts.check()
    return parts


def _language_model(folder: Path, entries: int) -> LanguageModel:
    """The row of a Mistral with so many entries; CheckpointError without one."""
    theta = rope_theta(folder)
    for model in LANGUAGE_MODELS:
        if (model.entries, model.rope_theta) == (entries, theta):
            return model
    known = ", ".join(f"{model.entries} and {model.rope_theta:g} of {model.name}" for model in LANGUAGE_MODELS)
    raise CheckpointError(f"{folder}: has {entries} token rows and rope_theta {theta:g}; expected {known}")
