"""Measuring both turns, one after the other, so that neither stands in the other's memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ..checkpoint import World
from ..evaluate.report import machine
from ..spec import PROFILES, ModelSpec, Profile
from ..tuning import check_names, tune
from .measure import Timing, Work, counted, matmul_tflops, timed
from .plain import PlainTurn
from .table import Bench, Row
from .trials import run_trials
from .turn import OurTurn, random_models

PARTS = ("engine", "sampler", "vae", "turn")
KNOWN_STEP = 0.168  # seconds of a guided step of stock modules at the release's sizes on one H200 (reference-facts 17)
KNOWN_WITHIN = 0.10

Say = Callable[[str], object]


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often.

    world: real weights in place of random ones. guidance None is the profile's. tuned: names of `tuning` that ours is
    computed with. alone: names that are tried one by one, on an untuned decoder.
    """

    spec: ModelSpec
    device: torch.device
    dtype: torch.dtype
    profile: Profile = PROFILES["paper"]
    world: World | None = None
    steps: int | None = None
    guidance: str | None = None
    repeats: int = 3
    tuned: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()

    @property
    def sampler_steps(self) -> int:
        """Steps of a shot."""
        return self.steps or self.spec.decoder.steps


def run_bench(plan: Plan, say: Say = lambda line: None) -> Bench:
    """Measure the stock turn, then ours, then single ways of tuning. say hears what is being done."""
    check_names((*plan.tuned, *plan.alone))
    say(f"stock modules of spec {plan.spec.name}")
    plain = PlainTurn.of(plan.spec, plan.device, plan.dtype, plan.sampler_steps)
    parts = plain.parts()
    stock = _timings(parts, {name: counted(work) for name, work in parts.items()}, plan)
    del plain, parts
    gc.collect()
    say("ours")
    turn = _ours(plan)
    parts = turn.parts()
    flop = {name: counted(work) for name, work in parts.items()}  # before anything is compiled, where nobody counts
    trials = None
    if plan.alone:
        against = {part: timed(parts[part], plan.device, plan.repeats).median for part in ("sampler", "vae")}
        trials = run_trials(turn, plan.alone, plan.repeats, against, say)
    tune(turn.decoder, plan.tuned)
    ours = _timings(parts, flop, plan)
    rows = tuple(Row(part, stock[part], ours[part], plan.sampler_steps if part == "sampler" else 0) for part in PARTS)
    return Bench(rows, matmul_tflops(plan.device, plan.dtype), _facts(plan, turn), trials)


def _timings(parts: Mapping[str, Work], flop: Mapping[str, int], plan: Plan) -> dict[str, Timing]:
    return {name: timed(work, plan.device, plan.repeats, flop[name]) for name, work in parts.items()}


def _ours(plan: Plan) -> OurTurn:
    if plan.world is None:
        engine, decoder = random_models(plan.spec, plan.profile, plan.device, plan.dtype)
    else:
        engine = plan.world.load_engine(plan.device, plan.dtype)
        decoder = plan.world.load_decoder(plan.device, plan.dtype)
    return OurTurn(engine, decoder, plan.sampler_steps, plan.guidance or decoder.profile.guidance)


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
        "dtype": str(plan.dtype).removeprefix("torch."),
        "repeats": plan.repeats,
        "tuned": list(plan.tuned),
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
