"""`python -m animegamer_core VERB`: imports the verb's module only, and runs it."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence

from .spec import PROGRAM

# The module of `cli` and its class of options, imported only to run the verb, and what the verb does.
VERBS: dict[str, tuple[str, str, str]] = {
    "play": ("play", "Play", "play a game, from a file or line by line, and save it as a story"),
    "export": ("play", "Export", "make a film of a story, to share"),
    "takes": ("play", "Takes", "play a game in several takes, and show them side by side"),
    "convert": ("weights", "Convert", "turn the published weight files into a world folder"),
    "fetch": ("weights", "Fetch", "download weight files, published or free base models, after asking"),
    "new": ("weights", "New", "make a new world from free base models, to train"),
    "parity": ("research", "Parity", "compare this code with recorded results of the published code"),
    "dataset": ("dataset", "Options", "turn films into captioned clips to train on"),
    "train": ("train", "Options", "train a stage of a world, or all of them, on a dataset folder"),
    "evaluate": ("evaluate", "Options", "measure a world"),
    "bench": ("research", "Bench", "time a turn, next to the same turn with stock calls"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status: 0 success, 1 failed check or broken pipe, 2 wrong input, 130 Ctrl-C."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # of torch's threads (docs/performance.md, "On a CPU")
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for what a terminal cannot show
    if not words or words[0] not in VERBS:
        return _explain(words)
    module, options, about = VERBS[words[0]]
    try:
        from .cli.options import parse  # the list of verbs needs no parser

        kind = getattr(importlib.import_module(f".cli.{module}", __package__), options)
        given = words[1:]
        if words[0] == "evaluate" and (not given or (given[0].startswith("-") and given[0] not in ("-h", "--help"))):
            given = ["world", *given]  # `evaluate --world W` is short for `evaluate world --world W`
        status = parse(kind, given, f"{PROGRAM} {words[0]}", f"{about.capitalize()}.").run()
        print(end="", flush=True)
        return status
    except BrokenPipeError:  # the reader stopped, for example `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at exit
        return 1
    except OSError as error:
        name = error.filename2 or error.filename  # filename is a temporary file if a rename failed
        print(f"{words[0]}: {f'{name}: {error.strerror}' if name else error}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"{words[0]}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\n{words[0]}: stopped; finished work is kept, and the same command continues", file=sys.stderr)
        return 130


def _explain(words: Sequence[str]) -> int:
    """Print the verbs, as help or after an error; returns the exit status."""
    asked = bool(words) and words[0] in ("-h", "--help")
    lines = [f"usage: {PROGRAM} VERB ...  (VERB --help lists its options)", ""]
    lines += [f"  {name:10} {about}" for name, (*_, about) in VERBS.items()]
    if words and not asked:
        lines.insert(0, f"unknown verb {words[0]!r}")
    print("\n".join(lines), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
