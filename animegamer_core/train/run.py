"""Runs one stage: checks it, computes features, trains, and puts the result into the world's models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data.dataset import DatasetFolder
from ..messages import shortened
from ..model.prompt import unknown_words
from ..weights.adapter_files import GAME_STAGES, MOTION_STAGES, save_adapter
from ..weights.lora import attach, detach, free_name, lora_of
from ..weights.storage import write_json
from . import distributed
from .checkpoints import CHECKPOINTS, RESULT, continued_config, list_checkpoints
from .distributed import processes
from .engine_learner import EngineLearner, add_predictions
from .few_steps import FewStepLearner, check_student
from .learners import ContrastiveLearner, DiffusionLearner, DistillLearner, Learner, VaeLearner
from .loop import OnStep, draw_sheet, run_loop
from .parts import ADAPTER, FAKE, WorldParts, check_trainable, only_trains
from .stages import STAGES, StageConfig
from .trainer import Trainer, copy_into, idle_on_cpu, on_device
from .training_data import (
    IMAGE_FEATURES,
    TrainingData,
    add_encoder_features,
    add_frames,
    add_latents,
    add_states,
    autocast,
    check_captions,
    check_clips,
    clip_frames,
    first_frames,
    forget_names,
    pictures,
    weights_digest,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LAST_GOOD = "last_good"  # the adapter of the last few-step student that was good when shots were compared
MEASURED_CLIPS = 128  # most clips for `measured_scale`


def train_stage(
    stage: str,
    config: StageConfig,
    parts: WorldParts,
    data: TrainingData,
    out: str | Path,
    resume: bool = True,
    on_step: OnStep | None = None,
    should_stop: Callable[[], bool] | None = None,
    device: torch.device | None = None,
) -> tuple[WorldParts, TrainingData] | None:
    """Run a stage, or continue it, perhaps with more steps; writes its adapter to `out`.

    Returns the parts with the trained weights (with FSDP2, only in the main process), and the data without outdated
    features, for the next stage; None if it stopped before the last step, so that the same call with freshly loaded
    parts continues from the last checkpoint.
    resume: continue from the last checkpoint in the folder, if there is one. on_step: gets the values of each logged
    step. should_stop: called after each step; True saves a checkpoint and stops. An exception from either reaches the
    caller after a checkpoint is saved. device: where to train, None for accelerate's choice.
    ValueError, before the first step, if data, sizes or settings do not fit; later, if the loss is not finite.
    KeyboardInterrupt after Ctrl-C.
    """
    out = Path(out)
    check_free(out, resume)
    config = continued_config(stage, config, out)
    check_stage(stage, config, parts, data)
    learner = LEARNERS[stage](config, parts, data)
    with idle_on_cpu(learner):
        check_trainable(learner, config)  # before features, which may take hours
    data = prepare(stage, config, parts, data, device or processes().device)

    def write(path: Path, trained: Mapping[str, Tensor]) -> None:
        kept = {name: value for name, value in trained.items() if not only_trains(name)}
        save_adapter(path, stage, config, kept, parts.spec.to_dict(), _stated(stage, config, learner, parts, data))

    with idle_on_cpu(learner) as idle:
        trainer = Trainer(stage, config, learner, data, device)
        vae = idle.get("decoder.vae") or (parts.decoder and parts.decoder.vae)
        watch = partial(check_student, trainer, parts, vae, stage_file(out, LAST_GOOD), write)
        sheet = partial(draw_sheet, trainer, parts, vae, out)
        interrupted = run_loop(trainer, out, sheet, resume, on_step, should_stop, watch)
        is_done = trainer.state.step >= config.steps
        trained = trainer.finish(learner) if is_done else {}
    if interrupted:
        raise KeyboardInterrupt
    if not is_done:
        return None
    is_main = processes().is_main_process
    if is_main or not distributed.fsdp_wanted():
        parts, trained = _finish(stage, learner, parts, data, trained)
    if is_main:
        write(stage_file(out, stage), trained)
        write_json(out / RESULT, {"stage": stage, "steps": trainer.state.step, "seconds": trainer.state.seconds})
    return parts, data.without(*STAGES[stage].outdates)


def _stated(stage: str, config: StageConfig, learner: Learner, parts: WorldParts, data: TrainingData) -> dict[str, Any]:
    """How to play with what a stage trained."""
    stated: dict[str, Any] = {"sampling": learner.taught.stated()}
    if stage in GAME_STAGES:
        window = min(config.window, max(len(game.clips) for game in data.games()) - 1)
        stated["reading"] = {"profile": parts.of("engine").profile.name, "window": window}
    if stage in MOTION_STAGES and data.folder.motion.values:
        stated["motion"] = {"table": asdict(data.folder.motion_table), "provenance": data.folder.motion_provenance}
    return stated


def stage_file(out: Path, stage: str) -> Path:
    """The path of the adapter that a stage writes in its folder."""
    return out / f"{stage}.safetensors"


def check_free(out: Path, resume: bool) -> None:
    """ValueError if the folder holds a run that is not to be continued."""
    if not resume and list_checkpoints(out / CHECKPOINTS):
        raise ValueError(f"{out} already holds a run; resume it, or choose another folder")


def check_stage(stage: str, config: StageConfig, parts: WorldParts, data: TrainingData) -> None:
    """ValueError for anything that would fail later."""
    count, facts, folder = processes().num_processes, STAGES[stage], data.folder
    if config.batch % count:
        raise ValueError(f"batch {config.batch} cannot be split over {count} processes; choose a multiple")
    if not data.clips():
        raise ValueError(f"{folder.path} has no clips to train on; are all games held out?")
    if facts.captions:
        check_captions(folder)
    if "encoder" in facts.needs and parts.encoder is not None and parts.encoder.tokenizer is not None:
        _check_words("encoder", parts.encoder.tokenizer, (turn.motion_text for turn in folder.turns), folder)
    if stage in GAME_STAGES:
        if not data.games():
            raise ValueError(f"{folder.path} has no games to train on; list sequences of clips in games.jsonl")
        tokenizer = parts.of("engine").tokenizer.backend
        _check_words("engine", tokenizer, (turn.instruction for turn in folder.turns), folder)
    if config.timesteps and stage != "distill":
        raise ValueError(f"stage {stage} teaches no timesteps, stage distill does; drop them")
    if stage == "distill" and not config.timesteps and not parts.spec.decoder.guidance_scale:
        raise ValueError(
            f"world {parts.spec.name!r} draws without guidance (guidance_scale 0), so there is nothing to distill; "
            "give timesteps"
        )
    _check_clips(stage, config, parts, data)


def _check_words(model: str, tokenizer: Tokenizer, texts: Iterable[str], folder: DatasetFolder) -> None:
    """ValueError for words that a small world's model does not know; published tokenizers can spell any word."""
    from tokenizers.models import WordLevel

    if not isinstance(tokenizer.model, WordLevel):
        return
    unknown = dict.fromkeys(word for text in dict.fromkeys(texts) for word in unknown_words(tokenizer, text))
    if unknown:
        words = shortened(", ".join(map(repr, unknown)), 60)
        raise ValueError(
            f"the {model}'s vocabulary does not have {words} from the captions in {folder.path}; it is fixed when a "
            "world is made, so train a new world on this dataset"
        )


def _check_clips(stage: str, config: StageConfig, parts: WorldParts, data: TrainingData) -> None:
    """ValueError if the stage will read clips, and they are missing or of another shape than the world's."""
    facts = STAGES[stage]
    if "frames" in data.store:
        found = tuple(data.store["frames"].shape[1:])
    else:
        made_by = {"latents": parts.decoder and parts.decoder.vae}
        made_by |= dict.fromkeys(IMAGE_FEATURES.values(), parts.encoder and parts.encoder.image_tower)

        def is_cached(name: str) -> bool:
            model = made_by.get(name) if data.cache else None
            count = len(data.folder.turns)
            return model is not None and data.is_cached(name, count, data.digest(name, weights_digest(model)))

        draws_sheets = stage == "predict" and config.shots_every and parts.decoder is not None
        shown = draws_sheets and "latents" not in data.store
        if not shown and all(map(is_cached, _missing_features(stage, config, data) & {"frames", "first", *made_by})):
            return  # the clips may be missing
        DatasetFolder.open(data.folder.path)  # checks that the clips exist
        found = data.clip_shape
    first_only = facts.reads == ("states",) and config.encoder_frame == "first"  # then any length will do
    check_clips(found, parts.spec, found[0] if first_only else None)


def _missing_features(stage: str, config: StageConfig, data: TrainingData) -> set[str]:
    """The features not in memory that a stage reads or needs to compute others."""
    names = {*STAGES[stage].reads}
    if "states" in names and "states" not in data.store:
        names |= {"text", "image"}
    return {IMAGE_FEATURES[config.encoder_frame] if name == "image" else name for name in names} - {*data.store}


def prepare(
    stage: str, config: StageConfig, parts: WorldParts, data: TrainingData, device: torch.device
) -> TrainingData:
    """The data with every feature that a stage reads; computes missing ones with the world's models."""
    missing = _missing_features(stage, config, data)
    # With a cache folder, clips are read in parts while features are computed: all at once may not fit into memory.
    at_once = data.cache is None and {"latents", *IMAGE_FEATURES.values()} & missing
    if "frames" not in data.store and ("frames" in missing or at_once) and data.fits:
        data = add_frames(data)
    if "first" in missing:
        data = data.with_feature("first", lambda part: first_frames(data, part, "cpu"), rows=256)
    if "latents" in missing:
        with on_device(parts.of("decoder").vae, device):
            data = add_latents(data, parts.decoder)
    if {"text", "states", *IMAGE_FEATURES.values()} & missing:
        with on_device(parts.of("encoder"), device):
            if {"text", *IMAGE_FEATURES.values()} & missing:
                data = add_encoder_features(data, parts.encoder, config.encoder_frame)
            if "states" in missing:
                data = add_states(data, parts.encoder, config.encoder_frame)
    if "predicted" in missing:
        with on_device(parts.of("engine"), device):
            data = add_predictions(data, parts.engine, config.window)
    return data


LEARNERS: dict[str, Callable[[StageConfig, WorldParts, TrainingData], Learner]] = {
    "vae": lambda config, parts, data: VaeLearner(config, parts.of("decoder")),
    "towers": lambda config, parts, data: ContrastiveLearner(config, parts.of("encoder"), data),
    "warmup": lambda config, parts, data: DiffusionLearner(config, parts.of("decoder"), parts.of("encoder")),
    "joint": lambda config, parts, data: DiffusionLearner(config, parts.of("decoder"), parts.of("encoder")),
    "predict": lambda config, parts, data: EngineLearner(config, parts.of("engine"), data),
    "adapt": lambda config, parts, data: DiffusionLearner(config, parts.of("decoder"), None),
    "distill": lambda config, parts, data: (FewStepLearner if config.timesteps else DistillLearner)(
        config, parts.of("decoder")
    ),
}


@torch.no_grad()
def _finish(
    stage: str, learner: Learner, parts: WorldParts, data: TrainingData, trained: dict[str, Tensor]
) -> tuple[WorldParts, dict[str, Tensor]]:
    """Put the trained weights into the parts; returns the parts and the tensors of the adapter."""
    forget_names(learner, trained)
    own = dict(learner.named_parameters())
    copy_into({name: own[name] for name in trained}, trained)
    trained = {name: value.detach().cpu().clone() for name, value in trained.items()}
    updates = lora_of(learner, ADAPTER)  # stays in its model: merged into fp32 weights, or next to 16-bit ones
    detach(learner, ADAPTER, FAKE)
    attach(learner, updates, free_name(learner))
    learner.eval().requires_grad_(False)
    if any(name.startswith("decoder.vae.encoder.") for name in trained):  # otherwise latents have not changed
        parts = parts.with_scaling_factor(measured_scale(parts, data))
    if STAGES[stage].mixes:
        parts.decoder.unconditional_ND.copy_(parts.encoder.unconditional())
        trained["decoder.unconditional_ND"] = parts.decoder.unconditional_ND.cpu()
    return parts, trained


@torch.no_grad()
def measured_scale(parts: WorldParts, data: TrainingData) -> float:
    """The scaling factor: 1 / (standard deviation of the VAE's latents), measured on up to MEASURED_CLIPS clips."""
    vae, clips = parts.of("decoder").vae, data.clips()
    chosen = torch.tensor(clips[:: max(1, len(clips) // MEASURED_CLIPS)][:MEASURED_CLIPS])
    means = []
    for rows in chosen.split(8):
        frames = clip_frames(data, rows.tolist(), vae.device)
        with autocast(vae.device):
            means.append(vae.encode(pictures(frames).transpose(1, 2)).latent_dist.mean.double())
    return 1 / torch.cat(means).std(correction=0).item()
