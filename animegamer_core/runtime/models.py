"""The settings of a game, and where its models come from: loaded from a world when first needed, or given by a host."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..game.recall import Memory
from ..spec import Sampling, dtype_name

if typing.TYPE_CHECKING:
    import torch

    from ..model.decoder import ShotDecoder
    from ..model.engine import GameEngine
    from ..weights import World

SEEDS = 1 << 64  # how many noise seeds torch has


@dataclass(frozen=True)
class PlaySettings(Sampling):
    """How to play a game. None means the world's own choice. ValueError for an impossible value.

    window: how many past turns the engine reads. seed: the noise seed of turn 1; turn n has seed + n - 1. motion: turn
    number -> motion value of its shot (px per frame at 480 px height) instead of the predicted one; history keeps the
    prediction. cfg_parallel: a second device, for the unconditional pass of guidance. precision_suffix: what addresses
    append to the number format, such as `+tiled`. memory: which past turns the engine reads; None for the story's, or
    in a new story the world's.
    """

    window: int | None = None
    seed: int = 0
    motion: Mapping[int, float] = field(default_factory=dict)
    device: str = "cpu"
    dtype: torch.dtype | None = None
    cfg_parallel: str | None = None
    precision_suffix: str = ""
    memory: Memory | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed is {self.seed}; seeds run from 0 to 2**64 - 1")
        for number, value in self.motion.items():
            if number < 1 or not 0 <= value < 1000:
                raise ValueError(
                    f"motion {number}={value}px; turns count from 1, and motion values run from 0 to 999 px"
                )

    def window_in(self, world: World) -> int:
        """The number of past turns that the engine of a world reads."""
        return world.window if self.window is None else self.window

    def precision_in(self, world: World) -> str:
        """The number format in addresses, since results depend on it."""
        if self.dtype is None and not self.device.startswith("cpu"):
            return "stored"
        return dtype_name(self.dtype or world.cpu_dtype("decoder"))


class Models(typing.Protocol):
    """Where a player gets its models. It asks for them at each use, so a host may unload them between uses.

    precision: the number format in addresses.
    """

    @property
    def precision(self) -> str: ...

    def engine(self) -> GameEngine: ...

    def decoder(self) -> ShotDecoder: ...


class LoadedModels:
    """A world's models, loaded when first needed and then cached."""

    def __init__(self, world: World, settings: PlaySettings) -> None:
        self.world = world
        self.settings = settings
        self._loaded: dict[str, typing.Any] = {}

    @property
    def precision(self) -> str:
        return self.settings.precision_in(self.world)

    def engine(self) -> GameEngine:
        return self._once("engine", self._load_engine)

    def decoder(self) -> ShotDecoder:
        return self._once("decoder", self._load_decoder)

    def _once(self, name: str, load: Callable[[], typing.Any]) -> typing.Any:
        if name not in self._loaded:
            self._loaded[name] = load()
        return self._loaded[name]

    def _load_engine(self) -> GameEngine:
        return self.world.load_engine(self.settings.device, self.settings.dtype)

    def _load_decoder(self) -> ShotDecoder:
        decoder = self.world.load_decoder(self.settings.device, self.settings.dtype)
        if self.settings.cfg_parallel is not None:
            from .cfg_parallel import enable_cfg_parallel

            enable_cfg_parallel(decoder, self.settings.cfg_parallel)
        return decoder
