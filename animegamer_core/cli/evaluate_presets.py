"""The task `evaluate presets`: a table of what each preset's speed costs in the Toybox.

Next to the seconds of a turn it shows the fraction of subjects that the probes recognise, ACC-F, and the PSNR to the
shots of preset exact.
"""
# ruff: noqa: T201

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from ..files import write_text
from ..spec import DTYPES
from .options import Device, Flag, Preset, World, one_of


@dataclass(frozen=True, kw_only=True)
class Options:
    world: World = "toybox"
    presets: tuple[Preset, ...] | None = None
    """Presets to compare with exact; unset: all that run here."""
    in_proportion: Flag = False
    """Scale each preset's steps, which assume the published 50, to the world's own number."""
    full: Flag = False
    """Use all samples; always on with a GPU, takes hours on a CPU."""
    limit: int | None = None
    """As for `evaluate toybox`: scales the number of shots."""
    seed: int = 0
    """Another seed plays other games."""
    device: Device = "auto"
    dtype: Annotated[str, one_of(DTYPES)] | None = None
    """Unset: bfloat16 on a GPU, float32 elsewhere."""
    workers: int | None = None
    """Processes that draw and measure; unset: one for each core."""
    out: Path = Path("out/evaluate-presets")
    """Folder for presets.json."""


def run(args: Options) -> int:
    """Measure, print and save; returns the exit status."""
    from ..checkpoint import open_world
    from ..evaluate.presets import HEAD, PresetScore, in_proportion, presets_to_score, score_preset
    from ..evaluate.report import command_line, machine
    from ..evaluate.toybox.context import EvalContext
    from ..evaluate.toybox.run import EvalRun, asked_plan
    from ..runtime.device import choose_device

    device = choose_device(args.device)
    dtype = args.dtype or ("float32" if device == "cpu" else "bfloat16")
    plan = asked_plan(device, args.full, args.limit, args.seed)
    world = open_world(args.world)
    shared = EvalRun(EvalContext(world, device, args.workers), replace(plan, true=plan.shots), args.seed)
    facts = {
        "world": world.spec.name,
        "fingerprint": world.fingerprint,
        "profile": world.profile.name,
        "seed": args.seed,
        "shots": plan.shots,
        "in_proportion": args.in_proportion,
        "device": device,
        "dtype": dtype,
        "command": command_line(),
        "machine": machine(),
    }
    print(f"{plan.shots} shots, and as many for ACC-F; {device}, {dtype}; a timed turn is engine, sampler and VAE")
    print(HEAD)
    presets = presets_to_score(args.presets, device, dtype, print)
    if args.in_proportion:
        presets = [in_proportion(preset, world.spec) for preset in presets]
    scores: list[PresetScore] = []
    exact = None
    for preset in presets:
        score, shots = score_preset(shared, preset, dtype, exact)
        exact = shots if exact is None else exact
        scores.append(score)
        print(score.line(scores[0]), flush=True)
        values = {**facts, "presets": [{**asdict(score), "median": score.median} for score in scores]}
        write_text(args.out / "presets.json", json.dumps(values, indent=1, allow_nan=False) + "\n")
    print(args.out / "presets.json")
    return 0
