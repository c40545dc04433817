"""Optimizations of a loaded decoder, applied in place and for good, and what they need.

Each `..._reason` says why a device does not meet a requirement; empty if it does.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import typing
from collections.abc import Callable
from types import ModuleType

if typing.TYPE_CHECKING:
    from torch import Tensor

    from ...model.decoder import ShotDecoder

COMPILE_OPTIONS = {"emulate_precision_casts": True}  # rounds where uncompiled operations round
HOPPER = (9, 0)  # compute capability
TRITON_FROM = (7, 0)  # compute capability; torch's compiler refuses older GPUs


def fuse_projections(decoder: ShotDecoder) -> None:
    """Compute query, key and value in one product. Their LoRA matrices are stacked in the same way."""
    from ...weights.lora import attach, stacked_lora

    transformer = decoder.transformer
    loras: dict[str, dict[str, typing.Any]] = {}
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

    module = flash3_module()
    assert not isinstance(module, str), module
    decoder.transformer.set_attn_processor(JointAttention(opaque(module.flash_attn_func)))


def fuse_gelu(decoder: ShotDecoder) -> None:
    """Compute the feed-forward's first product and its GELU in one kernel, so that the widest rows are written once."""
    from .layers import LinearGelu

    for block in decoder.transformer.transformer_blocks:
        first = block.ff.net[0]  # the kernel computes GELU's tanh approximation
        if getattr(first, "approximate", "") == "tanh" and not hasattr(first.proj, "lora_A"):
            block.ff.net[0] = LinearGelu(first.proj)


def compile_blocks(decoder: ShotDecoder) -> None:
    """Compile the blocks; they share one compilation, so that the start is short."""
    import torch

    for block in decoder.transformer.transformer_blocks:
        block.forward = _with_contiguous_rows(torch.compile(block.forward, dynamic=False, options=COMPILE_OPTIONS))


def _with_contiguous_rows(compiled: Callable[..., object]) -> Callable[..., object]:
    """Make the inputs contiguous. The first block gets slices, whose strides would need a compilation of their own."""

    def contiguous(rows_BLD: Tensor) -> Tensor:
        return rows_BLD.contiguous().view(-1).view(rows_BLD.shape)  # `contiguous` keeps a slice of one row as it is

    def forward(hidden_states: Tensor, encoder_hidden_states: Tensor, **others: object) -> object:
        return compiled(contiguous(hidden_states), contiguous(encoder_hidden_states), **others)

    return forward


def use_channels_last(decoder: ShotDecoder) -> None:
    """Store the convolutions' weights in the channels-last memory format."""
    import torch
    from torch import nn

    formats = {nn.Conv2d: torch.channels_last, nn.Conv3d: torch.channels_last_3d}
    for module in decoder.vae.modules():
        for kind, memory_format in formats.items():
            if isinstance(module, kind):
                module.to(memory_format=memory_format)


def compile_vae(decoder: ShotDecoder) -> None:
    """Compile the VAE's decoder, for two chunk sizes: first 3 latent frames, then 2 at a time with their cache."""
    decoder.vae.decoder.compile(dynamic=False, options=COMPILE_OPTIONS)


def compiler_reason(device: str) -> str:
    """Compiling for a GPU needs triton, which needs a C compiler and is not available for Windows."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if _capability(device) < TRITON_FROM:
        return f"{device} is too old for triton"
    if sys.platform == "linux" and not (shutil.which("gcc") or shutil.which("clang")):
        return "triton cannot find a C compiler (gcc or clang)"
    return ""


def flash3_reason(device: str) -> str:
    """FlashAttention-3 needs a Hopper GPU and a package of its own."""
    import torch

    if not torch.cuda.is_available() or _capability(device) != HOPPER:
        return f"{device} is not a Hopper GPU"
    module = flash3_module()
    return "" if isinstance(module, ModuleType) else module


def flash3_module() -> ModuleType | str:
    """The module with FlashAttention-3's function, or the reason why there is none."""
    try:
        try:
            import flash_attn_interface as found  # the name that its authors give it
        except ModuleNotFoundError:
            import fa3_fwd_interface as found  # the name on PyPI
    except ModuleNotFoundError:
        return "FlashAttention-3 is not installed (torch 2.10 or later with CUDA 13: pip install fa3-fwd)"
    except (ImportError, OSError) as error:
        return f"FlashAttention-3 does not fit this torch ({str(error).splitlines()[0]})"
    return found


def _capability(device: str) -> tuple[int, int]:
    """An NVIDIA GPU's compute capability; TRITON_FROM for other devices, and for AMD's, which count differently."""
    import torch

    is_nvidia = device.startswith("cuda") and torch.cuda.is_available() and not torch.version.hip
    return torch.cuda.get_device_capability(device) if is_nvidia else TRITON_FROM
