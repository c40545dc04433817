"""The task `evaluate judge`: played benchmarks scored by a vision model."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
from pathlib import Path

from .endpoint_options import Progress, add_endpoint_arguments, endpoint_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate judge`."""
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="folders that `evaluate world` wrote, one an agent")
    add("--passes", type=int, default=3, help="questions about a story, in changed orders (default %(default)s)")
    add("--seed", type=int, default=0, help="of the orders in which agents are shown (default %(default)s)")
    add("--limit", type=int, metavar="N", help="judge only the first N games that all runs have")
    add("--characters", type=Path, metavar="DIR", help="reference pictures, NAME.png or NAME/; the Toybox has its own")
    add("--out", required=True, type=Path, metavar="DIR", help="for the report; the same command goes on")
    add_endpoint_arguments(parser, max_tokens=1024)


def run(args: argparse.Namespace) -> int:
    """Judge, print and save; 1 if a question has no answer."""
    from .asking import ask_all, kept_replies
    from .judge import SCENES, cast_in, questions_of, stories_of, tasks_of
    from .runs import open_contest
    from .verdicts import Judged, save_judged

    contest = open_contest(args.runs)
    if args.limit is not None and args.limit < 1:
        raise ValueError(f"--limit is {args.limit}; expected 1 game or more")
    stories = stories_of([contest.game(name) for name in contest.games[: args.limit]])
    if not stories:
        raise ValueError(f"no game that all runs have is {SCENES} turns long, which is what a story takes")
    questions = questions_of(stories, len(contest.agents), args.passes, args.seed)
    cast = cast_in(stories, args.characters)
    missing = sorted({name for story in stories for name in story.characters} - set(cast.pictures))
    model, terms = endpoint_of(args)
    with kept_replies(args.out / "replies.jsonl") as kept:
        tasks = list(tasks_of(questions, contest, cast))
        answers = ask_all(model, tasks, kept, terms, Progress("verdicts"))
    print(answers.text)
    if answers.values:
        facts = {
            "agents": ", ".join(contest.agents),
            "judge": model.name,
            "games": len({story.game.name for story in stories}),
            "stories": len(stories),
            "passes": args.passes,
            "seed": args.seed,
            "reference pictures": cast.facts["from"],
            "without a reference picture": ", ".join(missing) or "nobody",
            "runs": {agent: dict(run.asked) for agent, run in zip(contest.agents, contest.runs, strict=True)},
        }
        judged = Judged.of(contest.agents, questions, answers.values)
        for path in save_judged(args.out, judged, questions, answers, facts):
            print(path)
    return int(not answers.whole)
