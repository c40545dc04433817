"""Compiles models for training."""

from __future__ import annotations

import torch
from torch import nn

FIXED_IN = (2, 14)  # the first torch version without the error described below


def compile_for_training(model: nn.Module, dynamic: bool) -> None:
    """Compile a model in place. dynamic: one graph for inputs of many sizes, instead of one for each.

    Up to torch 2.13, a fused kernel that writes a row and then reads it again does not synchronise its threads in
    between (pytorch's issue 190517): on an H200, gradients of LoRA weights were thousands of times too large. So fusion
    is switched off there, which hardly changes the time of a step.
    """
    release = tuple(int(number) for number in torch.__version__.split(".")[:2])
    model.compile(dynamic=dynamic, options={} if release >= FIXED_IN else {"max_fusion_size": 1})
