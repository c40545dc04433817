"""Layers that compute what the libraries' own compute, in another way."""

from __future__ import annotations

import typing
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

if typing.TYPE_CHECKING:
    from diffusers.models.attention_processor import Attention

OURS = "animegamer"  # the namespace of operations of our own


class LinearGelu(nn.Module):
    """A matrix product that ends with GELU (tanh), in one kernel of a GPU: its rows are not written and read between.

    Its parameters have the names of diffusers' GELU. A module and no function, since a compiler takes one module for
    another of its class where it would compile each function anew. On a CPU the GELU is the exact one.
    """

    def __init__(self, proj: nn.Linear) -> None:
        super().__init__()
        self.proj = proj

    def forward(self, rows: Tensor) -> Tensor:
        """(..., W) -> (..., V)."""
        flat = rows.flatten(0, -2)
        ended = torch._addmm_activation(self.proj.bias, flat, self.proj.weight.t(), use_gelu=True)
        return ended.unflatten(0, rows.shape[:-1])


class JointAttention:
    """CogVideoX's attention, by a function that takes its rows as they lie: diffusers' own turns heads and rows round.

    attend: (B, L, heads, W) queries, keys and values to as many rows. Where the projections are fused, one product
    makes all three.
    """

    def __init__(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        self.attend = attend

    def __call__(
        self,
        attn: Attention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: None = None,
        image_rotary_emb: None = None,
    ) -> tuple[Tensor, Tensor]:
        """(B, L, D) of the picture and (B, N, D) of the text, to as many of both, each having seen all."""
        assert attention_mask is None and image_rotary_emb is None, "CogVideoX-2B has neither"
        rows_BLD = torch.cat([encoder_hidden_states, hidden_states], dim=1)
        query, key, value = (rows.unflatten(-1, (attn.heads, -1)) for rows in _projected(attn, rows_BLD))
        seen_BLD = self.attend(attn.norm_q(query), attn.norm_k(key), value).flatten(2)
        text, picture = attn.to_out[0](seen_BLD).tensor_split([encoder_hidden_states.shape[1]], dim=1)
        return picture, text


def _projected(attn: Attention, rows_BLD: Tensor) -> tuple[Tensor, ...]:
    if attn.fused_projections:
        return attn.to_qkv(rows_BLD).chunk(3, dim=-1)
    return attn.to_q(rows_BLD), attn.to_k(rows_BLD), attn.to_v(rows_BLD)


@cache  # an operation is registered once
def opaque(name: str, attend: Callable[..., Tensor | tuple[Tensor, ...]]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """An attention function as one operation that a compiler does not look into: `animegamer::<name>`."""

    @torch.library.custom_op(f"{OURS}::{name}", mutates_args=(), schema="(Tensor q, Tensor k, Tensor v) -> Tensor")
    def operation(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        seen = attend(query, key, value)
        return seen[0] if isinstance(seen, tuple) else seen  # older ones also tell the sums of the weights

    @operation.register_fake
    def _(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.empty_like(query, memory_format=torch.contiguous_format)

    return operation
