"""Check that the configuration files of base models fit our modules and the tensors next to them."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from pathlib import Path

from ..messages import brief
from ..model.sampler import STOCK_SCHEDULER
from ..spec import RELEASE, TIME_FACTOR, ModelSpec
from .base_folders import BaseFolders
from .storage import CheckpointError, read_json

RELATIVES = (  # setting that CogVideoX-2b does not have -> model that has it
    ("patch_size_t", "CogVideoX1.5-5B"),
    ("ofs_embed_dim", "CogVideoX1.5-5B-I2V"),
    ("use_learned_positional_embeddings", "CogVideoX-5b-I2V"),
    ("use_rotary_positional_embeddings", "CogVideoX-5b"),
)
# What our modules compute. A missing field means the default of diffusers or transformers, which is the same.
TRANSFORMER_FIXED = {
    "flip_sin_to_cos": True, "freq_shift": 0, "activation_fn": "gelu-approximate", "timestep_activation_fn": "silu",
    "attention_bias": True, "norm_elementwise_affine": True, "norm_eps": 1e-5, "patch_bias": True,
    "temporal_compression_ratio": TIME_FACTOR, "temporal_interpolation_scale": 1.0,
    "max_text_seq_length": RELEASE.state.tokens,
}  # fmt: skip
VAE_FIXED = {
    "act_fn": "silu", "norm_eps": 1e-6, "norm_num_groups": RELEASE.decoder.vae.norm_groups,
    "temporal_compression_ratio": TIME_FACTOR, "use_quant_conv": False, "use_post_quant_conv": False,
    "shift_factor": None, "invert_scale_latents": False, "scaling_factor": RELEASE.decoder.vae.scaling_factor,
}  # fmt: skip
NOISE = ("beta_start", "beta_end", "beta_schedule", "prediction_type", "rescale_betas_zero_snr", "snr_shift_scale")
MISTRAL_FIXED = {"model_type": "mistral", "hidden_act": "silu", "tie_word_embeddings": False}


def refuse_relatives(config: Mapping[str, typing.Any], path: Path) -> None:
    """CheckpointError for a CogVideoX other than 2b, which has a computed table of positions."""
    for name, whose in RELATIVES:
        if config.get(name):
            raise CheckpointError(
                f"{path}: {name} is {config[name]}, as in {whose}; expected CogVideoX-2b, which has no such setting "
                "and a computed table of positions"
            )


def check_scheduler(path: Path) -> None:
    """CheckpointError if the folder has a noise schedule other than that of our sampler."""
    if path.is_file():
        check_fields(read_json(path), {name: STOCK_SCHEDULER[name] for name in NOISE}, path, "CogVideoX-2b")


def check_fields(config: Mapping[str, typing.Any], expected: Mapping[str, typing.Any], path: Path, whose: str) -> None:
    """CheckpointError that names the first field of a configuration file with another value."""
    for name, value in expected.items():
        if config.get(name, value) != value:
            raise CheckpointError(f"{path}: {name} is {brief(config[name], 40)!r}; expected {value!r} of {whose}")


def check_stated(config: Mapping[str, typing.Any], found: Mapping[str, typing.Any], path: Path) -> None:
    """CheckpointError for the first size that a configuration file states and the tensors next to it do not have.

    null states nothing: libraries write it where a size follows from others.
    """
    for name, value in found.items():
        if config.get(name) not in (None, value):
            raise CheckpointError(
                f"{path}: {name} is {brief(config[name], 40)!r}, but the weights next to it have {value}; expected "
                "both from one download"
            )


def check_release(spec: ModelSpec, folders: BaseFolders) -> None:
    """CheckpointError that names the first size in which the files differ from the released ones."""
    found, wanted, cogvideox = spec.to_dict(), RELEASE.to_dict(), folders.cogvideox
    folder_of = {
        "engine": folders.mistral,
        "decoder": cogvideox / "transformer",
        "state": cogvideox / "transformer",
        "encoder": folders.t5 if found["encoder"]["text"] != wanted["encoder"]["text"] else folders.clip,
    }
    for name in ("engine", "decoder", "state", "encoder"):
        if found[name] != wanted[name]:
            field_name, value, expected = _difference(found[name], wanted[name])
            folder = cogvideox / "vae" if field_name.startswith("vae.") else folder_of[name] or cogvideox
            raise CheckpointError(f"{folder}: {field_name} is {value}; expected {expected} of spec 'release'")


def _difference(found: Mapping[str, typing.Any], wanted: Mapping[str, typing.Any]) -> tuple[str, object, object]:
    """(name, found, expected) of the first field in which two nested specs differ."""
    name = next(name for name in wanted if found[name] != wanted[name])
    if not isinstance(wanted[name], dict):
        return name, found[name], wanted[name]
    inner, *values = _difference(found[name], wanted[name])
    return f"{name}.{inner}", *values
