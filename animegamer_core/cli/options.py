"""A verb's options are the fields of a dataclass: its parser and its help are made from their types and docstrings.

Also the options that several verbs share, and what the verbs show while they work.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import time
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypedDict

import docstring_parser
import tyro
from tyro.conf import FlagCreatePairsOff, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from ..runtime.presets import PRESETS
from ..spec import DTYPES, GUIDANCE, PROFILES, SOLVERS, Sampling, read_timesteps

if typing.TYPE_CHECKING:
    from ..media.video import Frames

PICTURE_COLUMNS = 72  # of a picture on the terminal


def parse(options: Any, words: Sequence[str], program: str, about: str) -> Any:
    """The options that these words give; SystemExit after --help, and with a message for words that do not fit.

    options: a dataclass, or a union of them, one for each task of a verb.
    """
    for kind in typing.get_args(options) or (options,):
        _describe(kind)
    config = (tyro.conf.DisallowNone, tyro.conf.OmitSubcommandPrefixes)
    return tyro.cli(options, prog=program, description=about, args=words, config=config)


def _describe(options: type) -> None:
    """Put the fields' docstrings into their types; options that are unset or off by default do not say so."""
    hints = typing.get_type_hints(options, include_extras=True)
    texts = _texts(options)
    for field in dataclasses.fields(options):
        shown: dict[str, Any] = {"help": texts[field.name]} if texts.get(field.name) else {}
        if field.default is False or field.default in (None, ()):
            shown["help_behavior_hint"] = ""
        hints[field.name] = Annotated[hints[field.name], arg(**shown)]
    options.__annotations__ = hints


def typed(settings: type, names: Collection[str] = (), prefix: str = "") -> Any:
    """The options that are fields of a settings' dataclass: a dictionary of those that were typed.

    So the rest keep the settings' defaults. names: only these fields; none: all. prefix: of the options.
    """
    hints, texts = typing.get_type_hints(settings, include_extras=True), _texts(settings)
    kinds: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        if names and field.name not in names:
            continue
        kind, text = hints[field.name], texts.get(field.name, "")
        if field.metadata:  # a stage's: its default is the recipe's
            text = "; ".join([field.metadata["help"], *(expected for _, expected in field.metadata["checks"])])
            kind = Annotated[str, one_of(choices)] if (choices := field.metadata["choices"]) else kind
        elif field.default not in (None, "", False, dataclasses.MISSING):
            text += f" (default: {field.default})"
        kinds[prefix + field.name] = Annotated[kind, arg(help=text, help_behavior_hint="")]
    return TypedDict(settings.__name__, kinds, total=False)  # type: ignore[operator]  # made from the fields


def unprefixed(given: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Typed options by the names of their fields."""
    return {name.removeprefix(prefix): value for name, value in given.items()}


def _texts(options: type) -> dict[str, str]:
    """The docstrings of a dataclass's fields, and of those that it inherits."""
    texts = {}
    for kind in reversed(options.__mro__[:-1]):
        for found in docstring_parser.parse_from_object(kind).params:
            texts[found.arg_name] = " ".join((found.description or "").split())
    return texts


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
World = Annotated[str, arg(help="toybox, or a world's folder.", metavar="WORLD")]
Device = Annotated[str, arg(help="auto, cpu, cuda or mps.", metavar="DEVICE")]
Dtype = Annotated[str, one_of(("auto", *DTYPES))]
Guidance = Annotated[str, one_of(GUIDANCE)]
Solver = Annotated[str, one_of(SOLVERS)]
Preset = Annotated[str, one_of(PRESETS)]
Profile = Annotated[str, one_of(PROFILES)]
AskedSteps = Annotated[str | None, arg(metavar="N|T,T,...")]
Adapters = Annotated[
    tuple[str, ...],
    UseAppendAction,
    arg(
        metavar="FILE[=X]",
        help="LoRA file or other weights from a training stage, applied to the world with strength X, 1 by default.",
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawing:
    """The options of what draws shots."""

    world: World = "toybox"
    lora: Adapters = ()
    steps: AskedSteps = None
    """Sampling steps, or their timesteps; unset: an adapter's, the preset's, or the world's."""
    guidance: Guidance | None = None
    """Guidance schedule; unset: an adapter's, the preset's, or the profile's."""
    solver: Solver | None = None
    """How a step is taken; unset: an adapter's, or the scripts'."""
    seed: int = 0
    """Another seed gives another take, and in tables of the Toybox other games."""
    device: Device = "auto"

    @property
    def sampling(self) -> Sampling:
        """What is asked for; ValueError for steps that cannot be."""
        return sampling_of(self.steps, self.guidance, self.solver)


def sampling_of(steps: str | None, guidance: str | None, solver: str | None) -> Sampling:
    """What is asked for; ValueError for steps that cannot be."""
    asked = Sampling(guidance=guidance, solver=solver)
    if steps is None:
        return asked
    return dataclasses.replace(asked, steps=int(steps) if steps.isdecimal() else read_timesteps(steps))


def confirmed(question: str) -> bool:
    """Ask on the terminal; only a yes counts, and no answer is a no."""
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def note(line: str) -> None:
    """Print a line that is not part of the result."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def overwrite(text: str) -> None:
    """Show text on a terminal, in the place of what the last call showed."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}" if text else "\r\x1b[J")  # nothing: also what is below
        sys.stderr.flush()


def show_picture(frame_HWC: Frames) -> None:
    """Show a picture below the line that the cursor is in, on a terminal of 24-bit colours: two pixels a character."""
    from PIL import Image

    size, picture = shutil.get_terminal_size(), Image.fromarray(frame_HWC)  # of 80 x 24 where the terminal says none
    picture.thumbnail((min(size.columns, PICTURE_COLUMNS), max(2, 2 * size.lines - 4)))
    rows = [[picture.getpixel((x, y)) for x in range(picture.width)] for y in range(picture.height)]
    half = "\x1b[38;2;{};{};{};48;2;{};{};{}m\u2580"  # its upper half in one colour, its lower half in another
    pairs = [zip(*pair, strict=True) for pair in zip(rows[::2], rows[1::2], strict=False)]
    lines = ["".join(half.format(*upper, *lower) for upper, lower in pair) for pair in pairs]
    sys.stderr.write("".join(f"\n{line}\x1b[0m" for line in lines) + f"\r\x1b[{len(lines)}A")
    sys.stderr.flush()


class Progress:
    """Progress on stderr: on a terminal one line that is overwritten, elsewhere one every ten seconds and the last."""

    def __init__(self, what: str = "") -> None:
        self._what, self._shown = what, time.monotonic()

    def __call__(self, done: int, count: int) -> None:
        self.show(self._what, done, count)

    def show(self, what: str, done: int, count: int) -> None:
        """Show done of count; count 0: unknown."""
        self._line(f"  {what}: {done}" + (f" of {count}" if count else ""), done == count)

    def show_bytes(self, done: int, count: int, what: str) -> None:
        """Show the bytes done, of count (0: unknown), and what is being transferred."""
        amount = f"{done / count:.0%} of {count / 1e9:.1f} GB" if count else f"{done / 1e9:.1f} GB"
        self._line(f"  {amount}  {what[-60:]}", done == count)

    def _line(self, line: str, is_last: bool) -> None:
        is_terminal = sys.stderr.isatty()
        if is_last or time.monotonic() - self._shown >= (0.1 if is_terminal else 10.0):
            self._shown = time.monotonic()
            show = overwrite if is_terminal else note
            show(f"{line}\n" if is_terminal and is_last else line)
