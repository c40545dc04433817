"""The decoder's conditions in training, and their random dropout. B batch, N state tokens, D state width."""

from __future__ import annotations

import torch
from torch import Tensor

from ..model.decoder import UNCONDITIONAL_MOTION
from .sampling import SampleNoise
from .stages import StageConfig


def motion_condition(values: Tensor, config: StageConfig) -> Tensor:
    """The motion values that condition the decoder: the clips' own, or without motion_scope UNCONDITIONAL_MOTION."""
    return values if config.motion_scope else torch.full_like(values, UNCONDITIONAL_MOTION)


def with_dropped_motion(motion_B: Tensor, blank_B: Tensor, config: StageConfig, random: SampleNoise) -> Tensor:
    """The motion values, some replaced by UNCONDITIONAL_MOTION: at random, and always if nothing else conditions.

    blank_B: which samples have the unconditional representation. With drop_motion 0, no value is replaced.
    """
    if not config.drop_motion:
        return motion_B
    dropped = (random.uniform() < config.drop_motion) | blank_B
    return motion_B.masked_fill(dropped.to(motion_B.device), UNCONDITIONAL_MOTION)


def mixed_states(values: dict[str, Tensor], config: StageConfig, random: SampleNoise) -> Tensor:
    """(B, N, D) fp32: the predicted representations, each replaced by the true one with probability true_states."""
    states = values["predicted"].float()
    if not config.true_states:
        return states
    true = random.uniform() < config.true_states
    return torch.where(true[:, None, None], values["states"].float(), states)
