"""Optimizations of a loaded decoder's transformer, applied in place and for good."""

from __future__ import annotations

import typing
from collections.abc import Callable

from .requirements import COMPILE_OPTIONS, flash3_module

if typing.TYPE_CHECKING:
    from torch import Tensor

    from ...model.decoder import ShotDecoder

# Relative change of the first block's residual above which the other blocks compute. In the Toybox at 30 steps, 0.1
# skips 8 of them at 51 dB to the whole shot; 0.2 skips 6 of 16, at 28 dB, where another seed has 27 dB.
FIRST_BLOCK_THRESHOLD = 0.1
FLASH3 = "flash3"  # the name of its torch operation


def use_second_gpu(decoder: ShotDecoder) -> None:
    """CFG parallel with the next GPU."""
    from ..cfg_parallel import enable_cfg_parallel, second_device

    enable_cfg_parallel(decoder, second_device(decoder))


def fuse_projections(decoder: ShotDecoder) -> None:
    """Make query, key and value one product; LoRA of the three are stacked, so that they take one product each too."""
    from ...checkpoint.lora import attach, stacked_lora

    transformer, loras = decoder.transformer, {}
    for number, block in enumerate(transformer.transformer_blocks):
        projections = [block.attn1.to_q, block.attn1.to_k, block.attn1.to_v]
        for adapter, lora in stacked_lora(projections).items():
            loras.setdefault(adapter, {})[f"transformer_blocks.{number}.attn1.to_qkv"] = lora
    transformer.fuse_qkv_projections()
    for block in transformer.transformer_blocks:
        for name in ("to_q", "to_k", "to_v"):  # diffusers keeps their weights in memory
            delattr(block.attn1, name)
    for adapter, stacked in loras.items():
        attach(transformer, stacked, adapter)


def use_flash3(decoder: ShotDecoder) -> None:
    """Compute attention with FlashAttention-3."""
    from .layers import JointAttention, opaque

    decoder.transformer.set_attn_processor(JointAttention(opaque(FLASH3, flash3_module().flash_attn_func)))


def fuse_gelu(decoder: ShotDecoder) -> None:
    """End the feed-forward's first product with GELU in the same kernel: its rows, the widest, are written once."""
    from .layers import LinearGelu

    for block in decoder.transformer.transformer_blocks:
        if not isinstance(block.ff.net[0], LinearGelu) and not hasattr(block.ff.net[0].proj, "lora_A"):
            assert block.ff.net[0].approximate == "tanh", "the kernel computes GELU's tanh approximation"
            block.ff.net[0] = LinearGelu(block.ff.net[0].proj)


def compile_blocks(decoder: ShotDecoder) -> None:
    """Compile the blocks; all share one compilation, so the start is short."""
    import torch

    for block in decoder.transformer.transformer_blocks:
        # Not block.compile(): the cache's hooks run outside of the compiled function.
        block.forward = _with_contiguous_rows(torch.compile(block.forward, dynamic=False, options=COMPILE_OPTIONS))


def _with_contiguous_rows(compiled: Callable[..., object]) -> Callable[..., object]:
    """The first block gets slices of longer rows; their strides would cost another compilation for it alone."""

    def contiguous(rows_BLD: Tensor) -> Tensor:
        return rows_BLD.contiguous().view(-1).view(rows_BLD.shape)  # a slice of one row claims to be contiguous

    def forward(hidden_states: Tensor, encoder_hidden_states: Tensor, **others: object) -> object:
        return compiled(contiguous(hidden_states), contiguous(encoder_hidden_states), **others)

    return forward


def cache_first_block(decoder: ShotDecoder, threshold: float = FIRST_BLOCK_THRESHOLD) -> None:
    """Reuse what the other blocks added at the last computed step while the first block's residual differs from that
    step's by less than `threshold` of it; 0 computes every step.
    """
    from diffusers import hooks

    if not hasattr(hooks, "FirstBlockCacheConfig"):
        raise ValueError(
            "optimization first_block needs diffusers with FirstBlockCacheConfig; run `pip install -U diffusers`, or "
            "drop it"
        )
    decoder.transformer.enable_cache(hooks.FirstBlockCacheConfig(threshold=threshold))
