"""The models that stages work on, and the way between them and a world folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from ..checkpoint import World, save_part, save_world
from ..checkpoint.parts import ENCODER_PARTS, parts_of
from ..decoder import ShotDecoder
from ..encoder import ShotEncoder
from ..engine import GameEngine
from ..prompt import GameTokenizer
from ..spec import ModelSpec, Profile
from .adapters import apply_stage_file
from .order import random_seed

MODELS = ("encoder", "decoder", "engine")


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
    def load(cls, world: World, models: Sequence[str] = MODELS) -> WorldParts:
        """A world's models in fp32, as far as its folder has them; an encoder may lack its towers."""
        made: dict[str, nn.Module] = {}
        if "engine" in models and world.has("engine"):
            made["engine"] = world.load_engine(dtype=torch.float32)
        if "decoder" in models and all(world.has(part) for part in parts_of("decoder")):
            made["decoder"] = world.load_decoder(dtype=torch.float32)
        present = tuple(part for part in ENCODER_PARTS if world.has(part))
        if "encoder" in models and "encoder" in present:
            made["encoder"] = world.load_encoder(dtype=torch.float32, parts=present)
        return cls(world.spec, **made)

    def of(self, name: str) -> nn.Module:
        """The model `name`; ValueError where this world has none."""
        model = getattr(self, name)
        if model is None:
            raise ValueError(
                f"this stage needs the {name}, which world {self.spec.name!r} lacks; train or convert it first"
            )
        return model

    def save(self, world: World, dtype: torch.dtype | None = None, max_shard_bytes: int = 1 << 30) -> World:
        """Write all models that are here into a world folder, with the spec as it is now (its VAE's scaling factor)."""
        world = save_world(
            world.folder,
            self.spec,
            profile=world.profile.name,
            motion_table=world.motion_table,
            provenance=world.provenance,
            licence=world.licence,
        )
        for name in MODELS:
            if getattr(self, name) is not None:
                world = save_part(world, getattr(self, name), dtype=dtype, max_shard_bytes=max_shard_bytes)
        return world

    def with_stage_file(self, path: Path, strength: float = 1.0) -> WorldParts:
        """The parts with what a stage file trained put into them, as `apply_stage_file` says."""
        models = {name: getattr(self, name) for name in MODELS}
        apply_stage_file(path, {name: model for name, model in models.items() if model is not None}, strength)
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
