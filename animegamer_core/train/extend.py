"""Continues a run with its own settings, or with more steps than were planned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .checkpoints import CHECKPOINTS, checked_state, list_checkpoints, read_state
from .stages import StageConfig
from .trainer import learning_rate


def continued_config(stage: str, config: StageConfig, out: Path) -> StageConfig:
    """The configuration with which the run in `out` continues; the given one if nothing was trained there yet.

    A run may get more steps; its warm-up then keeps its length. ValueError if the run is of another stage,
    ChangedSetting if any other setting differs that must not.
    """
    found = list_checkpoints(out / CHECKPOINTS)
    if not found:
        return config
    config, _ = _with_own_warmup(config, found[-1])
    checked_state(found[-1], stage, config)
    return config


def extension_note(config: StageConfig, out: Path) -> str | None:
    """A note on the learning rate if the run in `out` continues with more steps; None if it does not."""
    found = list_checkpoints(out / CHECKPOINTS)
    if not found:
        return None
    config, planned = _with_own_warmup(config, found[-1])
    if planned >= config.steps:
        return None
    done = read_state(found[-1]).step
    before = learning_rate(replace(config, steps=planned), max(0, done - 1))
    now, last = (learning_rate(config, step) for step in (done, config.steps - 1))
    return (
        f"this run was planned for {planned} steps, has taken {done} and continues to {config.steps}: from step "
        f"{done + 1} the learning rate follows the schedule of {config.steps} steps, so it changes from {before:.3g} "
        f"to {now:.3g} and ends at {last:.3g}; {config.steps} steps in one run would give a different result"
    )


def _with_own_warmup(config: StageConfig, checkpoint: Path) -> tuple[StageConfig, int]:
    """(the configuration, with the run's own warm-up if it has more steps now; the planned number of steps)."""
    stored = read_state(checkpoint).config
    planned = stored.get("steps", config.steps)
    if planned < config.steps:
        config = replace(config, lr_warmup=stored.get("lr_warmup", config.lr_warmup))
    return config, planned
