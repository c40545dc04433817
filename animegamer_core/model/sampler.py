"""Noise schedule, guidance and solver, independent of the network that predicts the velocity.

B batch, T latent frames, C channels, H height, W width. `sqrt_alpha` is sqrt(alphas_cumprod), the factor of the clean
latent; sqrt(1 - sqrt_alpha^2) is the factor of the noise. Follows the released sampler (docs/reference.md, sampler).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..spec import GUIDANCE, SOLVERS, TRAIN_STEPS, Steps, check_steps

# CogVideoX-2b's scheduler_config.json, which has the same noise table (docs/reference.md, sampler)
STOCK_SCHEDULER: dict[str, Any] = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "clip_sample": False,
    "prediction_type": "v_prediction",
    "timestep_spacing": "trailing",
    "rescale_betas_zero_snr": True,
    "snr_shift_scale": 3.0,
}

# (latents, timestep, skip_uncond) -> velocity; with guidance, the unconditional rows come first in the batch
Velocity = Callable[[Tensor, int, bool], Tensor]
OnStep = Callable[[int, int, Tensor], None]  # (steps done, number of steps, current prediction of the clean latent)


@lru_cache(maxsize=1)
def _shifted_table() -> Tensor:
    """sqrt_alpha at timesteps 0..999 before the rescaling to zero terminal SNR; fp32, computed in float64."""
    first, last, shift = (STOCK_SCHEDULER[name] for name in ("beta_start", "beta_end", "snr_shift_scale"))
    betas = torch.linspace(first**0.5, last**0.5, TRAIN_STEPS, dtype=torch.float64) ** 2
    alphas = torch.cumprod(1 - betas, dim=0)
    return (alphas / (shift + (1 - shift) * alphas)).sqrt().float()


def _rescaled(table: Tensor) -> Tensor:
    """`table`, ordered from clean to noise, rescaled so that the last entry is 0 and the first unchanged."""
    return (table - table[-1]) * table[0] / (table[0] - table[-1])


@lru_cache(maxsize=1)
def train_table() -> Tensor:
    """(1000,) fp32: sqrt_alpha at timesteps 0..999, as in training; 0 at timestep 999."""
    return _rescaled(_shifted_table())


def sqrt_alpha_cumprod(timesteps_B: Tensor, like: Tensor) -> Tensor:
    """(B, 1, ...) fp32: sqrt_alpha at each timestep in training, shaped to multiply a batch of latents."""
    table = train_table().to(timesteps_B.device)
    return table[timesteps_B].view(-1, *[1] * (like.dim() - 1))


def _even_timesteps(steps: int) -> list[int]:
    """Evenly spaced timesteps up to 999, rounded down, in ascending order."""
    return [(TRAIN_STEPS - 1) * (index + 1) // steps for index in range(steps)]


def _released_timesteps(steps: int) -> list[int]:
    """The same, rounded like the released scripts' numpy.linspace(999, 0, steps, endpoint=False).astype(int)."""
    last = TRAIN_STEPS - 1
    # A float just below a whole number is rounded down to the number before.
    return [int(last - index * (last / steps)) for index in reversed(range(steps))]


@dataclass(frozen=True)
class Schedule:
    """The steps of one shot, from noise to clean.

    timesteps: n falling integers, from 999 unless they were given. sqrt_alphas: n + 1 values, 0 at timestep 999 and 1
    last. snapped_sqrt_alphas: the nearest values in the training table, which convert the network's output
    (docs/reference.md, sampler). first: the index of the first step that is computed; above 0 if a shot starts from an
    existing latent.
    """

    timesteps: tuple[int, ...]
    sqrt_alphas: Tensor
    snapped_sqrt_alphas: Tensor
    first: int = 0

    @classmethod
    def of(cls, steps: Steps, released: bool = False, first: int = 0) -> Schedule:
        """The schedule of 1 to 1000 steps, or of these timesteps; ValueError for others.

        released: use the released scripts' timesteps. For 34 numbers of steps, some of these are lower by one.
        """
        check_steps(steps)
        if not isinstance(steps, int):  # the training table's values, as in diffusers
            taught = train_table()[list(steps)]
            return cls(steps, torch.cat([taught, torch.ones(1)]), taught, first)
        ascending = _released_timesteps(steps) if released else _even_timesteps(steps)
        # The released code rescales after it selects the steps, so the step with the least noise keeps its value.
        selected = _rescaled(_shifted_table()[ascending]) if steps > 1 else torch.zeros(1)
        sqrt_alphas = torch.cat([selected.flip(0), torch.ones(1)])
        nearest = (train_table()[None] - sqrt_alphas[:-1, None]).abs().argmin(dim=1)
        return cls(tuple(reversed(ascending)), sqrt_alphas, train_table()[nearest], first)

    def __len__(self) -> int:
        return len(self.timesteps)

    def noised(self, clean: Tensor, noise: Tensor) -> Tensor:
        """A clean latent with the noise of the first computed step; only the noise if that is step 0."""
        sqrt_alpha = float(self.sqrt_alphas[self.first])
        return sqrt_alpha * clean + math.sqrt(1 - sqrt_alpha**2) * noise


def partial_steps(steps: Steps, denoise: float) -> tuple[Steps, int]:
    """(steps of the whole schedule, index of the first computed step), for denoise above 0 up to 1, as in KSampler.

    The last `steps` steps of a longer schedule are computed; fewer if it would have more than TRAIN_STEPS. Given
    timesteps begin at that part of their first one, and go on with those below.
    """
    if not isinstance(steps, int):
        first = round(steps[0] * denoise)
        return (first, *(step for step in steps if step < first)), 0
    whole = min(TRAIN_STEPS, int(steps / denoise))
    return whole, whole - min(steps, max(1, round(whole * denoise)))


def guidance_scale(name: str, strength: float, step: int, schedule: Schedule) -> float:
    """The scale of a step by a row of GUIDANCE; 1 is the conditional prediction itself."""
    row, steps = GUIDANCE[name], len(schedule)
    return 1 + strength * row.rise((steps - (schedule.timesteps[step] if row.by_timestep else step)) / steps)


@lru_cache
def _rises(name: str) -> Tensor:
    """(1000,) fp32: how far a distillable schedule has risen at timesteps 0..999, whatever the number of steps."""
    assert GUIDANCE[name].distillable, name
    return torch.tensor([GUIDANCE[name].rise(timestep / (TRAIN_STEPS - 1)) for timestep in range(TRAIN_STEPS)])


def scale_at(name: str, strength: float, timesteps_B: Tensor) -> Tensor:
    """(B,) the scale of a distillable schedule at timesteps 0..999."""
    return 1 + strength * _rises(name).to(timesteps_B.device)[timesteps_B]


@dataclass(frozen=True)
class Guidance:
    """A guidance schedule by name. strength: see `guidance_scale`. skip_below: see `skip_uncond`."""

    name: str = "cosine"
    strength: float = 6.0
    skip_below: float = 0.0

    def skip_uncond(self, scale: float) -> bool:
        """Whether a step skips the unconditional pass.

        It does if its scale is below `skip_below`, or if the result is the conditional pass alone: with strength 0, or
        if guidance is distilled.
        """
        return GUIDANCE[self.name].one_pass or self.strength == 0 or scale < self.skip_below


def solve(
    velocity: Velocity,
    noise: Tensor,
    schedule: Schedule,
    guidance: Guidance,
    draw: Callable[[], Tensor],
    on_step: OnStep | None = None,
    solver: str = SOLVERS[0],
) -> Tensor:
    """From noise to the clean latent, by DPM-Solver++(2M) SDE (docs/reference.md, sampler) or by DDIM without noise.

    noise: (B, T, C, H, W) fp32 latents of the schedule's first step. velocity returns (2B, ...) [unconditional,
    conditional], or (B, ...) if it is asked to skip the unconditional pass. draw() returns the new noise of a step; it
    is called in every step but the last, and not for DDIM.
    """
    latents, clean_before, gap_before = noise, None, None
    last = len(schedule) - 1
    for step in range(schedule.first, len(schedule)):
        timestep = schedule.timesteps[step]
        scale = guidance_scale(guidance.name, guidance.strength, step, schedule)
        skip = guidance.skip_uncond(scale)
        predicted = velocity(latents, timestep, skip).float()
        clean = _clean(predicted, latents, float(schedule.snapped_sqrt_alphas[step]), scale, skip)
        now, following = schedule.sqrt_alphas[step : step + 2].double()
        if step == last:
            latents = clean
        elif solver == "ddim":
            latents = ddim_step(latents, clean, now, following)
        else:
            gap = _log_snr(following) - _log_snr(now)
            target = clean
            if clean_before is not None:
                weight = float(gap / (2 * gap_before))
                target = (1 + weight) * clean - weight * clean_before
            new_noise = float(((1 - following**2) * (1 - (-2 * gap).exp())).sqrt())
            latents = _advance(latents, target, now, following, gap) + new_noise * draw()
            clean_before, gap_before = clean, gap
        if on_step is not None:
            on_step(step + 1 - schedule.first, len(schedule) - schedule.first, clean)
    return latents


def ddim_step(latents: Tensor, clean: Tensor, now: Tensor, following: Tensor) -> Tensor:
    """The latents of the step after: the clean prediction with the noise that is in them now (Song et al. 2021).

    now, following: sqrt_alpha of this step and the next, each one value or shaped to multiply the latents.
    """
    kept = ((1 - following**2) / (1 - now**2)).sqrt()
    return kept.to(latents) * latents + (following - kept * now).to(latents) * clean


def _clean(velocity: Tensor, latents: Tensor, sqrt_alpha: float, scale: float, skip_uncond: bool) -> Tensor:
    """The guided prediction of the clean latent: x0 = q x - sqrt(1 - q^2) v for each pass, then u + g (c - u)."""
    sigma = math.sqrt(1 - sqrt_alpha**2)
    if skip_uncond:
        return sqrt_alpha * latents - sigma * velocity
    unconditional, conditional = (sqrt_alpha * latents - sigma * half for half in velocity.chunk(2))
    return unconditional + scale * (conditional - unconditional)


def _log_snr(sqrt_alpha: Tensor) -> Tensor:
    """Half the log SNR, log(sqrt_alpha / sigma); minus infinity at the first step, where sqrt_alpha is 0."""
    return (sqrt_alpha / (1 - sqrt_alpha**2).sqrt()).log()


def _advance(latents: Tensor, target: Tensor, now: Tensor, following: Tensor, gap: Tensor) -> Tensor:
    """The deterministic part of one step; in the first step the gap is infinite and only the target remains."""
    factor = float(((1 - following**2) / (1 - now**2)).sqrt() * (-gap).exp())
    return factor * latents - float(torch.expm1(-2 * gap) * following) * target
