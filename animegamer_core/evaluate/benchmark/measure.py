"""Measures time, memory and floating-point operations, and what each optimization saves and how far it drifts.

Drift is the root mean square difference of two shots' latents, as a fraction of the plain latents' root mean square. If
an optimization drifts no more than the number format does from float32, its changes do not matter.
"""

from __future__ import annotations

import copy
import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ...model.decoder import ShotDecoder
from ...runtime.optimizations import FLASH3, approximations, optimize
from ...runtime.optimizations.layers import NAMESPACE
from .turn import OurTurn, Work, past_turns

MATMUL_SIDES = {"cuda": 8192, "cpu": 1024}
MATMUL_RUNS = 20
GIB = 2**30
DRIFT_STEPS = 10
EACH_HEAD = f"{'alone':13} {'sampler s':>10} {'ratio':>6} {'vae s':>8} {'ratio':>6} {'first run s':>12} {'drift':>9}"

T = TypeVar("T")

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


@dataclass(frozen=True)
class Drift:
    """Drift of an optimized shot.

    latents: of its latents. frames: of frames decoded from the same latents. format_latents, format_frames: drift of
    the plain shot from float32; None if it is float32.
    """

    latents: float
    frames: float
    format_latents: float | None
    format_frames: float | None

    @property
    def text(self) -> str:
        """The drift as one line of text."""
        own = (
            f"optimized, over {DRIFT_STEPS} steps, latents drift by {self.latents:.2e} and frames by {self.frames:.2e}"
        )
        if self.format_latents is None:
            return f"({own})"
        return f"({own}; the number format itself by {self.format_latents:.2e} and {self.format_frames:.2e})"


class DriftMeter:
    """Measures drift: keeps a decoder's plain shot and, if its weights are not float32, a float32 shot."""

    def __init__(self, decoder: ShotDecoder) -> None:
        generator = torch.Generator().manual_seed(DRIFT_STEPS)
        self._latents = torch.randn(1, *decoder.spec.decoder.latent_shape, generator=generator)
        self._plain = self._shot(decoder)
        self._float32 = in_float32(decoder, self._shot)

    def measure(self, decoder: ShotDecoder) -> Drift:
        """The drift of the same decoder after optimizations."""
        latents, frames = map(drift, self._shot(decoder), self._plain)
        by_format = (None, None) if self._float32 is None else tuple(map(drift, self._plain, self._float32))
        return Drift(latents, frames, *by_format)

    def _shot(self, decoder: ShotDecoder) -> tuple[Tensor, Tensor]:
        latents = self._latents.to(decoder.unconditional_ND.device)
        return short_shot(decoder), decoder.decode_latents(latents).cpu()


def in_float32(decoder: ShotDecoder, shot: Callable[[ShotDecoder], T]) -> T | None:
    """The result of `shot` for a float32 copy of the decoder; None if its weights are float32 already.

    Convolutions and matrix products use true float32 instead of a GPU's TF32.
    """
    if decoder.unconditional_ND.dtype == torch.float32:
        return None
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    try:
        return shot(copy.deepcopy(decoder).float())
    finally:
        torch.backends.cudnn.allow_tf32 = before[0]
        torch.set_float32_matmul_precision(before[1])


def drift(latents: Tensor, plain: Tensor) -> float:
    """The root mean square difference, as a fraction of the plain tensor's root mean square."""
    return float((latents - plain).pow(2).mean().sqrt() / plain.pow(2).mean().sqrt())


def short_shot(decoder: ShotDecoder) -> Tensor:
    """The latents of a shot with DRIFT_STEPS steps, on the CPU."""
    state = past_turns(decoder.spec)[0].state.representation
    return decoder.sample(state[None], torch.tensor([10.0]), [1], steps=DRIFT_STEPS).cpu()


@dataclass(frozen=True)
class OptimizationRow:
    """One optimization.

    first: seconds of its first shot, compiling included. against: seconds of each part without it.
    """

    name: str
    sampler: Timing
    vae: Timing
    first: float
    drift: float
    against: Mapping[str, float]

    @property
    def line(self) -> str:
        """The row as text."""
        sampler, vae = self.sampler.median, self.vae.median
        name = f"{self.name} ~" if approximations([self.name]) else self.name
        return (
            f"{name:13} {sampler:>10.3f} {self.against['sampler'] / sampler:>6.2f} {vae:>8.3f}"
            f" {self.against['vae'] / vae:>6.2f} {self.first:>12.1f} {self.drift:>9.2e}"
        )


@dataclass(frozen=True)
class OptimizationTable:
    """All measured optimizations. format_drift: of the number format from float32; None if it is float32."""

    rows: tuple[OptimizationRow, ...]
    format_drift: float | None

    @property
    def text(self) -> str:
        """The printed table."""
        lines = [EACH_HEAD, *(row.line for row in self.rows)]
        if self.format_drift is not None:
            lines.append(f"(the number format drifts by {self.format_drift:.2e} from float32)")
        if approximations([row.name for row in self.rows]):
            lines.append("(~ approximate: a shot can differ by more than rounding)")
        return "\n".join(lines)


def measure_each(
    turn: OurTurn, names: Sequence[str], repeats: int, against: Mapping[str, float], say: Callable[[str], object]
) -> OptimizationTable:
    """Measure each optimization on a copy of the plain decoder. against: seconds of sampler and VAE without any."""
    plain = short_shot(turn.decoder)
    exact, device = in_float32(turn.decoder, short_shot), turn.decoder.unconditional_ND.device
    rows = []
    for name in names:
        say(f"alone: {name}")
        optimized = replace(turn, decoder=copy.deepcopy(turn.decoder))
        parts = optimized.parts()  # this takes a step, so it comes before optimizing: the first optimized step is timed
        optimize(optimized.decoder, [name])
        sampler, vae = (time_work(parts[part], device, repeats) for part in ("sampler", "vae"))
        moved = drift(short_shot(optimized.decoder), plain)
        rows.append(OptimizationRow(name, sampler, vae, sampler.first + vae.first, moved, dict(against)))
        say(rows[-1].line)
        del optimized, parts
        gc.collect()
    return OptimizationTable(tuple(rows), None if exact is None else drift(plain, exact))
