"""The task `evaluate judge`: a vision model scores played benchmarks."""
# ruff: noqa: T201

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from .endpoint_options import EndpointOptions, Progress, endpoint_of


@dataclass(frozen=True, kw_only=True)
class Options(EndpointOptions):
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
    max_tokens: int = 1024
    """Tokens per reply."""


def run(args: Options) -> int:
    """Judge, print and save; 1 if a question has no answer."""
    from ..research.judging.asking import ask_all, kept_replies
    from ..research.judging.judge import SCENES, questions_of, references_in, stories_of, tasks_of
    from ..research.judging.runs import open_comparison
    from ..research.judging.verdicts import Judged, save_report

    comparison = open_comparison(args.runs)
    if args.limit is not None and args.limit < 1:
        raise ValueError(f"--limit is {args.limit}; expected 1 game or more")
    stories = stories_of([comparison.game(name) for name in comparison.games[: args.limit]])
    if not stories:
        raise ValueError(
            f"a story takes {SCENES} turns, but no game that all runs share is that long; play longer games"
        )
    questions = questions_of(stories, len(comparison.agents), args.passes, args.seed)
    references = references_in(stories, args.characters)
    missing = sorted({name for story in stories for name in story.characters} - set(references.pictures))
    model, terms = endpoint_of(args)
    with kept_replies(args.out / "replies.jsonl") as kept:
        tasks = list(tasks_of(questions, comparison, references))
        answers = ask_all(model, tasks, kept, terms, Progress("verdicts"))
    print(answers.text)
    if answers.values:
        facts = {
            "agents": ", ".join(comparison.agents),
            "judge": model.name,
            "games": len({story.game.name for story in stories}),
            "stories": len(stories),
            "passes": args.passes,
            "seed": args.seed,
            "reference pictures": references.facts["from"],
            "without a reference picture": ", ".join(missing) or "nobody",
            "runs": {agent: dict(run.asked) for agent, run in zip(comparison.agents, comparison.runs, strict=True)},
        }
        judged = Judged.of(comparison.agents, questions, answers.values)
        for path in save_report(args.out, judged, questions, answers, facts):
            print(path)
    return int(not answers.whole)
