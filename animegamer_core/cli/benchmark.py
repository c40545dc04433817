"""The verb `bench`: seconds and memory of a turn next to stock calls."""
# ruff: noqa: T201

from __future__ import annotations

import json
import sys
import tempfile
import typing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from ..files import write_text
from ..runtime.presets import Preset as RuntimePreset
from ..runtime.presets import get_preset, preset_for_device
from ..spec import DTYPES, dtype_name, get_profile, get_spec
from .options import Device, Guidance, Preset, Profile, one_of

if typing.TYPE_CHECKING:
    from ..research.benchmark.run import BenchmarkPlan
    from ..research.benchmark.table import BenchmarkResult


@dataclass(frozen=True, kw_only=True)
class Options:
    spec: Literal["release", "toybox", "tiny"] | None = None
    """Model sizes, with random weights; unset: toybox."""
    world: str | None = None
    """Use a world's real weights instead of random ones."""
    profile: Profile | None = None
    """How prompts are read; unset: the world's, or paper."""
    preset: tuple[Preset, ...] = ()
    """Presets, each compared with the same stock turn; the options below override it."""
    guidance: Guidance | None = None
    """Guidance schedule; unset: the preset's, or the profile's."""
    steps: int | None = None
    """Sampling steps; unset: the preset's, or the spec's."""
    optimizations: Annotated[tuple[str, ...] | None, arg(name="with", metavar="NAME ...")] = None
    """Optimizations for our turn."""
    each: tuple[str, ...] = ()
    """Optimizations to measure one by one."""
    lora: int = 0
    """Also measure the cost of an unmerged LoRA of this rank."""
    repeats: int = 3
    """Runs of each part."""
    device: Device = "auto"
    dtype: Annotated[str, one_of(DTYPES)] | None = None
    """Number format; unset: bfloat16 on a GPU, float32 elsewhere."""
    json: Path | None = None
    """Also write all results to this file."""


def run(args: Options) -> int:
    """Measure and print; returns the exit status."""
    from ..evaluate.report import command_line
    from ..research.benchmark.run import known_step_note, measure_ours, measure_stock

    _check_json(args.json)
    plans = _plans(args)
    for plan in plans:
        plan.check()
    stock, results = measure_stock(plans[0], _print_progress), []
    print(f"a square matmul reaches {stock.matmul:.3g} TFLOP/s")
    for plan in plans:
        results.append(measure_ours(plan, stock, _print_progress))
        _print_result(results[-1])
        if args.json is not None:  # after each plan, so that its results are kept if a later one fails
            values = {"command": command_line(), "benches": [result.values() for result in results]}
            write_text(args.json, json.dumps(values, indent=1) + "\n")
    if note := known_step_note(results[0]):
        print(f"({note})")
    if args.json is not None:
        print(args.json)
    return 0


def _check_json(path: Path | None) -> None:
    """ValueError if results could not be written there."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"--json {path} is a folder; give a file, such as {path / 'bench.json'}")
    folder = next((folder for folder in path.absolute().parents if folder.exists()), None)
    if folder is None or folder.is_file():
        above = "no folder" if folder is None else "a file"
        raise ValueError(f"--json {path} is below {above}; give a file in a folder")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"--json {path}: {folder} is not writable ({error.strerror}); give another file") from error


def _plans(args: Options) -> list[BenchmarkPlan]:
    """One plan for each preset, or one without a preset."""
    import torch

    from ..checkpoint import open_world
    from ..research.benchmark.run import BenchmarkPlan
    from ..runtime.device import choose_device

    for option, value in (("--spec", args.spec), ("--profile", args.profile)):
        if value and args.world:
            raise ValueError(f"{option} and --world are both given, but a world has its own; give only one of them")
    if args.lora < 0:
        raise ValueError(f"--lora is {args.lora}; expected a rank such as 64, or 0 to measure none")
    if args.repeats < 1:
        raise ValueError(f"--repeats is {args.repeats}; expected 1 or more")
    world = open_world(args.world) if args.world else None
    device = torch.device(choose_device(args.device))
    plan = BenchmarkPlan(
        spec=world.spec if world else get_spec(args.spec or "toybox"),
        device=device,
        dtype=getattr(torch, args.dtype or ("float32" if device.type == "cpu" else "bfloat16")),
        profile=world.profile if world else get_profile(args.profile or "paper"),
        world=world,
        steps=args.steps,
        guidance=args.guidance,
        repeats=args.repeats,
        optimizations=None if args.optimizations is None else tuple(args.optimizations),
        each=tuple(args.each),
        lora_rank=args.lora,
    )
    return [replace(plan, preset=preset) for preset in _presets(args, plan)] or [plan]


def _presets(args: Options, plan: BenchmarkPlan) -> list[RuntimePreset]:
    """The presets for the plan's device; ValueError if one offloads and is not the last."""
    device, dtype = str(plan.device), dtype_name(plan.dtype)
    presets = [preset_for_device(get_preset(name), device, _print_progress, dtype) for name in args.preset or ()]
    for preset in presets[:-1]:
        if preset.offload_gib is not None:
            raise ValueError(
                f"preset {preset.name} caps this process's GPU memory until it ends; name it last, or run it alone"
            )
    return presets


def _print_result(result: BenchmarkResult) -> None:
    facts = result.facts
    print(
        f"spec {facts['spec']}, {facts['weights'][:12]} weights, {facts['device']}, {facts['dtype']}, "
        f"{facts['guided_steps']} guided and {facts['unguided_steps']} single-pass steps, guidance {facts['guidance']}"
    )
    if facts["preset"]:
        print(f"preset {facts['preset']}: {get_preset(facts['preset']).about}")
    for note in facts["in_place_of_the_presets"]:
        print(f"  {note}")
    if facts["tuned"]:
        print(f"optimizations: {', '.join(facts['tuned'])}")
    print(result.text, flush=True)


def _print_progress(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)
