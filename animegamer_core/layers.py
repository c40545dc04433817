"""Layers that compute what the libraries' own compute, in another way."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
