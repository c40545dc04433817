"""The conditions that the decoder gets with the noised latents, and which of them are dropped at random. B batch."""

from __future__ import annotations

import torch
from torch import Tensor

from ..model.decoder import UNCONDITIONAL_MOTION
from .sampling import SampleNoise
from .stages import StageConfig


def motion_condition(values: Tensor, config: StageConfig) -> Tensor:
    """The motion values that condition the decoder: the clips' own, or one for all."""
    return values if config.motion_scope else torch.full_like(values, UNCONDITIONAL_MOTION)


def with_dropped_motion(motion_B: Tensor, blank_B: Tensor, config: StageConfig, random: SampleNoise) -> Tensor:
    """The motion values, some of them UNCONDITIONAL_MOTION: by chance, and always where nothing else conditions.

    blank_B: which samples' representations are the unconditional one. With drop_motion 0 all values stay.
    """
    if not config.drop_motion:
        return motion_B
    dropped = (random.uniform() < config.drop_motion) | blank_B
    return motion_B.masked_fill(dropped.to(motion_B.device), UNCONDITIONAL_MOTION)


def mixed_states(values: dict[str, Tensor], config: StageConfig, random: SampleNoise) -> Tensor:
    """(B, N, D) fp32: predicted representations, some of them replaced by the true ones."""
    states = values["predicted"].float()
    if not config.true_states:
        return states
    true = random.uniform() < config.true_states
    return torch.where(true[:, None, None], values["states"].float(), states)
