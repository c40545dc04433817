"""How models are compiled for training."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

BARRIERS = (2, 14)  # the torch from which a compiled kernel waits for what it reads back


def compile_for_training(model: nn.Module, dynamic: bool) -> None:
    """Compile a model in place. dynamic: one graph for inputs of many sizes, in place of one for each.

    Up to torch 2.13 a kernel that writes a row for a sum and reads it again for the next one does not wait for its own
    threads (pytorch's issue 190517): on an H200 gradients of low-rank updates came out thousands of times too long. A
    kernel for each operation has nothing to read back, and the steps took about as long.
    """
    model.compile(dynamic=dynamic, options=_options(torch.__version__))


def _options(version: str) -> dict[str, Any]:
    """What torch's compiler is told, by torch's version such as 2.13.0+cpu."""
    release = tuple(int(number) for number in version.split(".")[:2])
    return {} if release >= BARRIERS else {"max_fusion_size": 1}
