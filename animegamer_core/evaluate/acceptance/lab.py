"""A loaded world under test: true shots in, the world's own shots out, and the instruments that read both.

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

from ...checkpoint import World
from ...decoder import ShotDecoder
from ...encoder import ShotEncoder
from ...engine import GameEngine
from ...presets import Preset, card_of, overridden, prepare
from ...state import motion_text
from ...toybox.probes import ProbeNet, load_probes, recognise
from ...toybox.scenes import Labels, draw_clips, labels_of, measure_clips
from ...toybox.world import Scene, instruction
from ...train.material import pictures
from ...tuning import TUNINGS
from ...video import to_uint8

Clips = NDArray[np.uint8]
OnProgress = Callable[[str, int, int], None]  # (what, done, of how many)


@dataclass(frozen=True)
class TrueShots:
    """Scenes as their true clips, with the motion values (M,) measured on them and the world's level of each."""

    scenes: tuple[Scene, ...]
    clips: Clips
    values: NDArray[np.float64]
    levels: tuple[int, ...]

    @property
    def labels(self) -> Labels:
        """What is true of each, as class numbers of the probes' heads."""
        return labels_of(self.scenes)

    @property
    def instructions(self) -> tuple[str, ...]:
        """Each scene's instruction in the published form, its adverb that of the measured level."""
        return tuple(instruction(scene, level) for scene, level in zip(self.scenes, self.levels, strict=True))

    def __getitem__(self, chosen: slice) -> TrueShots:
        return TrueShots(self.scenes[chosen], self.clips[chosen], self.values[chosen], self.levels[chosen])


@dataclass(frozen=True)
class Sampling:
    """How shots are drawn. preset: as the device can do it. steps, guidance: None leaves them to the preset, or to the
    world and its profile. dtype: of the decoder's numbers, a name in torch.
    """

    steps: int | None = None
    guidance: str | None = None
    preset: Preset | None = None
    dtype: str = "float32"

    def facts(self) -> dict[str, object]:
        """Plain values for a report."""
        preset = self.preset
        told = {"steps": self.steps, "guidance": self.guidance, "dtype": self.dtype}
        if preset is None:
            return {**told, "preset": None}
        explicit = overridden(preset, steps=self.steps, guidance=self.guidance)
        return {**told, "preset": preset.name, "tuned": preset.tunings, "in_place_of_the_presets": explicit}


class Lab:
    """The world's models and the probes on one device and in batches, in fp32 but for a decoder that is told otherwise;
    each is loaded when first needed.
    """

    def __init__(
        self,
        world: World,
        device: torch.device | str = "cpu",
        workers: int | None = None,
        on_progress: OnProgress | None = None,
        sampling: Sampling = Sampling(),
    ) -> None:
        world.motion_table.level(0.0)  # a table without measured edges says so before hours of work
        self.world = world
        self.device = torch.device(device)
        self.workers = workers
        self.sampling = sampling
        self.batch = 64 if self.device.type == "cuda" else 4
        if sampling.preset is not None and any(TUNINGS[name].alone for name in sampling.preset.tunings):
            self.batch = 1
        self.on_progress = on_progress or (lambda what, done, count: None)

    @cached_property
    def engine(self) -> GameEngine:
        """The world's engine."""
        return self.world.load_engine(self.device, torch.float32)

    @cached_property
    def decoder(self) -> ShotDecoder:
        """The world's decoder, made ready for the preset."""
        preset, dtype = self.sampling.preset, getattr(torch, self.sampling.dtype)
        if preset is None:
            return self.world.load_decoder(self.device, dtype)
        card = card_of(preset, str(self.device))
        decoder = self.world.load_decoder(self.device if card is None else "cpu", dtype)
        prepare(decoder, preset, card)
        return decoder

    @cached_property
    def encoder(self) -> ShotEncoder:
        """The world's encoder."""
        return self.world.load_encoder(self.device, torch.float32)

    @cached_property
    def probes(self) -> ProbeNet:
        """The world's probes."""
        return load_probes(self.world.folder, self.device)

    @property
    def steps(self) -> int:
        """Sampling steps of every shot."""
        preset, spec = self.sampling.preset, self.world.spec
        if self.sampling.steps is not None:
            return self.sampling.steps
        return spec.decoder.steps if preset is None else preset.steps_in(spec)

    @property
    def guidance(self) -> str:
        """The guidance schedule of every shot."""
        preset, profile = self.sampling.preset, self.world.profile
        return self.sampling.guidance or (profile.guidance if preset is None else preset.guidance_in(profile))

    def drawing(self, sampling: Sampling) -> Lab:
        """The same lab, its decoder loaded anew to draw otherwise."""
        return Lab(self.world, self.device, self.workers, self.on_progress, sampling)

    def draw(self, scenes: Sequence[Scene]) -> TrueShots:
        """The scenes as they really are."""
        clips = draw_clips(scenes, self.workers, functools.partial(self.on_progress, "true clips"))
        values = self.measure(clips)
        return TrueShots(tuple(scenes), clips, values, self.levels(values))

    def measure(self, clips: Clips) -> NDArray[np.float64]:
        """Measured motion values (M,), px a frame at 480 px height."""
        return measure_clips(clips, self.workers, functools.partial(self.on_progress, "motion of clips"))

    def levels(self, values: NDArray[np.float64]) -> tuple[int, ...]:
        """The world's motion level of each value."""
        return tuple(int(self.world.motion_table.level(float(value))) for value in values)

    def see(self, clips: Clips, present: Collection[str] = ()) -> Labels:
        """What the probes recognise; present: heads whose subject is known to be there, so that "none" is no answer."""
        return recognise(self.probes, clips, self.batch, present)

    @torch.inference_mode()
    def encode(self, shots: TrueShots) -> Tensor:
        """(M, N, D) true representations, on the CPU: from each shot's motion text and first frame."""
        texts = [motion_text(text) for text in shots.instructions]
        parts = [
            self.encoder(texts[part], pictures(torch.from_numpy(shots.clips[part, 0]))).float().cpu()
            for part in self._parts(len(texts))
        ]
        return torch.cat(parts)

    def shoot(self, states_MND: Sequence[Tensor] | Tensor, values: Sequence[float], seeds: Sequence[int]) -> Clips:
        """The decoder's shots of representations at motion values, sampled as the lab does."""
        self.on_progress("shots", 0, len(seeds))
        shots, how = [], {"steps": self.steps, "guidance": self.guidance}
        for part in self._parts(len(seeds)):
            motion = torch.tensor([float(value) for value in values[part]])
            latents = self.decoder.sample(torch.stack(tuple(states_MND[part])), motion, list(seeds[part]), **how)
            shots.append(_as_clips(self.decoder.decode_latents(latents)))
            self.on_progress("shots", part.stop, len(seeds))
        return np.concatenate(shots) if shots else np.empty((0, *self._size), np.uint8)

    def rebuild(self, clips: Clips) -> Clips:
        """The clips after the VAE's encoder and decoder, no noise added."""
        rebuilt = []
        for part in self._parts(len(clips)):
            latents = self.decoder.encode_frames(pictures(torch.from_numpy(clips[part])))
            rebuilt.append(_as_clips(self.decoder.decode_latents(latents)))
            self.on_progress("reconstructions", part.stop, len(clips))
        return np.concatenate(rebuilt)

    @property
    def _size(self) -> tuple[int, int, int, int]:
        decoder = self.world.spec.decoder
        return decoder.frames, decoder.height, decoder.width, 3

    def _parts(self, count: int) -> list[slice]:
        return [slice(start, min(count, start + self.batch)) for start in range(0, count, self.batch)]


def _as_clips(frames_BFCHW: Tensor) -> Clips:
    return np.stack([to_uint8(frames) for frames in frames_BFCHW.cpu()])
