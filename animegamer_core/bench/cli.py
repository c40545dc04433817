"""The verb `bench`: seconds and memory of a turn beside stock calls."""
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
from ..presets import PRESETS, get_preset, preset_on
from ..spec import DTYPES, GUIDANCE_NAMES, PROFILES, dtype_name

if typing.TYPE_CHECKING:
    from .run import Plan
    from .table import Bench

SPECS = ("release", "toybox", "tiny")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `bench`."""
    add = parser.add_argument
    add("--spec", choices=SPECS, help="sizes, with random weights (default: toybox)")
    add("--world", help="a world's real weights in place of a spec's random ones")
    add("--profile", choices=tuple(PROFILES), help="how prompts are read (default: the world's, or paper)")
    add(
        "--preset",
        nargs="+",
        choices=tuple(PRESETS),
        metavar="NAME",
        help=f"how ours is computed: {', '.join(PRESETS)}; several beside one stock turn; options below win over them",
    )
    add("--guidance", choices=GUIDANCE_NAMES, help="guidance schedule (default: the preset's, or the profile's)")
    add("--steps", type=int, metavar="N", help="sampling steps (default: the preset's, or the spec's)")
    add("--with", nargs="+", dest="tuned", metavar="NAME", help="ways of `tuning` to compute ours")
    add("--each", nargs="+", default=(), dest="alone", metavar="NAME", help="ways to try one by one, untuned else")
    add("--lora", type=int, default=0, metavar="RANK", help="also measure what low-rank updates beside weights cost")
    add("--repeats", type=int, default=3, metavar="N", help="runs of each part (default %(default)s)")
    add("--device", default="auto", help="auto, cpu, cuda or mps (default %(default)s)")
    add("--dtype", choices=DTYPES, help="default: bfloat16 on a GPU, float32 elsewhere")
    add("--json", type=Path, metavar="FILE", help="also write everything measured there")


def run(args: argparse.Namespace) -> int:
    """Measure and print; returns the exit status."""
    from ..evaluate.report import command_line
    from .run import check_plan, known_step_note, measure_ours, measure_stock

    _check_json(args.json)
    plans = _plans(args)
    for plan in plans:
        check_plan(plan)
    stock, benches = measure_stock(plans[0], _tell), []
    print(f"a square matmul reaches {stock.matmul:.3g} TFLOP/s")
    for plan in plans:
        benches.append(measure_ours(plan, stock, _tell))
        _show(benches[-1])
        if args.json is not None:  # after each, so that what is measured is kept where a later one fails
            values = {"command": command_line(), "benches": [bench.values() for bench in benches]}
            write_text(args.json, json.dumps(values, indent=1) + "\n")
    if note := known_step_note(benches[0]):
        print(f"({note})")
    if args.json is not None:
        print(args.json)
    return 0


def _check_json(path: Path | None) -> None:
    """ValueError where what is measured could not be written."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"--json {path} is a folder; give a file, such as {path / 'bench.json'}")
    there = next((folder for folder in path.absolute().parents if folder.exists()), None)
    if there is None or there.is_file():
        below = "no folder" if there is None else "a file"
        raise ValueError(f"--json {path} lies below {below}; give a file in a folder")
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise ValueError(f"--json {path}: {there} takes no files ({error.strerror}); give a file elsewhere") from error


def _show(bench: Bench) -> None:
    facts = bench.facts
    print(f"spec {facts['spec']}, {facts['weights'][:12]} weights, {facts['device']}, {facts['dtype']}, ", end="")
    print(f"{facts['guided_steps']} guided and {facts['unguided_steps']} single steps, guidance {facts['guidance']}")
    if facts["preset"]:
        print(f"preset {facts['preset']}: {get_preset(facts['preset']).about}")
    for line in facts["in_place_of_the_presets"]:
        print(f"  {line}")
    if facts["tuned"]:
        print(f"ours is tuned: {', '.join(facts['tuned'])}")
    print(bench.text, flush=True)


def _tell(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


def _plans(args: argparse.Namespace) -> list[Plan]:
    """One for each preset, or one without."""
    import torch

    from ..checkpoint import open_world
    from ..play import choose_device
    from ..spec import get_profile, get_spec
    from .run import Plan

    if args.spec and args.world:
        raise ValueError("--spec and --world are both given; a world has a spec of its own, so give one of them")
    if args.profile and args.world:
        raise ValueError("--profile and --world are both given; a world has a profile of its own, so leave it out")
    if args.lora < 0:
        raise ValueError(f"--lora is {args.lora}; expected a rank such as 64, or 0 to measure none")
    if args.repeats < 1:
        raise ValueError(f"--repeats is {args.repeats}; a part runs 1 time or more")
    world = open_world(args.world) if args.world else None
    device = torch.device(choose_device(args.device))
    dtype = getattr(torch, args.dtype or ("float32" if device.type == "cpu" else "bfloat16"))
    profile = get_profile(args.profile) if args.profile else (world.profile if world else get_profile("paper"))
    plan = Plan(
        spec=world.spec if world else get_spec(args.spec or "toybox"),
        device=device,
        dtype=dtype,
        profile=profile,
        world=world,
        steps=args.steps,
        guidance=args.guidance,
        repeats=args.repeats,
        tuned=None if args.tuned is None else tuple(args.tuned),
        alone=tuple(args.alone),
        lora_rank=args.lora,
    )
    presets = [preset_on(get_preset(name), str(device), _tell, dtype_name(dtype)) for name in args.preset or ()]
    for preset in presets[:-1]:
        if preset.stream_gib is not None:
            raise ValueError(
                f"preset {preset.name} caps what this process may take of the GPU from then on; name it last, or alone"
            )
    return [replace(plan, preset=preset) for preset in presets] or [plan]
