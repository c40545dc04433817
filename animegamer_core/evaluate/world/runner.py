"""Plays a benchmark game by game, in one or several processes; each game is scored and saved when it ends.

A finished game is never played again, so an interrupted run continues with the game in which it stopped.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...data.benchmark import BenchmarkGame, BenchmarkTurn
from ...files import replacing
from ...media.video import clip_suffix, write_clip
from ..players import GamePlayer, PlayedShot
from .records import RUN, GameRecord, TurnRecord, finished_games, game_folder, plays, read_game
from .scores import GameScorer, Scorer, Scores

OnTurn = Callable[[str, int, int], None]  # (the game's name, turns done, turns in all)
OnGame = Callable[[GameRecord], None]
SHOWABLE = ".mp4"
_WEBP = {"quality": 85, "method": 4, "loop": 0}
_POLL_S = 0.5  # seconds between checks for the games of other processes


def silent(*_: object) -> None:
    """A callback that does nothing."""


@dataclass
class BenchmarkRunner:
    """Plays and scores games, and writes them to a folder.

    seed: of the whole run. played_on: the device and torch's version, for the records. on_turn, on_game: called after
    every turn and game; an exception from them ends the run, and finished games are kept.
    """

    player: GamePlayer
    scorer: Scorer
    out: Path
    seed: int = 0
    played_on: dict[str, str] = field(default_factory=dict)
    on_turn: OnTurn = silent
    on_game: OnGame = silent
    _warm: bool = False

    def play(self, games: Sequence[BenchmarkGame]) -> None:
        """Play the unfinished games; ValueError if the folder holds a game of the same name with other turns."""
        for game in games:
            known = read_game(self.out, game.name)
            if known is not None and not plays(known, game):
                raise ValueError(f"{self.out}: already has a game {game.name} with other turns; choose a new folder")
            if known is None:
                self.on_game(self._play(game))

    def _play(self, game: BenchmarkGame) -> GameRecord:
        scorer, turns = GameScorer(self.scorer, game), []
        seed = game_seed(self.seed, game.name)
        for number, (asked, shot) in enumerate(zip(game.turns, self.player.play(game, seed), strict=True), 1):
            scores = scorer.score(shot.frames)
            clip, shown = self._write(game, number, asked, shot.frames)
            value, level = self._uncalibrated(shot, scores)
            turns.append(
                TurnRecord(
                    number=number,
                    line=asked.line,
                    level=shot.level,
                    change=shot.change,
                    motion_value=scores.motion_value,
                    motion_level=scores.motion_level,
                    scores=scores.by_name,
                    seconds=shot.seconds,
                    warm_up=not self._warm,
                    clip=clip,
                    shown=shown,
                    uncalibrated_value=value,
                    uncalibrated_level=level,
                )
            )
            self._warm = True
            self.on_turn(game.name, number, len(game.turns))
        record = GameRecord(game.name, self.player.name, seed, self.player.fps, self.played_on, tuple(turns))
        record.save(self.out)
        return record

    def _uncalibrated(self, shot: PlayedShot, scores: Scores) -> tuple[float | None, int | None]:
        """Motion value and level of the shot without calibrated motion values; None, None if there is no such shot."""
        if shot.uncalibrated is None:
            return None, None
        if shot.uncalibrated is shot.frames:
            return scores.motion_value, scores.motion_level
        value = self.scorer.meter.value(shot.uncalibrated)
        return value, self.scorer.meter.level(value)

    def _write(
        self, game: BenchmarkGame, number: int, turn: BenchmarkTurn, frames: NDArray[np.uint8]
    ) -> tuple[str, str]:
        """Write a shot's clip, and an animated WebP if browsers cannot show the clip; returns both file names."""
        clip = game_folder(self.out, game.name) / f"turn-{number:02d}{clip_suffix()}"
        write_clip(clip, frames, self.player.fps, {"title": f"{game.name}, turn {number}", "comment": turn.instruction})
        if clip.suffix == SHOWABLE:
            return clip.name, clip.name
        write_moving(clip.with_suffix(".webp"), frames, self.player.fps)
        return clip.name, clip.with_suffix(".webp").name


def game_seed(seed: int, name: str) -> int:
    """The noise seed of a game's first turn; it depends only on the run's seed and the game's name."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:6], "big")


def write_moving(path: Path, frames_FHWC: NDArray[np.uint8], fps: float) -> None:
    """Write an animated WebP, atomically; any browser shows it, and it needs no video encoder."""
    from PIL import Image

    first, *rest = (Image.fromarray(frame) for frame in frames_FHWC)
    with replacing(path) as part:
        first.save(part, format="WEBP", save_all=True, append_images=rest, duration=round(1000 / fps), **_WEBP)


def wait_for_start(out: Path) -> None:
    """Wait until run.json exists, which the main process writes."""
    while not (out / RUN).is_file():
        time.sleep(_POLL_S)


def wait_for_games(out: Path, games: Sequence[BenchmarkGame]) -> Iterator[int]:
    """Yield the number of finished games again and again, until all are finished.

    Has no time limit: if a process fails, the launcher ends the others.
    """
    while (done := len(finished_games(out, games))) < len(games):
        yield done
        time.sleep(_POLL_S)
