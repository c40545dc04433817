"""Lets a language model write stories for a benchmark: ten panels each, as lines that `evaluate world` plays.

The prompt's wording is ours; its content, the tags and their order are the paper's (supplement, section 4). The
background is a time of day and a place, since an instruction names both.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...data.benchmark import FORM, BenchmarkError, BenchmarkGame, BenchmarkTurn, benchmark_text, parse_turn
from ...data.captions.asking import AskSettings, OnProgress, ReplyLog, Task, ask_all
from ...data.captions.pictures import read_references
from ...data.captions.replies import TIMES, ReplyError, phrase, whole_reply, why_unfit
from ...endpoint import VisionModel
from ...files import write_text
from ...game.life import questions
from ...game.state import clean_text
from ...messages import quoted

PANELS, MOST_PANELS = 10, 50
SHOWN_LINES = 4  # how many wrong lines the next prompt lists
OPENINGS = (
    *("kitchen", "bedroom", "garden", "street", "market", "school", "library", "beach", "forest", "park"),
    *("hill", "lake", "bakery", "station", "castle", "farm", "harbour", "bridge", "meadow", "mountain"),
)
MOST_STORIES = len(TIMES) * len(OPENINGS)  # since each begins at another time or place
_SHOWN = 60  # characters of a reply in an error
_PANEL = "<S>characters</S><MD>motion</MD><EV>time place</EV><ML>1 to 5</ML><MA>adverb</MA><SC>0 or 1</SC>"
_PANEL += "<ET>0 or 1</ET><ST>-1 or 1</ST>"


@dataclass(frozen=True)
class StoryPlan:
    """One story to write.

    name: of its game. character: the main one. others: possible supporting characters. time, place: of its beginning,
    so that stories of the same character differ.
    """

    name: str
    character: str
    others: tuple[str, ...]
    time: str
    place: str
    panels: int


def read_characters(text: str) -> tuple[str, ...]:
    """The names in `NAME,NAME` or in a folder of reference pictures; ValueError for an invalid or a repeated name."""
    if text and os.path.isdir(text):  # Path.is_dir raises an error for a long list of names
        return tuple(reference.name for reference in read_references(text))
    given = [name.strip() for name in text.split(",")]
    for name in given:
        if problem := why_unfit(name):
            raise ValueError(f"--characters: the name {quoted(name, 60)} {problem}; give NAME,NAME or a folder")
    names = tuple(map(clean_text, given))  # cleaned like the lines of a reply
    if len({name.lower() for name in names}) < len(names):
        raise ValueError(f"--characters {text}: a name is given twice; give each once")
    return names


def plan_stories(characters: Sequence[str], stories: int, panels: int = PANELS, seed: int = 0) -> list[StoryPlan]:
    """Plan the stories: characters take turns as the main one, and each story begins at another time or place.

    The first stories are the same however many are planned. ValueError for numbers out of range.
    """
    if not 1 <= stories <= MOST_STORIES or not 1 <= panels <= MOST_PANELS:
        raise ValueError(f"{stories} stories of {panels}; expected 1 to {MOST_STORIES}, of 1 to {MOST_PANELS} panels")
    places = [(time, place) for time in TIMES for place in OPENINGS]
    random.Random(f"stories:{seed}").shuffle(places)
    plans = []
    for number in range(stories):
        character = characters[number % len(characters)]
        others = tuple(name for name in characters if name != character)
        plans.append(StoryPlan(f"story-{number + 1:03}", character, others, *places[number], panels))
    return plans


def story_prompt(plan: StoryPlan) -> str:
    others = f"at most one supporting character, one of: {', '.join(plan.others)}" if plan.others else "nobody else"
    return (
        "You are the world model of a game that simulates the life of an anime character, and you tell what happens in "
        f"that world. Write a story of {plan.panels} panels with {plan.character} as the main character. It should "
        "read like a game in which a player decides what to do next. Give for each panel: "
        f"(1) the characters <S>: {plan.character} in every panel and first, and beside {plan.character} {others}; put "
        "a comma between two names, and write names exactly as here. "
        "(2) the motion <MD>: what the main character does, as a simple phrase in the present simple tense. "
        f"(3) the environment <EV>: the time of day ({', '.join(TIMES)}), a space, and a single word for the place. "
        "(4) the motion level <ML>, a number: 1 for hardly any movement; 2 for little movement, such as slight "
        "swaying; 3 for moderate movement; 4 for large movement that is plain to see; 5 for very large and intense "
        "movement. "
        "(5) the movement adverb <MA>: an adverb for <MD> that fits <ML>. "
        f"{questions(6)} "
        "Of the whole story: let each panel follow from the one before; let several things happen in one place, and "
        "let later panels come back to earlier places. Stay close to everyday life, with common places and with "
        "actions that are easy to draw, and without small things that are hard to draw. "
        f"The first panel is set at: {plan.time} {plan.place}. "
        f"Write in English, one line a panel, {plan.panels} lines and nothing else, each line in this format: {_PANEL}"
    )


def parse_story(text: str, plan: StoryPlan) -> tuple[BenchmarkTurn, ...]:
    """The turns in a reply; ReplyError for wrong lines.

    Only capital letters in phrases, extra spaces, and what is around the panels are corrected.
    """
    lines = [line.strip() for line in whole_reply(text).split("\n") if "<S>" in line]
    if len(lines) != plan.panels:
        expected = f"exactly {plan.panels} lines and nothing else, each {FORM}"
        raise ReplyError(f"the reply has {len(lines)} lines with <S>", expected, text)
    turns, wrong = [], []
    for number, line in enumerate(lines, start=1):
        try:
            turns.append(_checked(parse_turn(line), plan))
        except (BenchmarkError, ReplyError) as error:
            wrong.append((number, error))
    if wrong:
        expected = "; ".join(f"in line {number}: {error.expected}" for number, error in wrong[:SHOWN_LINES])
        raise ReplyError(f"line {wrong[0][0]}: {wrong[0][1]}", expected, text)
    return tuple(turns)


def _checked(turn: BenchmarkTurn, plan: StoryPlan) -> BenchmarkTurn:
    """The turn with phrases in lower case; BenchmarkError for wrong characters, ReplyError for words that an
    instruction cannot contain."""
    main, *others = turn.characters
    if main != plan.character:
        raise BenchmarkError(f"<S> begins with {quoted(main, _SHOWN)}", f"{plan.character} first in <S>")
    if len(others) > 1 or not set(others) <= set(plan.others):
        known = f"nobody or one of {', '.join(plan.others)}" if plan.others else "nobody"
        found = quoted(", ".join(others), _SHOWN)
        raise BenchmarkError(f"<S> has {found}", f"{known} after {plan.character} in <S>")
    phrases = (("MD", turn.motion), ("EV", turn.background), ("MA", turn.adverb))
    motion, background, adverb = (phrase(tag, words) for tag, words in phrases)
    return BenchmarkTurn(turn.characters, motion, background, turn.level, adverb, turn.change)


def write_stories(
    path: Path,
    plans: Sequence[StoryPlan],
    model: VisionModel,
    terms: AskSettings,
    on_progress: OnProgress | None = None,
) -> tuple[tuple[BenchmarkGame, ...], str]:
    """Ask for the stories and write the valid ones as a benchmark; the same call continues after an interruption.

    Returns the written games, none while questions are open, and the counts as text. PATH.replies.jsonl gets every raw
    reply, so that none is paid for twice. ValueError if the file exists.
    """
    if path.exists():
        raise ValueError(f"{path} exists; give another file with --out, or delete it: the replies beside it are kept")
    tasks = [
        Task(plan.name, story_prompt(plan), partial(parse_story, plan=plan), about={"character": plan.character})
        for plan in plans
    ]
    with ReplyLog.open(path.with_name(f"{path.name}.replies.jsonl")) as kept:
        result, text = ask_all(model, tasks, kept, terms, on_progress)
    written = tuple(BenchmarkGame(plan.name, result.values[plan.name]) for plan in plans if plan.name in result.values)
    if not written or len(written) + len(result.invalid) < len(plans):
        return (), text
    remark = f"{len(written)} stories for a benchmark, written by the language model {clean_text(model.name)}."
    write_text(path, benchmark_text(written, (remark,)))
    return written, text
