"""`dataset cache`: computes the features of a dataset that stages read, and stores them as safetensors shards.

A stage that uses the folder (`train --cache`) finds the features by name and digest, so it computes none, reads no
clips, and loads no text or image encoder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..checkpoint import World, open_world
from ..checkpoint.parts import ENCODER_PARTS
from ..data.cache import FeatureStore
from ..data.dataset import DatasetFolder
from ..runtime.device import choose_device
from .parts import WorldParts
from .trainer import on_device
from .training_data import (
    IMAGE_FEATURES,
    Progress,
    TrainingData,
    add_encoder_features,
    add_latents,
    add_states,
    bytes_in,
    check_captions,
    check_clips,
)

DEFAULT_FEATURES = ("latents", "text", "image")  # those that stages warmup and joint read
FEATURES = (*DEFAULT_FEATURES, "image_random", "states")  # states must be computed again after the encoder is trained
CLIP_BYTES = 2**28  # bytes of clips that are read at a time for the image encoder
ENCODER_ROWS = 64


@dataclass(frozen=True)
class CachedFeature:
    """One feature in a cache folder. bytes: its size on disk. fresh: whether at least a part was computed now."""

    name: str
    clips: int
    bytes: int
    fresh: bool


def cache_features(
    dataset: str | Path,
    world: str | Path,
    cache: str | Path,
    features: Sequence[str] = DEFAULT_FEATURES,
    on_progress: Progress | None = None,
    device: str = "auto",
) -> tuple[CachedFeature, ...]:
    """Compute features of a dataset with a world's models, and store those in a cache folder that it lacks.

    features: some of FEATURES; text and image are always computed together. Clips are read a few at a time, so memory
    does not grow with the dataset. After an interruption, the same call continues with the unfinished shard.
    ValueError, before anything is computed, if dataset, world and features do not fit together.
    """
    unknown = [name for name in features if name not in FEATURES]
    if unknown or not features:
        raise ValueError(f"unknown feature {(unknown or [''])[0]!r}; choose from {', '.join(FEATURES)}")
    opened, folder = open_world(world), DatasetFolder.open(dataset)
    fresh: set[str] = set()

    def computed(name: str, done: int, count: int) -> None:
        fresh.add(name)
        if on_progress is not None:
            on_progress(name, done, count)

    data = TrainingData(folder, FeatureStore(), cache=Path(cache), on_progress=computed)
    _check(opened, data, features)
    with torch.no_grad():
        data = _compute(opened, data, set(features), torch.device(choose_device(device)))
    sizes = {name: bytes_in(Path(cache), f"{name}-[0-9]*.safetensors") for name in data.store.features}
    return tuple(CachedFeature(name, len(folder.turns), size, name in fresh) for name, size in sizes.items())


def _check(world: World, data: TrainingData, features: Sequence[str]) -> None:
    """ValueError for anything that would otherwise fail after hours of work."""
    if not data.folder.turns:
        raise ValueError(f"{data.folder.path} has no clips; build the dataset first")
    check_clips(data.clip_shape, world.spec)
    if set(features) != {"latents"}:
        check_captions(data.folder, "caption or drop them, or cache only latents")
    parts = {"decoder", "vae"} if "latents" in features else set()
    parts |= set(ENCODER_PARTS) if set(features) != {"latents"} else set()
    if missing := world.missing(tuple(sorted(parts))):
        raise ValueError(missing[0])


def _compute(world: World, data: TrainingData, features: set[str], device: torch.device) -> TrainingData:
    """The data with these features; only one model is in memory at a time."""
    if "latents" in features:
        # only the decoder's VAE is used, which is loaded in fp32 anyway
        decoder = WorldParts.load(world, ("decoder",), torch.bfloat16).of("decoder")
        with on_device(decoder.vae, device):
            data = add_latents(data, decoder)
        del decoder
    if features == {"latents"}:
        return data
    encoder = WorldParts.load(world, ("encoder",)).of("encoder")
    rows = max(1, min(ENCODER_ROWS, CLIP_BYTES // math.prod(data.clip_shape)))
    with on_device(encoder, device):
        for frame, image in IMAGE_FEATURES.items():
            if image in features or (frame == "first" and {"text", "states"} & features):
                data = add_encoder_features(data, encoder, frame, rows)
        return add_states(data, encoder) if "states" in features else data
