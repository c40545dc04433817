"""Optimizations of a loaded decoder's VAE, applied in place and for good."""

from __future__ import annotations

import typing
from functools import partial

from .requirements import COMPILE_OPTIONS

if typing.TYPE_CHECKING:
    from torch import Tensor, nn

    from ...model.decoder import ShotDecoder


def use_channels_last(decoder: ShotDecoder) -> None:
    """Store the convolutions' weights in the channels-last memory format."""
    import torch
    from torch import nn

    formats = {nn.Conv2d: torch.channels_last, nn.Conv3d: torch.channels_last_3d}
    for module in decoder.vae.modules():
        for kind, memory_format in formats.items():
            if isinstance(module, kind):
                module.to(memory_format=memory_format)


def use_onednn(decoder: ShotDecoder) -> None:
    """Compute all 3-D convolutions with oneDNN; torch itself chooses a slower kernel for small ones."""
    from torch import nn

    for module in decoder.vae.modules():
        if isinstance(module, nn.Conv3d) and max(module.kernel_size) > 1:
            module.forward = partial(_onednn_convolution, module)


def _onednn_convolution(module: nn.Conv3d, rows_BCFHW: Tensor) -> Tensor:
    import torch

    shape = module.padding, module.stride, module.dilation, module.groups
    return torch.mkldnn_convolution(rows_BCFHW, module.weight, module.bias, *shape)


def compile_vae(decoder: ShotDecoder) -> None:
    """Compile the VAE's decoder, for two chunk sizes: first 3 latent frames, then 2 at a time with their cache."""
    decoder.vae.decoder.compile(dynamic=False, options=COMPILE_OPTIONS)
