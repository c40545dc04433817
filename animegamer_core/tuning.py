"""Other ways to compute the same turn, each by name: what is computed stays the same up to rounding.

Each is tried alone, and beside the others, with `bench --with NAME...`. They change a loaded model in place and for
good: a tuned model is neither trained nor saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .decoder import ShotDecoder


def tune(decoder: ShotDecoder, names: Sequence[str]) -> None:
    """Apply the named ways, in the table's order; ValueError lists the names, or says what a way needs."""
    check_names(names)
    for name, (_, apply) in TUNINGS.items():
        if name in names:
            apply(decoder)


def check_names(names: Sequence[str]) -> None:
    """ValueError lists the names if one of these is none."""
    unknown = [name for name in names if name not in TUNINGS]
    if unknown:
        raise ValueError(f"unknown tuning {unknown[0]!r}; choose from {', '.join(TUNINGS)}")


def _fused(decoder: ShotDecoder) -> None:
    transformer = decoder.transformer
    transformer.fuse_qkv_projections()
    for block in transformer.transformer_blocks:
        for name in ("to_q", "to_k", "to_v"):  # else their weights would stay beside the fused ones
            delattr(block.attn1, name)


def _cudnn(decoder: ShotDecoder) -> None:
    if not torch.cuda.is_available():
        raise ValueError("tuning cudnn is a GPU's attention; there is no GPU here, so leave it out")
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    plain = decoder.transformer.forward

    def forward(*args: object, **kwargs: object) -> object:
        with sdpa_kernel(order, set_priority=True):
            return plain(*args, **kwargs)

    decoder.transformer.forward = forward


def _layout(decoder: ShotDecoder) -> None:
    formats = {nn.Conv2d: torch.channels_last, nn.Conv3d: torch.channels_last_3d}
    for module in decoder.vae.modules():
        for kind, memory_format in formats.items():
            if isinstance(module, kind):
                module.to(memory_format=memory_format)


def _blocks(decoder: ShotDecoder) -> None:
    """One block is compiled and serves for all of them, so that the start is short."""
    for block in decoder.transformer.transformer_blocks:
        block.compile(dynamic=False)


def _whole(decoder: ShotDecoder) -> None:
    decoder.transformer.compile(dynamic=False)


def _vae(decoder: ShotDecoder) -> None:
    """Compiled for its two chunks, the first of 3 latent frames and the later ones of 2 with what they remember."""
    decoder.vae.decoder.compile(dynamic=False)


TUNINGS: dict[str, tuple[str, Callable[[ShotDecoder], None]]] = {
    "fused": ("one matrix product for query, key and value", _fused),
    "layout": ("the VAE's convolutions with channels last", _layout),
    "cudnn": ("cuDNN's attention before the others", _cudnn),
    "blocks": ("compiled transformer blocks", _blocks),
    "whole": ("the whole transformer compiled", _whole),
    "vae": ("the VAE's decoder compiled", _vae),
}
