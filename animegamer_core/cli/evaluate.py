"""The verb `evaluate`: its tasks measure what a world can do; each has a module with `Options` and `run`."""

from __future__ import annotations

import types
from typing import Annotated, Any, Union

from tyro.conf import subcommand

from . import ablations, evaluate_presets, evaluate_toybox, evaluate_world, judge, raters, write

TASKS: dict[str, tuple[types.ModuleType, str]] = {
    "world": (evaluate_world, "the paper's table for any world or baseline; the default of `evaluate`"),
    "toybox": (evaluate_toybox, "the acceptance table for a Toybox world, where the true scenes are known"),
    "presets": (evaluate_presets, "what each preset's speed costs in the Toybox: recognition, ACC-F, PSNR to exact"),
    "ablations": (ablations, "train and score the paper's ablations in the Toybox"),
    "write": (write, "have a language model write stories for a benchmark"),
    "judge": (judge, "have a vision model score played benchmarks, as GPT-4V does in the paper"),
    "raters": (raters, "have people rank played benchmarks in one CSV, and compute scores from it"),
}
DEFAULT_TASK = "world"  # `evaluate --world W` is short for `evaluate world --world W`
Options = Union[  # noqa: UP007  made from the table
    tuple(
        Annotated[module.Options, subcommand(name=name, description=about)] for name, (module, about) in TASKS.items()
    )
]


def run(options: Any) -> int:
    """Do the task; returns its exit status."""
    return next(module.run(options) for module, _ in TASKS.values() if type(options) is module.Options)
