"""The optimizer Muon, for matrices and for the filters of convolutions. torch's own takes matrices only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

# Coefficients and number of the Newton-Schulz steps: Jordan et al. 2024, Muon: An optimizer for hidden layers in neural
# networks, https://kellerjordan.github.io/posts/muon.
NEWTON_SCHULZ, ITERATIONS = (3.4445, -4.7750, 2.0315), 5
RMS = 0.2  # of an update, like AdamW's, so that both take the same learning rate (Liu et al. 2025, arXiv 2502.16982)


def is_muons(name: str, value: Tensor) -> bool:
    """Whether Muon may train a parameter: a matrix of a block or layer, or filters between more than a few channels."""
    if value.dim() == 2:
        return "blocks." in name or "layers." in name
    return value.dim() > 3 and min(value.shape[:2]) > 4


class Muon(torch.optim.Optimizer):
    """Makes each update orthogonal. A filter counts as a matrix (outputs, everything else); all of one shape are
    computed together.
    """

    def __init__(
        self, parameters: Iterable[Mapping[str, Any]], lr: float, weight_decay: float, momentum: float = 0.95
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no stage has a closure
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault((len(parameter), parameter[0].numel()), []).append(parameter)
            for (rows, columns), parameters in by_shape.items():
                updates = orthogonal(torch.stack([self._momentum(own, group["momentum"]) for own in parameters]))
                scale = RMS * math.sqrt(max(rows, columns)) * group["lr"]
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
                shaped = [update.view(own.shape).to(own) for own, update in zip(parameters, updates, strict=True)]
                torch._foreach_sub_(parameters, shaped, alpha=scale)

    def _momentum(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """(outputs, everything else): Nesterov's momentum of a parameter's gradients."""
        state, gradient = self.state[parameter], parameter.grad
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(state["momentum_buffer"], momentum).reshape(len(parameter), -1)


def orthogonal(matrices_NRC: Tensor) -> Tensor:
    """(N, R, C) matrices with the same singular vectors and singular values near 1, in bf16 on a GPU."""
    a, b, c = NEWTON_SCHULZ
    x = matrices_NRC.bfloat16() if matrices_NRC.device.type == "cuda" else matrices_NRC
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x
