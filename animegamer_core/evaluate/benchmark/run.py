"""Measures the stock turn and ours, one after the other, so that neither uses memory while the other is measured."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ...model.sampler import Schedule, guidance_scale
from ...runtime.offloading import MemoryPlan
from ...runtime.optimizations import CACHES, check_names, missing_requirement, optimize
from ...runtime.presets import Preset, apply_preset, check_offloading, memory_plan_of, override_notes
from ...spec import PROFILES, ModelSpec, Profile, dtype_name, resolve_sampling
from ...weights import World
from ..report import machine
from .measure import (
    Drift,
    DriftMeter,
    OptimizationTable,
    Timing,
    count_flop,
    matmul_tflops,
    measure_each,
    time_work,
)
from .turn import OurTurn, StockTurn, Work, host_models, random_models

NO_PRESET = Preset("", "as the world says, without optimizations")
PARTS = ("engine", "sampler", "vae", "turn")

HEAD = (
    f"{'part':8} {'stock s':>9} {'ours s':>9} {'spread':>15} {'ratio':>6} {'ms a step':>15}"
    f" {'TFLOP/s':>13} {'of matmul':>9} {'GiB held':>13} {'reserved':>13}"
)

Say = Callable[[str], object]


@dataclass(frozen=True)
class Row:
    """One part of a turn. steps, our_steps: of the stock sampler and of ours; 0 for other parts."""

    part: str
    stock: Timing
    ours: Timing
    steps: int = 0
    our_steps: int = 0

    @property
    def ratio(self) -> float:
        """How many times as fast as the stock part ours is."""
        return self.stock.median / self.ours.median

    def line(self, matmul: float) -> str:
        """The row as text. matmul: TFLOP/s that a matrix product reaches on this machine."""
        stock, ours = self.stock, self.ours
        spread = f"{min(ours.seconds):.3f} .. {max(ours.seconds):.3f}"
        steps = _pair(1000 * stock.median / self.steps, 1000 * ours.median / self.our_steps) if self.steps else "-"
        of_matmul = "-" if ours.tflops is None else f"{100 * ours.tflops / matmul:.0f} %"
        return (
            f"{self.part:8} {stock.median:>9.3f} {ours.median:>9.3f} {spread:>15} {self.ratio:>6.2f} {steps:>15}"
            f" {_pair(stock.tflops, ours.tflops):>13} {of_matmul:>9}"
            f" {_pair(stock.allocated, ours.allocated):>13} {_pair(stock.reserved, ours.reserved):>13}"
        )

    def values(self) -> dict[str, Any]:
        """Plain values for a json file."""
        sides = {
            name: {**asdict(timing), "median": timing.median, "tflops": timing.tflops}
            for name, timing in (("stock", self.stock), ("ours", self.ours))
        }
        return {"part": self.part, "ratio": self.ratio, "steps": self.steps, "our_steps": self.our_steps, **sides}


def _pair(stock: float | None, ours: float | None) -> str:
    if stock is None or ours is None:
        return "-"
    return " / ".join(f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in (stock, ours))


@dataclass(frozen=True)
class BenchmarkResult:
    """All rows, and the facts that are needed to repeat the benchmark."""

    rows: tuple[Row, ...]
    matmul: float
    facts: Mapping[str, Any]
    each: OptimizationTable | None = None
    drift: Drift | None = None

    def row(self, part: str) -> Row:
        """The row of a part."""
        return next(row for row in self.rows if row.part == part)

    @property
    def text(self) -> str:
        """The printed table."""
        lines = [HEAD, *(row.line(self.matmul) for row in self.rows)]
        if self.drift is not None:
            first = ", ".join(f"{part} {self.row(part).ours.first:.1f} s" for part in ("sampler", "vae"))
            lines += [self.drift.text, f"(ours, the first time: {first})"]
        return "\n".join(lines if self.each is None else [*lines, "", self.each.text])

    def values(self) -> dict[str, Any]:
        """Plain values for a json file."""
        return {
            **self.facts,
            "matmul_tflops": self.matmul,
            "rows": [row.values() for row in self.rows],
            "alone": None if self.each is None else asdict(self.each),
            "drift": None if self.drift is None else asdict(self.drift),
        }


@dataclass(frozen=True)
class BenchmarkPlan:
    """What is measured, and how often.

    world: its weights are used instead of random ones. preset: how our turn is computed. steps, guidance: used instead
    of the preset's, the world's and the profile's. repeats: timed runs of each part. optimizations: names for our turn;
    None for the preset's. each: names that are measured one by one, on a plain decoder.
    """

    spec: ModelSpec
    device: torch.device
    dtype: torch.dtype
    profile: Profile = PROFILES["paper"]
    world: World | None = None
    preset: Preset = NO_PRESET
    steps: int | None = None
    guidance: str | None = None
    repeats: int = 3
    optimizations: tuple[str, ...] | None = None
    each: tuple[str, ...] = ()

    @property
    def stock_steps(self) -> int:
        """Steps of the stock turn; a preset does not change them, so that ratios show what the preset saves."""
        return resolve_sampling(self.spec, self.profile, self.steps).steps

    @property
    def sampler_steps(self) -> int:
        """Steps of our turn."""
        return resolve_sampling(self.spec, self.profile, self.steps, preset=self.preset).steps

    @property
    def override_notes(self) -> tuple[str, ...]:
        """A phrase for each choice of the preset that an option replaces."""
        if not self.preset.name:
            return ()
        return override_notes(self.preset, steps=self.steps, guidance=self.guidance, optimizations=self.optimizations)

    @property
    def our_preset(self) -> Preset:
        """The preset with the plan's own optimizations, if it has any."""
        return self.preset if self.optimizations is None else replace(self.preset, optimizations=self.optimizations)

    def check(self) -> None:
        """ValueError for everything that can be known before minutes of measuring.

        These are wrong names and numbers, what this machine cannot run, and what cannot be measured together.
        """
        schedule, preset = Schedule.of(self.sampler_steps), self.our_preset
        if self.guidance is not None:
            guidance_scale(self.guidance, self.spec.decoder.guidance_scale, 0, schedule)  # checks the name
        check_names(preset.optimizations)
        for name in self.each:
            check_names([name])
        check_offloading(preset)
        if self.each and preset.offload_gib is not None:
            raise ValueError(f"--each does not work with offloading, which preset {preset.name} uses; drop it")
        for name in (*preset.optimizations, *self.each):
            if reason := missing_requirement(name, str(self.device), dtype_name(self.dtype)):
                raise ValueError(f"optimization {name} cannot be measured here: {reason}; drop it")


@dataclass(frozen=True)
class StockTimings:
    """The stock turn's timings by part, and the TFLOP/s that a matrix product reaches."""

    timings: Mapping[str, Timing]
    matmul: float


def run_benchmark(plan: BenchmarkPlan, say: Say = lambda line: None) -> BenchmarkResult:
    """Measure the stock turn, then ours, then single optimizations. say: gets lines of progress."""
    plan.check()
    return measure_ours(plan, measure_stock(plan, say), say)


def measure_stock(plan: BenchmarkPlan, say: Say = lambda line: None) -> StockTimings:
    """Measure the stock turn. Presets do not change it, so it needs to be measured only once."""
    say(f"stock modules of spec {plan.spec.name}")
    parts = StockTurn.of(plan.spec, plan.device, plan.dtype, plan.stock_steps).parts()
    return StockTimings(_time_parts(parts, _count_parts(parts), plan), matmul_tflops(plan.device, plan.dtype))


def measure_ours(plan: BenchmarkPlan, stock: StockTimings, say: Say = lambda line: None) -> BenchmarkResult:
    """Measure our turn, then single optimizations. stock: the timings of the stock turn for the same plan."""
    gc.collect()  # compiled and offloaded models are in reference cycles, and hold GPU memory
    if plan.device.type == "cuda":
        torch.cuda.empty_cache()
    preset = plan.our_preset
    say(f"ours{f', preset {preset.name}' if preset.name else ''}")
    memory_plan = memory_plan_of(preset, str(plan.device))
    turn = our_turn(plan, memory_plan, say)
    each, meter = None, None
    if memory_plan is None:
        flop = _count_parts(turn_with_caches(turn, preset).parts())
        if plan.each:
            parts = turn.parts()
            against = {part: time_work(parts[part], plan.device, plan.repeats).median for part in ("sampler", "vae")}
            each = measure_each(turn, plan.each, plan.repeats, against, say)
        meter = DriftMeter(turn.decoder) if preset.optimizations else None
        parts = turn.parts()  # this takes a step, so it comes before the preset: the first optimized step is timed
        apply_preset(turn.decoder, preset)
    else:
        apply_preset(turn.decoder, preset, memory_plan, say)  # offloads the decoder, which is on the host until then
        parts = turn.parts()
        flop = _count_parts(parts)
    ours = _time_parts(parts, flop, plan)
    steps = {"sampler": (plan.stock_steps, plan.sampler_steps)}
    rows = tuple(Row(part, stock.timings[part], ours[part], *steps.get(part, ())) for part in PARTS)
    drift = meter and meter.measure(turn.decoder)
    return BenchmarkResult(rows, stock.matmul, _facts(plan, turn), each, drift)


def our_turn(plan: BenchmarkPlan, memory_plan: MemoryPlan | None = None, say: Say = lambda line: None) -> OurTurn:
    """Our plain turn. With a memory plan, its engine is offloaded and its decoder is on the host."""
    preset, device = plan.our_preset, plan.device if memory_plan is None else torch.device("cpu")
    if plan.world is not None:
        engine = plan.world.load_engine(device, plan.dtype)
        decoder = plan.world.load_decoder(device, plan.dtype)
    elif memory_plan is None:
        engine, decoder = random_models(plan.spec, plan.profile, device, plan.dtype)
    else:
        engine, decoder = host_models(plan.spec, plan.profile, plan.dtype)
    decoder.profile = preset.adapt_profile(decoder.profile)
    if memory_plan is not None:
        for budget in memory_plan.offload(engine):
            say(budget.text)
    sampling = resolve_sampling(plan.spec, decoder.profile, plan.steps, plan.guidance, preset)
    return OurTurn(engine, decoder, sampling.steps, sampling.guidance)


def turn_with_caches(turn: OurTurn, preset: Preset) -> OurTurn:
    """The turn with only the preset's caches, for counting operations: those in compiled code cannot be counted."""
    caches = [name for name in preset.optimizations if name in CACHES]
    if not caches:
        return turn
    copied = replace(turn, decoder=copy.deepcopy(turn.decoder))
    optimize(copied.decoder, caches)
    return copied


def _time_parts(parts: Mapping[str, Work], flop: Mapping[str, int], plan: BenchmarkPlan) -> dict[str, Timing]:
    return {name: time_work(work, plan.device, plan.repeats, flop[name]) for name, work in parts.items()}


def _count_parts(parts: Mapping[str, Work]) -> dict[str, int]:
    return {name: count_flop(work) for name, work in parts.items()}


def _facts(plan: BenchmarkPlan, turn: OurTurn) -> dict[str, object]:
    guided, unguided = turn.guided_and_unguided_steps
    return {
        "spec": plan.spec.name,
        "weights": "random" if plan.world is None else plan.world.fingerprint,
        "profile": turn.decoder.profile.name,
        "guidance": turn.guidance,
        "guided_steps": guided,
        "unguided_steps": unguided,
        "device": str(plan.device),
        "dtype": dtype_name(plan.dtype),
        "repeats": plan.repeats,
        "preset": plan.preset.name or None,
        "tuned": list(plan.our_preset.optimizations),
        "in_place_of_the_presets": list(plan.override_notes),
        "offload_gib": plan.our_preset.offload_gib,
        "machine": machine(),
    }
