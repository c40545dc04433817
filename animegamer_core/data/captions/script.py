"""Captions from a sidecar file, in which a person or a generator described spans of a film. No model is asked.

A sidecar is `<film>.captions.jsonl`, one line a span: {start, end, character, motion, background, adverb or adverbs,
social, entertainment, stamina}. adverbs: {level 1..5: word}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...model.prompt import GRAMMAR
from ..motion import LEVELS
from ..records import only_keys
from .captioner import ClipTask
from .replies import Caption, ReplyError
from .words import why_unfit

SIDECAR = ".captions.jsonl"  # in place of the film's suffix
SLACK = 0.25  # seconds that a clip may extend beyond its span: cuts are found within a frame, fades less exactly
_KEYS = ("start", "end", "character", "motion", "background", "adverb", "adverbs", *(c.name for c in GRAMMAR[1:]))
_OPTIONAL = ("adverb", "adverbs")


def sidecar_of(film: Path) -> Path:
    """The sidecar file of a film, as `pond.captions.jsonl` beside `pond.mp4`."""
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
        """The caption of the span that contains the clip; ReplyError if no span or several contain it."""
        record = task.record
        spans = [
            span
            for span in self._spans.get(record.film, ())
            if record.start >= span.start - SLACK and record.end <= span.end + SLACK
        ]
        if len(spans) != 1:
            found = f"{len(spans)} spans of {record.film!r} contain {record.start:.2f} to {record.end:.2f} s"
            raise ReplyError(found, f"one line of {record.film}{SIDECAR} that does")
        span = spans[0]
        adverb = span.adverbs[record.motion_level - 1]
        return Caption(span.characters[0], span.motion, span.background, adverb, *span.levels, span.characters)


def read_spans(path: Path) -> list[Span]:
    """The spans of a sidecar, in its order; ValueError names a wrong line."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; captioner `script` needs a file <film>{SIDECAR} for each film")
    spans = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            spans.append(_span(json.loads(line)))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}:{number}: {error}") from error
    return spans


def _span(values: Any) -> Span:
    only_keys(values, _KEYS, required=tuple(name for name in _KEYS if name not in _OPTIONAL))
    names = values["character"] if isinstance(values["character"], list) else [values["character"]]
    if not names:
        raise ValueError("character is []; expected a name or a list of names")
    for key, words in [("character", name) for name in names] + [
        (key, values[key]) for key in ("motion", "background")
    ]:
        _fit(key, words)
    start, end = (_seconds(key, values[key]) for key in ("start", "end"))
    if not start < end:
        raise ValueError(f"start {start} is not before end {end}")
    levels = [_number(choice.name, values[choice.name], choice.allowed) for choice in GRAMMAR[1:]]
    return Span(start, end, tuple(names), values["motion"], values["background"], _adverbs(values), tuple(levels))


def _adverbs(values: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    if ("adverb" in values) == ("adverbs" in values):
        raise ValueError("expected either adverb (a word) or adverbs ({level: word})")
    by_level = values.get("adverbs", dict.fromkeys(map(str, range(1, LEVELS + 1)), values.get("adverb")))
    if not isinstance(by_level, dict) or sorted(by_level) != [str(level) for level in range(1, LEVELS + 1)]:
        raise ValueError(f"adverbs is {by_level!r}; expected one word for each level 1 to {LEVELS}")
    for level, word in by_level.items():
        _fit(f"adverb of level {level}", word)
    return tuple(by_level[str(level)] for level in range(1, LEVELS + 1))


def _fit(key: str, words: Any) -> None:
    if not isinstance(words, str):
        raise ValueError(f"{key} is {words!r}; expected words")
    if problem := why_unfit(words):
        raise ValueError(f"{key} {words!r} {problem}")


def _seconds(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError(f"{key} is {value!r}; expected seconds, 0 or more")
    return float(value)


def _number(key: str, value: Any, allowed: tuple[int, ...]) -> int:
    if type(value) is not int or value not in allowed:
        raise ValueError(f"{key} is {value!r}; expected {' or '.join(map(str, allowed))}")
    return value
