"""A world under test with its models and the probes: plays games, draws true scenes, decodes and measures.

M clips, N state tokens, D state width, F frames, H height, W width. Clips are uint8 RGB (M, F, H, W, 3).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...game.recall import LAST_TURNS, Memory
from ...game.state import GameSession, GameState, Turn, motion_text
from ...media.video import to_uint8
from ...model.decoder import ShotDecoder
from ...model.encoder import ShotEncoder
from ...model.engine import GameEngine
from ...runtime.presets import Preset, apply_preset, memory_plan_of, sampling_in
from ...spec import UNSTATED, Sampling
from ...toybox.probes import ProbeNet, load_probes
from ...toybox.probes import recognise as recognise_clips
from ...toybox.scenes import Labels, draw_clips, measure_clips
from ...toybox.world import Scene, caption
from ...train.training_data import pictures
from ...weights import World
from ..players import predicted_turns

Clips = NDArray[np.uint8]
OnProgress = Callable[[str, int, int], None]  # (what, done, of how many)


@dataclass(frozen=True)
class TrueShots:
    """Scenes with their true clips, the measured motion values (M,), and the world's motion level of each value."""

    scenes: tuple[Scene, ...]
    clips: Clips
    values: NDArray[np.float64]
    levels: tuple[int, ...]

    @property
    def captions(self) -> tuple[str, ...]:
        """What each scene shows in the published form, with the adverb of its measured level."""
        return tuple(caption(scene, level) for scene, level in zip(self.scenes, self.levels, strict=True))

    def __getitem__(self, chosen: slice) -> TrueShots:
        return TrueShots(self.scenes[chosen], self.clips[chosen], self.values[chosen], self.levels[chosen])


@dataclass(eq=False)
class EvalContext:
    """The world's models and the probes on one device, run in batches; each is loaded on first use.

    All are in fp32, except that `dtype` is the decoder's. preset: already fitted to the device. asked: how to
    sample; the rest is as adapters, the preset or the world say.
    """

    world: World
    device: torch.device | str = "cpu"
    workers: int | None = None
    on_progress: OnProgress = lambda what, done, count: None
    asked: Sampling = UNSTATED
    preset: Preset | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        self.world.motion_table.level(0.0)  # ValueError now, not after hours, if the table has no measured edges
        self.batch = 64 if torch.device(self.device).type == "cuda" else 4

    @property
    def sampling(self) -> dict[str, object]:
        """How shots are drawn, for a report."""
        options = {**sampling_in(self.world, self.asked, self.preset).stated(), "dtype": self.dtype}
        if self.preset is None:
            return {**options, "preset": None}
        return {**options, "preset": self.preset.name, "optimizations": self.preset.optimizations}

    @cached_property
    def engine(self) -> GameEngine:
        return self.world.load_engine(self.device, torch.float32)

    @cached_property
    def decoder(self) -> ShotDecoder:
        """The world's decoder, prepared for the preset."""
        preset, dtype = self.preset, getattr(torch, self.dtype)
        if preset is None:
            return self.world.load_decoder(self.device, dtype)
        memory_plan = memory_plan_of(preset, str(self.device))
        decoder = self.world.load_decoder(self.device if memory_plan is None else "cpu", dtype)
        apply_preset(decoder, preset, memory_plan)
        return decoder

    @cached_property
    def encoder(self) -> ShotEncoder:
        return self.world.load_encoder(self.device, torch.float32)

    @cached_property
    def probes(self) -> ProbeNet:
        return load_probes(self.world.folder, self.device)

    def draw(self, scenes: Sequence[Scene]) -> TrueShots:
        clips = draw_clips(scenes, self.workers, functools.partial(self.on_progress, "true clips"))
        values = self.measure(clips)
        return TrueShots(tuple(scenes), clips, values, self.levels(values))

    def measure(self, clips: Clips) -> NDArray[np.float64]:
        """Measured motion values (M,), px per frame at 480 px height."""
        return measure_clips(clips, self.workers, functools.partial(self.on_progress, "motion of clips"))

    def levels(self, values: NDArray[np.float64]) -> tuple[int, ...]:
        return tuple(int(self.world.motion_table.level(float(value))) for value in values)

    def recognise(self, clips: Clips, present: Collection[str] = ()) -> Labels:
        """The classes that the probes recognise; present: heads that may not answer "none"."""
        return recognise_clips(self.probes, clips, self.batch, present)

    @torch.inference_mode()
    def encode(self, shots: TrueShots) -> Tensor:
        """(M, N, D) true representations, on the CPU: from each shot's motion text and first frame."""
        texts = [motion_text(text) for text in shots.captions]
        parts = [
            self.encoder(texts[part], pictures(torch.from_numpy(shots.clips[part, 0]))).float().cpu()
            for part in self._parts(len(texts))
        ]
        return torch.cat(parts)

    def shoot(
        self, states_MND: Sequence[Tensor] | Tensor, values: Sequence[float] | NDArray, seeds: Sequence[int]
    ) -> Clips:
        """The shots that the decoder draws from representations at motion values."""
        self.on_progress("shots", 0, len(seeds))
        world, sizes = self.world, self.world.spec.decoder
        sampling = sampling_in(world, self.asked, self.preset).stated()
        shots = [np.empty((0, sizes.frames, sizes.height, sizes.width, 3), np.uint8)]
        for part in self._parts(len(seeds)):
            motion = torch.tensor([float(value) for value in values[part]])
            states_BND = torch.stack(tuple(states_MND[part]))
            latents = self.decoder.sample(states_BND, motion, list(seeds[part]), **sampling)
            shots.append(_to_clips(self.decoder.decode_latents(latents)))
            self.on_progress("shots", part.stop, len(seeds))
        return np.concatenate(shots)

    def reconstruct(self, clips: Clips) -> Clips:
        """The clips through the VAE's encoder and decoder, without noise."""
        rebuilt = []
        for part in self._parts(len(clips)):
            latents = self.decoder.encode_frames(pictures(torch.from_numpy(clips[part])))
            rebuilt.append(_to_clips(self.decoder.decode_latents(latents)))
            self.on_progress("reconstructions", part.stop, len(clips))
        return np.concatenate(rebuilt)

    def _parts(self, count: int) -> list[slice]:
        return [slice(start, min(count, start + self.batch)) for start in range(0, count, self.batch)]


def _to_clips(frames_BFCHW: Tensor) -> Clips:
    return np.stack([to_uint8(frames) for frames in frames_BFCHW])


@dataclass(frozen=True)
class Script:
    """A player's instructions, and the picture that the game opens with, if any."""

    instructions: tuple[str, ...]
    opening: tuple[str, GameState] | None = None

    def session(self, window: int, memory: Memory = LAST_TURNS) -> GameSession:
        """The game before its first turn."""
        session = GameSession(window=window, memory=memory)
        return session if self.opening is None else session.open_with(*self.opening)


def play_games(
    engine: GameEngine, scripts: Sequence[Script], window: int, memory: Memory = LAST_TURNS
) -> list[tuple[Turn, ...]]:
    """The turns 1, 2 ... of every game, all with representations."""
    sessions = [script.session(window, memory) for script in scripts]
    played: list[tuple[Turn, ...]] = [()] * len(scripts)
    for game, turn in predicted_turns(engine, sessions, [script.instructions for script in scripts]):
        played[game] += (turn,)
    return played
