"""One evaluation from start to end: what is asked, who plays it, and what is left in the folder."""

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
from ..similarity.towers import Towers
from .cast import Cast, cast_of
from .motion import MotionMeter, open_meter
from .page import write_page
from .pictures import write_pictures
from .player import WorldPlayer
from .records import LOCK, PlayedRun, begin_run, finished_games, read_asked
from .report import PaperTable, check_beside, table_of
from .runner import Match, OnGame, OnTurn, await_begun, await_games, silent
from .scores import Scorer

UNKNOWN = 10  # words that a remark names


@dataclass(frozen=True, kw_only=True)
class TableJob:
    """What is evaluated: `games` (all of the benchmark) by `player`, of which the first `limit` are played.

    world: whose measure of motion counts, the player's own or a baseline's. flow, edges: how motion is measured, and
    borders of levels in place of the world's. characters: a folder of pictures. device: where the player runs.
    """

    world: World
    player: GamePlayer
    towers: Towers
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
class Listeners:
    """Who hears of turns and games."""

    on_turn: OnTurn = silent
    on_game: OnGame = silent


@dataclass(frozen=True)
class OpenJob:
    """A job whose folder is its own: ready to play its part, and to report once all games are there."""

    job: TableJob
    meter: MotionMeter
    cast: Cast

    def remarks(self) -> list[str]:
        """What is to be said before anything is played: of the cast's pictures, and of words the world never saw."""
        player = self.job.player
        if not isinstance(player, WorldPlayer):
            return [*self.cast.remarks]
        own = [*self.cast.remarks, *([] if (said := player.calibration) is None else [said])]
        typed = " ".join(turn.instruction for game in self.job.played for turn in game.turns)
        words = player.world.tokenizer().unknown_words(typed)
        shown = ", ".join(words[:UNKNOWN]) + (f" and {len(words) - UNKNOWN} more" if len(words) > UNKNOWN else "")
        unknown = [f"world {player.name!r} never saw these words of the benchmark: {shown}"] if words else []
        return [*own, *unknown]

    def check_beside(self, folders: Sequence[Path]) -> None:
        """ValueError, before anything is played, for a folder that cannot stand beside this run."""
        for folder in folders:
            check_beside(read_asked(self.job.out), folder)

    def play(self, listeners: Listeners = Listeners(), part: int = 0, parts: int = 1) -> None:  # noqa: B008  frozen
        """Play every `parts`-th game from number `part` (0, 1, ...), as far as they are not finished."""
        job = self.job
        scorer = Scorer(job.towers, self.meter, self.cast)
        match = Match(job.player, scorer, job.out, job.seed, _played_on(job.device))
        match.on_turn, match.on_game = listeners.on_turn, listeners.on_game
        match.play(job.played, part, parts)

    def awaited(self) -> Iterator[int]:
        """How many games are finished, as others finish them, until all are."""
        yield from await_games(self.job.out, self.job.played)

    def report(self, beside: Sequence[Path] = (), told: Mapping[str, Any] | None = None) -> PaperTable:
        """The table of the finished games; `told` as for `table_of`."""
        job, told = self.job, dict(told or {})
        run = PlayedRun(job.out, read_asked(job.out), tuple(finished_games(job.out, job.played)))
        own = [*self.meter.remarks, *self.remarks(), *self._left_out(), *self._quickened()]
        told["remarks"] = [*told.get("remarks", ()), *own]
        return table_of(run, beside, told)

    def _quickened(self) -> list[str]:
        """What a baseline whose clips are longer than shots does to its motion."""
        player = self.job.player
        speed, drawn, shown = (player.facts.get(name, 1) for name in ("speed", "frames_drawn", "frames"))
        if speed == 1:
            return []
        told = f"{player.name} shows {shown} of {drawn} frames, {speed:g} times as fast, which ACC-F and MAE-F see"
        return [f"{told}; --baseline-take first keeps the speed"]

    def _left_out(self) -> list[str]:
        count, of = len(self.job.played), len(self.job.games)
        return [f"the first {count} of the benchmark's {of} games; --limit {of} plays all"] if count < of else []


@contextmanager
def open_job(job: TableJob, main: bool = True) -> Iterator[OpenJob]:
    """Make the job's folder its own, or find it there; ValueError where it is another run's, or at work elsewhere.

    main: of several processes the one that writes what is not a game; the others wait until it has begun.
    """
    if job.limit is not None and job.limit < 1:
        raise ValueError(f"--limit is {job.limit}; an evaluation plays 1 game or more")
    with ExitStack() as stack:
        meter = stack.enter_context(open_meter(job.world, job.flow, job.edges))
        cast = cast_of(job.games, job.characters)
        if main:
            job.out.mkdir(parents=True, exist_ok=True)
            refusal = f"{job.out}: another process is evaluating there; wait for it, or give another folder"
            stack.enter_context(locked(job.out / LOCK, refusal))
        else:
            await_begun(job.out)
        begin_run(job.out, _asked(job, meter, cast), {"machine": machine()})
        yield OpenJob(job, meter, cast)


def save_table(table: PaperTable) -> list[Path]:
    """Write report.json, report.md, the plots and the page of clips; returns their paths."""
    out = table.run.folder
    return [*table.save(out), *write_pictures(table, out), write_page(table, out)]


def games_of(file: Path | None) -> tuple[BenchmarkGame, ...]:
    """The games of a file, or the Toybox's frozen benchmark."""
    return read_benchmark(BENCHMARK if file is None else file)


def _asked(job: TableJob, meter: MotionMeter, cast: Cast) -> dict[str, Any]:
    """All that decides the numbers, for run.json."""
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
        "towers": job.towers.facts,
        "references": dict(cast.facts),
    }


def _played_on(device: str) -> dict[str, str]:
    """What decides a game's last digits, for its record."""
    kind = torch.device(device)
    name = torch.cuda.get_device_name(kind) if kind.type == "cuda" else platform.processor() or platform.machine()
    return {"device": f"{kind.type} {name}", "torch": torch.__version__}
