"""Timing one piece of work: seconds, memory and arithmetic, on any device."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from ..layers import OURS
from ..tuning import FLASH3

MATMUL_SIDES = {"cuda": 8192, "cpu": 1024}
MATMUL_RUNS = 20
GIB = 2**30

Work = Callable[[], object]
ATTENTIONS = (
    torch.ops.aten._scaled_dot_product_flash_attention,
    torch.ops.aten._scaled_dot_product_efficient_attention,
    torch.ops.aten._scaled_dot_product_cudnn_attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
)


@dataclass(frozen=True)
class Timing:
    """seconds: of every run. first: of the run that warmed up, compiling included. allocated, reserved: the most GiB
    that torch held while they ran, weights included; None where the device does not tell. flop: floating-point
    operations of one run, None where nobody counted them.
    """

    seconds: tuple[float, ...]
    first: float
    allocated: float | None = None
    reserved: float | None = None
    flop: int | None = None

    @property
    def median(self) -> float:
        """The middle run's seconds."""
        return statistics.median(self.seconds)

    @property
    def tflops(self) -> float | None:
        """10^12 operations a second in the middle run."""
        return None if self.flop is None else self.flop / self.median / 1e12


def timed(work: Work, device: torch.device, repeats: int, flop: int | None = None) -> Timing:
    """Run work once to warm up and then `repeats` times, waiting each time until the device is done."""
    begun = time.perf_counter()
    work()
    settle(device)
    first = time.perf_counter() - begun
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what the warm-up set aside once is no part of what the work needs
        torch.cuda.reset_peak_memory_stats(device)
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        settle(device)
        seconds.append(time.perf_counter() - begun)
    if device.type != "cuda":
        return Timing(tuple(seconds), first, flop=flop)
    allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    return Timing(tuple(seconds), first, allocated / GIB, reserved / GIB, flop)


def settle(device: torch.device) -> None:
    """Wait until the device has done all that it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def counted(work: Work) -> int:
    """The floating-point operations of matrix products, convolutions and attention in one run, as torch counts them."""
    own: dict[Any, Callable[..., int]] = {
        **dict.fromkeys(ATTENTIONS, _attention_flop),
        torch.ops.aten._addmm_activation: _product_flop,
    }
    flash3 = getattr(getattr(torch.ops, OURS), FLASH3, None)  # not there before it is first asked for
    if flash3 is not None:
        own[flash3] = _flash3_flop
    with FlopCounterMode(display=False, custom_mapping=own) as counter:
        work()
    return counter.get_total_flops()


def _product_flop(bias: Sequence[int], left: Sequence[int], right: Sequence[int], **more: object) -> int:
    rows, inner = left
    return 2 * rows * inner * right[1]


def _flash3_flop(*by_rows: Sequence[int], **more: object) -> int:
    """As any attention's, of queries, keys and values whose rows come before their heads."""
    return _attention_flop(*((batch, heads, rows, width) for batch, rows, heads, width in by_rows))


def _attention_flop(
    query: Sequence[int], key: Sequence[int], value: Sequence[int], *others: object, **more: object
) -> int:
    """Two matrix products a query head, also where several of these share a key; torch's own count refuses those."""
    *batch_heads, queries, width = query
    return 2 * math.prod(batch_heads) * queries * key[-2] * (width + value[-1])


def matmul_tflops(device: torch.device, dtype: torch.dtype) -> float:
    """10^12 operations a second of a square matrix product, what this machine can reach at best."""
    side = MATMUL_SIDES["cuda" if device.type == "cuda" else "cpu"]
    first, second = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))

    def multiply() -> None:
        for _ in range(MATMUL_RUNS):
            torch.matmul(first, second)

    return timed(multiply, device, 3, 2 * MATMUL_RUNS * side**3).tflops
