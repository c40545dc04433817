"""Ways that leave arithmetic out: what a step asked is remembered for the steps after it."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from ..decoder import ShotDecoder

FIRST_BLOCK_THRESHOLD = 0.2  # the first block's residual may differ by this share before the others are asked again
TAYLOR_INTERVAL = 3  # every third step asks the attention
TAYLOR_WARM_UP = 3  # steps that a shot begins with, and that follow the last guided one


def first_block(decoder: ShotDecoder) -> None:
    cache_first_block(decoder, FIRST_BLOCK_THRESHOLD)


def cache_first_block(decoder: ShotDecoder, threshold: float) -> None:
    """Where the first block's residual differs from the last computed step's by less than `threshold` of it, what the
    other blocks added then is added again; 0 asks them at every step.
    """
    decoder.transformer.enable_cache(_cache("first_block", "FirstBlockCacheConfig")(threshold=threshold))


def taylor(decoder: ShotDecoder) -> None:
    cache_attention(decoder, TAYLOR_INTERVAL)


def cache_attention(decoder: ShotDecoder, interval: int) -> None:
    """Attention is asked at one step of `interval`, and continued in between on the line through its last two answers;
    1 asks it at every step.
    """
    decoder.transformer.enable_cache(
        _cache("taylor", "TaylorSeerCacheConfig")(
            cache_interval=interval,
            disable_cache_before_step=TAYLOR_WARM_UP,
            cache_identifiers=[r"transformer_blocks\.\d+\.attn1"],  # the default patterns miss CogVideoX's name
            taylor_factors_dtype=decoder.unconditional_ND.dtype,
        )
    )


def _cache(name: str, config: str) -> type:
    from diffusers import hooks

    if not hasattr(hooks, config):
        raise ValueError(f"tuning {name} needs diffusers with {config}; pip install -U diffusers, or leave it out")
    return getattr(hooks, config)
