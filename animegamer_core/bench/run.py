"""Measuring both turns, one after the other, so that neither stands in the other's memory."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..checkpoint import World
from ..evaluate.report import machine
from ..presets import Preset, card_of, check_streaming, overridden, prepare
from ..sampler import Schedule, guidance_scale
from ..spec import PROFILES, ModelSpec, Profile, dtype_name
from ..streaming import Card
from ..tuning import CACHES, check_names, lacking, tune
from .measure import Timing, Work, counted, matmul_tflops, timed
from .plain import PlainTurn
from .table import Bench, Row
from .trials import DriftMeter, Trials, run_trials
from .turn import OurTurn, random_models, resting_models
from .updates import measure_updates

NO_PRESET = Preset("", "as the world says, untuned")
PARTS = ("engine", "sampler", "vae", "turn")
KNOWN_STEP = 0.168  # seconds of a guided step of stock modules at the release's sizes on one H200 (reference-facts 17)
KNOWN_WITHIN = 0.10

Say = Callable[[str], object]


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often.

    world: real weights in place of random ones. preset: how ours is computed. steps and guidance, where given, take the
    place of the preset's, or the world's and the profile's. tuned: names of `tuning` that ours is computed with;
    None is the preset's. alone: names that are tried one by one, on an untuned decoder. lora_rank: of low-rank updates
    whose cost is measured too; 0 measures none.
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
    tuned: tuple[str, ...] | None = None
    alone: tuple[str, ...] = ()
    lora_rank: int = 0

    @property
    def stock_steps(self) -> int:
        """Steps of the stock turn: the world's, whatever a preset says, so that ratios tell what it saves."""
        return self.spec.decoder.steps if self.steps is None else self.steps

    @property
    def sampler_steps(self) -> int:
        """Steps of ours."""
        return self.preset.steps_in(self.spec) if self.steps is None else self.steps

    @property
    def explicit(self) -> tuple[str, ...]:
        """What takes the place of the preset's own choices, a sentence each."""
        if not self.preset.name:
            return ()
        return overridden(self.preset, steps=self.steps, guidance=self.guidance, tunings=self.tuned)

    @property
    def made(self) -> Preset:
        """The preset with the tunings that were asked for in place of its own."""
        return self.preset if self.tuned is None else replace(self.preset, tunings=self.tuned)


@dataclass(frozen=True)
class Stock:
    """The stock turn's timings by part, and the TFLOP/s that a matmul reaches beside them."""

    timings: Mapping[str, Timing]
    matmul: float


def run_bench(plan: Plan, say: Say = lambda line: None) -> Bench:
    """Measure the stock turn, then ours, then single ways of tuning. say hears what is being done."""
    check_plan(plan)
    return measure_ours(plan, measure_stock(plan, say), say)


def check_plan(plan: Plan) -> None:
    """ValueError for names and numbers of steps that are none, for ways that this machine lacks something for, and for
    what cannot be measured together: all that can be known before minutes of measuring.
    """
    schedule = Schedule.of(plan.sampler_steps)
    if plan.guidance is not None:
        guidance_scale(plan.guidance, plan.spec.decoder.guidance_scale, 0, schedule)  # knows the names
    check_names(plan.made.tunings)
    for name in plan.alone:
        check_names([name])
    check_streaming(plan.made)
    if plan.lora_rank and plan.made.stream_gib is not None:
        raise ValueError(f"preset {plan.preset.name} streams; --lora is measured without such a preset")
    if plan.alone and plan.made.stream_gib is not None:
        raise ValueError(f"preset {plan.preset.name} streams; ways are tried one by one without such a preset")
    for name in (*plan.made.tunings, *plan.alone):
        if reason := lacking(name, str(plan.device), dtype_name(plan.dtype)):
            raise ValueError(f"tuning {name} cannot be measured here, {reason}; leave it out")


def measure_stock(plan: Plan, say: Say = lambda line: None) -> Stock:
    """The stock turn, which presets leave as it is: one measurement serves several of them."""
    say(f"stock modules of spec {plan.spec.name}")
    parts = PlainTurn.of(plan.spec, plan.device, plan.dtype, plan.stock_steps).parts()
    return Stock(_timings(parts, _counts(parts), plan), matmul_tflops(plan.device, plan.dtype))


def measure_ours(plan: Plan, stock: Stock, say: Say = lambda line: None) -> Bench:
    """Ours beside a stock turn of the same plan, then single ways of tuning."""
    gc.collect()  # compiled and streamed models hold themselves, and with them the card's memory
    if plan.device.type == "cuda":
        torch.cuda.empty_cache()
    say(f"ours{f', preset {plan.preset.name}' if plan.preset.name else ''}")
    card = card_of(plan.made, str(plan.device))
    turn, trials, meter, costs = _ours(plan, card, say), None, None, ()
    if card is None:
        flop = _counts(_skipping(turn, plan.made.tunings).parts())
        trials = _trials(turn, plan, say)
        costs = measure_updates(turn, plan.made, plan.lora_rank, plan.repeats, say) if plan.lora_rank else ()
        meter = DriftMeter(turn.decoder) if plan.made.tunings else None
        parts = turn.parts()  # making them takes a step, and the first tuned one is to be timed
        prepare(turn.decoder, plan.made)
    else:
        prepare(turn.decoder, plan.made, card, say)  # before, it lies where the device cannot reach it
        parts = turn.parts()
        flop = _counts(parts)
    ours = _timings(parts, flop, plan)
    drifted = meter and meter.of(turn.decoder)
    rows = tuple(Row(part, stock.timings[part], ours[part], *_steps(plan, part)) for part in PARTS)
    return Bench(rows, stock.matmul, _facts(plan, turn), trials, drifted, costs)


def _trials(turn: OurTurn, plan: Plan, say: Say) -> Trials | None:
    if not plan.alone:
        return None
    parts = turn.parts()
    against = {part: timed(parts[part], plan.device, plan.repeats).median for part in ("sampler", "vae")}
    return run_trials(turn, plan.alone, plan.repeats, against, say)


def _skipping(turn: OurTurn, names: Sequence[str]) -> OurTurn:
    """The turn with those of the tunings alone that leave arithmetic out: in what is compiled, nobody counts."""
    caches = [name for name in names if name in CACHES]
    if not caches:
        return turn
    copied = replace(turn, decoder=copy.deepcopy(turn.decoder))
    tune(copied.decoder, caches)
    return copied


def _steps(plan: Plan, part: str) -> tuple[int, int]:
    return (plan.stock_steps, plan.sampler_steps) if part == "sampler" else (0, 0)


def _timings(parts: Mapping[str, Work], flop: Mapping[str, int], plan: Plan) -> dict[str, Timing]:
    return {name: timed(work, plan.device, plan.repeats, flop[name]) for name, work in parts.items()}


def _counts(parts: Mapping[str, Work]) -> dict[str, int]:
    return {name: counted(work) for name, work in parts.items()}


def _ours(plan: Plan, card: Card | None = None, say: Say = lambda line: None) -> OurTurn:
    """Our turn, untuned; where a card is given, the engine streams through it and the decoder waits on the host."""
    made, device = plan.made, plan.device if card is None else torch.device("cpu")
    if plan.world is not None:
        engine = plan.world.load_engine(device, plan.dtype)
        decoder = plan.world.load_decoder(device, plan.dtype)
    elif card is None:
        engine, decoder = random_models(plan.spec, plan.profile, device, plan.dtype)
    else:
        engine, decoder = resting_models(plan.spec, plan.profile, plan.dtype)
    decoder.profile = made.profile_of(decoder.profile)
    if card is not None:
        for share in card.stream(engine):
            say(share.text)
    guidance = made.guidance_in(decoder.profile) if plan.guidance is None else plan.guidance
    return OurTurn(engine, decoder, plan.sampler_steps, guidance)


def _facts(plan: Plan, turn: OurTurn) -> dict[str, object]:
    both, alone = turn.forwards
    return {
        "spec": plan.spec.name,
        "weights": "random" if plan.world is None else plan.world.fingerprint,
        "profile": turn.decoder.profile.name,
        "guidance": turn.guidance,
        "guided_steps": both,
        "unguided_steps": alone,
        "device": str(plan.device),
        "dtype": dtype_name(plan.dtype),
        "repeats": plan.repeats,
        "preset": plan.preset.name or None,
        "tuned": list(plan.made.tunings),
        "in_place_of_the_presets": list(plan.explicit),
        "stream_gib": plan.made.stream_gib,
        "machine": machine(),
    }


def known_step_note(bench: Bench) -> str | None:
    """Where stock modules at the release's sizes ran on an H200: how their step compares with the known one."""
    gpu = str(bench.facts["machine"].get("gpu") or "")
    if bench.facts["spec"] != "release" or "H200" not in gpu:
        return None
    row = next(row for row in bench.rows if row.part == "sampler")
    step = row.stock.median / row.steps
    off = step / KNOWN_STEP - 1
    told = f"the stock step takes {1000 * step:.0f} ms, known are {1000 * KNOWN_STEP:.0f} ms ({100 * off:+.0f} %)"
    if abs(off) <= KNOWN_WITHIN:
        return told
    return f"{told}; compare the matmul ({bench.matmul:.0f} TFLOP/s, known 745) and the versions"
