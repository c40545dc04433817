"""Turns drawn ahead in `play --suggest`: its options, and the thread that draws while the player thinks."""

from __future__ import annotations

import threading
import time
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..runtime.interrupts import check_before_layers
from ..runtime.optimizations import compiled_modules
from ..runtime.presets import PresetModels
from ..story.ahead import Ahead
from ..story.http_requests import MOST_TURNS_AHEAD
from ..story.player import PlayedTurn, Player

if typing.TYPE_CHECKING:
    from ..story.director import Proposer

AUTO, ON, OFF = MODES = ("auto", "on", "off")
MINUTE = 60.0  # seconds


def check_ahead(args: typing.Any) -> None:
    """ValueError for values that are out of range."""
    if not 1 <= args.turns_ahead <= MOST_TURNS_AHEAD:
        raise ValueError(f"--turns-ahead is {args.turns_ahead}; expected 1 to {MOST_TURNS_AHEAD}")
    if not 0 < args.ahead_seconds <= MINUTE:
        raise ValueError(f"--ahead-seconds is {args.ahead_seconds:g}; expected more than 0, and at most {MINUTE:g}")


class _Stopped(Exception):
    """Stops drawing ahead."""


class DrawingAhead:
    """Draws the turns that are proposed to a player, in a thread that ends before the game continues."""

    def __init__(self, player: Player, args: typing.Any, say: Callable[[str], None]) -> None:
        """say: gets a line if nothing more can be drawn ahead."""
        self.player, self.say = player, say
        self.mode, self.turns, self.seconds = args.ahead, args.turns_ahead, args.ahead_seconds
        self.pace: float | None = None  # seconds that the last turn took
        self._spent: list[tuple[float, float]] = []  # (when it ended, seconds) of what was drawn ahead
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._watched: set[int] = set()
        self._wanted: tuple[str, ...] = ()  # the instructions that play what is being drawn
        self._chosen = ""  # the instruction that the player chose

    def timed(self, played: PlayedTurn, seconds: float) -> None:
        """Note how long a turn took."""
        if played.predicted and played.drawn:
            self.pace = seconds

    @property
    def on(self) -> bool:
        """Whether turns are drawn ahead now."""
        if self.mode != AUTO or self.player.settings.device != "cpu":
            return self.mode != OFF
        decoder = self.player.world.spec.decoder
        return self.pace is not None and self.pace <= decoder.frames / decoder.fps

    @contextmanager
    def while_waiting(
        self, offered: Sequence[str], proposer: Callable[[], Proposer]
    ) -> Iterator[Callable[[str], None]]:
        """Within the block, the offered turns are drawn; at its end that stops at once. proposer(): the director.

        The block gets choose(instruction): what is being drawn of that turn is finished first.
        """
        self._chosen = ""
        if not offered or not self.on or self.player.ahead is None:
            yield self._choose
            return
        self._stop.clear()
        ahead = Ahead(self.player, self.player.ahead, proposer(), self.turns)
        self._thread = threading.Thread(target=self._work, args=(ahead, offered), daemon=True)
        self._thread.start()
        try:
            yield self._choose
        finally:
            self._stop.set()
            try:
                self._thread.join()
            finally:
                self._chosen = ""  # Ctrl-C: it stops now
                self._thread.join()

    def _choose(self, instruction: str) -> None:
        self._chosen = instruction

    def _work(self, ahead: Ahead, offered: Sequence[str]) -> None:
        try:
            while not self._stop.wait(self._pause()) and (piece := ahead.next_piece(offered)) is not None:
                began = time.monotonic()
                self._watch(piece.draw)
                self._wanted = ahead.wanted_by(piece, offered)
                ahead.draw(piece, self._check)
                self._spent.append((time.monotonic(), time.monotonic() - began))
        except _Stopped:
            return
        except (OSError, RuntimeError, ValueError) as error:  # a full disk or memory: the game itself can continue
            self.mode = OFF
            self.say(f"nothing more is drawn ahead: {error}")

    def _pause(self) -> float:
        """Seconds to wait, so that no more is spent than may be."""
        now = time.monotonic()
        self._spent = [(ended, seconds) for ended, seconds in self._spent if ended > now - MINUTE]
        over = sum(seconds for _, seconds in self._spent) - self.seconds
        return 0.0 if over < 0 else self._spent[0][0] + MINUTE - now

    def _watch(self, draw: bool) -> None:
        """Load the decoder, or the engine, and let it be stopped within a pass."""
        models = self.player.models
        model = models.decoder() if draw else models.engine()
        if id(model) not in self._watched:
            compiled = (
                compiled_modules(model, models.preset.optimizations)
                if draw and isinstance(models, PresetModels)
                else []
            )
            check_before_layers(model, self._check, compiled)
            self._watched.add(id(model))

    def _check(self, *_: object) -> None:
        if threading.current_thread() is self._thread and self._stop.is_set() and self._chosen not in self._wanted:
            raise _Stopped
