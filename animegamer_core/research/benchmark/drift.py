"""Drift: how far an optimized shot is from the plain one, compared with the effect of the number format.

Drift is the root mean square difference of two shots' latents, as a fraction of the plain latents' root mean square. If
an optimization drifts no more than the number format does from float32, its changes do not matter.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ...model.decoder import ShotDecoder
from .turn import past_turns

DRIFT_STEPS = 10
T = TypeVar("T")


@dataclass(frozen=True)
class Drift:
    """Drift of an optimized shot.

    latents: of its latents. frames: of frames decoded from the same latents. format_latents, format_frames: drift of
    the plain shot from float32; None if it is float32.
    """

    latents: float
    frames: float
    format_latents: float | None
    format_frames: float | None

    @property
    def text(self) -> str:
        """The drift as one line of text."""
        own = (
            f"optimized, over {DRIFT_STEPS} steps, latents drift by {self.latents:.2e} and frames by {self.frames:.2e}"
        )
        if self.format_latents is None:
            return f"({own})"
        return f"({own}; the number format itself by {self.format_latents:.2e} and {self.format_frames:.2e})"


class DriftMeter:
    """Measures drift: keeps a decoder's plain shot and, if its weights are not float32, a float32 shot."""

    def __init__(self, decoder: ShotDecoder) -> None:
        generator = torch.Generator().manual_seed(DRIFT_STEPS)
        self._latents = torch.randn(1, *decoder.spec.decoder.latent_shape, generator=generator)
        self._plain = self._shot(decoder)
        self._float32 = in_float32(decoder, self._shot)

    def measure(self, decoder: ShotDecoder) -> Drift:
        """The drift of the same decoder after optimizations."""
        latents, frames = map(drift, self._shot(decoder), self._plain)
        by_format = (None, None) if self._float32 is None else tuple(map(drift, self._plain, self._float32))
        return Drift(latents, frames, *by_format)

    def _shot(self, decoder: ShotDecoder) -> tuple[Tensor, Tensor]:
        latents = self._latents.to(decoder.unconditional_ND.device)
        return short_shot(decoder), decoder.decode_latents(latents).cpu()


def in_float32(decoder: ShotDecoder, shot: Callable[[ShotDecoder], T]) -> T | None:
    """The result of `shot` for a float32 copy of the decoder; None if its weights are float32 already.

    Convolutions and matrix products use true float32 instead of a GPU's TF32.
    """
    if decoder.unconditional_ND.dtype == torch.float32:
        return None
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    try:
        return shot(copy.deepcopy(decoder).float())
    finally:
        torch.backends.cudnn.allow_tf32 = before[0]
        torch.set_float32_matmul_precision(before[1])


def drift(latents: Tensor, plain: Tensor) -> float:
    """The root mean square difference, as a fraction of the plain tensor's root mean square."""
    return float((latents - plain).pow(2).mean().sqrt() / plain.pow(2).mean().sqrt())


def short_shot(decoder: ShotDecoder) -> Tensor:
    """The latents of a shot with DRIFT_STEPS steps, on the CPU."""
    state = past_turns(decoder.spec)[0].state.representation
    return decoder.sample(state[None], torch.tensor([10.0]), [1], steps=DRIFT_STEPS).cpu()
