"""Makes a model's passes interruptible, by a check before every layer that may raise."""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection

if typing.TYPE_CHECKING:
    from torch import nn


def check_before_layers(model: nn.Module, check: Callable[..., None], compiled: Collection[nn.Module] = ()) -> None:
    """Call `check` before every layer of the model's stacks, so that an exception from it ends a pass at once.

    Checks before 3-D convolutions too, since a layer of the VAE may take seconds. compiled: modules that torch
    compiles; the check is only called before they start, since it cannot be compiled.
    """
    from torch import compiler, nn

    inside = {layer for module in compiled for layer in module.modules()}
    layers = {layer for stack in model.modules() if isinstance(stack, nn.ModuleList) for layer in stack}
    slow = {module for module in model.modules() if isinstance(module, nn.Conv3d)}
    for layer in (layers | slow) - inside:
        layer.register_forward_pre_hook(check)
    for module in compiled:  # torch would compile the hook with the module, unless the hook is excluded
        module.register_forward_pre_hook(compiler.disable(check))
