"""How a game is played, and where its models come from: a world's own, loaded when first needed, or a host's."""

from __future__ import annotations

import threading
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .spec import dtype_name

if typing.TYPE_CHECKING:
    import torch

    from .checkpoint import World
    from .decoder import ShotDecoder
    from .engine import GameEngine

SEEDS = 1 << 64  # how many noise seeds torch knows
MOST_STEPS = 1000  # as many as the noise schedule has, `sampler.TRAIN_STEPS`, which needs torch


@dataclass(frozen=True)
class PlaySettings:
    """How a game is played. None leaves a choice to the world.

    window: past turns that the engine reads; None: as many as it was trained with. seed: the noise seed of turn 1; turn
    n has seed + n - 1. steps: sampling steps. motion: turn number -> the motion value (px a frame at 480 px height)
    that its shot gets, whatever was predicted; history keeps the prediction. device and dtype are for the models; dtype
    None is the world's own choice. engine_device: the engine's, where it is another. halves: a second device, for the
    unconditional half of guidance. drawn: how shots are drawn beyond the number format, as addresses name it.
    """

    window: int | None = None
    seed: int = 0
    steps: int | None = None
    guidance: str | None = None
    motion: Mapping[int, float] = field(default_factory=dict)
    device: str = "cpu"
    dtype: torch.dtype | None = None
    engine_device: str | None = None
    halves: str | None = None
    drawn: str = ""

    def __post_init__(self) -> None:
        if self.steps is not None and not 1 <= self.steps <= MOST_STEPS:
            raise ValueError(f"steps is {self.steps}; a shot takes 1 step or more, {MOST_STEPS} at most")
        if not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed is {self.seed}; seeds run from 0 to 2**64 - 1")
        wrong = [(number, value) for number, value in self.motion.items() if number < 1 or not 0 <= value < 1000]
        if wrong:
            raise ValueError(
                f"motion {wrong[0][0]}={wrong[0][1]}px; turns count from 1, and motion values run from 0 to 999 px"
            )

    def window_in(self, world: World) -> int:
        """The past turns that the engine of a world reads."""
        return world.window if self.window is None else self.window

    @property
    def reads_on(self) -> str:
        """The engine's device."""
        return self.engine_device or self.device

    @property
    def apart(self) -> bool:
        """Whether the engine has a device of its own, and can read on while the decoder draws."""
        return _kind_and_index(self.reads_on) != _kind_and_index(self.device)

    @property
    def precision(self) -> str:
        """The number format that decides a result's last digits, as addresses name it; two where they differ."""
        if self.dtype is not None:
            return dtype_name(self.dtype)
        kinds = (_kind_and_index(device)[0] for device in (self.reads_on, self.device))
        return "+".join(dict.fromkeys("float32" if kind == "cpu" else "stored" for kind in kinds))


def _kind_and_index(device: str) -> tuple[str, str]:
    kind, _, index = device.partition(":")
    return kind, index or "0"


class Models(typing.Protocol):
    """Where a player's models come from. They are asked for at each use, so that they may come and go between uses."""

    @property
    def precision(self) -> str:
        """The number format that decides a result's last digits, as addresses name it."""

    def engine(self) -> GameEngine:
        """The engine, ready to predict."""

    def decoder(self) -> ShotDecoder:
        """The decoder, ready to shoot."""


class LoadedModels:
    """A world's own models, loaded when first needed and kept. Two threads may ask for them: one loads at a time."""

    def __init__(self, world: World, settings: PlaySettings) -> None:
        self.world = world
        self.settings = settings
        self._loading = threading.Lock()

    @property
    def precision(self) -> str:
        """That of the settings."""
        return self.settings.precision

    def engine(self) -> GameEngine:
        """The world's engine."""
        with self._loading:
            return self._engine

    def decoder(self) -> ShotDecoder:
        """The world's decoder."""
        with self._loading:
            return self._decoder

    @cached_property
    def _engine(self) -> GameEngine:
        return self._load_engine()

    @cached_property
    def _decoder(self) -> ShotDecoder:
        return self._load_decoder()

    def _load_engine(self) -> GameEngine:
        return self.world.load_engine(self.settings.reads_on, self.settings.dtype)

    def _load_decoder(self) -> ShotDecoder:
        decoder = self.world.load_decoder(self.settings.device, self.settings.dtype)
        if self.settings.halves is not None:
            from .halves import split

            split(decoder, self.settings.halves)
        return decoder
