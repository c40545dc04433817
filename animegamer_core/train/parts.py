"""The models that stages work on, and the way between them and a world folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from ..checkpoint import World, save_part, save_world
from ..checkpoint.lora import plain_tensors, take_in
from ..checkpoint.parts import ENCODER_PARTS, part_names, parts_of
from ..decoder import ShotDecoder
from ..encoder import ShotEncoder
from ..engine import GameEngine
from ..prompt import GameTokenizer
from ..spec import ModelSpec, Profile
from .adapters import apply_stage_file, trained_by
from .material import IMAGE_FEATURES, TrainingData, digest_of, name_weights
from .order import random_seed
from .stages import StageConfig, matching

MODELS = ("encoder", "decoder", "engine")


@dataclass(frozen=True)
class Loading:
    """How a world's models are loaded: dtype of engine and decoder, but fp32 for parameters that a pattern of `full`
    finds; whether with the encoder's towers, which nothing needs once their features are cached; whether with a
    decoder for contact sheets where the stage itself needs none.
    """

    dtype: torch.dtype = torch.float32
    full: tuple[str, ...] = ()
    towers: bool = True
    sheets: bool = False


@dataclass(frozen=True)
class WorldParts:
    """A world's models while they are trained; one that no stage needs may be None. Stages change them in place."""

    spec: ModelSpec
    encoder: ShotEncoder | None = None
    decoder: ShotDecoder | None = None
    engine: GameEngine | None = None

    @classmethod
    def new(
        cls,
        spec: ModelSpec,
        tokenizer: GameTokenizer,
        profile: Profile,
        seed: int = 0,
        models: Sequence[str] = MODELS,
    ) -> WorldParts:
        """Models with random weights that follow from the seed alone; each from its own numbers.

        The same tokenizer reads for the engine and for the encoder's text tower.
        """
        build: dict[str, Callable[[], nn.Module]] = {
            "encoder": lambda: ShotEncoder(spec, tokenizer.backend),
            "decoder": lambda: ShotDecoder(spec, profile),
            "engine": lambda: GameEngine(spec, tokenizer, profile),
        }
        made = {}
        for name in models:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(random_seed(seed, name))
                made[name] = build[name]()
        return cls(spec, **made)

    @classmethod
    def load(cls, world: World, models: Sequence[str] = MODELS, loading: Loading = Loading()) -> WorldParts:  # noqa: B008  frozen
        """A world's models, as far as its folder has them; an encoder may lack its towers. fp32, or as `loading` says.

        Towers and VAE are named by their files, so that features which they computed are known again.
        """
        made: dict[str, nn.Module] = {}
        if "engine" in models and world.has("engine"):
            made["engine"] = world.load_engine(dtype=loading.dtype)
        if "decoder" in models and all(world.has(part) for part in parts_of("decoder")):
            made["decoder"] = world.load_decoder(dtype=loading.dtype)
            name_weights(made["decoder"].vae, name_of(world, "vae"))
        present = tuple(part for part in ENCODER_PARTS if world.has(part))
        if "encoder" in models and "encoder" in present:
            made["encoder"] = world.load_encoder(dtype=torch.float32, parts=present if loading.towers else ("encoder",))
            for part in set(present) - {"encoder"}:
                name_weights(made["encoder"].get_submodule(part), name_of(world, part))
        if loading.dtype != torch.float32:
            for name in set(made) - {"encoder"}:
                _widen(made[name], name, world, loading.full)
                take_in(made[name])
        return cls(world.spec, **made)

    def of(self, name: str) -> nn.Module:
        """The model `name`; ValueError where this world has none."""
        model = getattr(self, name)
        if model is None:
            raise ValueError(
                f"this stage needs the {name}, which world {self.spec.name!r} lacks; train or convert it first"
            )
        return model

    def in_memory(self) -> WorldParts:
        """The parts, their weights in memory of their own: on a CPU they are loaded as views of the world's files, and
        Windows lets nobody replace a file that is viewed.
        """
        for model in filter(None, (self.encoder, self.decoder, self.engine)):
            for value in model.parameters():
                value.data = value.data.clone()
            for module in model.modules():
                for name, value in module.named_buffers(recurse=False):
                    setattr(module, name, value.clone())  # with other `data` it would still hold what it is a view of
        return self

    def save(self, world: World, dtype: torch.dtype | None = None, max_shard_bytes: int = 1 << 30) -> World:
        """Write all models that are here into a world folder, with the spec as it is now (its VAE's scaling factor)."""
        world = save_world(
            world.folder,
            self.spec,
            profile=world.profile.name,
            motion_table=world.motion_table,
            provenance=world.provenance,
            licence=world.licence,
            trained_window=world.trained_window,
        )
        for name in MODELS:
            if getattr(self, name) is not None:
                world = save_part(world, getattr(self, name), dtype=dtype, max_shard_bytes=max_shard_bytes)
        return world

    def with_stage_file(self, path: Path, strength: float = 1.0) -> WorldParts:
        """The parts with what a stage file trained put into those that are here, as `apply_stage_file` says; ValueError
        if it trained none of them, and if it is a baseline's where these are a world's, or the other way round.
        """
        models = {name: model for name in MODELS if (model := getattr(self, name)) is not None}
        baseline = self.decoder is not None and not isinstance(self.decoder, ShotDecoder)  # but a TextVideo
        shared = trained_by(path, baseline) & set(models)  # the engine's stage reads the encoder that joint trained
        apply_stage_file(path, models, strength, whole=not shared)
        return self if self.decoder is None else self.with_scaling_factor(self.decoder.vae.config.scaling_factor)

    def with_scaling_factor(self, factor: float) -> WorldParts:
        """The parts with another scale between the VAE's latents and the transformer's, in spec and models."""
        vae = replace(self.spec.decoder.vae, scaling_factor=factor)
        spec = replace(self.spec, decoder=replace(self.spec.decoder, vae=vae))
        for model in (self.encoder, self.decoder, self.engine):
            if model is not None:
                model.spec = spec
        if self.decoder is not None:
            self.decoder.vae.register_to_config(scaling_factor=factor)
        return replace(self, spec=spec)


def has_tower_features(world: World, config: StageConfig, data: TrainingData) -> bool:
    """Whether the cache folder holds what this world's towers make of the dataset, so that they need no loading."""
    count, image = len(data.folder.turns), IMAGE_FEATURES[config.encoder_frame]
    made_by = (("text", "text_tower", count), ("blank_text", "text_tower", 1), (image, "image_tower", count))
    return all(
        data.is_cached(name, rows, data.digest(name, digest_of([name_of(world, part)]))) for name, part, rows in made_by
    )


def name_of(world: World, part: str) -> str:
    """What a part's weights are called: the checksums of its files."""
    return repr(sorted((path, note.sha256) for path, note in world.storage.notes(part).items()))


def _widen(model: nn.Module, model_name: str, world: World, patterns: Sequence[str]) -> None:
    """Read those parameters again in fp32 that a pattern finds behind the model's name, VAE and constants."""
    places = plain_tensors(model)
    whole = (r"^decoder\.vae\.", r"^decoder\.unconditional_ND$")
    chosen = set(matching((*patterns, *whole), (f"{model_name}.{name}" for name in places)))
    for part in parts_of(model_name):
        source = world.storage.source(part)
        for stored, name in part_names(model_name, part, places).items():
            if f"{model_name}.{name}" in chosen:
                places[name].data = source.tensor(stored).float()
