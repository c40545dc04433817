"""The models of a world while stages train them, and which of their parameters a stage trains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from ..model.decoder import ShotDecoder
from ..model.encoder import ShotEncoder
from ..model.engine import GameEngine
from ..model.prompt import GameTokenizer
from ..spec import SPECS, TRAINED_PROFILES, DecoderSpec, ModelSpec, Profile, get_profile
from ..weights import World, save_part, save_world
from ..weights.adapter_files import GAME_STAGES, adapted_models, adapter_facts, tensor_names
from ..weights.adapters import reading_of
from ..weights.lora import apply_adapter, changed_tensors, inject, linear_layers, take_in
from ..weights.parts import ENCODER_PARTS, is_lora, part_names, parts_of_model, plain_tensors
from .distributed import processes
from .sampling import random_seed
from .stages import HEADS, STAGES, StageConfig, matching, models_of
from .training_data import IMAGE_FEATURES, TrainingData, digest_of, forget_names

MODELS = ("encoder", "decoder", "engine")
ADAPTER = "default"  # peft's name of the LoRA that a stage trains
FAKE = "fake"  # and of the fake score's, which few-step distillation trains beside it
FEATURE_ENCODERS = ("text_tower", "image_tower")  # a world's parts that compute features of texts and clips


@dataclass(frozen=True)
class WorldParts:
    """A world's models while they are trained; None for those not loaded. Stages change them in place."""

    spec: ModelSpec
    encoder: ShotEncoder | None = None
    decoder: ShotDecoder | None = None
    engine: GameEngine | None = None

    @classmethod
    def new(
        cls, spec: ModelSpec, tokenizer: GameTokenizer, profile: Profile, seed: int = 0, models: Sequence[str] = MODELS
    ) -> WorldParts:
        """Models with random weights, which depend on the seed and the model's name.

        Engine and text encoder share the tokenizer.
        """
        made = {}
        for name in models:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(random_seed(seed, name))
                if name == "encoder":
                    made[name] = ShotEncoder(spec, tokenizer.backend)
                else:
                    made[name] = (
                        ShotDecoder(spec, profile) if name == "decoder" else GameEngine(spec, tokenizer, profile)
                    )
        return cls(spec, **made)

    @classmethod
    def load(
        cls,
        world: World,
        models: Sequence[str] = MODELS,
        dtype: torch.dtype = torch.float32,
        fp32: Sequence[str] = (),
        feature_encoders: bool = True,
    ) -> WorldParts:
        """Load those of the models that a world's folder has.

        dtype: of engine and decoder. fp32: patterns of parameters that are loaded in fp32 anyway. feature_encoders:
        load the text and image encoder, which are not needed if their features are cached.
        The encoder may lack its text and image encoder. These and the VAE are named by their files, so that their
        cached features are found again.
        """
        made: dict[str, nn.Module] = {}
        if "engine" in models and world.has("engine"):
            made["engine"] = world.load_engine(dtype=dtype)
        if "decoder" in models and all(world.has(part) for part in parts_of_model("decoder")):
            made["decoder"] = world.load_decoder(dtype=dtype, playing=False)
        present = tuple(part for part in ENCODER_PARTS if world.has(part))
        if "encoder" in models and "encoder" in present:
            own = present if feature_encoders else ("encoder",)
            made["encoder"] = world.load_encoder(dtype=torch.float32, parts=own)
        name_stored(made, world)
        if dtype != torch.float32:
            for name in set(made) - {"encoder"}:
                _reload_fp32(made[name], name, world, fp32)
                take_in(made[name])
        return cls(world.spec, **made)

    @property
    def models(self) -> dict[str, nn.Module]:
        """The loaded models, by name."""
        return {name: model for name in MODELS if (model := getattr(self, name)) is not None}

    def of(self, name: str) -> nn.Module:
        """The model `name`; ValueError if it is not loaded."""
        model = getattr(self, name)
        if model is None:
            raise ValueError(f"this stage needs the {name}, which {self.spec.name!r} lacks; train or convert it first")
        return model

    def in_memory(self) -> WorldParts:
        """The parts with their weights copied into memory.

        On a CPU they are loaded as memory-mapped views of the world's files, which Windows then refuses to replace.
        """
        for model in self.models.values():
            for value in model.parameters():
                value.data = value.data.clone()
            for module in model.modules():
                for name, value in module.named_buffers(recurse=False):
                    setattr(module, name, value.clone())  # new `data` alone would keep the mapped storage alive
        return self

    def save(self, world: World, dtype: torch.dtype | None = None, max_shard_bytes: int = 1 << 30) -> World:
        """Write all loaded models into a world folder, with the present spec (its scaling factor may be new)."""
        world = save_world(
            world.folder,
            self.spec,
            profile=world.profile.name,
            motion_table=world.motion_table,
            provenance=world.provenance,
            licence=world.licence,
            trained_window=world.trained_window,
            life=world.life,
        )
        for model in self.models.values():
            world = save_part(world, model, dtype=dtype, max_shard_bytes=max_shard_bytes)
        return world

    def with_stage_files(self, files: Iterable[tuple[Path, float]]) -> WorldParts:
        """The parts with adapters, each with its strength, applied to the loaded models (see `apply_adapter`).

        An adapter that trained none of them changes nothing.
        """
        parts, models = self, self.models
        for path, strength in files:
            if not adapted_models(path) & set(models):
                continue
            for kind, model in models.items():
                apply_adapter(path, kind, model, strength)
                changed = (f"{kind}.{name}" for name in changed_tensors(model))
                forget_names(nn.ModuleDict({kind: model}), changed)
            if self.decoder is not None:
                parts = parts.with_scaling_factor(self.decoder.vae.config.scaling_factor)
        return parts

    def with_scaling_factor(self, factor: float) -> WorldParts:
        """The parts with another scaling factor for the VAE's latents, in the spec and the models."""
        if self.decoder is not None:
            self.decoder.vae.register_to_config(scaling_factor=factor)
        vae = replace(self.spec.decoder.vae, scaling_factor=factor)
        return self.with_spec(replace(self.spec, decoder=replace(self.spec.decoder, vae=vae)))

    def with_spec(self, spec: ModelSpec) -> WorldParts:
        """The parts and their models with another spec, whose sizes are the same."""
        for model in self.models.values():
            model.spec = spec
        return replace(self, spec=spec)


def with_guidance(spec: ModelSpec) -> ModelSpec:
    """The spec of a model that is trained from another's weights: with guidance, which further training takes out of
    the weights if stage distill had put it in. Then the strength is that of the sizes' own spec.
    """
    if spec.decoder.guidance_scale:
        return spec
    usual = SPECS[spec.name].decoder.guidance_scale if spec.name in SPECS else DecoderSpec.guidance_scale
    return replace(spec, decoder=replace(spec.decoder, guidance_scale=usual))


def name_of(world: World, part: str) -> str:
    """The name of a part's weights: the checksums of its files."""
    return repr(sorted((path, note.sha256) for path, note in world.notes(part).items()))


def name_stored(models: Mapping[str, nn.Module], world: World) -> None:
    """Name the models' VAE and encoders by the world's files, so that their cached features are found."""
    for path in ("decoder.vae", "encoder.text_tower", "encoder.image_tower"):
        model, _, part = path.partition(".")
        if model in models and world.has(part):
            models[model].get_submodule(part).weights_name = name_of(world, part)


def _reload_fp32(model: nn.Module, model_name: str, world: World, patterns: Sequence[str]) -> None:
    """Load the VAE, constants, and parameters whose full name matches a pattern again, in fp32."""
    places = plain_tensors(model)
    whole = (r"^decoder\.vae\.", r"^decoder\.unconditional_ND$")
    chosen = set(matching((*patterns, *whole), (f"{model_name}.{name}" for name in places)))
    for part in parts_of_model(model_name):
        source = world.source(part)
        for stored, name in part_names(model_name, part, places).items():
            if f"{model_name}.{name}" in chosen:
                places[name].data = source.tensor(stored).float()


def world_for_stage(stage: str, world: World, start: Sequence[Path], profile: str | None = None) -> World:
    """The world with the profile and window with which a stage reads turns, and with which its result is played.

    start: the adapters that the stage starts from. profile: how turns are read, one of TRAINED_PROFILES; None for the
    engine's own, or `paper` if none of our stages has trained the engine. Stages that read no turns ignore it.
    ValueError for adapters that contradict one another.
    """
    if stage not in GAME_STAGES:
        return world
    reading = reading_of(world, [adapter_facts(path) for path in start], checked=profile is None)
    read = replace(world, profile=reading.profile, trained_window=reading.window)
    if stage != "predict":
        return read if profile is None else read.with_profile(profile)
    chosen = profile or (TRAINED_PROFILES[0] if reading.window is None else reading.profile.name)
    return replace(read, profile=get_profile(chosen))


def needed_parts(
    stage: str,
    config: StageConfig,
    world: World,
    data: TrainingData,
    device: torch.device | None = None,
    start: Sequence[Path] = (),
) -> WorldParts:
    """Load the models that a stage needs into the least memory; ValueError names the first that the world lacks.

    Frozen weights are loaded in bf16 if the stage keeps them so. The text and image encoder are not loaded if the cache
    folder has their features and no starting adapter changes them.
    """
    dtype = torch.bfloat16 if config.keeps_frozen_in_bf16(device or processes().device) else torch.float32
    needs, prefixes = STAGES[stage].needs, tuple(f"encoder.{part}." for part in FEATURE_ENCODERS)
    changed = "text" in STAGES[stage].outdates or any(
        name.startswith(prefixes) for path in start for name in tensor_names(path)
    )
    count, image = len(data.folder.turns), IMAGE_FEATURES[config.encoder_frame]
    made_by = (("text", "text_tower", count), ("blank_text", "text_tower", 1), (image, "image_tower", count))
    encoders = changed or not all(
        data.is_cached(name, rows, data.digest(name, digest_of([name_of(world, part)]))) for name, part, rows in made_by
    )
    if "encoder" in needs and encoders and world.has("encoder") and (lacking := world.missing(FEATURE_ENCODERS)):
        raise ValueError(f"stage {stage} computes features of clips and texts, but {lacking[0]}")
    parts = WorldParts.load(world, models_of(stage, config.shots_every > 0), dtype, config.trainable, encoders)
    for name in needs:
        parts.of(name)
    return parts


def set_trainable(learner: nn.Module, config: StageConfig) -> tuple[str, ...]:
    """Freeze everything but the parameters that the configuration names, and add its LoRA; returns the trained names.

    ValueError as for `check_trainable`.
    """
    check_trainable(learner, config)
    learner.requires_grad_(False)
    if config.lora_rank:
        ranks = dict.fromkeys(matching(config.lora_targets, linear_layers(learner)), config.lora_rank)
        for adapter in getattr(learner, "adapters", (ADAPTER,)):
            inject(learner, ranks, adapter, lora_alpha=config.lora_alpha, lora_dropout=config.lora_dropout)
    whole = set(matching((*config.trainable, HEADS), _plain_names(learner)))
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
    return is_lora(name) and any(f".{adapter}." in name for adapter in (ADAPTER, FAKE))


def only_trains(name: str) -> bool:
    """Whether a trained parameter is of no use once training has ended."""
    return name.startswith("heads.") or f".{FAKE}." in name


def _plain_names(learner: nn.Module) -> list[str]:
    """The parameters that are neither LoRA weights nor weights that have a LoRA."""
    return [name for name, _ in learner.named_parameters() if not is_lora(name) and ".base_layer." not in name]
