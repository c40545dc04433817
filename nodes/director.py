"""A world that acts: the widgets of autoplay, and the route that proposes next instructions."""

from __future__ import annotations

import typing

from comfy_api.v0_0_2 import io

from ..animegamer_core.messages import brief
from ..animegamer_core.state import GameSession
from ..animegamer_core.story.director import SUGGESTIONS
from ..animegamer_core.story.endpoint import MODEL, URL, give_up_after
from ..animegamer_core.story.endpoint_director import DIRECTORS, RULES, proposer_for
from ..animegamer_core.story.story import Story
from . import comfyui
from .saved_stories import WorldFacts, choose_turn, list_stories, played_world, story_name, world_facts
from .widgets import LAST_TURN, MAX_SEED, choice_input, optional_number_input

MOST_AUTOPLAY = 10_000
MOST_SUGGESTIONS = 10
LONGEST_SUGGESTING = 90.0  # seconds


def autoplay_inputs() -> list[io.Input]:
    """How many turns the world plays by itself. Optional, and a node's last ones, so that older graphs still work."""
    return [
        optional_number_input(
            "autoplay",
            0,
            0,
            MOST_AUTOPLAY,
            "After the instructions, play this many more turns automatically: a director proposes what happens next "
            "from the stats and the last turns. 0: none.",
        ),
        io.Int.Input(
            "autoplay_seed",
            default=0,
            min=0,
            max=MAX_SEED,
            control_after_generate=False,
            optional=True,
            tooltip="Seed of the proposals: another number gives another life. The same number and the same game give "
            "the same turns.",
        ),
    ]


def director_input() -> io.Input:
    """Who proposes the turns of autoplay. Optional, and a node's last one, so that older graphs still work."""
    return choice_input(
        "director",
        DIRECTORS,
        RULES,
        "Who proposes the turns of autoplay. rules: a simple built-in rule. endpoint: a language model at an "
        f"OpenAI-compatible endpoint, set by the environment variables {URL}, {MODEL} and OPENAI_API_KEY.",
        optional=True,
    )


def suggestions(query: typing.Mapping[str, str]) -> dict[str, typing.Any]:
    """Proposals for the next turn of a story, or for the first one of a new story; ValueError for an invalid request.

    query: world, story, and optionally branch, after (-1: the last turn), seed, count and director (rules or endpoint).
    """
    name, seed = story_name(query.get("story", "")), _number(query, "seed", 0, 0, MAX_SEED)
    count = _number(query, "count", SUGGESTIONS, 1, MOST_SUGGESTIONS)
    if name in list_stories():
        facts, session = _saved(name, query)
    else:
        facts = world_facts(query.get("world", ""))
        rules = facts.life.rules
        session = GameSession(rules=rules)
    check = give_up_after(LONGEST_SUGGESTING)  # a page waits, and one of the server's threads with it
    director = proposer_for(query.get("director", RULES), facts.life, facts.spec_name, session, seed, check)
    rules = session.rules or facts.life.rules
    found = [
        {"instruction": one.instruction, "reason": one.reason, "label": rules.label(one.reason) if one.reason else ""}
        for one in director(session, count)
    ]
    return {"suggestions": found, "proposed_by": director.name}


def _saved(name: str, query: typing.Mapping[str, str]) -> tuple[WorldFacts, GameSession]:
    """The world of a saved story, and the game up to the requested turn."""
    story = Story.read(comfyui.output_folder(), name)
    after = choose_turn(story, _number(query, "after", -1, -1, LAST_TURN), query.get("branch", ""))
    world, facts = played_world(story.world_name, story.fingerprint)
    return facts or world_facts(world), story.session(after, 0)


def _number(query: typing.Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """A whole number of a query; ValueError if it is something else or out of range."""
    text = query.get(name, str(default))
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 20 and low <= int(text) <= high):
        raise ValueError(f"{name} is {brief(text, 40)!r}; expected a whole number from {low} to {high}")
    return int(text)
