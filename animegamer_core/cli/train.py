"""`train STAGE` and `train all`: the command line of training. Its stage options are read off StageConfig's fields."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import typing
from collections.abc import Callable
from pathlib import Path

from ..spec import TRAINED_PROFILES
from ..train.request import TrainRequest
from ..train.stages import ALL_STAGES, RECIPES, STAGES_IN_ORDER, StageConfig

ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `train`."""
    parser.add_argument(
        "stage",
        choices=(*ALL_STAGES, ALL),
        help=f"what to train; a new world needs {', '.join(STAGES_IN_ORDER)} in this order. distill: the decoder "
        "learns to draw with one pass per step; always writes an adapter. gc: the text-to-video baseline; writes "
        "a folder gc in --out. all: the stages of the recipe one after another",
    )
    parser.add_argument("--dataset", required=True, type=Path, help="dataset folder")
    parser.add_argument(
        "--world",
        required=True,
        help="world to start from: a folder, created if it is new; a small one is trained in place (see --recipe). "
        "'toybox' or published files also work, with a recipe that does not change them; for gc, the folder of "
        "CogVideoX-2b or of a small world",
    )
    parser.add_argument("--spec", help="sizes of a new world: tiny, toybox, release")
    parser.add_argument("--out", required=True, type=Path, help="folder for log, checkpoints and the adapter")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    parser.add_argument(
        "--recipe",
        choices=tuple(RECIPES),
        help="lora: as in the paper, for GPUs with 80 GB; lora24: for one with 24 GB; both write an adapter and do "
        "not change the world. scratch: train all weights, written into the world folder (default for specs tiny "
        "and toybox)",
    )
    parser.add_argument("--start", nargs="*", type=Path, default=(), help="adapters to start from, in order")
    parser.add_argument(
        "--profile",
        choices=TRAINED_PROFILES,
        help="prompt format in training, and then in play (default: what the engine was trained with; paper, if this "
        "program has not trained it yet)",
    )
    parser.add_argument(
        "--cache", type=Path, help="folder of computed features (`dataset cache`); default: one in --out"
    )
    _add_all_arguments(parser)
    group = parser.add_argument_group("stage options (defaults: the recipe's row for the stage)")
    kinds = typing.get_type_hints(StageConfig)
    for field in dataclasses.fields(StageConfig):
        group.add_argument(
            f"--{field.name.replace('_', '-')}",
            default=argparse.SUPPRESS,
            dest=f"option_{field.name}",
            help=field.metadata["help"],
            **_field_type(kinds[field.name]),
        )


def _add_all_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "train all",
        "runs the stages of the recipe one after another and prints a plan first. Each stage has a folder of its name "
        "in --out and starts from the adapters of the stages before. Stage options below apply to every stage, "
        "--minutes to all of them together",
    )
    group.add_argument("--stages", metavar="A,B", help="run only these stages (default: all stages of the recipe)")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="STAGE.OPTION=VALUE",
        help="an option for one stage, such as joint.steps=2000; separate several values by spaces; can be repeated",
    )
    group.add_argument("--plan", action="store_true", help="print the plan and stop")
    group.add_argument(
        "--trial",
        action="store_true",
        help="first take 20 steps of each stage in a temporary folder, so that the plan can state hours; recipes lora "
        "and lora24",
    )


def _field_type(kind: typing.Any) -> dict[str, typing.Any]:
    """How argparse reads a field of this type, and what its help shows for the value."""
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(kind) is tuple:
        return {"nargs": "*", "type": typing.get_args(kind)[0], "metavar": "VALUE"}
    return {"type": kind, "metavar": {int: "N", float: "X"}.get(kind, "VALUE")}


def run(args: argparse.Namespace, report: Callable[[str], object] | None = None) -> int:
    """Train; returns the exit status. ValueError for arguments, data or files that do not fit.

    Of the processes of `accelerate launch`, only the main one reports.
    """
    from ..train.all import AllOptions, train_all  # these load torch, which --help does not need
    from ..train.distributed import processes
    from ..train.one_stage import train_one_stage

    report = (report or _print) if processes().is_main_process else lambda line: None
    given = {name.removeprefix("option_"): value for name, value in vars(args).items() if name.startswith("option_")}
    request = TrainRequest(
        stage=args.stage,
        dataset=args.dataset,
        world=args.world,
        out=args.out,
        spec=args.spec,
        resume=args.resume,
        recipe=args.recipe,
        start=tuple(args.start),
        profile=args.profile,
        cache=args.cache,
        options={name: tuple(value) if isinstance(value, list) else value for name, value in given.items()},
    )
    if args.stage == ALL:
        return train_all(request, AllOptions(args.stages, tuple(args.set), args.plan, args.trial), report)
    for name in ("stages", "set", "plan", "trial"):
        if getattr(args, name):
            raise ValueError(f"--{name} is for `train all`; drop it from `train {args.stage}`")
    return train_one_stage(request, report)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
