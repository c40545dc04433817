"""Measures time and memory, what each optimization saves, and how far it drifts.

Drift is the root mean square difference of two shots, as a fraction of the plain shot's root mean square: of latents
after DRIFT_STEPS steps, and of frames decoded from equal latents. If an optimization drifts no more than the number
format does from float32, its changes do not matter.
"""

from __future__ import annotations

import copy
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...model.decoder import ShotDecoder
from ...runtime.optimizations import optimize
from .turn import OurTurn, Work, past_turns

GIB = 2**30
DRIFT_STEPS = 10

Drift = tuple[float, float]  # of latents, of frames
Shot = tuple[Tensor, Tensor]  # latents, frames


@dataclass(frozen=True)
class Timing:
    """What was measured.

    seconds: of each run; median: theirs. first: seconds of the warm-up run, compiling included. allocated, reserved:
    torch's peak memory in GiB, weights included; None if the device does not report it.
    """

    median: float
    seconds: tuple[float, ...]
    first: float
    allocated: float | None = None
    reserved: float | None = None


def time_work(work: Work, device: torch.device, repeats: int) -> Timing:
    """Run work once to warm up, then time it `repeats` times, each time until the device has finished."""

    def seconds_of_run() -> float:
        begun = time.perf_counter()
        work()
        if device.type != "cpu":
            getattr(torch, device.type).synchronize()
        return time.perf_counter() - begun

    first = seconds_of_run()
    memory: tuple[float, ...] = ()
    if device.type == "cuda":
        torch.cuda.empty_cache()  # memory that only the warm-up needed does not count
        torch.cuda.reset_peak_memory_stats(device)
    seconds = tuple(seconds_of_run() for _ in range(repeats))
    if device.type == "cuda":
        memory = (torch.cuda.max_memory_allocated(device) / GIB, torch.cuda.max_memory_reserved(device) / GIB)
    return Timing(statistics.median(seconds), seconds, first, *memory)


def drift(found: Tensor, plain: Tensor) -> float:
    """The root mean square difference, as a fraction of the plain tensor's root mean square."""
    return float((found - plain).pow(2).mean().sqrt() / plain.pow(2).mean().sqrt())


def drifts(found: Shot, plain: Shot) -> Drift:
    """The drift of the latents, and that of the frames."""
    return drift(found[0], plain[0]), drift(found[1], plain[1])


def short_shot(decoder: ShotDecoder) -> Shot:
    """The latents of a shot with DRIFT_STEPS steps, and frames decoded from noise, on the CPU."""
    state, generator = past_turns(decoder.spec)[0].state.representation, torch.Generator().manual_seed(DRIFT_STEPS)
    latents = decoder.sample(state[None], torch.tensor([10.0]), [1], steps=DRIFT_STEPS).cpu()
    noise = torch.randn(1, *decoder.spec.decoder.latent_shape, generator=generator)
    return latents, decoder.decode_latents(noise.to(decoder.unconditional_ND.device)).cpu()


def short_shot_in_float32(decoder: ShotDecoder) -> Shot | None:
    """The short shot of a float32 copy, without a GPU's TF32; None if the weights are float32 already."""
    if decoder.unconditional_ND.dtype == torch.float32:
        return None
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    try:
        return short_shot(copy.deepcopy(decoder).float())
    finally:
        torch.backends.cudnn.allow_tf32 = before[0]
        torch.set_float32_matmul_precision(before[1])


@dataclass(frozen=True)
class EachRow:
    """One optimization alone. plain: seconds of sampler and VAE without it."""

    name: str
    sampler: Timing
    vae: Timing
    plain: tuple[float, float]
    drift: Drift


def measure_each(
    turn: OurTurn, names: Sequence[str], repeats: int, plain: Shot, say: Callable[[str], object]
) -> list[EachRow]:
    """Measure each optimization on a copy of the plain decoder. plain: that decoder's short shot."""

    def timed(turn: OurTurn, *optimizations: str) -> list[Timing]:
        parts = turn.parts()  # this takes a step, so it comes before optimizing: the first optimized step is timed
        optimize(turn.decoder, optimizations)
        return [time_work(parts[part], turn.decoder.unconditional_ND.device, repeats) for part in ("sampler", "vae")]

    sampler, vae = timed(turn)
    rows = []
    for name in names:
        say(f"alone: {name}")
        optimized = replace(turn, decoder=copy.deepcopy(turn.decoder))
        alone = timed(optimized, name)
        rows.append(EachRow(name, *alone, (sampler.median, vae.median), drifts(short_shot(optimized.decoder), plain)))
        del optimized
        gc.collect()
    return rows
