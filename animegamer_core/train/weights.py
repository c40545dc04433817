"""Where a learner's weights are while it trains, and in which type: what no step reads is set aside, what is frozen may
be halved, what is trained is always fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from .learners import Learner
from .spread import local
from .stages import StageConfig

_SMALL = "encoder."  # 17 M values at the published size, which a stage's end computes a constant from


@contextmanager
def set_aside(learner: Learner) -> Iterator[dict[str, nn.Module]]:
    """The learner without the models that its steps never read; they wait on the CPU, under their names."""
    places = {name: name.rpartition(".") for name in learner.idle}
    kept = {name: learner.get_submodule(name) for name in places}
    for parent, _, own in places.values():
        setattr(learner.get_submodule(parent), own, None)
    with ExitStack() as stack:
        for module in kept.values():
            stack.enter_context(lent(module, torch.device("cpu")))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        try:
            yield kept
        finally:
            for name, (parent, _, own) in places.items():
                setattr(learner.get_submodule(parent), own, kept[name])


@contextmanager
def lent(module: nn.Module, device: torch.device) -> Iterator[None]:
    """A module on a device for a while, in place; then back where it was."""
    before = next((value.device for value in module.parameters() if not value.is_meta), device)
    move(module, device)
    try:
        yield
    finally:
        move(module, before)
        if before != device and "cuda" in (before.type, device.type):
            torch.cuda.empty_cache()  # a tower's room is the stage's now


def move(module: nn.Module, device: torch.device) -> nn.Module:
    """A module moved in place; parts without memory, such as towers whose features are cached, stay as they are."""
    return module._apply(lambda tensor: tensor if tensor.is_meta else tensor.to(device))


def halves_frozen(config: StageConfig, device: torch.device) -> bool:
    """Whether a stage keeps its frozen weights in bf16: only where autocast computes with that type anyhow."""
    return config.halve_frozen and config.precision == "bf16" and device.type != "cpu"


@torch.no_grad()
def set_precision(learner: nn.Module, config: StageConfig, device: torch.device) -> None:
    """Trained weights in fp32, and frozen ones in bf16 where that is asked for."""
    half = halves_frozen(config, device)
    for name, parameter in learner.named_parameters():
        if not parameter.is_floating_point() or parameter.is_meta:
            continue
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
        elif half and not name.startswith(_SMALL):
            parameter.data = parameter.data.bfloat16()


def copy_into(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy tensors into parameters of the same names; of spread ones, this process's shares."""
    with torch.no_grad():
        into = [local(value) for value in parameters.values()]
        torch._foreach_copy_(into, [local(values[name]) for name in parameters])
