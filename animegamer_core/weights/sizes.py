"""The sizes of foreign models, from the shapes of their tensors, or their configuration files where no shape tells."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..messages import shortened
from ..model.sampler import STOCK_SCHEDULER
from ..spec import (
    RELEASE,
    TIME_FACTOR,
    DecoderSpec,
    EngineSpec,
    ImageEncoderSpec,
    StateSpec,
    TextEncoderSpec,
    VaeSpec,
)
from .base_folders import LANGUAGE_MODELS, LanguageModel
from .keys import Recipe
from .storage import CheckpointError, TensorSource, number, read_json, whole

if TYPE_CHECKING:
    from torch import Tensor


# What our modules compute. A missing field means the default of diffusers or transformers, which is the same.
TRANSFORMER_FIXED = {
    "flip_sin_to_cos": True, "freq_shift": 0, "activation_fn": "gelu-approximate", "timestep_activation_fn": "silu",
    "attention_bias": True, "norm_elementwise_affine": True, "norm_eps": 1e-5, "patch_bias": True,
    "temporal_compression_ratio": TIME_FACTOR, "temporal_interpolation_scale": 1.0,
    "max_text_seq_length": RELEASE.state.tokens,
    # settings of its relatives, the last one of CogVideoX-5b; the table of positions is computed here
    "patch_size_t": None, "ofs_embed_dim": None, "use_learned_positional_embeddings": False,
    "use_rotary_positional_embeddings": False,
}  # fmt: skip
VAE_FIXED = {
    "act_fn": "silu", "norm_eps": 1e-6, "norm_num_groups": RELEASE.decoder.vae.norm_groups,
    "temporal_compression_ratio": TIME_FACTOR, "use_quant_conv": False, "use_post_quant_conv": False,
    "shift_factor": None, "invert_scale_latents": False, "scaling_factor": RELEASE.decoder.vae.scaling_factor,
}  # fmt: skip
NOISE = ("beta_start", "beta_end", "beta_schedule", "prediction_type", "rescale_betas_zero_snr", "snr_shift_scale")
MISTRAL_FIXED = {"model_type": "mistral", "hidden_act": "silu", "tie_word_embeddings": False}


def check_scheduler(path: Path) -> None:
    """CheckpointError if the folder has a noise schedule other than that of our sampler."""
    if path.is_file():
        check_fields(read_json(path), {name: STOCK_SCHEDULER[name] for name in NOISE}, path, "CogVideoX-2b")


def check_fields(config: Mapping[str, typing.Any], expected: Mapping[str, typing.Any], path: Path, whose: str) -> None:
    """CheckpointError that names the first field of a configuration file with another value."""
    for name, value in expected.items():
        if config.get(name, value) != value:
            raise CheckpointError(f"{path}: {name} is {shortened(config[name], 40)!r}; expected {value!r} of {whose}")


Recipes = Mapping[str, Recipe]
CLIP_HEAD_WIDTH = 64  # open_clip's default, and ViT-B-16's
RMS_EPS = 1e-5


def mistral_spec(recipes: Recipes, mistral: Path, models: Sequence[LanguageModel] = LANGUAGE_MODELS[:1]) -> EngineSpec:
    """Sizes of a Mistral from its tensors and its folder's config.json; CheckpointError if it is none of `models`."""
    path = mistral / "config.json"
    config = read_json(path)
    if not math.isclose(number(config, "rms_norm_eps", path, RMS_EPS), RMS_EPS):
        raise CheckpointError(f"{path}: rms_norm_eps is {config['rms_norm_eps']}; expected {RMS_EPS}")
    holder = config if config.get("rope_theta") else config.get("rope_parameters") or {}  # of transformers 5
    theta = number(holder, "rope_theta", path, 10000.0)
    if theta not in (model.rope_theta for model in models):  # v0.2 differs from v0.1 in nothing else
        known = " or ".join(f"{model.rope_theta:g} of {model.name}" for model in models)
        raise CheckpointError(f"{path}: rope_theta is {theta:g}; expected {known}")
    vocab, hidden = shape_of(recipes, "llm.model.embed_tokens.weight", 2)
    return EngineSpec(
        vocab_size=vocab,
        hidden=hidden,
        intermediate=shape_of(recipes, "llm.model.layers.0.mlp.gate_proj.weight", 2)[0],
        layers=count_numbers(r"llm\.model\.layers\.(\d+)\..+", recipes),
        heads=whole(config, "num_attention_heads", path),
        kv_heads=whole(config, "num_key_value_heads", path),
        rope_theta=theta,
        max_positions=whole(config, "max_position_embeddings", path),
    )


def decoder_spec(recipes: Recipes, positions: Tensor | None, vae: VaeSpec, state: StateSpec) -> DecoderSpec:
    """Sizes of the transformer, and the shot's size from its table of positions (None: the released 480 x 720)."""
    hidden, _, patch, _ = shape_of(recipes, "transformer.patch_embed.proj.weight", 4)
    head_width = shape_of(recipes, "transformer.transformer_blocks.0.attn1.norm_q.weight", 1)[0]
    spec = DecoderSpec(
        layers=count_numbers(r"transformer\.transformer_blocks\.(\d+)\..+", recipes),
        heads=hidden // head_width,
        head_width=head_width,
        time_width=shape_of(recipes, "transformer.time_embedding.linear_1.weight", 2)[0],
        patch=patch,
        vae=vae,
    )
    if positions is None:
        return spec
    if positions.dim() != 3 or positions.shape[1] <= state.tokens or positions.shape[::2] != (1, hidden):
        raise CheckpointError(
            f"{path_of(recipes)}: its table of positions has shape {tuple(positions.shape)}; expected (1, more than "
            f"{state.tokens}, {hidden})"
        )
    frames, rows, columns = _grid(positions[0, state.tokens :], path_of(recipes))
    pixels = patch * vae.spatial_factor
    return dataclasses.replace(
        spec, frames=1 + (frames - 1) * TIME_FACTOR, height=rows * pixels, width=columns * pixels
    )


def vae_spec(recipes: Recipes) -> VaeSpec:
    """Sizes of the VAE."""
    levels = count_numbers(r"encoder\.down_blocks\.(\d+)\..+", recipes)
    channels = tuple(
        shape_of(recipes, f"encoder.down_blocks.{level}.resnets.0.conv1.conv.weight", 5)[0] for level in range(levels)
    )
    return VaeSpec(
        channels=channels,
        layers_per_block=count_numbers(r"encoder\.down_blocks\.0\.resnets\.(\d+)\..+", recipes),
        latent_channels=shape_of(recipes, "decoder.conv_in.conv.weight", 5)[1],
    )


def image_encoder_spec(recipes: Recipes, folder: Path | None) -> ImageEncoderSpec:
    """Sizes of the image encoder; heads from its configuration file, where there is one."""
    width, _, patch, _ = shape_of(recipes, "embeddings.patch_embedding.weight", 4)
    tokens = shape_of(recipes, "embeddings.position_embedding.weight", 2)[0] - 1
    return ImageEncoderSpec(
        image_size=math.isqrt(tokens) * patch,
        patch=patch,
        width=width,
        layers=count_numbers(r"encoder\.layers\.(\d+)\..+", recipes),
        heads=_clip_heads(width, folder),
        intermediate=shape_of(recipes, "encoder.layers.0.mlp.fc1.weight", 2)[0],
    )


def text_encoder_spec(recipes: Recipes, folder: Path) -> TextEncoderSpec:
    """Sizes of the text encoder from its tensors, heads from config.json; it must be a T5 of version 1.1."""
    path = folder / "config.json"
    config = read_json(path)
    if config.get("feed_forward_proj") != "gated-gelu":
        raise CheckpointError(
            f"{path}: feed_forward_proj is {config.get('feed_forward_proj')!r}; expected 'gated-gelu' of t5-v1_1-xxl"
        )
    vocab, width = shape_of(recipes, "shared.weight", 2)
    return TextEncoderSpec(
        vocab_size=vocab,
        width=width,
        head_width=whole(config, "d_kv", path),
        heads=whole(config, "num_heads", path),
        intermediate=shape_of(recipes, "encoder.block.0.layer.1.DenseReluDense.wi_0.weight", 2)[0],
        layers=count_numbers(r"encoder\.block\.(\d+)\..+", recipes),
    )


def latent_channels(recipes: Recipes) -> int:
    """Channels of the latents that the transformer reads."""
    return shape_of(recipes, "transformer.patch_embed.proj.weight", 4)[1]


def find_positions(source: TensorSource) -> Tensor | None:
    """The decoder file's table of positions (1, N + patches, D), if it is there."""
    key = "model.diffusion_model.mixins.pos_embed.pos_embedding"
    return source.tensor(key).float() if key in set(source.keys()) else None


def _grid(table_PD: Tensor, path: Path) -> tuple[int, int, int]:
    """(frames, rows, columns) of a sin-cos table over patches in the order time, row, column.

    The first quarter of the channels is time, the rest is half column and half row; each repeats with its own period.
    """
    patches, width = table_PD.shape
    time = width // 4
    column_PD, space_PD = table_PD[:, time : time + (width - time) // 2], table_PD[:, time:]
    columns, area = _period(column_PD), _period(space_PD)
    if area % columns or patches % area:
        raise CheckpointError(
            f"{path}: its table of {patches} positions is not a grid of time, rows and columns; expected the "
            "published table"
        )
    return patches // area, area // columns, columns


def _period(rows_PD: Tensor) -> int:
    """After how many rows the first one repeats; the number of rows if never."""
    same = (rows_PD[1:] - rows_PD[0]).abs().amax(1) < 1e-4
    return int(same.float().argmax()) + 1 if same.any() else len(rows_PD)


def _clip_heads(width: int, folder: Path | None) -> int:
    """Heads of the image encoder; without a configuration file they have open_clip's width."""
    head_width = CLIP_HEAD_WIDTH
    if folder is not None and (path := folder / "open_clip_config.json").is_file():
        config = read_json(path).get("model_cfg") or {}
        check_fields(config, {"quick_gelu": False}, path, "the laion2b weights")
        vision = config.get("vision_cfg") or {}
        head_width = whole(vision, "head_width", path, CLIP_HEAD_WIDTH)
    elif folder is not None and (path := folder / "config.json").is_file():
        vision = read_json(path).get("vision_config") or {}
        check_fields(vision, {"hidden_act": "gelu"}, path, "the laion2b weights")
        if "num_attention_heads" in vision:
            return whole(vision, "num_attention_heads", path)
    return max(1, width // head_width)


def shape_of(recipes: Recipes, name: str, axes: int) -> tuple[int, ...]:
    """The shape of one of our tensors; CheckpointError where no file makes it, or it has another number of axes."""
    if name not in recipes:
        raise CheckpointError(
            f"{path_of(recipes)}: there is no tensor for {name!r}; expected the whole published model"
        )
    shape = recipes[name].shape
    if len(shape) != axes:
        raise CheckpointError(f"{path_of(recipes)}: {recipes[name].key!r} has shape {shape}; expected {axes} axes")
    if 0 in shape:
        raise CheckpointError(f"{path_of(recipes)}: {recipes[name].key!r} has shape {shape}; expected stored values")
    return shape


def path_of(recipes: Recipes) -> Path:
    """The file that messages about these recipes name."""
    return next(iter(recipes.values())).source.path if recipes else Path("the file")


def count_numbers(pattern: str, names: Iterable[str]) -> int:
    """How many different numbers the group of a pattern matches."""
    compiled = re.compile(pattern)
    return len({match.group(1) for name in names if (match := compiled.fullmatch(name))})
