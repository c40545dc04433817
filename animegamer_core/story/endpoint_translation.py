"""Translates Chinese and Japanese instructions that the table of phrases cannot read, with a language model.

For worlds that list no words, such as the published ones, if an endpoint is set. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..life import Words
from ..messages import brief
from ..recall import PUBLISHED
from ..state import clean_text
from .endpoint import TRIES, answer_of, do_nothing, lines_of, model_at, stated
from .languages import CHARACTERS, has_other_letters, read_instruction

if TYPE_CHECKING:
    from ..endpoint import VisionModel

MOST_KEPT = 1000  # translations in memory, so that each line is requested once
_kept: dict[tuple[str, str, str], str] = {}


def read_with_endpoint(
    text: str, words: Words | None, world: str, check: Callable[[], None] = do_nothing, known: str | None = None
) -> str:
    """The cleaned instruction that an engine reads, as from `read_instruction`; a model translates what that cannot
    read.

    known: the earlier translation, used instead of asking. check: called while waiting for an answer. ValueError as
    from `read_instruction`, and if the model's reply is not an instruction.
    """
    read = read_instruction(text, words, world)
    url, model = stated()
    if words is not None or not (url and model) or not has_other_letters(read):
        return read
    if known is not None:
        return known
    key = (url, model, read)
    if key not in _kept:
        found = _translated(model_at(url, model), read, check)
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        _kept[key] = found
    return _kept[key]


def _translated(model: VisionModel, text: str, check: Callable[[], None]) -> str:
    from ..endpoint import Question

    problem = ""
    for attempt in range(1, 1 + TRIES):
        reply = answer_of(model, Question(_request(text)), attempt, check)
        for line in lines_of(reply.text):
            if PUBLISHED.fullmatch(line) and not has_other_letters(line):
                return line
        problem = reply.problem or f"it said {brief(clean_text(reply.text), 80)!r}"
    raise ValueError(
        f"{model.name} did not translate {brief(text, 60)!r} in {TRIES} replies: {problem}; write it in English"
    )


def _request(text: str) -> str:
    names = "; ".join(f"{spellings.replace(' ', ', ')}: {name}" for name, spellings in CHARACTERS.items())
    return "\n".join(
        (
            "Say this instruction for an animated game in English. Keep who, what, how and where; add nothing.",
            f"Names: {names}. Write other names in Latin letters.",
            "Answer with one line in this form and nothing else:",
            "Character: NAME[, NAME]; Motion: [adverb] motion; Background: [time of day] place.",
            "",
            text,
        )
    )
