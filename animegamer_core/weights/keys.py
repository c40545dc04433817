"""The tables of published keys, and how each of our tensors is made from tensors of a published file by them.

A table is a tuple of `Rule`s whose patterns must match a whole key. A key may feed several targets (fused matrices),
and a target may be fed by several keys (LoRA). A key that no rule matches is an error; target `None` drops a key.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from .parts import LoraUpdate, LoraUpdates, listed
from .storage import CheckpointError, TensorSource, finite_extremes

if TYPE_CHECKING:
    import torch
    from torch import Tensor


BASE, LORA_A, LORA_B = "base", "lora_A", "lora_B"


class Rule(typing.NamedTuple):
    """One row of a table: a pattern of the whole key, our name (None drops it), chunks of the rows, and the role."""

    pattern: str
    target: str | None
    chunks: tuple[int, ...] = (0,)
    of: int = 1  # chunks that the rows are cut into
    role: str = BASE


class LazyTensor(typing.NamedTuple):
    """A tensor that is read or made when it is used.

    where: its file and its own key there, for messages. files: those that it is read from. Both are empty for a tensor
    that no file holds.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], Tensor]
    where: str = ""
    files: tuple[Path, ...] = ()


Pieces = dict[str, LazyTensor]  # role -> what one of our tensors is made of: a base, and perhaps LoRA, kept apart


class MappedSource(TensorSource):
    """The tensors of one part: mapped from published ones, and computed ones, which replace others of their name.

    alpha: LoRA is scaled by alpha / rank; None scales it by 1.
    """

    def __init__(
        self,
        path: Path,
        half: str,
        mapped: Mapping[str, Pieces],
        computed: Mapping[str, LazyTensor] = MappingProxyType({}),
        alpha: float | None = None,
    ) -> None:
        files = (file for pieces in mapped.values() for piece in pieces.values() for file in piece.files)
        super().__init__(path, files, {})
        self.half, self.mapped, self.computed, self.alpha = half, mapped, computed, alpha

    def _piece(self, key: str) -> LazyTensor:
        return self.computed.get(key) or self.mapped[key][BASE]

    def keys(self) -> Iterable[str]:
        """Our names."""
        return list({**self.mapped, **self.computed})

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        return self._piece(key).shape

    def dtype(self, key: str) -> torch.dtype:
        """The type that `tensor` will have, without making it."""
        return self._piece(key).dtype

    def tensor(self, key: str) -> Tensor:
        """One tensor without its LoRA, read or made."""
        return self._piece(key).make()

    def where(self, key: str) -> str:
        """The published file and its own key; our name for a computed tensor that stands for none."""
        return self.mapped[key][BASE].where if key in self.mapped else super().where(key)

    def lora(self) -> LoraUpdates:
        """The LoRA of its layers: alpha / r * B A with r rows in A. CheckpointError for NaN or infinity."""
        updates = {}
        for name, pieces in self.mapped.items():
            if LORA_A in pieces:
                down, up = pieces[LORA_A].make(), pieces[LORA_B].make()
                for role, tensor in ((LORA_A, down), (LORA_B, up)):
                    finite_extremes(tensor, pieces[role].where)
                scale = 1.0 if self.alpha is None else self.alpha / len(down)
                updates[name.removesuffix(".weight")] = LoraUpdate(down, up, scale)
        return updates


def map_keys(source: TensorSource, table: Iterable[Rule], base: TensorSource | None = None) -> dict[str, Pieces]:
    """Our tensor name -> its pieces, for all keys of a source by one table.

    base is a second source by the same table, for targets that the first lacks a base of (trainable-only files).
    CheckpointError names the file and the first keys that no rule matches, or whose base or LoRA half is missing.
    """
    compiled = [(re.compile(rule.pattern), rule) for rule in table]
    mapped: dict[str, Pieces] = {}
    unknown = [key for key in source.keys() if not _apply(compiled, source, key, mapped)]  # noqa: SIM118
    if unknown:
        raise CheckpointError(f"{source.path}: {listed(unknown, 'unknown')}; expected the published names only")
    if base is not None:
        stock: dict[str, Pieces] = {}
        for key in base.keys():  # noqa: SIM118
            _apply(compiled, base, key, stock)
        for name, pieces in mapped.items():
            if BASE not in pieces and name in stock:
                pieces[BASE] = stock[name][BASE]
    for name, pieces in mapped.items():
        if BASE not in pieces:
            raise CheckpointError(
                f"{next(iter(pieces.values())).where} updates {name!r}, but its base weight is neither in this file "
                "nor in a base model; expected a full file, or the base model's weights in its folder"
            )
        if len(pieces) == 2:
            raise CheckpointError(f"{source.path}: {name!r} has only one of lora_A and lora_B; expected both")
    return mapped


def _apply(
    compiled: list[tuple[re.Pattern[str], Rule]], source: TensorSource, key: str, mapped: dict[str, Pieces]
) -> bool:
    """Add one key to the pieces of every rule that matches it; False if none does."""
    matches = [(match, rule) for pattern, rule in compiled if (match := pattern.fullmatch(key))]
    for match, rule in matches:
        if rule.target is not None:
            mapped.setdefault(match.expand(rule.target), {})[rule.role] = _piece(source, key, rule)
    return bool(matches)


def _piece(source: TensorSource, key: str, rule: Rule) -> LazyTensor:
    """A published tensor, or those chunks of its rows that a rule asks for."""
    import torch

    shape, dtype = tuple(source.shape(key)), source.dtype(key)
    narrow = dtype.is_floating_point and dtype.itemsize == 1  # float8, which golden files have, has no arithmetic

    def make() -> Tensor:
        tensor = source.tensor(key).float() if narrow else source.tensor(key)
        if rule.of == 1:
            return tensor
        chunks = tensor.chunk(rule.of)
        return torch.cat([chunks[index] for index in rule.chunks])

    if rule.of > 1:
        shape = (shape[0] // rule.of * len(rule.chunks), *shape[1:])
    return LazyTensor(shape, torch.float32 if narrow else dtype, make, source.where(key), source.files)


# ---- the engine: MLLM-*/pytorch_model.bin, and the Mistral folder's own names for trainable-only files

_LLM = r"llm\.(?:base_model\.model\.)?"
_PROJECTION = r"model\.layers\.(\d+)\.((?:self_attn\.[qkvo]|mlp\.(?:gate|up|down))_proj)"
_OUR_PROJECTION = r"llm.model.layers.\1.\2.weight"

ENGINE = (
    Rule(_LLM + r"(model\.embed_tokens|lm_head)\.weight", r"llm.\1.weight"),
    Rule(_LLM + _PROJECTION + r"\.(?:base_layer\.)?weight", _OUR_PROJECTION),
    Rule(_LLM + _PROJECTION + r"\.lora_A\.default\.weight", _OUR_PROJECTION, role=LORA_A),
    Rule(_LLM + _PROJECTION + r"\.lora_B\.default\.weight", _OUR_PROJECTION, role=LORA_B),
    Rule(
        _LLM
        + r"(model\.(?:layers\.\d+\.(?:input|post_attention)_layernorm|norm))\.(?:modules_to_save\.default\.)?weight",
        r"llm.\1.weight",
    ),
    Rule(_LLM + r"model\.(?:.+norm|norm)\.original_module\.weight", None),  # the copy from before training, unused
    Rule(_LLM + r".+\.rotary_emb\.inv_freq", None),
    Rule(r"(in|out)put_resampler\.proj\.([02])\.(weight|bias)", r"project_\1.\2.\3"),
    Rule(_PROJECTION + r"\.weight", _OUR_PROJECTION),  # the Mistral folder
)

# ---- the decoder: `module` of VDM_Decoder-*/<n>/mp_rank_00_model_states.pt

_DIT = r"model\.diffusion_model\."
_LAYER = _DIT + r"transformer\.layers\.(\d+)\."
_BLOCK = r"transformer.transformer_blocks.\1."
_QKV = _LAYER + r"attention\.query_key_value\."
_DENSE = _LAYER + r"attention\.dense\."
_PATCH = _DIT + r"mixins\.patch_embed\."
_ADALN = _DIT + r"mixins\.adaln_layer\."
_FINAL = _DIT + r"mixins\.final_layer\."
_WB = r"(weight|bias)"
BESIDE_DECODER = (  # other models that the same file may hold; each has its own table
    Rule(r"(?:first_stage_model|conditioner|clip_img_encoder)\..+", None),
)


def _thirds(index: int, name: str) -> tuple[Rule, ...]:
    """Query, key or value of the fused matrix, with its own low-rank pair."""
    target = _BLOCK + f"attn1.{name}."
    return (
        Rule(_QKV + r"(?:original\.)?" + _WB, target + r"\2", (index,), 3),
        Rule(_QKV + rf"matrix_A\.{index}", target + "weight", role=LORA_A),
        Rule(_QKV + rf"matrix_B\.{index}", target + "weight", role=LORA_B),
    )


DECODER = (
    Rule(_DIT + r"time_embed\.0\." + _WB, r"transformer.time_embedding.linear_1.\1"),
    Rule(_DIT + r"time_embed\.2\." + _WB, r"transformer.time_embedding.linear_2.\1"),
    Rule(_DIT + r"flow_embed\.0\." + _WB, r"transformer.ofs_embedding.linear_1.\1"),
    Rule(_DIT + r"flow_embed\.2\." + _WB, r"transformer.ofs_embedding.linear_2.\1"),
    Rule(_PATCH + r"proj\." + _WB, r"transformer.patch_embed.proj.\1"),
    # the scripts' 12 chunks: shift, scale, gate of attention and of the MLP for the video, then the same for the state
    Rule(_ADALN + r"adaLN_modulations\.(\d+)\.1\." + _WB, _BLOCK + r"norm1.linear.\2", (0, 1, 2, 6, 7, 8), 12),
    Rule(_ADALN + r"adaLN_modulations\.(\d+)\.1\." + _WB, _BLOCK + r"norm2.linear.\2", (3, 4, 5, 9, 10, 11), 12),
    Rule(_ADALN + r"query_layernorm_list\.(\d+)\." + _WB, _BLOCK + r"attn1.norm_q.\2"),
    Rule(_ADALN + r"key_layernorm_list\.(\d+)\." + _WB, _BLOCK + r"attn1.norm_k.\2"),
    Rule(_LAYER + r"input_layernorm\." + _WB, _BLOCK + r"norm1.norm.\2"),
    Rule(_LAYER + r"post_attention_layernorm\." + _WB, _BLOCK + r"norm2.norm.\2"),
    *_thirds(0, "to_q"),
    *_thirds(1, "to_k"),
    *_thirds(2, "to_v"),
    Rule(_DENSE + r"(?:original\.)?" + _WB, _BLOCK + r"attn1.to_out.0.\2"),
    Rule(_DENSE + r"matrix_A\.0", _BLOCK + "attn1.to_out.0.weight", role=LORA_A),
    Rule(_DENSE + r"matrix_B\.0", _BLOCK + "attn1.to_out.0.weight", role=LORA_B),
    Rule(_LAYER + r"mlp\.dense_h_to_4h\." + _WB, _BLOCK + r"ff.net.0.proj.\2"),
    Rule(_LAYER + r"mlp\.dense_4h_to_h\." + _WB, _BLOCK + r"ff.net.2.\2"),
    Rule(_DIT + r"transformer\.final_layernorm\." + _WB, r"transformer.norm_final.\1"),
    Rule(_FINAL + r"norm_final\." + _WB, r"transformer.norm_out.norm.\1"),
    Rule(_FINAL + r"adaLN_modulation\.1\." + _WB, r"transformer.norm_out.linear.\1"),
    Rule(_FINAL + r"linear\." + _WB, r"transformer.proj_out.\1"),
    Rule(_DIT + r"mixins\.pos_embed\.pos_embedding", None),  # computed, and compared
    Rule(_PATCH + r"output_mix_layer_norm\." + _WB, None),  # never used at these sizes
    Rule(_PATCH + r"(?:(?:text|ip)_proj\.[02]|(?:txt|ip)_mix_layer_norm)\." + _WB, None),  # the encoder's, see below
    *BESIDE_DECODER,
)
DECODER_ALPHA = 1.0  # the released LoRA leaves SAT's default: scaling 1/r (docs/reference.md, decoder)

ENCODER = (  # how features are mixed is in the decoder's file
    Rule(_PATCH + r"text_proj\.([02])\." + _WB, r"text_proj.\1.\2"),
    Rule(_PATCH + r"ip_proj\.([02])\." + _WB, r"image_proj.\1.\2"),
    Rule(_PATCH + r"txt_mix_layer_norm\." + _WB, r"text_norm.\1"),
    Rule(_PATCH + r"ip_mix_layer_norm\." + _WB, r"image_norm.\1"),
    Rule(_DIT + r"(?!mixins\.patch_embed\.(?:(?:text|ip)_proj|(?:txt|ip)_mix_layer_norm)\.).+", None),
    *BESIDE_DECODER,
)

# ---- the VAE: `state_dict` of 3d-vae.pt, or `first_stage_model.` of the decoder's file

_RESNET = r"((?:norm[12]|conv[12])\..+)"


def vae_table(levels: int) -> tuple[Rule, ...]:
    """The table of a VAE with this many resolutions; its decoder counts them the other way round."""
    prefix = r"(?:first_stage_model\.)?"
    rules = [
        Rule(prefix + r"((?:encoder|decoder)\.(?:conv_in|conv_out|norm_out)\..+)", r"\1"),
        Rule(prefix + r"encoder\.down\.(\d+)\.block\.(\d+)\." + _RESNET, r"encoder.down_blocks.\1.resnets.\2.\3"),
        Rule(
            prefix + r"encoder\.down\.(\d+)\.block\.(\d+)\.nin_shortcut\." + _WB,
            r"encoder.down_blocks.\1.resnets.\2.conv_shortcut.\3",
        ),
        Rule(
            prefix + r"encoder\.down\.(\d+)\.downsample\.conv\." + _WB,
            r"encoder.down_blocks.\1.downsamplers.0.conv.\2",
        ),
        Rule(prefix + r"(encoder|decoder)\.mid\.block_1\." + _RESNET, r"\1.mid_block.resnets.0.\2"),
        Rule(prefix + r"(encoder|decoder)\.mid\.block_2\." + _RESNET, r"\1.mid_block.resnets.1.\2"),
        Rule(prefix + r"loss.*", None),
        Rule(r"(?:model|conditioner|clip_img_encoder)\..+", None),
    ]
    for level in range(levels):
        source, target = prefix + rf"decoder\.up\.{level}\.", f"decoder.up_blocks.{levels - 1 - level}."
        rules += [
            Rule(source + r"block\.(\d+)\." + _RESNET, target + r"resnets.\1.\2"),
            Rule(source + r"block\.(\d+)\.nin_shortcut\." + _WB, target + r"resnets.\1.conv_shortcut.\2"),
            Rule(source + r"upsample\.conv\." + _WB, target + r"upsamplers.0.conv.\1"),
        ]
    return tuple(rules)


VAE_DIFFUSERS = (Rule(r"((?:encoder|decoder)\..+)", r"\1"),)

# ---- the image encoder: open_clip's names (its own file, or inside the decoder's), or transformers'

_VISUAL = r"(?:clip_img_encoder\.model\.)?visual\."
_RES = _VISUAL + r"transformer\.resblocks\.(\d+)\."
_CLIP_LAYER = r"encoder.layers.\1."

IMAGE_ENCODER = (
    Rule(_VISUAL + r"class_embedding", "embeddings.class_embedding"),
    Rule(_VISUAL + r"conv1\.weight", "embeddings.patch_embedding.weight"),
    Rule(_VISUAL + r"positional_embedding", "embeddings.position_embedding.weight"),
    Rule(_VISUAL + r"ln_pre\." + _WB, r"pre_layrnorm.\1"),  # transformers spells it so
    Rule(_VISUAL + r"ln_post\." + _WB, r"post_layernorm.\1"),
    Rule(_RES + r"ln_([12])\." + _WB, _CLIP_LAYER + r"layer_norm\2.\3"),
    *(
        Rule(_RES + r"attn\.in_proj_" + _WB, _CLIP_LAYER + rf"self_attn.{name}_proj.\2", (index,), 3)
        for index, name in enumerate("qkv")
    ),
    Rule(_RES + r"attn\.out_proj\." + _WB, _CLIP_LAYER + r"self_attn.out_proj.\2"),
    Rule(_RES + r"mlp\.c_fc\." + _WB, _CLIP_LAYER + r"mlp.fc1.\2"),
    Rule(_RES + r"mlp\.c_proj\." + _WB, _CLIP_LAYER + r"mlp.fc2.\2"),
    Rule(_VISUAL + r"proj", None),
    Rule(r"vision_model\.(?!embeddings\.position_ids)(.+)", r"\1"),
    Rule(r"vision_model\.embeddings\.position_ids|visual_projection\.weight", None),
    Rule(r"(?:text_model|text_projection|transformer|ln_final|token_embedding)\..+", None),
    Rule(r"positional_embedding|text_projection|logit_scale|logit_bias|attn_mask", None),
    Rule(r"(?:clip_img_encoder\.model\.)(?!visual\.).+", None),
    Rule(r"(?:model|first_stage_model|conditioner)\..+", None),
)

# ---- the text encoder: t5-v1_1-xxl, whose decoder is left out

TEXT_ENCODER = (
    Rule(r"(?:conditioner\.embedders\.0\.transformer\.)?(shared\.weight|encoder\.(?!embed_tokens\.).+)", r"\1"),
    Rule(r"(?:conditioner\.embedders\.0\.transformer\.)?encoder\.embed_tokens\.weight", None),  # = shared
    Rule(r"decoder\..+|lm_head\.weight", None),
    Rule(r"(?:model|first_stage_model|clip_img_encoder)\..+", None),
)
