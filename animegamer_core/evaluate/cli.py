"""The verb `evaluate`: tables that say what a world can do, each a task with arguments of its own."""

from __future__ import annotations

import argparse
import importlib
import typing

# Each module offers add_arguments(parser) and run(args) -> exit status, and imports nothing heavy by itself.
TASKS: dict[str, tuple[str, str]] = {
    "world": ("table.cli", "the paper's table of any world, or of a baseline; what `evaluate` alone means"),
    "toybox": ("acceptance.cli", "the acceptance table of a Toybox world, whose truth is known"),
    "presets": ("presets", "what each preset's speed costs in the Toybox: recognition, ACC-F, PSNR to exact"),
    "ablations": ("ablations.cli", "the paper's ablations, trained and scored in the Toybox"),
    "write": ("judging.cli_write", "stories for a benchmark, asked of a language model"),
    "judge": ("judging.cli_judge", "played benchmarks scored by a vision model, as the paper's GPT-4V did"),
    "raters": ("judging.cli_raters", "blinded pages and sheets for people to rank played benchmarks"),
    "ranks": ("judging.cli_ranks", "filled-in sheets turned into scores with intervals"),
}
DEFAULT_TASK = "world"  # `evaluate --world W` means `evaluate world --world W`


class Task(typing.Protocol):
    """What a task's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the task's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit status."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the tasks of `evaluate` and their arguments."""
    tasks = parser.add_subparsers(dest="task", required=True, metavar="TASK")
    for name, (_, about) in TASKS.items():
        _task(name).add_arguments(tasks.add_parser(name, help=about, description=about))


def run(args: argparse.Namespace) -> int:
    """Do the task; returns its exit status."""
    return _task(args.task).run(args)


def _task(name: str) -> Task:
    return typing.cast(Task, importlib.import_module(f".{TASKS[name][0]}", __package__))
