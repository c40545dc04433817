"""The verb `bench`: seconds and memory of a turn next to stock calls."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import typing
from dataclasses import replace
from pathlib import Path

from ..files import write_text
from ..runtime.presets import PRESETS, Preset, get_preset, preset_for_device
from ..spec import DTYPES, GUIDANCE_NAMES, PROFILES, dtype_name, get_profile, get_spec

if typing.TYPE_CHECKING:
    from ..research.benchmark.run import BenchmarkPlan
    from ..research.benchmark.table import BenchmarkResult

SPECS = ("release", "toybox", "tiny")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `bench`."""
    add = parser.add_argument
    add("--spec", choices=SPECS, help="model sizes, with random weights (default: toybox)")
    add("--world", help="use a world's real weights instead of random ones")
    add("--profile", choices=tuple(PROFILES), help="how prompts are read (default: the world's, or paper)")
    add(
        "--preset",
        nargs="+",
        choices=tuple(PRESETS),
        metavar="NAME",
        help=f"one or more of {', '.join(PRESETS)}, each compared with the same stock turn; the options below "
        "override it",
    )
    add("--guidance", choices=GUIDANCE_NAMES, help="guidance schedule (default: the preset's, or the profile's)")
    add("--steps", type=int, metavar="N", help="sampling steps (default: the preset's, or the spec's)")
    add("--with", nargs="+", dest="optimizations", metavar="NAME", help="optimizations for our turn")
    add("--each", nargs="+", default=(), metavar="NAME", help="optimizations to measure one by one")
    add("--lora", type=int, default=0, metavar="RANK", help="also measure the cost of unmerged LoRA")
    add("--repeats", type=int, default=3, metavar="N", help="runs of each part (default %(default)s)")
    add("--device", default="auto", help="auto, cpu, cuda or mps (default %(default)s)")
    add("--dtype", choices=DTYPES, help="default: bfloat16 on a GPU, float32 elsewhere")
    add("--json", type=Path, metavar="FILE", help="also write all results to this file")


def run(args: argparse.Namespace) -> int:
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


def _plans(args: argparse.Namespace) -> list[BenchmarkPlan]:
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


def _presets(args: argparse.Namespace, plan: BenchmarkPlan) -> list[Preset]:
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
