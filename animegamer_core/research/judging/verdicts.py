"""The report on a judge's verdicts: means with intervals, agreement between passes, and position bias."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...evaluate.estimates import FEW, Estimate, mean_over_games
from ...evaluate.world.paper import SOURCE
from ...files import write_text
from .agreement import concordance, mean_difference, mean_of_known, ranks_of
from .asking import Answers
from .judge import CRITERIA, SCENES, Question, Verdict, by_agent
from .paper import JUDGED
from .runs import as_json, plain

JUDGED_JSON, JUDGED_MD, VERDICTS = "judge.json", "judge.md", "verdicts.jsonl"
NOTES = (
    f"Scores are whole numbers from 1 to 10. A story is {SCENES} consecutive turns of a game.",
    "Intervals: 95 %, bootstrap over games (2,000 draws), since the stories of one game are correlated; with fewer "
    f"than {FEW} games they are too narrow, most of all with one game, whose verdicts are drawn instead.",
    "W: Kendall's coefficient of concordance of the passes' rankings of the agents, ties corrected, mean over stories; "
    "1 is full agreement. Difference: of two passes' scores of one agent, absolute, mean over pairs and stories.",
    "Place: the mean score of the agents shown there; with as many passes as agents, each is there equally often. In "
    "brackets: how much more an agent scores there than its average over the passes of a story.",
    f"(paper): GPT-4V's scores of other games, from {SOURCE}; `-`: not given.",
)


@dataclass(frozen=True)
class Judged:
    """The answered questions with their verdicts. agents: names, in the numbering of the questions' orders."""

    agents: tuple[str, ...]
    given: tuple[tuple[Question, Verdict], ...]

    @classmethod
    def of(cls, agents: Sequence[str], questions: Sequence[Question], verdicts: Mapping[str, Verdict]) -> Judged:
        """The questions that have a verdict. verdicts: by the names of questions."""
        answered = [question for question in questions if question.name in verdicts]
        return cls(tuple(agents), tuple((question, verdicts[question.name]) for question in answered))

    def score(self, agent: int, tag: str) -> Estimate:
        """An agent's mean score, with its interval over games."""
        games: dict[str, list[float]] = {}
        for question, verdict in self.given:
            score = float(by_agent(question, verdict)[tag][agent])
            games.setdefault(question.story.game.name, []).append(score)
        return mean_over_games(list(games.values()))

    def agreement(self, tag: str) -> float | None:
        """Kendall's W of the passes, averaged over stories."""
        return mean_of_known([concordance([ranks_of(row) for row in rows]) for rows in self._stories(tag).values()])

    def difference(self, tag: str) -> float | None:
        """The mean absolute difference between two passes' scores."""
        return mean_of_known([mean_difference(rows) for rows in self._stories(tag).values()])

    def by_place(self, tag: str) -> list[float]:
        """The mean score of each place, in the order shown."""
        return [float(mean) for mean in np.mean([verdict.scores[tag] for _, verdict in self.given], axis=0)]

    def lift(self, tag: str) -> list[float]:
        """How much more agents score in each place than their average over the passes of the same story."""
        usual = {story: np.mean(rows, axis=0) for story, rows in self._stories(tag).items()}
        more = [
            np.subtract(verdict.scores[tag], usual[question.story.name][list(question.order)])
            for question, verdict in self.given
        ]
        return [float(mean) for mean in np.mean(more, axis=0)]

    def _stories(self, tag: str) -> dict[str, list[tuple[int, ...]]]:
        """Story -> the agents' scores in each pass."""
        rows: dict[str, list[tuple[int, ...]]] = {}
        for question, verdict in self.given:
            rows.setdefault(question.story.name, []).append(by_agent(question, verdict)[tag])
        return rows


def save_report(
    out: Path, judged: Judged, questions: Sequence[Question], answers: Answers[Verdict], facts: Mapping[str, Any]
) -> list[Path]:
    """Write judge.json, judge.md and verdicts.jsonl; returns their paths."""
    estimates = {
        agent: {tag: asdict(judged.score(number, tag)) for tag in CRITERIA}
        for number, agent in enumerate(judged.agents)
    }
    values = {
        **facts,
        "asking": answers.facts,
        "scores": estimates,
        "agreement": {tag: {"w": judged.agreement(tag), "difference": judged.difference(tag)} for tag in CRITERIA},
        "places": {tag: {"mean": judged.by_place(tag), "lift": judged.lift(tag)} for tag in CRITERIA},
        "paper": JUDGED,
        "notes": list(NOTES),
    }
    paths = [out / JUDGED_JSON, out / JUDGED_MD, out / VERDICTS]
    write_text(paths[0], as_json(values))
    write_text(paths[1], markdown(judged, answers, facts))
    write_text(paths[2], "".join(_verdict_line(question, judged.agents, answers) for question in questions))
    return paths


def markdown(judged: Judged, answers: Answers[Verdict], facts: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    names = [f"{name} <{tag}>".replace("<", "&lt;").replace(">", "&gt;") for tag, (name, _) in CRITERIA.items()]
    rows = [
        [plain(agent), *(interval_cell(judged.score(number, tag)) for tag in CRITERIA)]
        for number, agent in enumerate(judged.agents)
    ]
    rows += [[f"{agent} (paper)", *(number_cell(row.get(tag)) for tag in CRITERIA)] for agent, row in JUDGED.items()]
    agreement = []
    for name, tag in zip(names, CRITERIA, strict=True):
        places = zip(judged.by_place(tag), judged.lift(tag), strict=True)
        shown = [f"{mean:.2f} ({round(lift, 2) + 0:+.2f})" for mean, lift in places]
        agreement.append([name, number_cell(judged.agreement(tag)), number_cell(judged.difference(tag)), *shown])
    heads = ["Criterion", "W", "Difference", *(f"Place {number + 1}" for number in range(len(judged.agents)))]
    lines = [
        f"- {plain(str(name))}: {plain(str(value))}" for name, value in facts.items() if not isinstance(value, dict)
    ]
    parts = [
        "# Judged by a model",
        table(["Agent", *names], rows),
        "## Agreement and places",
        table(heads, agreement),
        "## How",
        "\n".join([*lines, *(f"- {plain(line)}" for line in answers.text.split("\n"))]),
        "\n".join(f"- {note}" for note in NOTES),
    ]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with numbers aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def interval_cell(estimate: Estimate) -> str:
    """An estimate with its interval, for a table."""
    return "-" if estimate.count == 0 else f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def number_cell(value: float | None) -> str:
    """A number for a table; `-` for None."""
    return "-" if value is None else f"{value:.2f}"


def _verdict_line(question: Question, agents: Sequence[str], answers: Answers[Verdict]) -> str:
    """One question as a line of JSON: the order of agents, and the scores by agent or the reason why there are none."""
    values: dict[str, Any] = {"story": question.story.name, "pass": question.turn + 1}
    values["order"] = [agents[agent] for agent in question.order]
    verdict, aside = answers.values.get(question.name), answers.set_aside.get(question.name)
    if verdict is not None:
        scores = by_agent(question, verdict)
        values["scores"] = {
            agent: {tag: row[number] for tag, row in scores.items()} for number, agent in enumerate(agents)
        }
        values["explanation"] = verdict.explanation
    elif aside is not None:
        values |= {"reason": aside.reason, "reply": aside.reply}
    else:
        values["reason"] = answers.failures.get(question.name, "not asked")
    return json.dumps(values) + "\n"
