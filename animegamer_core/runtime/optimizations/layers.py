"""Faster replacements of layers of torch and diffusers, with the same results up to rounding."""

from __future__ import annotations

import typing
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

if typing.TYPE_CHECKING:
    from diffusers.models.attention_processor import Attention

FLASH3 = "animegamer::flash3"  # the name of its operation in torch.ops


class LinearGelu(nn.Module):
    """A linear layer and GELU (tanh) in one GPU kernel, which saves writing and reading the activations once.

    Its parameters have the names of diffusers' GELU. It is a module because torch's compiler reuses a compilation for
    modules of one class, but not for functions. On a CPU the GELU is exact.
    """

    def __init__(self, proj: nn.Linear) -> None:
        super().__init__()
        self.proj = proj

    def forward(self, rows: Tensor) -> Tensor:
        """(..., input width) -> (..., output width)."""
        flat = rows.flatten(0, -2)
        activated = torch._addmm_activation(self.proj.bias, flat, self.proj.weight.t(), use_gelu=True)
        return activated.unflatten(0, rows.shape[:-1])


class JointAttention:
    """CogVideoX's attention through a function that takes (B, L, heads, W); diffusers' own transposes L and heads.

    attend: (queries, keys, values) -> output, all (B, L, heads, W). With fused projections, one product computes
    queries, keys and values.
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
        """Attention among (B, L, D) picture rows and (B, N, D) text rows; returns both in the same shapes."""
        assert attention_mask is None and image_rotary_emb is None, "CogVideoX-2B has neither"
        rows_BLD = torch.cat([encoder_hidden_states, hidden_states], dim=1)
        if attn.fused_projections:
            projected = attn.to_qkv(rows_BLD).chunk(3, dim=-1)
        else:
            projected = attn.to_q(rows_BLD), attn.to_k(rows_BLD), attn.to_v(rows_BLD)
        query, key, value = (rows.unflatten(-1, (attn.heads, -1)) for rows in projected)
        mixed_BLD = self.attend(attn.norm_q(query), attn.norm_k(key), value).flatten(2)
        text, picture = attn.to_out[0](mixed_BLD).tensor_split([encoder_hidden_states.shape[1]], dim=1)
        return picture, text


@cache  # torch registers an operation only once
def opaque(attend: Callable[..., Tensor | tuple[Tensor, ...]]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Register an attention function as a torch operation, which the compiler does not trace."""

    @torch.library.custom_op(FLASH3, mutates_args=(), schema="(Tensor q, Tensor k, Tensor v) -> Tensor")
    def operation(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = attend(query, key, value)
        return output[0] if isinstance(output, tuple) else output  # older versions return the log-sum-exp too

    @operation.register_fake
    def _(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.empty_like(query, memory_format=torch.contiguous_format)

    return operation
