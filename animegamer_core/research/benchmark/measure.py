"""Measures time, memory and floating-point operations of one piece of work, on any device."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from ...runtime.optimizations import FLASH3
from ...runtime.optimizations.layers import NAMESPACE

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
    """What was measured.

    seconds: of each run. first: seconds of the warm-up run, compiling included. allocated, reserved: torch's peak
    memory in GiB, weights included; None if the device does not report it. flop: floating-point operations of one run,
    None if not counted.
    """

    seconds: tuple[float, ...]
    first: float
    allocated: float | None = None
    reserved: float | None = None
    flop: int | None = None

    @property
    def median(self) -> float:
        """The median of the runs' seconds."""
        return statistics.median(self.seconds)

    @property
    def tflops(self) -> float | None:
        """10^12 operations per second in the median run."""
        return None if self.flop is None else self.flop / self.median / 1e12


def time_work(work: Work, device: torch.device, repeats: int, flop: int | None = None) -> Timing:
    """Run work once to warm up, then time it `repeats` times, each time until the device has finished."""

    def seconds_of_run() -> float:
        begun = time.perf_counter()
        work()
        _synchronize(device)
        return time.perf_counter() - begun

    first = seconds_of_run()
    if device.type != "cuda":
        return Timing(tuple(seconds_of_run() for _ in range(repeats)), first, flop=flop)
    torch.cuda.empty_cache()  # memory that only the warm-up needed does not count
    torch.cuda.reset_peak_memory_stats(device)
    seconds = tuple(seconds_of_run() for _ in range(repeats))
    allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    return Timing(seconds, first, allocated / GIB, reserved / GIB, flop)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def count_flop(work: Work) -> int:
    """The floating-point operations of matrix products, convolutions and attention in one run, as torch counts them."""
    own: dict[Any, Callable[..., int]] = {
        **dict.fromkeys(ATTENTIONS, _attention_flop),
        torch.ops.aten._addmm_activation: _product_flop,
    }
    flash3 = getattr(getattr(torch.ops, NAMESPACE), FLASH3, None)  # registered when first used
    if flash3 is not None:
        own[flash3] = _flash3_flop
    with FlopCounterMode(display=False, custom_mapping=own) as counter:
        work()
    return counter.get_total_flops()


def _product_flop(bias: Sequence[int], left: Sequence[int], right: Sequence[int], **more: object) -> int:
    rows, inner = left
    return 2 * rows * inner * right[1]


def _flash3_flop(*shapes: Sequence[int], **more: object) -> int:
    """Like `_attention_flop`, for shapes in which rows come before heads."""
    return _attention_flop(*((batch, heads, rows, width) for batch, rows, heads, width in shapes))


def _attention_flop(
    query: Sequence[int], key: Sequence[int], value: Sequence[int], *others: object, **more: object
) -> int:
    """Two matrix products per query head. Several heads may share a key, which torch's own count does not allow."""
    *batch_heads, queries, width = query
    return 2 * math.prod(batch_heads) * queries * key[-2] * (width + value[-1])


def matmul_tflops(device: torch.device, dtype: torch.dtype) -> float:
    """10^12 operations per second in a square matrix product, as an upper bound for this machine."""
    side = MATMUL_SIDES["cuda" if device.type == "cuda" else "cpu"]
    first, second = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))

    def multiply() -> None:
        for _ in range(MATMUL_RUNS):
            torch.matmul(first, second)

    return time_work(multiply, device, 3, 2 * MATMUL_RUNS * side**3).tflops
