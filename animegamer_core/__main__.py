"""`python -m animegamer_core VERB`: finds the verb's module, imports it and nothing else, and runs it."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import typing
from collections.abc import Sequence

from .spec import PROGRAM

# Each module offers add_arguments(parser) and run(args) -> exit status.
VERBS: dict[str, tuple[str, str]] = {
    "play": ("animegamer_core.play_cli", "play a game, from a file or line by line, and keep it as a story"),
    "convert": ("animegamer_core.checkpoint.convert", "turn the published weight files into a world folder"),
    "fetch": (
        "animegamer_core.checkpoint.fetch",
        "download weight files, published or free to begin from, after asking",
    ),
    "new": ("animegamer_core.checkpoint.new", "make a world to train from free base models"),
    "parity": ("animegamer_core.parity", "compare this code with recorded results of the published code"),
    "dataset": ("animegamer_core.dataset_cli", "turn films into captioned clips to train on"),
    "train": ("animegamer_core.train.cli", "train a stage of a world, or all of them, on a dataset folder"),
    "evaluate": ("animegamer_core.evaluate.cli", "measure a world"),
    "bench": ("animegamer_core.bench.cli", "time a turn, beside the same turn by stock calls"),
}


class Verb(typing.Protocol):
    """What a verb's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit status."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status: 0 done, 1 something falls short, 2 wrong input, 130 interrupted.

    1 also where nobody reads on.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an instruction may hold what the terminal cannot show
    if not words or words[0] not in VERBS:
        return _explain(words)
    room, about = VERBS[words[0]]
    try:
        module = typing.cast(Verb, importlib.import_module(room))
        parser = argparse.ArgumentParser(prog=f"{PROGRAM} {words[0]}", description=about)
        module.add_arguments(parser)
        status = module.run(parser.parse_args(_with_task(module, words[1:])))
        print(end="", flush=True)
        return status
    except OSError as error:
        lost = [_silenced(stream) for stream in (sys.stdout, sys.stderr)]
        if isinstance(error, BrokenPipeError) and any(lost):
            return 1  # who reads has seen enough, as `| head`
        name = error.filename2 or error.filename  # the second is what the user knows, where a new file takes its place
        told = f"{name}: {error.strerror}" if name else error
        print(f"{words[0]}: {told}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"{words[0]}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{words[0]}: interrupted", file=sys.stderr)
        return 130


def _open_streams() -> None:
    """Standard streams that were closed before the start, as a service's may be, read and write nothing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


def _silenced(stream: typing.TextIO) -> bool:
    """Whether a stream takes no more; what is held for it then goes nowhere, as Python writes it out at its end.

    One without a buffer (`python -u`) holds nothing that could tell; so it is taken to.
    """
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return True
    return getattr(stream, "write_through", False)


def _with_task(module: Verb, words: list[str]) -> list[str]:
    """The words with the task that a verb means where none is named before its options."""
    default = getattr(module, "DEFAULT_TASK", None)
    unnamed = not words or (words[0].startswith("-") and words[0] not in ("-h", "--help"))
    return [default, *words] if default and unnamed else words


def _explain(words: Sequence[str]) -> int:
    """Print the verbs: as help, or as what was expected in place of `words`."""
    asked = bool(words) and words[0] in ("-h", "--help")
    lines = [f"usage: {PROGRAM} VERB ...  (VERB --help tells more)", ""]
    lines += [f"  {name:10} {about}" for name, (_, about) in VERBS.items()]
    if words and not asked:
        lines.insert(0, f"unknown verb {words[0]!r}")
    print("\n".join(lines), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
