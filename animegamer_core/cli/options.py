"""A verb's options are the fields of a dataclass: its parser and its help are made from their types and docstrings.

Also the types that several verbs share.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import docstring_parser
import tyro
from tyro.conf import FlagCreatePairsOff, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from ..runtime.presets import PRESETS
from ..spec import DTYPES, GUIDANCE_NAMES, PROFILES


def parse(options: Any, words: Sequence[str], program: str, about: str) -> Any:
    """The options that these words give; SystemExit after --help, and with a message for words that do not fit.

    options: a dataclass, or a union of them, one for each task of a verb.
    """
    for kind in typing.get_args(options) or (options,):
        _describe(typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind)
    config = (tyro.conf.DisallowNone, tyro.conf.OmitSubcommandPrefixes)
    return tyro.cli(options, prog=program, description=about, args=words, config=config)


def _describe(options: type) -> None:
    """Put the fields' docstrings into their types, as paragraphs without their source's line ends.

    Options that are unset by default do not show "(default: None)": their text says what happens.
    """
    hints = typing.get_type_hints(options, include_extras=True)
    texts = {}
    for kind in reversed(options.__mro__[:-1]):
        texts |= {found.arg_name: found.description for found in docstring_parser.parse_from_object(kind).params}
    for field in dataclasses.fields(options):
        shown: dict[str, str] = {"help_behavior_hint": ""} if field.default in (None, ()) else {}
        if text := texts.get(field.name):
            shown["help"] = " ".join(text.split())
        if shown:
            hints[field.name] = Annotated[hints[field.name], arg(**shown)]
    options.__annotations__ = hints


def one_of(names: Iterable[str]) -> PrimitiveConstructorSpec[str]:
    """The annotation of a text that is one of these names, where they stand in a table."""
    choices = tuple(names)
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="{" + ",".join(choices) + "}",
        instance_from_str=lambda words: words[0],
        is_instance=lambda value: value in choices,
        str_from_instance=lambda value: [value],
        choices=choices,
    )


Flag = Annotated[bool, FlagCreatePairsOff]
Count = Annotated[int, arg(metavar="N")]
World = Annotated[str, arg(help="toybox, or a world's folder.", metavar="WORLD")]
Device = Annotated[str, arg(help="auto, cpu, cuda or mps.", metavar="DEVICE")]
Dtype = Annotated[str, one_of(("auto", *DTYPES))]
Guidance = Annotated[str, one_of(GUIDANCE_NAMES)]
Preset = Annotated[str, one_of(PRESETS)]
Profile = Annotated[str, one_of(PROFILES)]
Adapters = Annotated[
    tuple[str, ...],
    UseAppendAction,
    arg(
        metavar="FILE[=X]",
        help="LoRA file or other weights from a training stage, applied to the world with strength X, 1 by default.",
    ),
]


def confirmed(question: str) -> bool:
    """Ask on the terminal; only a yes counts, and no answer is a no."""
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
