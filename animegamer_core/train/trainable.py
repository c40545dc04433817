"""Chooses the parameters that a stage trains, by name: whole weights, and LoRA (peft) of linear layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor, nn

from ..checkpoint.adapter_files import open_adapter, read_settings, read_tensors, unreadable_settings
from ..checkpoint.lora import attach, detach, free_name, inject, linear_layers, lora_of, set_strength
from ..checkpoint.lora_files import is_lora
from .stages import StageConfig, matching

ADAPTER = "default"


def set_trainable(learner: nn.Module, config: StageConfig) -> tuple[str, ...]:
    """Freeze everything but the parameters that the configuration names, and add its LoRA; returns the trained names.

    ValueError as for `check_trainable`.
    """
    check_trainable(learner, config)
    learner.requires_grad_(False)
    if config.lora_rank:
        ranks = dict.fromkeys(matching(config.lora_targets, linear_layers(learner)), config.lora_rank)
        inject(learner, ranks, ADAPTER, lora_alpha=config.lora_alpha, lora_dropout=config.lora_dropout)
    whole = set(matching(config.trainable, _plain_names(learner)))
    for name, parameter in learner.named_parameters():
        parameter.requires_grad_(name in whole or is_trained_lora(name))
    return tuple(name for name, parameter in learner.named_parameters() if parameter.requires_grad)


def check_trainable(learner: nn.Module, config: StageConfig) -> None:
    """ValueError for a pattern that matches no parameter, such as one for another model, or if nothing would train."""
    targets = set(matching(config.lora_targets, linear_layers(learner))) if config.lora_rank else ()
    names = [name for name in _plain_names(learner) if name.rpartition(".")[0] not in targets]  # those get LoRA only
    for pattern in config.trainable:
        if not matching((pattern,), names):
            raise ValueError(f"trainable pattern {pattern!r} matches no parameter of this stage; correct it")
    if config.lora_rank and not targets:
        raise ValueError(
            f"no linear layer matches {' or '.join(config.lora_targets)}; LoRA needs at least one, so change "
            "lora_targets or set lora_rank to 0"
        )
    if not config.trainable and not config.lora_rank:
        raise ValueError("nothing to train: lora_rank is 0 and trainable matches no parameter; set one of them")


def is_trained_lora(name: str) -> bool:
    """Whether a parameter belongs to the LoRA that the stage trains, not to one that it starts from."""
    return is_lora(name) and f".{ADAPTER}." in name


def _plain_names(learner: nn.Module) -> list[str]:
    """The parameters that are neither LoRA weights nor weights that have a LoRA."""
    return [name for name, _ in learner.named_parameters() if not is_lora(name) and ".base_layer." not in name]


def drop_lora(learner: nn.Module) -> None:
    """Remove the LoRA that a stage trains from its model."""
    detach(learner, ADAPTER)


def keep_lora(learner: nn.Module) -> None:
    """Keep the LoRA that a stage trained in its model: merged into fp32 weights, or next to 16-bit ones."""
    updates = lora_of(learner, ADAPTER)
    detach(learner, ADAPTER)
    attach(learner, updates, free_name(learner))


@contextmanager
def lora_off(learner: nn.Module) -> Iterator[None]:
    """Compute without the LoRA that the stage trains while the block runs."""
    set_strength(learner, ADAPTER, 0.0)
    try:
        yield
    finally:
        set_strength(learner, ADAPTER, 1.0)


def read_config(path: Path) -> tuple[str, StageConfig]:
    """(stage, configuration) of an adapter file; does not read its tensors. ValueError if the file is invalid."""
    with open_adapter(path) as file:
        stage, settings = read_settings(path, file.metadata())
    try:
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
        return stage, StageConfig(**values)
    except (TypeError, ValueError) as error:
        raise unreadable_settings(path, error) from error


def read_adapter(path: Path) -> tuple[str, StageConfig, dict[str, Tensor]]:
    """(stage, configuration, tensors) of an adapter file; ValueError if the file is invalid."""
    stage, config = read_config(path)
    return stage, config, read_tensors(path)[1]
