"""Makes models interruptible within a pass: a check before every layer, which may raise."""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection

if typing.TYPE_CHECKING:
    from torch import nn


def check_before_layers(model: nn.Module, check: Callable[..., None], compiled: Collection[nn.Module] = ()) -> None:
    """Call `check` before every layer of the model's stacks, so that an exception from it ends a pass at once.

    3-D convolutions check too, since a stack of the VAE may take seconds. compiled: modules that torch compiles. They
    check only before they start, since the check cannot be compiled.
    """
    from torch import compiler, nn

    inside = {layer for module in compiled for layer in module.modules()}
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    slow = [module for module in model.modules() if isinstance(module, nn.Conv3d)]
    for layer in dict.fromkeys([*(layer for stack in stacks for layer in stack), *slow]):
        if layer not in inside:
            layer.register_forward_pre_hook(check)
    for module in compiled:  # torch would compile the hook with the module, unless the hook is excluded
        module.register_forward_pre_hook(compiler.disable(check))
