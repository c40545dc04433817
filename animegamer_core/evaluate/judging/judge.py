"""A vision model as judge of stories with five scenes, by six criteria; it sees all agents at once, in several passes.

The prompt's wording is ours; its content, the criteria and their order are the paper's (supplement, section 4, which
says four lines but names six criteria). A game of ten turns makes two stories, turns 1 to 5 and 6 to 10; if fewer than
five turns remain, they are left out. Agents have numbers instead of names; their order is shuffled for every story, and
rotated with every pass, so that in as many passes as agents each is in every place equally often.

F frames, H height, W width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...data.benchmark import BenchmarkGame
from ...data.captions.pictures import evenly
from ...data.captions.replies import ReplyError
from ...files import write_text
from ...game.state import clean_text
from ...media.video import read_clip
from ...messages import quoted
from ...weights.storage import write_json
from ..estimates import FEW, Estimate, mean_over_games, ranks
from ..world.metrics import SOURCE
from ..world.scores import CharacterReferences, references_of
from .asking import Task, whole_reply
from .comparison import Comparison, interval_cell, mean_concordance, number_cell, plain, shown_order, table

if TYPE_CHECKING:
    from PIL import Image

Picture = NDArray[np.uint8]  # (H, W, 3) RGB
FRAMES = 5  # for each scene (supplement, section 4)
LONGEST_SIDE = 1536  # px of an image
_GAP, _PAPER = 8, "#ffffff"
SCENES = 5  # of a story
LOWEST, HIGHEST = 1, 10
LONGEST_VERDICT = 4000  # most characters of a reply; valid ones have a few hundred
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

    game: BenchmarkGame
    first: int

    @property
    def name(self) -> str:
        """The name in stored replies and reports, such as heldout-900000/1-5."""
        return f"{self.game.name}/{self.first}-{self.first + SCENES - 1}"

    @property
    def turns(self) -> slice:
        """The slice of its turns in the game."""
        return slice(self.first - 1, self.first - 1 + SCENES)

    @property
    def characters(self) -> tuple[str, ...]:
        """All characters in the order of appearance."""
        return tuple(dict.fromkeys(name for turn in self.game.turns[self.turns] for name in turn.characters))

    @property
    def instructions(self) -> tuple[str, ...]:
        """The instruction of each scene."""
        return tuple(turn.instruction for turn in self.game.turns[self.turns])


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


@dataclass(frozen=True)
class Verdict:
    """A valid reply: scores in the order in which agents were shown, and an explanation on one line."""

    scores: Scores
    explanation: str


def stories_of(games: Sequence[BenchmarkGame]) -> list[Story]:
    """The stories of these games: every five turns, from the first turn on."""
    return [Story(game, first + 1) for game in games for first in range(0, len(game.turns) - SCENES + 1, SCENES)]


def questions_of(stories: Sequence[Story], agents: int, passes: int, seed: int) -> list[Question]:
    """All questions, pass by pass; ValueError for a number of passes out of range."""
    if not 1 <= passes <= MOST_PASSES:
        raise ValueError(f"passes is {passes}; expected 1 to {MOST_PASSES}")
    return [
        Question(story, turn, shown_order(f"judge/{seed}/{story.name}", turn, agents))
        for turn in range(passes)
        for story in stories
    ]


def references_in(stories: Sequence[Story], folder: Path | None) -> CharacterReferences:
    """Reference pictures of all characters in the stories, found like those of `references_of`."""
    games = {}
    for story in stories:
        turn = story.game.turns[0]
        for name in story.characters:  # `references_of` looks only for main characters
            games[name] = BenchmarkGame("alone", (replace(turn, characters=(name,)),))
    return references_of(tuple(games.values()), folder)


def tasks_of(
    questions: Sequence[Question], comparison: Comparison, references: CharacterReferences
) -> Iterator[Task[Verdict]]:
    """Yield the questions as tasks for a model, with the available reference pictures. OSError if a clip is missing."""
    for question in questions:
        clips = [_clips(comparison, agent, question.story) for agent in question.order]
        known = [name for name in question.story.characters if name in references.pictures]
        shown = {name: references.facts["pictures"][name] for name in known}
        yield Task(
            name=question.name,
            prompt=judge_prompt(question.story, len(clips), known),
            parse=partial(parse_verdict, count=len(clips)),
            pictures=partial(_pictures, clips, [references.pictures[name][:MOST_PICTURES] for name in known]),
            depends=(question.turn, shown, [[_digest(clip) for clip in row] for row in clips]),
            about={"order": [comparison.agents[agent] for agent in question.order]},
        )


def judge_prompt(story: Story, agents: int, known: Sequence[str]) -> str:
    """The judge's prompt. known: characters with a row in Image-1; if empty, the agents' pictures come first."""
    scenes = "\n".join(f"Scene {number}: {text}" for number, text in enumerate(story.instructions, start=1))
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


def parse_verdict(text: str, count: int) -> Verdict:
    """The scores of `count` agents in a reply; ReplyError for a wrong line. Only whole numbers are accepted."""
    whole = whole_reply(text)
    if len(whole) > LONGEST_VERDICT:
        raise ReplyError(f"the reply has {len(whole)} characters", f"{_FORM}, all of it short", text)
    lines = [line.strip() for line in whole.split("\n") if line.strip()]
    scores: Scores = {}
    for number, tag in enumerate(CRITERIA):
        line = lines[number] if number < len(lines) else ""
        if not line.startswith(f"<{tag}>"):
            found = f"line {number + 1} is {quoted(line, 60)}, without <{tag}> at its beginning"
            raise ReplyError(found, _FORM, text)
        scores[tag] = _numbers(tag, line[len(tag) + 2 :].split(), count, text)
    explanation = clean_text(" ".join(lines[len(CRITERIA) :]))
    if not explanation:
        raise ReplyError("there is no explanation", _FORM, text)
    repeated = next((tag for tag in CRITERIA if any(f"<{tag}>" in line for line in lines[len(CRITERIA) :])), None)
    if repeated is not None:
        raise ReplyError(f"<{repeated}> appears a second time", f"{_FORM}, each tag once", text)
    return Verdict(scores, explanation)


def _numbers(tag: str, words: list[str], count: int, text: str) -> tuple[int, ...]:
    allowed = {str(score): score for score in range(LOWEST, HIGHEST + 1)}
    expected = f"{count} whole numbers from {LOWEST} to {HIGHEST} after <{tag}>, with spaces between and nothing else"
    odd = next((word for word in words if word not in allowed), None)
    if odd is not None:
        raise ReplyError(f"<{tag}> has {quoted(odd, 60)}", expected, text)
    if len(words) != count:
        raise ReplyError(f"<{tag}> has {len(words)} numbers", expected, text)
    return tuple(allowed[word] for word in words)


def by_agent(question: Question, verdict: Verdict) -> Mapping[str, tuple[int, ...]]:
    """A verdict's scores in the order of the agents."""
    places = [question.order.index(agent) for agent in range(len(question.order))]
    return {tag: tuple(scores[place] for place in places) for tag, scores in verdict.scores.items()}


def _clips(comparison: Comparison, agent: int, story: Story) -> list[Path]:
    turns = comparison.record(agent, story.game.name).turns[story.turns]
    return [comparison.folder(agent, story.game.name) / turn.clip for turn in turns]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _pictures(clips: Sequence[Sequence[Path]], references: Sequence[Sequence[Picture]]) -> tuple[Image.Image, ...]:
    """The reference pictures, if there are any, and each agent's scenes."""
    first = [reference_image(references)] if references else []
    return (*first, *(story_image([read_clip(clip).frames for clip in row]) for row in clips))


def story_image(clips_FHWC: Sequence[NDArray[np.uint8]]) -> Image.Image:
    """An image with one row per scene: 5 evenly spaced frames of its clip, from the first to the last."""
    rows = [[clip[index] for index in evenly(len(clip), FRAMES)] for clip in clips_FHWC]
    height, width = rows[0][0].shape[:2]
    return tiled(rows, (width, height))


def reference_image(pictures: Sequence[Sequence[Picture]]) -> Image.Image:
    """An image with one row per character: its pictures side by side, 240 px high, with their own aspect."""
    return tiled(pictures, (0, 240))


def tiled(rows: Sequence[Sequence[Picture]], size: tuple[int, int]) -> Image.Image:
    """Rows of pictures on white, each resized to `size` (width, height); width 0 keeps the aspect.

    The image is shrunk to LONGEST_SIDE if it is larger.
    """
    from PIL import Image

    width, height = size
    scaled = [[_scaled(picture, width, height) for picture in row] for row in rows]
    widest = max(sum(picture.width + _GAP for picture in row) for row in scaled) - _GAP
    image = Image.new("RGB", (widest, len(scaled) * (height + _GAP) - _GAP), _PAPER)
    for number, row in enumerate(scaled):
        x = 0
        for picture in row:
            image.paste(picture, (x, number * (height + _GAP)))
            x += picture.width + _GAP
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return image


def _scaled(picture: Picture, width: int, height: int) -> Image.Image:
    from PIL import Image

    image = Image.fromarray(picture)
    size = (width or max(1, round(image.width * height / image.height)), height)
    return image if image.size == size else image.resize(size, Image.Resampling.LANCZOS)


@dataclass(frozen=True)
class Judged:
    """The answered questions with their verdicts. agents: names, in the numbering of the questions' orders."""

    agents: tuple[str, ...]
    given: tuple[tuple[Question, Verdict], ...]

    def score(self, agent: int, tag: str) -> Estimate:
        """An agent's mean score, with its interval over games."""
        games: dict[str, list[float]] = {}
        for question, verdict in self.given:
            score = float(by_agent(question, verdict)[tag][agent])
            games.setdefault(question.story.game.name, []).append(score)
        return mean_over_games(list(games.values()))

    def agreement(self, tag: str) -> float | None:
        """Kendall's W of the passes, averaged over stories."""
        stories: dict[str, list[NDArray[np.float64]]] = {}
        for question, verdict in self.given:
            scores = np.asarray(by_agent(question, verdict)[tag], dtype=float)
            stories.setdefault(question.story.name, []).append(ranks(-scores) + 1)
        return mean_concordance(stories.values())

    def by_place(self, tag: str) -> list[float]:
        """The mean score of each place, in the order shown: far apart if the judge favours a place."""
        return [float(mean) for mean in np.mean([verdict.scores[tag] for _, verdict in self.given], axis=0)]


def save_report(out: Path, judged: Judged, facts: Mapping[str, Any]) -> list[Path]:
    """Write judge.json and judge.md; returns their paths."""
    scores = {agent: {tag: judged.score(number, tag) for tag in CRITERIA} for number, agent in enumerate(judged.agents)}
    agreement = {tag: judged.agreement(tag) for tag in CRITERIA}
    values = {
        **facts,
        "scores": {agent: {tag: asdict(value) for tag, value in row.items()} for agent, row in scores.items()},
        "agreement": agreement,
        "places": {tag: judged.by_place(tag) for tag in CRITERIA},
    }
    names = [f"{name} &lt;{tag}&gt;" for tag, (name, _) in CRITERIA.items()]
    rows = [[plain(agent), *map(interval_cell, row.values())] for agent, row in scores.items()]
    rows += [[f"{agent} (paper)", *(number_cell(row.get(tag)) for tag in CRITERIA)] for agent, row in JUDGED.items()]
    rows.append(["W", *map(number_cell, agreement.values())])
    for number in range(len(judged.agents)):
        rows.append([f"Place {number + 1}", *(number_cell(judged.by_place(tag)[number]) for tag in CRITERIA)])
    notes = (
        f"Scores from 1 to 10; a story is {SCENES} turns. Intervals: 95 %, bootstrap over games; with fewer than {FEW} "
        "they are too narrow. W: Kendall's coefficient of concordance of the passes, mean over stories; 1 is full "
        f"agreement. Place: the mean score of the agents shown there. (paper): GPT-4V's scores of other games, from "
        f"{SOURCE}; `-`: not given."
    )
    lines = "\n".join(f"- {plain(name)}: {plain(str(value))}" for name, value in facts.items())
    write_json(out / "judge.json", values)
    parts = ["# Judged by a model", table(["Agent", *names], rows), lines, notes]
    write_text(out / "judge.md", "\n\n".join(parts) + "\n")
    return [out / "judge.json", out / "judge.md"]
