"""The task `evaluate write`: a language model writes stories for a benchmark."""
# ruff: noqa: T201

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .endpoint_options import EndpointOptions, Progress, endpoint_of


@dataclass(frozen=True, kw_only=True)
class Options(EndpointOptions):
    characters: str
    """NAME,NAME, or a folder of reference pictures."""
    out: Path
    """The benchmark file to write; the same command continues."""
    stories: int = 10
    """Number of stories; characters take turns as the main one."""
    panels: int = 10
    """Turns per story."""
    seed: int = 0
    """Seed of the places and times where stories start."""
    max_tokens: int = 2048
    """Tokens per reply."""


def run(args: Options) -> int:
    """Ask and write; 1 if a story is missing."""
    from ..research.judging.constructor import plan_stories, read_characters, write_stories

    plans = plan_stories(read_characters(args.characters), args.stories, args.panels, args.seed)
    model, terms = endpoint_of(args)
    written = write_stories(args.out, plans, model, terms, Progress("stories"))
    print(written.answers.text)
    for name, aside in written.answers.set_aside.items():
        print(f"set aside: {name}: {aside.reason}")
    if written.games:
        print(f"{len(written.games)} of {len(plans)} stories in {written.path}")
        print(f"next: evaluate world --games {written.path}")
    return int(not written.answers.whole)
