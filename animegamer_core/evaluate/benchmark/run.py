"""Measures the stock turn and ours, one after the other, so that neither uses memory while the other is measured.

Drift is the root mean square difference of two shots, as a fraction of the plain shot's root mean square: of latents
after DRIFT_STEPS steps, and of frames decoded from equal latents. If an optimization drifts no more than the number
format does from float32 (docs/performance.md: bfloat16 by 0.6 % in latents), its changes do not matter.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...model.decoder import ShotDecoder
from ...runtime.offloading import MemoryPlan
from ...runtime.optimizations import check_names, missing_requirement
from ...runtime.presets import Preset, apply_preset, check_offloading, memory_plan_of, resolve_sampling
from ...spec import PROFILES, UNSTATED, ModelSpec, Profile, Sampling, dtype_name, step_count
from ...weights import World
from ..report import machine
from .turn import OurTurn, Work, host_models, past_turns, random_models, stock_parts

GIB = 2**30
DRIFT_STEPS = 10
NO_PRESET = Preset("")  # as the world says
HEAD = f"{'part':8} {'stock s':>9} {'ours s':>9} {'spread':>15} {'ratio':>6} {'GiB reserved':>13}"

Say = Callable[[str], object]
Drift = tuple[float, ...]  # of latents, of frames
Shot = tuple[Tensor, Tensor]  # latents, frames


@dataclass(frozen=True)
class Timing:
    """Seconds of each run, their median, and of the warm-up run, compiling included.

    reserved: torch's peak memory in GiB, weights included; None if the device does not report it.
    """

    median: float
    seconds: tuple[float, ...]
    first: float
    reserved: float | None = None


Timings = Mapping[str, Timing]  # by part


@dataclass(frozen=True)
class BenchmarkPlan:
    """What is measured, and how often.

    world: its weights are used instead of random ones. asked: instead of the preset's, the world's and the profile's
    sampling. repeats: timed runs of each part.
    """

    spec: ModelSpec
    device: torch.device
    dtype: torch.dtype
    profile: Profile = PROFILES["paper"]
    world: World | None = None
    preset: Preset = NO_PRESET
    asked: Sampling = UNSTATED
    repeats: int = 3

    @property
    def stock_steps(self) -> int:
        """Steps of the stock turn; a preset does not change them, so that ratios show what the preset saves."""
        return step_count(self.asked.steps or self.spec.decoder.steps)

    def check(self) -> None:
        """ValueError, before minutes of measuring, for wrong names and numbers and for what this machine cannot run."""
        preset = self.preset
        check_offloading(preset)
        check_names(preset.optimizations)
        for name in preset.optimizations:
            if reason := missing_requirement(name, str(self.device), dtype_name(self.dtype)):
                raise ValueError(f"optimization {name} cannot be measured here: {reason}; drop it")


@dataclass(frozen=True)
class BenchmarkResult:
    """The timings of both turns, and the facts that are needed to repeat them.

    drift: of the preset's optimizations; None if it has none.
    """

    facts: Mapping[str, Any]
    stock: Timings
    ours: Timings
    drift: Drift | None = None

    @property
    def text(self) -> str:
        lines = [*(f"{name}: {value}" for name, value in self.facts.items()), HEAD]
        for part, ours in self.ours.items():
            stock, spread = self.stock[part], f"{min(ours.seconds):.3f} .. {max(ours.seconds):.3f}"
            both = "-" if ours.reserved is None else f"{stock.reserved:.3g} / {ours.reserved:.3g}"
            ratio = stock.median / ours.median
            lines.append(f"{part:8} {stock.median:>9.3f} {ours.median:>9.3f} {spread:>15} {ratio:>6.2f} {both:>13}")
        first = (f"{part} {self.ours[part].first:.1f} s" for part in ("sampler", "vae"))
        lines.append(f"(ours, the first time: {', '.join(first)})")
        if self.drift:
            lines.append(f"(drift of latents, frames: {', '.join(f'{part:.2e}' for part in self.drift)})")
        return "\n".join(lines)


def measure_stock(plan: BenchmarkPlan) -> Timings:
    return _time_parts(stock_parts(plan.spec, plan.device, plan.dtype, plan.stock_steps), plan)


def measure_ours(plan: BenchmarkPlan, stock: Timings, say: Say = lambda line: None) -> BenchmarkResult:
    """Measure our turn. stock: the timings of the stock turn for the same plan."""
    gc.collect()  # compiled and offloaded models are in reference cycles, and hold GPU memory
    if plan.device.type == "cuda":
        torch.cuda.empty_cache()
    preset = plan.preset
    say(f"ours{f', preset {preset.name}' if preset.name else ''}")
    memory_plan = memory_plan_of(preset, str(plan.device))
    turn = our_turn(plan, memory_plan, say)
    facts = {
        "spec": plan.spec.name,
        "weights": "random" if plan.world is None else plan.world.fingerprint[:12],
        "profile": turn.decoder.profile.name,
        "preset": preset.name or "none",
        "optimizations": ", ".join(preset.optimizations) or "none",
        "guidance": turn.sampling["guidance"],
        "steps": f"{turn.sampling['steps']}, stock {plan.stock_steps}",
        "solver": turn.sampling["solver"],
        "format": dtype_name(plan.dtype),
        "device": plan.device,
        **machine(),
    }
    if memory_plan is not None:
        apply_preset(turn.decoder, preset, memory_plan, say)  # offloads the decoder, which is on the host until then
    if memory_plan is not None or not preset.optimizations:
        return BenchmarkResult(facts, stock, _time_parts(turn.parts(), plan))
    plain = short_shot(turn.decoder)
    parts = turn.parts()  # this takes a step, so it comes before the preset: the first optimized step is timed
    apply_preset(turn.decoder, preset)
    ours = _time_parts(parts, plan)
    return BenchmarkResult(facts, stock, ours, drifts(short_shot(turn.decoder), plain))


def our_turn(plan: BenchmarkPlan, memory_plan: MemoryPlan | None = None, say: Say = lambda line: None) -> OurTurn:
    """Our plain turn. With a memory plan, its engine is offloaded and its decoder is on the host."""
    device = plan.device if memory_plan is None else torch.device("cpu")
    if plan.world is not None:
        engine = plan.world.load_engine(device, plan.dtype)
        decoder = plan.world.load_decoder(device, plan.dtype)
    elif memory_plan is None:
        engine, decoder = random_models(plan.spec, plan.profile, device, plan.dtype)
    else:
        engine, decoder = host_models(plan.spec, plan.profile, plan.dtype)
    decoder.profile = plan.preset.adapt_profile(decoder.profile)
    if memory_plan is not None:
        for budget in memory_plan.offload(engine):
            say(budget.text)
    sampling = resolve_sampling(plan.spec, decoder.profile, plan.asked, plan.preset)
    return OurTurn(engine, decoder, sampling.stated())


def _time_parts(parts: Mapping[str, Work], plan: BenchmarkPlan) -> Timings:
    return {name: time_work(work, plan.device, plan.repeats) for name, work in parts.items()}


def time_work(work: Work, device: torch.device, repeats: int) -> Timing:
    """Run work once to warm up, then time it `repeats` times, each time until the device has finished."""

    def seconds_of_run() -> float:
        begun = time.perf_counter()
        work()
        if device.type != "cpu":
            getattr(torch, device.type).synchronize()
        return time.perf_counter() - begun

    first = seconds_of_run()
    reserved = None
    if device.type == "cuda":
        torch.cuda.empty_cache()  # memory that only the warm-up needed does not count
        torch.cuda.reset_peak_memory_stats(device)
    seconds = tuple(seconds_of_run() for _ in range(repeats))
    if device.type == "cuda":
        reserved = torch.cuda.max_memory_reserved(device) / GIB
    return Timing(statistics.median(seconds), seconds, first, reserved)


def drifts(found: Shot, plain: Shot) -> Drift:
    """The drift of the latents, and that of the frames."""
    return tuple(
        float((a - b).pow(2).mean().sqrt() / b.pow(2).mean().sqrt()) for a, b in zip(found, plain, strict=True)
    )


def short_shot(decoder: ShotDecoder) -> Shot:
    """The latents of a shot with DRIFT_STEPS steps, and frames decoded from noise, on the CPU."""
    state, generator = past_turns(decoder.spec)[0].state.representation, torch.Generator().manual_seed(DRIFT_STEPS)
    latents = decoder.sample(state[None], torch.tensor([10.0]), [1], steps=DRIFT_STEPS).cpu()
    noise = torch.randn(1, *decoder.spec.decoder.latent_shape, generator=generator)
    return latents, decoder.decode_latents(noise.to(decoder.unconditional_ND.device)).cpu()
