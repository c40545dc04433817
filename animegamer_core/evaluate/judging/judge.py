"""A vision model as judge of stories with five scenes, by six criteria; it sees all agents at once, in several passes.

The prompt's wording is ours; its content, the criteria and their order are the paper's (supplement, section 4, which
says four lines but names six criteria). A game of ten turns makes two stories, turns 1 to 5 and 6 to 10; if fewer than
five turns remain, they are left out. Agents have numbers instead of names; their order is shuffled for every story, and
rotated with every pass, so that in as many passes as agents each is in every place equally often.

F frames, H height, W width.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...data.benchmark import BenchmarkTurn
from ...data.captions.asking import Task
from ...data.captions.pictures import evenly, tiled
from ...data.captions.replies import ReplyError, whole_reply
from ...media.video import read_clip
from ...messages import quoted
from ...weights.storage import note_of
from ..estimates import FEW, Estimate, mean_over_games
from ..world.metrics import SOURCE
from ..world.scores import CharacterReferences
from .comparison import Comparison, save_scores, shown_order

if TYPE_CHECKING:
    from PIL import Image

Picture = NDArray[np.uint8]  # (H, W, 3) RGB
FRAMES = 5  # for each scene (supplement, section 4)
LONGEST_SIDE = 1536  # px of an image
REFERENCE_HEIGHT = 240  # px of a reference picture
SCENES = 5  # of a story
LOWEST, HIGHEST = 1, 10
ALLOWED = {str(score) for score in range(LOWEST, HIGHEST + 1)}
MOST_PASSES = 20
MOST_PICTURES = 3  # of each character
CRITERIA: dict[str, tuple[str, str]] = {  # tag -> its name and question, in the order of the reply
    "OA": ("Overall quality", "how good the game is to experience as a whole"),
    "TA": ("Text alignment", "how well the pictures show what the scene's text asks"),
    "ConC": ("Contextual coherence", "whether each scene follows naturally from the ones before it"),
    "ChaC": ("Character consistency", "whether the characters of every scene are those of the reference pictures"),
    "EC": ("Emotional consistency", "whether the mood that the scenes express fits the feelings that the text tells"),
    "VC": ("Visual coherence", "whether colours, style and composition of the scenes belong together"),
}
# The paper's scores by GPT-4V, out of 10: four of the six criteria, for two players.
JUDGED: dict[str, dict[str, float]] = {
    "AnimeGamer": {"OA": 8.36, "TA": 9.14, "ConC": 8.41, "ChaC": 9.11},
    "GC": {"OA": 6.42, "TA": 7.29, "ConC": 6.58, "ChaC": 7.49},
}
_FORM = "six lines, <OA>, <TA>, <ConC>, <ChaC>, <EC>, <VC> in this order, then the explanation on a new line"

Scores = dict[str, tuple[int, ...]]  # tag -> a score for each agent


@dataclass(frozen=True)
class Story:
    """The SCENES turns of a game that are judged together. first: the number of the first turn."""

    game: str
    first: int
    turns: tuple[BenchmarkTurn, ...]

    @property
    def name(self) -> str:
        """The name in stored replies and reports, such as heldout-900000/1-5."""
        return f"{self.game}/{self.first}-{self.first + SCENES - 1}"

    @property
    def characters(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for turn in self.turns for name in turn.characters))


@dataclass(frozen=True)
class Question:
    """One story in one pass.

    turn: the pass, from 0. order: which agent (0, 1, ...) is shown as agent 1, agent 2 and so on.
    """

    story: Story
    turn: int
    order: tuple[int, ...]

    @property
    def name(self) -> str:
        """The question's unique name; passes count from 1."""
        return f"{self.story.name} pass {self.turn + 1}"


def stories_of(comparison: Comparison, limit: int | None = None) -> list[Story]:
    """The stories of the first `limit` games: every five turns, from the first turn on; ValueError if there is none."""
    if limit is not None and limit < 1:
        raise ValueError(f"--limit is {limit}; expected 1 game or more")
    stories = []
    for name in list(comparison.games)[:limit]:
        turns = tuple(turn.asked for turn in comparison.games[name][0].turns)
        starts = range(0, len(turns) - SCENES + 1, SCENES)
        stories += [Story(name, start + 1, turns[start : start + SCENES]) for start in starts]
    if not stories:
        raise ValueError(
            f"a story takes {SCENES} turns, but no game that all runs share is that long; play longer games"
        )
    return stories


def questions_of(stories: Sequence[Story], agents: int, passes: int, seed: int) -> list[Question]:
    """All questions, pass by pass; ValueError for a number of passes out of range."""
    if not 1 <= passes <= MOST_PASSES:
        raise ValueError(f"passes is {passes}; expected 1 to {MOST_PASSES}")
    return [
        Question(story, turn, shown_order(f"judge/{seed}/{story.name}", turn, agents))
        for turn in range(passes)
        for story in stories
    ]


def tasks_of(
    questions: Sequence[Question], comparison: Comparison, references: CharacterReferences
) -> Iterator[Task[Scores]]:
    """Yield the questions as tasks for a model, with the available reference pictures. OSError if a clip is missing."""
    for question in questions:
        story, start = question.story, question.story.first - 1
        clips = [comparison.clips(agent, story.game)[start : start + SCENES] for agent in question.order]
        known = [name for name in story.characters if name in references.pictures]
        shown = {name: references.facts["pictures"][name] for name in known}
        yield Task(
            name=question.name,
            prompt=judge_prompt(story, len(clips), known),
            parse=partial(parse_scores, count=len(clips)),
            pictures=partial(_pictures, clips, [references.pictures[name][:MOST_PICTURES] for name in known]),
            depends=(question.turn, shown, [[note_of(clip).sha256[:16] for clip in row] for row in clips]),
            about={"order": [comparison.agents[agent] for agent in question.order]},
        )


def judge_prompt(story: Story, agents: int, known: Sequence[str]) -> str:
    """The judge's prompt. known: characters with a row in Image-1; if empty, the agents' pictures come first."""
    scenes = "\n".join(f"Scene {number}: {turn.instruction}" for number, turn in enumerate(story.turns, start=1))
    first = 2 if known else 1
    shown = ", ".join(f"Image-{number + first} is by agent {number + 1}" for number in range(agents))
    references = (
        f"Image-1 holds the reference pictures of the characters, a row each, from top to bottom: {', '.join(known)}. "
        if known
        else "There are no reference pictures; compare the characters with those of the first scene. "
    )
    criteria = "\n".join(f"<{tag}> {name}: {about}" for tag, (name, about) in CRITERIA.items())
    form = "\n".join(f"<{tag}>{' n' * agents}" for tag in CRITERIA)
    return (
        f"You are an impartial judge of video stories that {agents} AI agents made from the same text.\n"
        f"1) The story has {SCENES} scenes. Their text:\n{scenes}\n"
        f"2) What you see: {references}{shown}. In an agent's picture the i-th row shows {FRAMES} frames, in the order "
        "of time, of the video that the agent made of scene i.\n"
        f"3) Score every agent by each of these criteria, with whole numbers from {LOWEST} to {HIGHEST}; a higher "
        f"number is better:\n{criteria}\n"
        f"4) Write {len(CRITERIA)} lines. Each begins with the code of a criterion and goes on with {agents} numbers, "
        "the scores of the agents in the order of their numbers, separated by spaces; n stands for a number:\n"
        f"{form}\nThen explain your scores briefly on a new line, without repeating the codes. Write nothing else.\n"
        "5) Be fair: neither the order in which agents are shown, nor their numbers, nor the length of a text may "
        "change a score. Let the scores differ as much as the stories do."
    )


def parse_scores(text: str, count: int) -> Scores:
    """The scores of `count` agents in a reply; ReplyError for a wrong line. Only whole numbers are accepted."""
    scores: Scores = {}
    for tag in CRITERIA:
        line = re.search(rf"^[ \t]*<{tag}>(.*?)(?:</{tag}>)?[ \t]*$", whole_reply(text), re.MULTILINE)
        words = line[1].split() if line else []
        if len(words) != count or not all(word in ALLOWED for word in words):
            expected = f"{count} whole numbers from {LOWEST} to {HIGHEST} after <{tag}>, and nothing else; {_FORM}"
            raise ReplyError(f"<{tag}> has {quoted(' '.join(words), 60)}", expected, text)
        scores[tag] = tuple(map(int, words))
    return scores


def _pictures(clips: Sequence[Sequence[Path]], references: Sequence[Sequence[Picture]]) -> tuple[Image.Image, ...]:
    """The reference pictures, if there are any, a row for each character; then each agent's scenes.

    A scene is a row of 5 evenly spaced frames of its clip, from the first to the last.
    """
    shown = [tiled(references, REFERENCE_HEIGHT, LONGEST_SIDE)] if references else []
    for row in clips:
        scenes = [read_clip(clip).frames for clip in row]
        frames = [[scene[index] for index in evenly(len(scene), FRAMES)] for scene in scenes]
        shown.append(tiled(frames, scenes[0].shape[1], LONGEST_SIDE))
    return tuple(shown)


def mean_score(given: Sequence[tuple[Question, Scores]], agent: int, tag: str) -> Estimate:
    """An agent's mean score in the answered questions, with its interval over games."""
    games: dict[str, list[float]] = {}
    for question, scores in given:
        games.setdefault(question.story.game, []).append(scores[tag][question.order.index(agent)])
    return mean_over_games(list(games.values()))


def save_report(
    out: Path, agents: Sequence[str], given: Sequence[tuple[Question, Scores]], facts: Mapping[str, Any]
) -> list[Path]:
    """Write judge.json and judge.md of the answered questions; returns their paths."""
    notes = (
        f"Scores from 1 to 10; a story is {SCENES} turns. Intervals: 95 %, bootstrap over games; with fewer than {FEW} "
        f"they are too narrow. (paper): GPT-4V's scores of other games, from {SOURCE}; `-`: not given."
    )
    return save_scores(
        out / "judge",
        "Judged by a model",
        {tag: f"{name} &lt;{tag}&gt;" for tag, (name, _) in CRITERIA.items()},
        {name: {tag: mean_score(given, agent, tag) for tag in CRITERIA} for agent, name in enumerate(agents)},
        JUDGED,
        notes,
        facts,
    )
