"""The verb `evaluate`: its tasks measure what a world can do; each has arguments of its own."""

from __future__ import annotations

import argparse
import importlib
import typing

from . import Verb

# Each module offers add_arguments(parser) and run(args) -> exit status, and imports nothing heavy by itself.
TASKS: dict[str, tuple[str, str]] = {
    "world": ("evaluate_world", "the paper's table for any world or baseline; the default of `evaluate`"),
    "toybox": ("evaluate_toybox", "the acceptance table for a Toybox world, where the true scenes are known"),
    "presets": ("evaluate_presets", "what each preset's speed costs in the Toybox: recognition, ACC-F, PSNR to exact"),
    "ablations": ("ablations", "train and score the paper's ablations in the Toybox"),
    "write": ("write", "have a language model write stories for a benchmark"),
    "judge": ("judge", "have a vision model score played benchmarks, as GPT-4V does in the paper"),
    "raters": ("raters", "make blinded pages and rating sheets, for people to rank played benchmarks"),
    "ranks": ("ranks", "compute scores with intervals from filled-in rating sheets"),
}
DEFAULT_TASK = "world"  # `evaluate --world W` is short for `evaluate world --world W`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the tasks of `evaluate` and their arguments."""
    tasks = parser.add_subparsers(dest="task", required=True, metavar="TASK")
    for name, (_, about) in TASKS.items():
        _task(name).add_arguments(tasks.add_parser(name, help=about, description=about))


def run(args: argparse.Namespace) -> int:
    """Do the task; returns its exit status."""
    return _task(args.task).run(args)


def _task(name: str) -> Verb:
    return typing.cast(Verb, importlib.import_module(f".{TASKS[name][0]}", __package__))
