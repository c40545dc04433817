"""Captions from a sidecar file, in which a person or a generator described spans of a film. No model is asked.

A sidecar is `<film>.captions.jsonl`, one line a span: {start, end, character, motion, background, adverb or adverbs,
social, entertainment, stamina}. adverbs: {level 1..5: word}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import msgspec

from ...json_files import read_rows
from ...life import STATS
from ...messages import brief, quoted
from ..motion import LEVELS
from .captioner import ClipTask
from .replies import Caption, ReplyError
from .words import why_unfit

SIDECAR = ".captions.jsonl"  # instead of the film's suffix
LEAST = 0.5  # of a clip that its span covers
CLOSENESS = 1e-6  # seconds: times are sums of floats
_Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]
_LEVELS = tuple(map(str, range(1, LEVELS + 1)))
_Names = Annotated[list[str], msgspec.Meta(min_length=1)]


def sidecar_of(film: Path) -> Path:
    """The sidecar file of a film, as `pond.captions.jsonl` next to `pond.mp4`."""
    return film.with_suffix(SIDECAR)


@dataclass(frozen=True)
class Span:
    """What a film shows from `start` to `end`, in seconds. adverbs: one for each level 1..5."""

    start: float
    end: float
    characters: tuple[str, ...]
    motion: str
    background: str
    adverbs: tuple[str, str, str, str, str]
    levels: tuple[int, int, int]  # social, entertainment, stamina


class ScriptCaptioner:
    """Captions clips by the spans of their films. sidecars: film name in the dataset -> sidecar file."""

    name = "script"

    def __init__(self, sidecars: Mapping[str, str | Path]) -> None:
        self._spans = {film: read_spans(Path(path)) for film, path in sidecars.items()}

    def caption(self, task: ClipTask) -> Caption:
        """The caption of the span that covers most of the clip; ReplyError if that is less than half of it, or if
        spans that overlap each other cover half of it."""
        record = task.record
        spans = _covering(self._spans.get(record.film, ()), record.start, record.end)
        if len(spans) != 1:
            found = f"{len(spans)} spans of {record.film!r} cover half of {record.start:.2f} to {record.end:.2f} s"
            raise ReplyError(found, f"one line of {record.film}{SIDECAR} that does")
        span = spans[0]
        adverb = span.adverbs[record.motion_level - 1]
        return Caption(span.characters[0], span.motion, span.background, adverb, *span.levels, span.characters)


def _covering(spans: Sequence[Span], start: float, end: float) -> list[Span]:
    """The spans that cover at least half of a clip. Of two halves the first counts, as the shot encoder reads the
    clip's first frame; only spans that overlap each other leave more than one."""
    half = LEAST * (end - start) - CLOSENESS
    found = [span for span in spans if min(span.end, end) - max(span.start, start) >= half]
    found.sort(key=lambda span: span.start)
    apart = all(before.end <= after.start for before, after in pairwise(found))
    return found[:1] if apart else found


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a sidecar; ValueError for words that do not fit in an instruction."""

    start: _Seconds
    end: _Seconds
    character: str | _Names
    motion: str
    background: str
    social: int
    entertainment: int
    stamina: int
    adverb: str | None = None
    adverbs: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if not self.start < self.end:
            raise ValueError(f"start {self.start} is not before end {self.end}")
        if (self.adverb is None) == (self.adverbs is None):
            raise ValueError("expected either adverb (a word) or adverbs ({level: word})")
        if sorted(self.by_level) != list(_LEVELS):
            raise ValueError(f"adverbs has {brief(', '.join(self.by_level))}; expected a word for {', '.join(_LEVELS)}")
        for choice in STATS:
            if (value := getattr(self, choice.name)) not in choice.choices:
                raise ValueError(f"{choice.name} is {value}; expected {' or '.join(map(str, choice.choices))}")
        words = [("motion", self.motion), ("background", self.background)]
        words += [("character", name) for name in self.names]
        words += [(f"adverb of level {level}", word) for level, word in self.by_level.items()]
        for key, text in words:
            if problem := why_unfit(text):
                raise ValueError(f"{key} {quoted(text)} {problem}")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.character,) if isinstance(self.character, str) else tuple(self.character)

    @property
    def by_level(self) -> dict[str, str]:
        return dict.fromkeys(_LEVELS, self.adverb) if self.adverbs is None else self.adverbs

    @property
    def span(self) -> Span:
        adverbs = tuple(self.by_level[level] for level in _LEVELS)
        levels = (self.social, self.entertainment, self.stamina)
        return Span(self.start, self.end, self.names, self.motion, self.background, adverbs, levels)


def read_spans(path: Path) -> list[Span]:
    """The spans of a sidecar, in its order; ValueError names a wrong line."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; captioner `script` needs a file <film>{SIDECAR} next to each film")
    spans = []
    for number, line, problem in read_rows(path, _Line):
        if problem is not None:
            raise ValueError(f"{path}:{number}: {problem}; correct the line")
        spans.append(line.span)
    return spans
