"""Players of benchmarks that need no stock model: a world of ours, and the truth, where a benchmark has one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...checkpoint import World
from ...data.benchmark import BenchmarkGame
from ...decoder import ShotDecoder
from ...engine import GameEngine
from ...play import SEEDS, PlaySettings
from ...state import GameSession, GameState, MotionTable
from ...toybox.calibrate import calibration_remark, uncalibrated_table
from ...toybox.world import FPS
from ...video import to_uint8
from ..players import PlayedShot
from .cast import true_shots

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class WorldPlayer:
    """Plays with a world's own models, which are loaded when the first turn needs them and kept.

    Only window, steps, guidance, device and dtype of the settings count.
    """

    def __init__(self, world: World, settings: PlaySettings) -> None:
        self.world = world
        self.settings = settings
        self._begun = GameSession(window=settings.window_in(world))  # or says now that there is no such window
        self._uncalibrated = uncalibrated_table(world)

    @property
    def name(self) -> str:
        """The world's."""
        return self.world.spec.name

    @property
    def fps(self) -> float:
        """The world's."""
        return float(self.world.spec.decoder.fps)

    @property
    def facts(self) -> dict[str, Any]:
        """All that decides its shots, besides game and seed."""
        return {
            "kind": "world",
            "fingerprint": self.world.fingerprint,
            "profile": self.world.profile.name,
            "window": self._begun.window,
            "steps": self.settings.steps or self.world.spec.decoder.steps,
            "guidance": self.settings.guidance or self.world.profile.guidance,
            "precision": self.settings.precision,
            "motion_table": asdict(self.world.motion_table),
            "uncalibrated_values": None if self._uncalibrated is None else list(self._uncalibrated.values),
        }

    @property
    def calibration(self) -> str | None:
        """What a report has to say of its motion values; None where they are those of its training data."""
        return calibration_remark(self.world.motion_table, self._uncalibrated)

    @cached_property
    def engine(self) -> GameEngine:
        """The world's engine."""
        return self.world.load_engine(self.settings.device, self.settings.dtype)

    @cached_property
    def decoder(self) -> ShotDecoder:
        """The world's decoder."""
        return self.world.load_decoder(self.settings.device, self.settings.dtype)

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """The shots of a game; loading does not count as a turn's seconds."""
        self.engine, self.decoder  # noqa: B018  loaded before the clock runs
        session = self._begun
        for index, turn in enumerate(game.turns):
            begun = time.perf_counter()
            state = self.engine.predict(session.past(), turn.instruction)
            session = session.step(turn.instruction, state)
            noise = (seed + index) % SEEDS
            frames = self._draw(state, self.world.motion_table, noise)
            seconds = time.perf_counter() - begun
            yield PlayedShot(frames, int(state.motion), state.change, seconds, self._redrawn(state, frames, noise))

    def _draw(self, state: GameState, table: MotionTable, noise: int) -> NDArray[np.uint8]:
        """A state's shot; its frames are on the CPU, so the device is done as the clock stops."""
        assert state.representation is not None
        motion, settings = table.value(state.motion), self.settings
        how = {"steps": settings.steps, "guidance": settings.guidance}
        return to_uint8(self.decoder.shoot(state.representation, motion, seed=noise, **how))

    def _redrawn(self, state: GameState, frames: NDArray[np.uint8], noise: int) -> NDArray[np.uint8] | None:
        """The same shot without calibration: `frames` where none was made, None where its values are not known."""
        table = self._uncalibrated
        if table == self.world.motion_table:
            return frames
        return None if table is None else self._draw(state, table, noise)


class TruePlayer:
    """Shows the true shots of a Toybox benchmark, so that a table can say what a perfect decoder would score."""

    name = "true shots"
    fps = float(FPS)

    @property
    def facts(self) -> dict[str, Any]:
        """Nothing but what it is: games and seeds decide no shot of its."""
        return {"kind": "truth"}

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """The true shots of a game; a shot's seconds are those of drawing one. ValueError for games without a truth."""
        begun = time.perf_counter()
        shots = true_shots(game)
        if shots is None:
            raise ValueError(f"game {game.name} has no true shots; only those of the Toybox's frozen benchmark do")
        seconds = (time.perf_counter() - begun) / len(shots)
        for frames in shots:
            yield PlayedShot(frames, None, None, seconds, uncalibrated=frames)
