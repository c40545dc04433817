"""The optimizers that a stage may choose, and their state as plain tensors for checkpoints.

adamw keeps two moments of every trained value in fp32 (one fused kernel on a GPU). adamw8bit, from the optional package
torchao, keeps them in 8 bits. This saves 6 bytes per trained value, which pays off if whole models are trained.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .distributed import distributed_like
from .stages import StageConfig

MOMENTS = ("exp_avg", "exp_avg_sq")
_SCALE = "_scale"  # suffix for the scales of an 8-bit moment


def check_optimizer(config: StageConfig, sharded: bool) -> None:
    """ValueError if the optimizer's package is missing, or if FSDP2 shards the weights and it does not support that."""
    if config.optimizer == "adamw":
        return
    if sharded:
        raise ValueError(f"optimizer {config.optimizer!r} cannot save moments that FSDP2 sharded; choose adamw")
    try:
        import torchao.optim  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"optimizer {config.optimizer!r} needs the package torchao ({error}); install it, or choose adamw"
        ) from error


def make_optimizer(config: StageConfig, parameters: Mapping[str, nn.Parameter], device: torch.device) -> Optimizer:
    """The configured optimizer for these parameters; vectors and scalars get no weight decay."""
    groups = [
        {"params": [value for value in parameters.values() if value.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [value for value in parameters.values() if value.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    settings = {"lr": config.lr, "betas": (0.9, config.beta2)}
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, fused=device.type == "cuda", **settings)
    from torchao.optim import AdamW8bit

    return AdamW8bit(groups, **settings)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # torchao's compiled step reads this tensor
        else:
            group["lr"] = rate


def stored_moments(optimizer: Optimizer, name: str, parameter: nn.Parameter) -> dict[str, Tensor]:
    """A parameter's moments for a checkpoint, in 8 bits as codes and scales; empty before its first step."""
    stored = {}
    for moment in MOMENTS:
        value = optimizer.state.get(parameter, {}).get(moment)
        if value is not None and hasattr(value, "codes"):
            stored |= {f"{moment}.{name}": value.codes, f"{moment}{_SCALE}.{name}": value.scale}
        elif value is not None:
            stored[f"{moment}.{name}"] = value
    return stored


def restore_moments(
    optimizer: Optimizer, parameter: nn.Parameter, stored: Mapping[str, tuple[Tensor, Tensor | None]], steps: float
) -> None:
    """Put a parameter's moments and its number of steps into the optimizer.

    stored: by moment, (values, None) or (codes, scales).
    """
    fused = optimizer.param_groups[0].get("fused")
    state = {"step": torch.tensor(steps, device=parameter.device if fused else "cpu")}
    for moment, (values, scale) in stored.items():
        if scale is None:
            state[moment] = distributed_like(values, parameter)
        else:
            state[moment] = _eight_bit(values, scale, parameter, signed=moment == "exp_avg")
    optimizer.state[parameter] = state


def _eight_bit(codes: Tensor, scale: Tensor, parameter: nn.Parameter, signed: bool) -> Tensor:
    """A moment as torchao's tensor subclass."""
    from torchao.optim.subclass_8bit import OptimState8bit

    block, device = codes.numel() // scale.numel(), parameter.device
    moment = OptimState8bit.zeros(codes.shape, signed, block, device, parameter.dtype)
    moment.codes.copy_(codes)
    moment.scale.copy_(scale)
    return moment
