"""Device and dtype of a learner's weights while it trains.

Models that no step reads are on the CPU; frozen weights may be bf16; trained weights are always fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from .distributed import local_shard
from .learners import Learner
from .stages import StageConfig

_ALWAYS_FP32 = "encoder."  # 17 M values at the published size; the decoder's unconditional state is computed from them


@contextmanager
def idle_on_cpu(learner: Learner) -> Iterator[dict[str, nn.Module]]:
    """Remove the models that no step reads from the learner while the block runs; yields them by name, on the CPU."""
    places = {name: name.rpartition(".") for name in learner.idle}
    idle = {name: learner.get_submodule(name) for name in places}
    for parent, _, own in places.values():
        setattr(learner.get_submodule(parent), own, None)
    with ExitStack() as stack:
        for module in idle.values():
            stack.enter_context(on_device(module, torch.device("cpu")))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        try:
            yield idle
        finally:
            for name, (parent, _, own) in places.items():
                setattr(learner.get_submodule(parent), own, idle[name])


@contextmanager
def on_device(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Move a module to a device while the block runs, in place; then move it back."""
    before = next((value.device for value in module.parameters() if not value.is_meta), device)
    move(module, device)
    try:
        yield
    finally:
        move(module, before)
        if before != device and "cuda" in (before.type, device.type):
            torch.cuda.empty_cache()  # the stage needs this memory now


def move(module: nn.Module, device: torch.device) -> nn.Module:
    """Move a module in place, without its meta tensors, such as those of encoders whose features are cached."""
    return module._apply(lambda tensor: tensor if tensor.is_meta else tensor.to(device))


def keeps_frozen_in_bf16(config: StageConfig, device: torch.device) -> bool:
    """Whether a stage keeps its frozen weights in bf16, which it does only if autocast computes in bf16 anyway."""
    return config.halve_frozen and config.precision == "bf16" and device.type != "cpu"


@torch.no_grad()
def set_precision(learner: nn.Module, config: StageConfig, device: torch.device) -> None:
    """Convert trained weights to fp32, and frozen ones to bf16 if the stage says so."""
    half = keeps_frozen_in_bf16(config, device)
    for name, parameter in learner.named_parameters():
        if not parameter.is_floating_point() or parameter.is_meta:
            continue
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
        elif half and not name.startswith(_ALWAYS_FP32):
            parameter.data = parameter.data.bfloat16()


def copy_into(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy tensors into the parameters of the same names; for sharded ones, this process's shards."""
    with torch.no_grad():
        into = [local_shard(value) for value in parameters.values()]
        torch._foreach_copy_(into, [local_shard(values[name]) for name in parameters])
