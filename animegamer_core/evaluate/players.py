"""The interface of benchmark players: our worlds and the baselines.

F frames, H height, W width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..data.benchmark import BenchmarkGame
    from ..life import Values


@dataclass(frozen=True)
class PlayedShot:
    """What a player made of one turn.

    frames: (F, H, W, 3) uint8 RGB. level, change: the predicted motion level 1..5 and change of the character's stats;
    None if the player predicts none, as the baselines do; level 0 if its reply could not be read. seconds: from
    instruction to frames. uncalibrated: the same shot without calibrated motion values; `frames` itself if nothing is
    calibrated, None if the values before calibration are unknown.
    """

    frames: NDArray[np.uint8]
    level: int | None
    change: Values | None
    seconds: float
    uncalibrated: NDArray[np.uint8] | None = None


class GamePlayer(Protocol):
    """Plays games of a benchmark. The same game and seed give the same shots, whichever games were played before."""

    @property
    def name(self) -> str:
        """The name in tables."""

    @property
    def fps(self) -> float:
        """Frames a second of its shots."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What a report says about it, as plain json values."""

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """The shots of a game's turns in order; the noise of turn n is seeded with seed + n - 1."""
