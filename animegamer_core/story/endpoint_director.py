"""A language model at an OpenAI-compatible endpoint proposes what happens next. Imports neither torch nor Pillow.

It gets the last turns with the stats after each, and what the world knows. Its reply is text from outside: a line is
valid if it is an instruction in the published form and, in a world that lists its words, has only those words and no
pair that never appears in its training data. If no line is valid, the model is asked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..life import PUBLISHED_RULES, Life, Rules, Words, time_and_place
from ..messages import brief
from ..recall import PUBLISHED, names_of
from ..state import GameSession, Turn
from .director import LOOKS_BACK, Proposal, Proposer
from .endpoint import LATER_TRIES, LONGEST_LINE, MODEL, TRIES, URL, answer_of, do_nothing, lines_of, model_at, stated
from .everyday import director_for, words_for

if TYPE_CHECKING:
    from ..endpoint import VisionModel

RULES, ENDPOINT = "rules", "endpoint"
DIRECTORS = (RULES, ENDPOINT)

_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_GRAMMAR = frozenset("Character Motion Background a an the with".split())
_FORM = "Character: NAME[, NAME]; Motion: [adverb] motion; Background: [time of day] place."


@dataclass(frozen=True)
class EndpointDirector:
    """Proposes what a model answers. words: what the world knows; closed: it knows nothing else. seed: goes into the
    request, for services that can repeat an answer. check: called while waiting for an answer; raises to give up.
    """

    model: VisionModel
    words: Words
    closed: bool
    seed: int = 0
    check: Callable[[], None] = do_nothing

    @property
    def name(self) -> str:
        """The proposer's name, as recorded in a story."""
        return f"{self.model.name}, seed {self.seed}"

    def __call__(self, session: GameSession, count: int = 1) -> tuple[Proposal, ...]:
        """At most `count` proposals for the next turn. ValueError if no answer comes, or none that can be played."""
        from ..endpoint import Question

        question = Question(self._text(session, count), seed=self.seed)
        problem = ""
        for attempt in LATER_TRIES:
            reply = answer_of(self.model, question, attempt, self.check)
            found, problem = self._read(reply.text, count, reply.problem)
            if found:
                return tuple(map(Proposal, found))
        raise ValueError(f"{self.model.name} proposed nothing playable in {TRIES} replies: {problem}")

    def _text(self, session: GameSession, count: int) -> str:
        """The request."""
        rules = session.rules or PUBLISHED_RULES
        turns = [turn for turn in session.turns[-LOOKS_BACK:] if turn.number > 0]
        lines = [
            "You direct the everyday life of animated characters, one short shot at a time. Propose what happens next: "
            f"{count} different turn{'s' if count > 1 else ''} that follow from the story and from the stats. Low "
            "stats should rise again: rest raises the first, company the second, entertainment the third. Do not "
            "repeat the last turns, and stay some turns with a place and a time of day before you change them.",
            "",
            "The story so far, the newest turn last:",
            *([f"{turn.number}. {_turn_line(turn, rules)}" for turn in turns] or ["nothing yet"]),
            "",
            f"Now: {_stats(session.character, rules)}; each from 0 to 100.",
            "",
            *self._known(),
            f"Answer with exactly {count} line{'s' if count > 1 else ''} in this form and nothing else:",
            _FORM,
        ]
        return "\n".join(lines)

    def _known(self) -> list[str]:
        words = self.words
        known = {
            "characters": words.characters,
            "motions": [act.phrase + (" (with a second character)" if act.company else "") for act in words.acts],
            "adverbs": [adverb for group in words.adverbs for adverb in group],
            "places": words.places,
            "times of day": words.times,
            "things to carry, as in `run with a red scarf`": words.things,
            "looks of things": words.looks,
        }
        begin = "Use these words only." if self.closed else "For example:"
        return [begin, *(f"{name}: {', '.join(items)}" for name, items in known.items() if items), ""]

    def _read(self, text: str, count: int, problem: str) -> tuple[list[str], str]:
        """The lines of a reply that can be played, and what is wrong with the first other one."""
        found: list[str] = []
        for line in lines_of(text):
            wrong = self._wrong(line)
            problem = problem or wrong
            if not wrong and line not in found:
                found.append(line)
        return found[:count], problem or f"no line has the form `{_FORM}`"

    def _wrong(self, line: str) -> str:
        """What is wrong with a line; empty if nothing is."""
        parts = PUBLISHED.fullmatch(line)
        if parts is None:
            return f"{brief(line, 80)!r} does not have the form `{_FORM}`"
        if not self.closed:
            return ""
        if strange := [word for word in _WORD.findall(line) if word not in self._vocabulary]:
            return f"{brief(line, 80)!r} has words that this world does not know: {', '.join(strange[:5])}"
        who, act = names_of(parts["who"]), self.words.act_of(parts["motion"])
        _, place = time_and_place(parts["place"], self.words.times)
        together = [*who, place, *([act.phrase] if act else [])]
        for index, one in enumerate(together):
            for other in together[:index]:
                if not self.words.tried(one, other):
                    return f"{brief(line, 80)!r} has {other!r} and {one!r}, which training data never combines"
        return ""

    @cached_property
    def _vocabulary(self) -> frozenset[str]:
        words = self.words
        phrases = [*words.characters, *words.places, *words.times, *words.things, *words.looks]
        phrases += [act.phrase for act in words.acts] + [adverb for group in words.adverbs for adverb in group]
        return _GRAMMAR.union(word for phrase in phrases for word in _WORD.findall(phrase))


def proposer_for(
    kind: str,
    life: Life,
    world_name: str,
    session: GameSession,
    seed: int,
    check: Callable[[], None] = do_nothing,
    endpoint: tuple[str, str] | None = None,
) -> Proposer:
    """Who proposes the turns of a game: `rules`, or the model behind an `endpoint`.

    endpoint: (url, model); None: those of the environment variables. ValueError for another kind, for a world without
    words, and for an endpoint that is not or wrongly stated.
    """
    if kind == RULES:
        return director_for(life, world_name, session, seed)
    if kind != ENDPOINT:
        raise ValueError(f"unknown director {brief(kind, 40)!r}; choose {' or '.join(DIRECTORS)}")
    url, model = endpoint or stated()
    if not url or not model:
        raise ValueError(
            f"the director `{ENDPOINT}` needs an OpenAI-compatible endpoint; set the environment variables {URL} (such "
            f"as http://localhost:8000/v1) and {MODEL} (the model's name there)"
        )
    words = words_for(life, world_name, session)
    return EndpointDirector(model_at(url, model), words, life.words is not None, seed, check)


def _turn_line(turn: Turn, rules: Rules) -> str:
    return f"{brief(turn.instruction, LONGEST_LINE)} ({_stats(turn.character, rules)})"


def _stats(values: dict[str, int], rules: Rules) -> str:
    return ", ".join(f"{rules.label(name)} {values[name]}" for name in rules.names)
