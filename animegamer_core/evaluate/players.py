"""Players of benchmarks: their interface, a world, and the true shots of a Toybox benchmark.

F frames, H height, W width.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from ..data.benchmark import BenchmarkGame
from ..game.life import Values
from ..game.recall import RECALL
from ..game.state import GameSession, GameState, MotionTable, Turn
from ..media.video import to_uint8
from ..model.decoder import ShotDecoder
from ..model.engine import GameEngine
from ..runtime.presets import sampling_in
from ..story.player import SEEDS, PlaySettings
from ..toybox.calibration import calibration_remark, uncalibrated_table
from ..toybox.drawing.draw import draw_shot
from ..toybox.games import true_game
from ..toybox.world import FPS, characters, motion_text
from ..weights import World

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class PlayedShot:
    """What a player made of one turn.

    frames: (F, H, W, 3) uint8 RGB. level, change: the predicted motion level 1..5 and change of the character's stats;
    None if the player predicts none, as the baselines do; level 0 if its reply could not be read. seconds: from
    instruction to frames. uncalibrated: the same shot without calibrated motion values; `frames` itself if nothing is
    calibrated.
    """

    frames: NDArray[np.uint8]
    level: int | None
    change: Values | None
    seconds: float
    uncalibrated: NDArray[np.uint8]


class GamePlayer(Protocol):
    """Plays games of a benchmark. The same game and seed give the same shots, whichever games were played before.

    name: in tables. fps: of its shots. facts: what a report says about it, as plain JSON values.
    """

    name: str
    fps: float
    facts: Mapping[str, Any]

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """The shots of a game's turns in order; the noise of turn n is seeded with seed + n - 1."""


def predicted_turns(
    engine: GameEngine, sessions: Sequence[GameSession], scripts: Sequence[Sequence[str]]
) -> Iterator[tuple[int, Turn]]:
    """(game, turn) of the turns after those of each game's session, with representations: first the next turn of all
    games, then the one after it. They are predicted together, when the first of them is asked for.
    """
    games = list(sessions)
    # a session drops old states, which recall may need
    states = [{turn.number: turn.state for turn in session.turns} for session in games]
    for index in range(max(map(len, scripts), default=0)):
        texts = {game: script[index] for game, script in enumerate(scripts) if index < len(script)}
        recalled = {game: games[game].recall(text, stored=True) for game, text in texts.items()}
        pasts = [
            [replace(turn, state=states[game][turn.number]) for turn in games[game].past(found)]
            for game, found in recalled.items()
        ]
        predicted = engine.predict_all(pasts, list(texts.values()))
        for (game, text), state in zip(texts.items(), predicted, strict=True):
            states[game][games[game].next_number] = state
            games[game] = games[game].step(text, state, recalled=recalled[game])
            yield game, games[game].turns[-1]


class WorldPlayer:
    """Plays with a world's own models, which are loaded when the first game begins.

    Its engine reads the past turns that it would read in `play`. Of the settings, only window, memory, steps, guidance,
    device and dtype are used. facts: everything besides the game and the seed that its shots depend on. remarks: what a
    report should say about what the engine reads, and about motion values that are not those of the training data.
    """

    def __init__(self, world: World, settings: PlaySettings) -> None:
        self.world = world
        self.settings = settings
        self._sampling = sampling_in(world, settings).stated()
        self.name = world.spec.name
        self.fps = float(world.spec.decoder.fps)
        window, memory = settings.window_in(world), settings.memory or world.memory
        self._new_session = GameSession((), window, memory=memory, rules=world.life.rules)  # ValueError: the window
        self._uncalibrated = uncalibrated_table(world)
        most = min(memory.turns, window - 1) if memory.kind == RECALL else 0
        earlier = f", up to {most} of them earlier ones that it refers to" if most > 0 else ""
        reads = f"for each instruction the engine reads {window} past turns{earlier} (memory {memory.kind})"
        self.remarks = (reads, *calibration_remark(world))
        self.facts: Mapping[str, Any] = {
            "kind": "world",
            "fingerprint": world.fingerprint,
            "profile": world.profile.name,
            "window": window,
            "memory": asdict(memory),
            **self._sampling,
            "precision": settings.precision_in(world),
            "motion_table": asdict(world.motion_table),
            "uncalibrated_values": list(self._uncalibrated.values),
        }

    @cached_property
    def engine(self) -> GameEngine:
        return self.world.load_engine(self.settings.device, self.settings.dtype)

    @cached_property
    def decoder(self) -> ShotDecoder:
        return self.world.load_decoder(self.settings.device, self.settings.dtype)

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """Yield the shots of a game; a turn's seconds exclude loading and the uncalibrated shot."""
        self.engine, self.decoder  # noqa: B018  load before timing starts
        turns = predicted_turns(self.engine, [self._new_session], [[turn.instruction for turn in game.turns]])
        for index in range(len(game.turns)):
            begun = time.perf_counter()
            state, noise = next(turns)[1].state, (seed + index) % SEEDS
            frames = self._draw(state, self.world.motion_table, noise)
            seconds, table = time.perf_counter() - begun, self._uncalibrated
            uncalibrated = frames if table == self.world.motion_table else self._draw(state, table, noise)
            yield PlayedShot(frames, int(state.motion), state.change, seconds, uncalibrated)

    def _draw(self, state: GameState, table: MotionTable, noise: int) -> NDArray[np.uint8]:
        """Draw a state's shot; its frames are on the CPU, so that timing includes all work of the device."""
        assert state.representation is not None
        motion = table.value(state.motion)
        return to_uint8(self.decoder.shoot(state.representation, motion, seed=noise, **self._sampling))


class TruePlayer:
    """Plays the true shots of a Toybox benchmark, which score as a perfect decoder would."""

    name = "true shots"
    fps = float(FPS)
    facts: Mapping[str, Any] = {"kind": "truth"}

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """Yield the true shots of a game, each with the time to draw it. ValueError if the game has none."""
        truth = true_game(game.name)
        scenes = () if truth is None else truth.scenes[: len(game.turns)]
        described = [(characters(scene), motion_text(scene), f"{scene.time} {scene.place}") for scene in scenes]
        if described != [(turn.characters, turn.motion, turn.background) for turn in game.turns]:
            raise ValueError(f"game {game.name} has no true shots; use games of the Toybox's frozen benchmark")
        for scene in scenes:
            begun = time.perf_counter()
            frames = draw_shot(scene)
            yield PlayedShot(frames, None, None, time.perf_counter() - begun, uncalibrated=frames)
