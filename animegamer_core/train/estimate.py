"""Estimates the memory and disk space that a stage takes from models without weights; nothing is loaded or trained."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from ..checkpoint import World
from ..checkpoint.empty_parameters import empty_parameters
from ..checkpoint.parts import build_model
from ..model.prompt import GameTokenizer
from ..spec import ModelSpec, get_profile
from .checkpoints import KEPT
from .distributed import fsdp_wanted, processes
from .learners import Learner
from .parts import WorldParts, name_of, new_model
from .run import LEARNERS, check_stage
from .stages import STAGES, StageConfig
from .trainable import set_trainable
from .training_data import IMAGE_FEATURES, TrainingData, name_weights
from .weights import keeps_frozen_in_bf16

FLOAT32, HALF = 4, 2
BLOCK = 256  # values that share a scale in an 8-bit moment
_ENCODERS = ("encoder.text_tower", "encoder.image_tower")


@dataclass(frozen=True)
class Size:
    """The memory and disk space of a stage, in bytes.

    weights: on the training device. state: gradients, moments and average of the trained values, in addition.
    checkpoint: one checkpoint. kept: how many checkpoints are kept. stage_file: the adapter, with the heads next to it.
    """

    weights: int
    state: int
    checkpoint: int
    kept: int
    stage_file: int


def bare_parts(world: World | None, spec: ModelSpec, tokenizer: GameTokenizer, models: Iterable[str]) -> WorldParts:
    """A world's models on the meta device, named by the world's files. world: None if it does not exist yet."""
    reader = tokenizer.backend
    if world is not None and world.has("encoder"):
        reader = world.storage.text_tokenizer() if world.has("text_tower") else None
    profile = world.profile if world is not None else get_profile("paper")
    made = {name: build_model(partial(new_model, name, spec, tokenizer, profile, reader)) for name in models}
    if "encoder" in made:  # on the meta device, T5's shared embedding is created twice
        made["encoder"].text_tower.set_input_embeddings(made["encoder"].text_tower.get_input_embeddings())
    for path in ("decoder.vae", *_ENCODERS):  # so that their cached features are found
        model, _, part = path.partition(".")
        if model in made and world is not None and world.has(part):
            name_weights(made[model].get_submodule(part), name_of(world, part))
    return WorldParts(spec, **made)


def bare_learner(stage: str, config: StageConfig, parts: WorldParts, data: TrainingData) -> Learner:
    """A stage's learner without weights.

    ValueError for anything that `check_stage` and `check_trainable` refuse, so that a plan fails before its first stage
    is trained.
    """
    check_stage(stage, config, parts, data)
    plain = replace(config, compile=False)
    learner = LEARNERS[stage](plain, parts, data)
    with empty_parameters():
        set_trainable(learner, plain)
    return learner


def size_of(stage: str, config: StageConfig, learner: Learner, parts: WorldParts, encoders: bool) -> Size:
    """The size of a stage; with FSDP2, each process holds a shard of weights and state.

    parts: the models that it loads. On a CPU, models that only compute features count too. encoders: whether the text
    and image encoder are among them.
    """
    trained = sum(value.numel() for value in learner.parameters() if value.requires_grad)
    # AdamW's two moments; in 8 bits, BLOCK values share a scale
    moments = 2 * FLOAT32 * trained if config.optimizer == "adamw" else 2 * trained * (BLOCK + FLOAT32) // BLOCK
    average = FLOAT32 * trained if config.ema else 0
    shards = processes().num_processes if fsdp_wanted() else 1
    constant = learner.decoder.unconditional_ND.numel() if STAGES[stage].mixes else 0
    return Size(
        weights=_weights(config, learner, parts, encoders) // shards,
        state=(FLOAT32 * trained + moments + average) // shards,  # the first term is the gradients
        checkpoint=FLOAT32 * trained + moments + average,
        kept=min(KEPT, math.ceil(config.steps / config.save_every)),
        stage_file=FLOAT32 * (trained + constant),
    )


def _weights(config: StageConfig, learner: Learner, parts: WorldParts, encoders: bool) -> int:
    """The bytes of weights on the device. Models that no step reads are on the CPU, if they are loaded."""
    device, found = processes().device, dict(learner.named_parameters())
    if device.type == "cpu":
        idle = nn.ModuleDict({name: model for name, model in parts.models.items() if not hasattr(learner, name)})
        found |= dict(idle.named_parameters())
        absent = () if encoders else tuple(path for path in _ENCODERS if path in learner.idle or "encoder" in idle)
    else:
        absent = learner.idle
    half = keeps_frozen_in_bf16(config, device)
    return sum(
        value.numel() * (HALF if half and not value.requires_grad and not name.startswith("encoder.") else FLOAT32)
        for name, value in found.items()
        if not name.startswith(tuple(f"{path}." for path in absent))
    )


def preparing_bytes(names: Iterable[str], config: StageConfig, parts: WorldParts) -> int:
    """The bytes of the largest model that computes these features before the first step; they are loaded one by one."""
    names = set(names)
    half = HALF if keeps_frozen_in_bf16(config, processes().device) else FLOAT32
    encoders = bool(names & {"text", *IMAGE_FEATURES.values()})
    sizes = [0]
    if "latents" in names:
        sizes.append(FLOAT32 * _values(parts.of("decoder").vae))
    if encoders or "states" in names:
        whole = _values(parts.of("encoder"))
        rest = sum(_values(parts.of("encoder").get_submodule(path.partition(".")[2])) for path in _ENCODERS)
        sizes.append(FLOAT32 * (whole if encoders else whole - rest))
    if "predicted" in names:
        sizes.append(half * _values(parts.of("engine")))
    return max(sizes)


def _values(model: nn.Module) -> int:
    return sum(value.numel() for value in model.parameters())


def world_bytes(parts: WorldParts) -> tuple[int, int]:
    """The bytes of a world's files if all of its models are stored as they are trained: (all, the largest one)."""
    sizes = [FLOAT32 * _values(model) for model in parts.models.values()]
    return sum(sizes), max(sizes)


def feature_bytes(name: str, spec: ModelSpec, clips: int) -> int:
    """The bytes of a feature of that many clips."""
    state, encoder, decoder = spec.state, spec.encoder, spec.decoder
    per_clip = {
        "frames": decoder.frames * decoder.height * decoder.width * 3,
        "latents": 2 * math.prod(decoder.latent_shape) * HALF,
        "text": state.text_tokens * encoder.text.width * HALF,
        "image": state.image_tokens * encoder.image.width * HALF,
        "states": state.tokens * state.width * HALF,
    }
    per_clip |= {"image_random": per_clip["image"], "predicted": per_clip["states"]}
    return clips * per_clip[name]
