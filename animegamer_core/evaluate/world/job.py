"""One evaluation from start to end: its settings, its games, and the files of its folder."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...checkpoint import World
from ...data.benchmark import BenchmarkGame, benchmark_text, read_benchmark
from ...data.flow import FlowSettings
from ...files import locked
from ...toybox.benchmark import BENCHMARK
from ..players import GamePlayer
from ..report import machine
from ..similarity import ScoringModels
from .charts import write_pictures
from .motion import MotionMeter, open_meter
from .page import write_page
from .player import WorldPlayer
from .records import LOCK, PlayedRun, begin_run, finished_games, read_asked
from .references import CharacterReferences, references_of
from .report import PaperTable, check_beside, table_of
from .runner import BenchmarkRunner, OnGame, OnTurn, silent, wait_for_start
from .scores import Scorer

UNKNOWN = 10  # how many unknown words a remark lists


@dataclass(frozen=True, kw_only=True)
class EvaluationJob:
    """What is evaluated: `player` plays the first `limit` of the benchmark's `games` (all if None).

    world: shots are measured with its motion settings; the player's own world, or any for a baseline. flow: how motion
    is measured. edges: the borders between motion levels, None for the world's. characters: a folder of reference
    pictures. device: where the player runs.
    """

    world: World
    player: GamePlayer
    models: ScoringModels
    games: tuple[BenchmarkGame, ...]
    out: Path
    limit: int | None = None
    seed: int = 0
    characters: Path | None = None
    flow: FlowSettings = FlowSettings()
    edges: tuple[float, ...] | None = None
    device: str = "cpu"

    @property
    def played(self) -> tuple[BenchmarkGame, ...]:
        """The games that are played."""
        return self.games[: self.limit]


@dataclass(frozen=True)
class OpenJob:
    """A job whose folder is open: it can play games, and report once all are finished."""

    job: EvaluationJob
    meter: MotionMeter
    references: CharacterReferences

    def remarks(self) -> list[str]:
        """Remarks to show before playing: missing reference pictures, calibration, and words unknown to the world."""
        player = self.job.player
        if not isinstance(player, WorldPlayer):
            return [*self.references.remarks]
        remarks = [*self.references.remarks, *([player.calibration] if player.calibration is not None else [])]
        instructions = " ".join(turn.instruction for game in self.job.played for turn in game.turns)
        if words := player.world.tokenizer().unknown_words(instructions):
            shown = ", ".join(words[:UNKNOWN]) + (f" and {len(words) - UNKNOWN} more" if len(words) > UNKNOWN else "")
            remarks.append(f"world {player.name!r} was not trained with these words of the benchmark: {shown}")
        return remarks

    def check_beside(self, folders: Sequence[Path]) -> None:
        """ValueError for a folder whose numbers cannot be compared with this run's."""
        for folder in folders:
            check_beside(read_asked(self.job.out), folder)

    def play(self, on_turn: OnTurn = silent, on_game: OnGame = silent, part: int = 0, parts: int = 1) -> None:
        """Play every `parts`-th game from number `part` (0, 1, ...) on, without those that are finished."""
        job, scorer = self.job, Scorer(self.job.models, self.meter, self.references)
        runner = BenchmarkRunner(job.player, scorer, job.out, job.seed, _played_on(job.device), on_turn, on_game)
        runner.play(job.played[part::parts])

    def report(self, beside: Sequence[Path] = (), facts: Mapping[str, Any] | None = None) -> PaperTable:
        """The table of the finished games. beside: folders of other runs to show next to it; facts: see `table_of`."""
        job = self.job
        run = PlayedRun(job.out, read_asked(job.out), tuple(finished_games(job.out, job.played)))
        remarks = [*self.meter.remarks, *self.remarks()]
        if len(job.played) < len(job.games):
            count = len(job.games)
            remarks.append(f"the first {len(job.played)} of the benchmark's {count} games, not all")
        speed, drawn, shown = (job.player.facts.get(name, 1) for name in ("speed", "frames_drawn", "frames"))
        if speed != 1:  # a baseline whose clips are longer than shots
            remarks.append(
                f"{job.player.name} shows {shown} of {drawn} frames, at {speed:g} times the speed, which changes "
                "ACC-F and MAE-F; --baseline-take first keeps the original speed"
            )
        return table_of(run, beside, remarks, facts)


@contextmanager
def open_job(job: EvaluationJob, main: bool = True) -> Iterator[OpenJob]:
    """Create or continue the job's folder; ValueError if another run or another process uses it.

    main: whether this process, of several, creates the folder and locks it; the others wait until run.json exists.
    """
    if job.limit is not None and job.limit < 1:
        raise ValueError(f"{job.limit} games cannot be played; expected 1 or more")
    with ExitStack() as stack:
        meter = open_meter(job.world, job.flow, job.edges)
        references = references_of(job.games, job.characters)
        if main:
            refusal = f"{job.out}: another process is writing there; wait for it, or give another folder"
            stack.enter_context(locked(job.out / LOCK, refusal))
        else:
            wait_for_start(job.out)
        begin_run(job.out, _asked(job, meter, references), {"machine": machine()})
        yield OpenJob(job, meter, references)


def save_table(table: PaperTable) -> list[Path]:
    """Write report.json, report.md, the charts and the page of clips; returns their paths."""
    out = table.run.folder
    return [*table.save(out), *write_pictures(table, out), write_page(table, out)]


def read_games(file: Path | None) -> tuple[BenchmarkGame, ...]:
    """The games of a file; None for the Toybox's frozen benchmark."""
    return read_benchmark(BENCHMARK if file is None else file)


def _asked(job: EvaluationJob, meter: MotionMeter, references: CharacterReferences) -> dict[str, Any]:
    """Everything that decides the numbers, for run.json."""
    text = benchmark_text(job.games)
    names = [game.name for game in job.games]
    return {
        "world": {
            "name": job.world.spec.name,
            "fingerprint": job.world.fingerprint,
            "profile": job.world.profile.name,
        },
        "player": {"name": job.player.name, **job.player.facts},
        "benchmark": {"sha256": hashlib.sha256(text.encode()).hexdigest(), "games": names},
        "seed": job.seed,
        "motion": dict(meter.facts),
        "towers": job.models.facts,
        "references": dict(references.facts),
    }


def _played_on(device: str) -> dict[str, str]:
    """The device and torch's version, which change the last digits of a game's scores."""
    kind = torch.device(device)
    name = torch.cuda.get_device_name(kind) if kind.type == "cuda" else platform.processor() or platform.machine()
    return {"device": f"{kind.type} {name}", "torch": torch.__version__}
