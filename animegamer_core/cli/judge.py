"""The tasks of `evaluate` with judges: a language model writes stories, and a vision model or people judge them."""
# ruff: noqa: T201

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from ..data.captions.asking import AskSettings, ReplyLog, ask_all
from ..endpoint import EndpointModel, EndpointSettings
from .dataset import Asking, Endpoint
from .options import Progress

GAMES = 9  # games per rater, if the runs have that many
ASK_AGAIN = "have no valid answer, see above why: run the same command again, with more --tries for invalid replies"


@dataclass(frozen=True, kw_only=True)
class Write:
    """Have a language model write stories for a benchmark."""

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
    endpoint: Endpoint
    asking: Asking

    def run(self) -> int:
        """Ask and write; 1 if a story is missing."""
        from ..evaluate.judging.constructor import plan_stories, read_characters, write_stories

        plans = plan_stories(read_characters(self.characters), self.stories, self.panels, self.seed)
        terms, model = AskSettings(**self.asking), EndpointModel(EndpointSettings(**self.endpoint))
        games, text = write_stories(self.out, plans, model, terms, Progress("stories"))
        print(text)
        if games:
            print(f"{len(games)} of {len(plans)} stories in {self.out}\nnext: evaluate world --games {self.out}")
        if len(games) < len(plans):
            print(f"stories {ASK_AGAIN}")
        return int(len(games) < len(plans))


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Have a vision model score played benchmarks, as GPT-4V does in the paper."""

    runs: Positional[tuple[Path, ...]]
    """Folders of `evaluate world`, one for each agent."""
    out: Path
    """Folder for the report; the same command continues."""
    passes: int = 3
    """Questions about each story, each in a different order."""
    seed: int = 0
    """Seed of the orders in which agents are shown."""
    limit: int | None = None
    """Judge only the first N games that all runs have."""
    characters: Path | None = None
    """Reference pictures, NAME.png or NAME/; the Toybox has its own."""
    endpoint: Endpoint
    asking: Asking

    def run(self) -> int:
        """Judge, print and save; 1 if a question has no answer."""
        from ..evaluate.judging.comparison import open_comparison
        from ..evaluate.judging.judge import questions_of, save_report, stories_of, tasks_of
        from ..evaluate.world.scores import references_of

        comparison = open_comparison(self.runs)
        stories = stories_of(comparison, self.limit)
        questions = questions_of(stories, len(comparison.agents), self.passes, self.seed)
        characters = {name: None for story in stories for name in story.characters}
        references = references_of(characters, self.characters)
        missing = sorted(set(characters) - set(references.pictures))
        terms, model = AskSettings(**self.asking), EndpointModel(EndpointSettings(**self.endpoint))
        with ReplyLog.open(self.out / "replies.jsonl") as kept:
            tasks = list(tasks_of(questions, comparison, references))
            answers, text = ask_all(model, tasks, kept, terms, Progress("verdicts"))
            print(text)
        if answers.values:
            facts = {
                "agents": ", ".join(comparison.agents),
                "judge": model.name,
                "answered": f"{len(answers.values)} of {len(questions)}",
                "games": len({story.game for story in stories}),
                "stories": len(stories),
                "passes": self.passes,
                "seed": self.seed,
                "reference pictures": references.facts["from"],
                "without a reference picture": ", ".join(missing) or "nobody",
            }
            given = [(row, answers.values[row.name]) for row in questions if row.name in answers.values]
            print(*save_report(self.out, comparison.agents, given, facts), sep="\n")
        if unanswered := len(questions) - len(answers.values):
            print(f"{unanswered} questions {ASK_AGAIN}")
        return int(bool(unanswered))


@dataclass(frozen=True, kw_only=True)
class Raters:
    """Have people rank played benchmarks in one CSV, and compute scores from it."""

    out: Path
    """The study's folder: ratings.csv to fill in, the clips, and the key that raters must not see."""
    runs: Positional[tuple[Path, ...]] = ()
    """2 to 4 folders of `evaluate world`, to begin a study with; none: compute the scores of a filled-in one."""
    raters: int = 20
    """Number of raters."""
    games: int | None = None
    """Games per rater, the same for all; unset: 9, or all."""
    seed: int = 0
    """Seed for choosing games and orders."""

    def run(self) -> int:
        """Begin a study, or score the filled-in one."""
        from ..evaluate.judging.comparison import open_comparison
        from ..evaluate.judging.ratings import KEY, save_ratings, write_study

        if not self.runs:
            paths = save_ratings(self.out)
            print(paths[1].read_text(encoding="utf-8"), *paths, sep="\n")
            return 0
        comparison = open_comparison(self.runs)
        games = min(GAMES, len(comparison.games)) if self.games is None else self.games
        print(f"{write_study(comparison, self.out, self.raters, games, self.seed)}: 1 is the best rank")
        print(f"{self.out / KEY} says which agent is which: keep it from the raters")
        print(f"next, with all lines filled in: evaluate raters --out {self.out}")
        return 0
