"""Plays a benchmark game by game; each game is scored and saved when it ends.

A finished game is never played again, so an interrupted run continues with the game in which it stopped.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data.benchmark import BenchmarkGame, benchmark_text, read_benchmark
from ...data.motion import FlowSettings
from ...files import locked
from ...game.state import GameSession, GameState
from ...media.contact_sheet import contact_sheet
from ...media.video import read_clip, write_clip
from ...toybox.games import BENCHMARK
from ...weights import World
from ..players import GamePlayer, WorldPlayer
from ..similarity import FACTS, ScoringModels
from .records import LOCK, GameRecord, PlayedRun, TurnRecord, begin_run, game_folder, read_asked, read_game
from .report import PaperTable, table_of
from .scores import CharacterReferences, GameScorer, MotionMeter, listed, references_of

if TYPE_CHECKING:
    from PIL import Image

OnTurn = Callable[[str, int, int], None]  # (the game's name, turns done, turns in all)
OnGame = Callable[[GameRecord], None]


@dataclass(frozen=True, kw_only=True)
class EvaluationJob:
    """What is evaluated: `player` plays the first `limit` of the benchmark's `games` (all if None).

    world: shots are measured with its motion settings; the player's own world, or any for a baseline. flow: how motion
    is measured. edges: the borders between motion levels, None for the world's. characters: a folder of reference
    pictures.
    """

    world: World
    player: GamePlayer
    games: tuple[BenchmarkGame, ...]
    out: Path
    models: ScoringModels = ScoringModels()
    limit: int | None = None
    seed: int = 0
    characters: Path | None = None
    flow: FlowSettings = FlowSettings()
    edges: tuple[float, ...] | None = None

    @property
    def played(self) -> tuple[BenchmarkGame, ...]:
        return self.games[: self.limit]

    @property
    def finished(self) -> tuple[GameRecord, ...]:
        return tuple(filter(None, (read_game(self.out, game.name) for game in self.played)))

    @cached_property
    def meter(self) -> MotionMeter:
        return MotionMeter(self.world, self.flow, self.edges)

    @cached_property
    def references(self) -> CharacterReferences:
        return references_of((turn.characters[0] for game in self.games for turn in game.turns), self.characters)

    def remarks(self) -> list[str]:
        """Remarks to show before playing: missing scoring models and pictures, how a world plays, and words unknown to
        it.
        """
        player, remarks = self.player, [*self.models.remarks, *(self.references.remarks if self.models.by_row else ())]
        if not isinstance(player, WorldPlayer):
            return remarks
        remarks += player.remarks
        instructions = " ".join(turn.instruction for game in self.played for turn in game.turns)
        if words := player.world.tokenizer().unknown_words(instructions):
            remarks.append(f"world {player.name!r} was not trained with these words of the benchmark: {listed(words)}")
        return remarks

    def play(self, on_turn: OnTurn = lambda *_: None, on_game: OnGame = lambda _: None) -> None:
        """Play the games that are not finished; an exception from on_turn or on_game ends the run, and keeps those."""
        warm_up = True
        for game in self.played:
            if read_game(self.out, game.name) is None:
                record = self._play(game, warm_up, on_turn)
                record.save(self.out)
                on_game(record)
                warm_up = False

    def _play(self, game: BenchmarkGame, warm_up: bool, on_turn: OnTurn) -> GameRecord:
        """Play and score a game, and write its clips. warm_up: whether its first turn is the first after loading."""
        player, turns = self.player, []
        # the noise depends only on the run's seed and the game's name
        seed = int.from_bytes(hashlib.sha256(f"{self.seed}/{game.name}".encode()).digest()[:6], "big")
        scorer = GameScorer(self.models, self.references.pictures)
        for number, (asked, shot) in enumerate(zip(game.turns, player.play(game, seed), strict=True), 1):
            clip = game_folder(self.out, game.name) / f"turn-{number:02d}.mp4"
            about = {"title": f"{game.name}, turn {number}", "comment": asked.instruction}
            write_clip(clip, shot.frames, player.fps, about)
            motion, level = before = self.meter.measure(shot.frames)
            if shot.uncalibrated is not shot.frames:
                before = self.meter.measure(shot.uncalibrated)
            turns.append(
                TurnRecord(
                    number=number,
                    line=asked.line,
                    level=shot.level,
                    change=shot.change,
                    motion_value=motion,
                    motion_level=level,
                    uncalibrated_value=before[0],
                    uncalibrated_level=before[1],
                    scores=scorer.score(asked, shot.frames),
                    seconds=shot.seconds,
                    warm_up=warm_up and number == 1,
                    clip=clip.name,
                )
            )
            on_turn(game.name, number, len(game.turns))
        return GameRecord(game.name, player.name, seed, player.fps, tuple(turns))

    def report(self, facts: Mapping[str, Any] | None = None) -> PaperTable:
        """The table of the finished games. facts: see `table_of`."""
        remarks = [*self.meter.remarks, *self.remarks()]
        if len(self.played) < len(self.games):
            remarks.append(f"the first {len(self.played)} of the benchmark's {len(self.games)} games, not all")
        speed, drawn, shown = (self.player.facts.get(name, 1) for name in ("speed", "frames_drawn", "frames"))
        if speed != 1:  # a baseline whose clips are longer than shots
            remarks.append(
                f"{self.player.name} shows {shown} of {drawn} frames, at {speed:g} times the speed, which changes "
                "ACC-F and MAE-F"
            )
        return table_of(PlayedRun(self.out, read_asked(self.out), self.finished), remarks, facts)


@contextmanager
def open_job(job: EvaluationJob) -> Iterator[EvaluationJob]:
    """Create or continue the job's folder; ValueError if another run or another process uses it."""
    if job.limit is not None and job.limit < 1:
        raise ValueError(f"{job.limit} games cannot be played; expected 1 or more")
    world, games = job.world, [game.name for game in job.games]
    decides = {  # the numbers
        "world": {"name": world.spec.name, "fingerprint": world.fingerprint, "profile": world.profile.name},
        "player": {"name": job.player.name, **job.player.facts},
        "benchmark": {"sha256": hashlib.sha256(benchmark_text(job.games).encode()).hexdigest(), "games": games},
        "seed": job.seed,
        "motion": job.meter.facts,
        FACTS: job.models.facts,
        "references": job.references.facts,
    }
    refusal = f"{job.out}: another process is writing there; wait for it, or give another folder"
    with locked(job.out / LOCK, refusal):
        begin_run(job.out, decides)
        yield job


def read_games(file: Path | None) -> tuple[BenchmarkGame, ...]:
    """The games of a file; None for the Toybox's frozen benchmark."""
    return read_benchmark(BENCHMARK if file is None else file)


def evaluate_small(
    player: WorldPlayer, root: Path, games: int, seed: int, on_progress: OnTurn
) -> tuple[str, Image.Image]:
    """The table of the first `games` games as text, without scoring models, and the first game's contact sheet.

    They are played in a folder below `root`, whose name is a hash of all settings, so finished games are not played
    again. on_progress gets ("turns", turns done, turns in all).
    """
    decides = json.dumps([player.facts, seed], sort_keys=True)
    job = EvaluationJob(
        world=player.world,
        player=player,
        games=read_games(None),
        out=root / f"{player.world.fingerprint[:8]}-{hashlib.sha256(decides.encode()).hexdigest()[:8]}",
        limit=games,
        seed=seed,
    )
    counted, total = itertools.count(1), sum(len(game.turns) for game in job.played)
    with open_job(job):
        job.play(lambda *_: on_progress("turns", next(counted), total))
        table = job.report()
        table.save(job.out)
    first, session, clips = job.finished[0], GameSession(), []
    for turn in first.turns:
        assert turn.level is not None and turn.change is not None
        session = session.step(turn.asked.instruction, GameState(None, turn.level, turn.change))
        clips.append(read_clip(game_folder(job.out, first.name) / turn.clip).frames)
    return f"{table.text}\n\nclips: {job.out}", contact_sheet(session.turns, clips, first.name)
