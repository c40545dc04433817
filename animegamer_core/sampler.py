"""Noise schedule, guidance and solver: pure mathematics over a velocity function.

B batch, T latent frames, C channels, H height, W width. `s` is sqrt(alphas_cumprod), the share of the clean latent;
sqrt(1 - s^2) is the share of noise. Restated from the released sampler's formulas (reference-facts 6.1 to 6.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from .spec import GUIDANCE_NAMES

TRAIN_STEPS = 1000
WAVE_EXPONENT = 5

# CogVideoX-2b's scheduler_config.json: how stock pipelines sample, over the same table as ours (reference-facts 6.6)
STOCK_SCHEDULER = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "clip_sample": False,
    "prediction_type": "v_prediction",
    "timestep_spacing": "trailing",
    "rescale_betas_zero_snr": True,
    "snr_shift_scale": 3.0,
}

# (latents, timestep, conditional only) -> velocity; with guidance the unconditional half comes first in the batch
Velocity = Callable[[Tensor, int, bool], Tensor]
Number = TypeVar("Number", float, Tensor)
OnStep = Callable[[int, int, Tensor], None]  # (steps done, steps in all, the clean latent as predicted now)


@lru_cache(maxsize=1)
def _shifted_table() -> Tensor:
    """s for timesteps 0..999 before the rescaling to zero terminal SNR; fp32 from a float64 computation."""
    first, last, shift = (STOCK_SCHEDULER[name] for name in ("beta_start", "beta_end", "snr_shift_scale"))
    betas = torch.linspace(first**0.5, last**0.5, TRAIN_STEPS, dtype=torch.float64) ** 2
    alphas = torch.cumprod(1 - betas, dim=0)
    return (alphas / (shift + (1 - shift) * alphas)).sqrt().float()


def _rescaled(table: Tensor) -> Tensor:
    """`table`, ordered from clean to noise, rescaled so that its last entry is 0 and its first unchanged."""
    return (table - table[-1]) * table[0] / (table[0] - table[-1])


@lru_cache(maxsize=1)
def train_table() -> Tensor:
    """(1000,) fp32: s at timesteps 0..999, as training sees it; s(999) = 0."""
    return _rescaled(_shifted_table())


def _even_timesteps(steps: int) -> list[int]:
    """Evenly spaced timesteps, rounded down, in ascending order; the last is 999."""
    return [(TRAIN_STEPS - 1) * (index + 1) // steps for index in range(steps)]


def _released_timesteps(steps: int) -> list[int]:
    """The same as the released scripts compute them: numpy.linspace(999, 0, steps, endpoint=False).astype(int)."""
    last = TRAIN_STEPS - 1
    # In floats a whole number may come out just below itself, and is then rounded down to the one before.
    return [int(last - index * (last / steps)) for index in reversed(range(steps))]


@dataclass(frozen=True)
class Schedule:
    """The steps of one shot, from noise to clean.

    timesteps: n integers from 999 down. scales: n + 1 values of s, 0 first and 1 last. snapped: the table entries that
    the network's output is read with (reference-facts 6.2).
    """

    timesteps: tuple[int, ...]
    scales: Tensor
    snapped: Tensor

    @classmethod
    def of(cls, steps: int, released: bool = False) -> Schedule:
        """The schedule of any number of steps 1..1000, also those that do not divide 1000.

        released: the timesteps of the released scripts, which differ by one here and there for 34 numbers of steps.
        """
        if not 1 <= steps <= TRAIN_STEPS:
            raise ValueError(f"steps is {steps}; a shot takes 1 to {TRAIN_STEPS} steps")
        ascending = _released_timesteps(steps) if released else _even_timesteps(steps)
        # The released code rescales after picking, so the cleanest picked step keeps its own value.
        picked = _rescaled(_shifted_table()[ascending]) if steps > 1 else torch.zeros(1)
        scales = torch.cat([picked.flip(0), torch.ones(1)])
        nearest = (train_table()[None] - scales[:-1, None]).abs().argmin(dim=1)
        return cls(tuple(reversed(ascending)), scales, train_table()[nearest])

    def __len__(self) -> int:
        return len(self.timesteps)


def guidance_scale(name: str, strength: float, step: int, schedule: Schedule) -> float:
    """How far the guided prediction goes beyond the conditional one at a step (1: not at all).

    reference_wave: 1 + strength (1 - cos(pi ((n - t)/n)^5)) / 2 with the raw timestep t, pseudo-random above t = n
    (reference-facts 6.3). cosine: the same with the step's index from the end in place of t, a smooth fall from
    1 + strength to 1. constant: 1 + strength throughout. distilled: 1 throughout, for a decoder that stage `distill`
    taught to do in one pass what cosine, or constant, does in two.
    """
    steps = len(schedule)
    if name == "constant":
        return 1 + strength
    if name == "distilled":
        return 1.0
    if name == "cosine":
        fraction = (steps - step) / steps
    elif name == "reference_wave":
        fraction = (steps - schedule.timesteps[step]) / steps
    else:
        raise ValueError(f"unknown guidance {name!r}; choose one of {', '.join(GUIDANCE_NAMES)}")
    return _wave(strength, fraction, math.cos)


def scale_at(name: str, strength: float, timesteps_B: Tensor) -> Tensor:
    """(B,) the scale of guidance `cosine` or `constant` at timesteps 0..999, whatever the number of steps."""
    if name == "constant":
        return torch.full_like(timesteps_B, 1 + strength, dtype=torch.float32)
    assert name == "cosine", "the others depend on the number of steps"
    fraction = timesteps_B.double() / (TRAIN_STEPS - 1)
    return _wave(strength, fraction, torch.cos).float()


def _wave(strength: float, fraction: Number, cos: Callable[[Number], Number]) -> Number:
    """From 1 where the fraction is 0 to 1 + strength where it is 1."""
    return 1 + strength * (1 - cos(math.pi * fraction**WAVE_EXPONENT)) / 2


@dataclass(frozen=True)
class Guidance:
    """A guidance schedule by name. Steps whose scale is below `skip_below` leave the unconditional half out."""

    name: str = "cosine"
    strength: float = 6.0
    skip_below: float = 0.0

    def alone(self, scale: float) -> bool:
        """Whether a step at this scale asks for the conditional half only."""
        return self.name == "distilled" or scale < self.skip_below


def solve(
    velocity: Velocity,
    noise: Tensor,
    schedule: Schedule,
    guidance: Guidance,
    draw: Callable[[], Tensor],
    on_step: OnStep | None = None,
) -> Tensor:
    """DPM-Solver++(2M) SDE from noise to the clean latent (reference-facts 6.4).

    noise (B, T, C, H, W) fp32. velocity gets the latents and returns (2B, ...) [unconditional, conditional], or
    (B, ...) when asked for the conditional half only. draw() gives the fresh noise of a step, shaped like `noise`; it
    is called once a step except for the last.
    """
    latents, clean_before, gap_before = noise, None, None
    last = len(schedule) - 1
    for step, timestep in enumerate(schedule.timesteps):
        scale = guidance_scale(guidance.name, guidance.strength, step, schedule)
        alone = guidance.alone(scale)
        clean = _clean(velocity(latents, timestep, alone).float(), latents, schedule.snapped[step], scale, alone)
        if step == last:
            latents = clean
        else:
            now, following = schedule.scales[step].double(), schedule.scales[step + 1].double()
            gap = _log_snr(following) - _log_snr(now)
            target = clean
            if clean_before is not None:
                weight = float(gap / (2 * gap_before))
                target = (1 + weight) * clean - weight * clean_before
            latents = _advance(latents, target, now, following, gap) + _fresh(following, gap) * draw()
            clean_before, gap_before = clean, gap
        if on_step is not None:
            on_step(step + 1, len(schedule), clean)
    return latents


def _clean(velocity: Tensor, latents: Tensor, snapped: Tensor, scale: float, alone: bool) -> Tensor:
    """The guided prediction of the clean latent: x0 = q x - sqrt(1 - q^2) v for each half, then u + g (c - u)."""
    share, rest = float(snapped), math.sqrt(1 - float(snapped) ** 2)
    if alone:
        return share * latents - rest * velocity
    unconditional, conditional = (share * latents - rest * half for half in velocity.chunk(2))
    return unconditional + scale * (conditional - unconditional)


def _log_snr(scale: Tensor) -> Tensor:
    """log(s / sqrt(1 - s^2)); minus infinity at s = 0, where the first step starts."""
    return (scale / (1 - scale**2).sqrt()).log()


def _advance(latents: Tensor, target: Tensor, now: Tensor, following: Tensor, gap: Tensor) -> Tensor:
    """The deterministic part of one step; from s = 0 the gap is infinite and only the target remains."""
    kept = float(((1 - following**2) / (1 - now**2)).sqrt() * (-gap).exp())
    return kept * latents - float(torch.expm1(-2 * gap) * following) * target


def _fresh(following: Tensor, gap: Tensor) -> float:
    """The share of new noise in one step."""
    return float(((1 - following**2) * (1 - (-2 * gap).exp())).sqrt())
