"""How models are compiled for training."""

from __future__ import annotations

import torch
from torch import nn

FIXED_IN = (2, 14)  # the torch version whose compiled kernels wait before they read back what they wrote


def compile_for_training(model: nn.Module, dynamic: bool) -> None:
    """Compile a model in place. dynamic: one graph for inputs of many sizes, instead of one for each.

    Up to torch 2.13 a kernel that writes a row for a sum and reads it again for the next one does not wait for its own
    threads (pytorch's issue 190517): on an H200 gradients of LoRA weights came out thousands of times too long. Without
    fusion a kernel reads nothing back, and steps took about as long.
    """
    release = tuple(int(number) for number in torch.__version__.split(".")[:2])
    model.compile(dynamic=dynamic, options={} if release >= FIXED_IN else {"max_fusion_size": 1})
