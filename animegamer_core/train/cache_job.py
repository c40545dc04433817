"""`dataset cache`: what stages read of a dataset, computed before they begin and kept as shards of safetensors.

A stage that is given the same folder (`train --cache`) finds features under the same names and digests: it computes
nothing anew, reads no clip and loads no towers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..checkpoint import World, open_world
from ..checkpoint.parts import ENCODER_PARTS
from ..data.cache import FeatureStore
from ..data.dataset import DatasetFolder
from ..play import choose_device
from .material import (
    IMAGE_FEATURES,
    Progress,
    TrainingData,
    add_latents,
    add_states,
    add_tower_features,
    check_captions,
    check_clips,
)
from .parts import Loading, WorldParts
from .weights import lent

DEFAULT_FEATURES = ("latents", "text", "image")  # what warmup and joint read
FEATURES = (*DEFAULT_FEATURES, "image_random", "states")  # predict reads states, but training the encoder outdates them
CLIP_BYTES = 2**28  # of clips that are read at a time for the image tower
TOWER_ROWS = 64


@dataclass(frozen=True)
class CachedFeature:
    """One feature of a cache folder. fresh: whether any of it was computed now; bytes: on disk."""

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
    """Compute features of a dataset with a world's models into a cache folder, leaving out what is there already.

    features: of FEATURES; text and image come together. Clips are read a few at a time, so memory does not grow with
    the dataset. After a kill the same call goes on at the shard that was unfinished. ValueError, before anything is
    computed, where dataset, world or features do not fit one another.
    """
    unknown = [name for name in features if name not in FEATURES]
    if unknown or not features:
        raise ValueError(f"unknown feature {(unknown or [''])[0]!r}; choose of {', '.join(FEATURES)}")
    opened, folder = open_world(world), DatasetFolder.open(dataset)
    fresh: set[str] = set()

    def heard(name: str, done: int, count: int) -> None:
        fresh.add(name)
        if on_progress is not None:
            on_progress(name, done, count)

    data = TrainingData(folder, FeatureStore(), cache=Path(cache), on_progress=heard)
    _check(opened, data, features)
    with torch.no_grad():
        data = _computed(opened, data, set(features), torch.device(choose_device(device)))
    return tuple(_described(Path(cache), name, len(folder.turns), name in fresh) for name in data.store.features)


def _check(world: World, data: TrainingData, features: Sequence[str]) -> None:
    """ValueError for whatever would fail after hours of work."""
    if not data.folder.turns:
        raise ValueError(f"{data.folder.path} has no clip; build the dataset first")
    check_clips(data.clip_shape, world.spec)
    if set(features) != {"latents"}:
        check_captions(data.folder, "caption or drop them, or cache latents alone")
    parts = {"decoder", "vae"} if "latents" in features else set()
    parts |= set(ENCODER_PARTS) if set(features) != {"latents"} else set()
    if missing := world.missing(tuple(sorted(parts))):
        raise ValueError(missing[0])


def _computed(world: World, data: TrainingData, features: set[str], device: torch.device) -> TrainingData:
    """The data with all features asked for; one model is in memory at a time."""
    small = Loading(torch.bfloat16)  # of the decoder the VAE alone is used, which is read in fp32 anyhow
    if "latents" in features:
        decoder = WorldParts.load(world, ("decoder",), small).of("decoder")
        with lent(decoder.vae, device):
            data = add_latents(data, decoder)
        del decoder
    if features == {"latents"}:
        return data
    encoder = WorldParts.load(world, ("encoder",)).of("encoder")
    rows = max(1, min(TOWER_ROWS, CLIP_BYTES // data.folder.frames(0).nbytes))
    with lent(encoder, device):
        for frame, image in IMAGE_FEATURES.items():
            if image in features or (frame == "first" and {"text", "states"} & features):
                data = add_tower_features(data, encoder, frame, rows)
        return add_states(data, encoder) if "states" in features else data


def _described(cache: Path, name: str, clips: int, fresh: bool) -> CachedFeature:
    size = sum(file.stat().st_size for file in cache.glob(f"{name}-[0-9]*.safetensors"))
    return CachedFeature(name, clips, size, fresh)
