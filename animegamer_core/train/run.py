"""One stage from start to end: check, prepare features, train, put the result into the world's parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoint.storage import write_json
from ..data.dataset import DatasetFolder
from ..encoder import ShotEncoder
from ..files import replacing
from ..prompt import unknown_words
from ..spec import Reading
from . import spread
from .adapters import check_trainable, drop_updates, keep_updates, save_stage_file
from .checkpoints import CHECKPOINTS, list_checkpoints
from .determinism import deterministic
from .engine_learner import EngineLearner, add_predictions
from .learners import DiffusionLearner, DistillLearner, Learner, TextVideoLearner, TowerLearner, VaeLearner
from .loop import RunOptions, run_loop
from .material import (
    IMAGE_FEATURES,
    TrainingData,
    add_frames,
    add_latents,
    add_states,
    add_tower_features,
    autocast,
    cached_features,
    check_captions,
    check_clips,
    forget_names,
    pictures,
)
from .optimizers import check_optimizer
from .parts import WorldParts
from .shots import ShotSheets
from .spread import processes
from .stages import STAGES, StageConfig
from .weights import copy_into, lent, set_aside

HEADS = "heads.safetensors"
RESULT = "result.json"
MEASURED_CLIPS = 128
WORDS_TOLD = 3  # of those that a vocabulary lacks


@dataclass(frozen=True)
class StageResult:
    """done: whether all steps are taken; if not, the same call goes on from the last checkpoint.

    parts and data are for the next stage: parts hold the trained weights (where FSDP2 spread them, in the main process
    alone), data no feature that they outdate. seconds: time in the loop, over all calls. file: the stage file, None
    while the stage is unfinished.
    """

    done: bool
    step: int
    seconds: float
    parts: WorldParts
    data: TrainingData
    file: Path | None = None


def train_stage(
    stage: str,
    config: StageConfig,
    parts: WorldParts,
    data: TrainingData,
    out: str | Path,
    options: RunOptions = RunOptions(),  # noqa: B008  frozen
) -> StageResult:
    """Run a stage, or go on with it; ValueError before the first step where data, sizes or settings do not fit."""
    out = Path(out)
    device, is_main = options.device or processes().device, processes().is_main_process
    check_free(out, options)
    check_stage(stage, config, parts, data)
    stated = what_it_states(stage, config, parts, data)
    learner = LEARNERS[stage](config, parts, data)
    with set_aside(learner):
        check_trainable(learner, config)  # before features, which may take hours
    with deterministic(config.deterministic, device):
        data = prepare(stage, config, parts, data, device)
        sheets = ShotSheets(stage, config, parts, data, out)
        result = run_loop(stage, config, learner, data, out, replace(options, draw=sheets.draw))
        if not result.done:
            drop_updates(learner)  # the next call begins as this one did, and loads the checkpoint
            if is_main or not spread.wanted():
                learner.stopped()
            return StageResult(False, result.step, result.seconds, parts, data)
        if is_main or not spread.wanted():
            parts, trained = _finish(stage, learner, parts, data, result.trained)
    file = out / f"{stage}.safetensors"
    if is_main:
        save_stage_file(file, stage, config, _without_heads(file, trained), parts.spec.to_dict(), stated)
        write_json(out / RESULT, {"stage": stage, "steps": result.step, "seconds": result.seconds})
    return StageResult(True, result.step, result.seconds, parts, data.without(*STAGES[stage].outdates), file)


def check_free(out: Path, options: RunOptions) -> None:
    """ValueError if the folder holds a run that shall not be gone on with."""
    if not options.resume and list_checkpoints(out / CHECKPOINTS):
        raise ValueError(
            f"{out} holds a run already; go on with it (--resume; in ComfyUI resume), or choose another folder or name"
        )


def check_stage(stage: str, config: StageConfig, parts: WorldParts, data: TrainingData) -> None:
    """ValueError for whatever would fail later."""
    count = processes().num_processes
    if config.batch % (count * config.accumulation):
        raise ValueError(
            f"batch {config.batch} cannot be split over {count} processes and {config.accumulation} parts; "
            "choose a multiple of their product"
        )
    check_optimizer(config, spread.wanted())
    if not data.clips():
        raise ValueError(f"{data.folder.path} has no clip to train on; are all games held out?")
    if STAGES[stage].captions:
        check_captions(data.folder)
    if "encoder" in STAGES[stage].needs and parts.encoder is not None:
        _check_words(parts.encoder, data)
    if STAGES[stage].games:
        _check_games(parts, data)
    _check_frames(stage, config, parts, data)


def what_it_states(stage: str, config: StageConfig, parts: WorldParts, data: TrainingData) -> dict[str, Any]:
    """What the stage's file will state of how it is to be played, as `staged.TrainedFile` reads it. Of motion, nothing
    where the dataset has no levels yet.
    """
    facts, stated = STAGES[stage], {}
    if facts.games:
        stated["reading"] = Reading(parts.of("engine").profile, config.window).to_dict()
    folder = data.folder
    if facts.conditions_on_motion and folder.has_motion_table:
        stated["motion"] = {"table": asdict(folder.motion_table), "provenance": folder.motion_provenance}
    return stated


def _check_words(encoder: ShotEncoder, data: TrainingData) -> None:
    """ValueError for motions that a small world's encoder would read as one unknown word after the other."""
    from tokenizers.models import WordLevel

    tokenizer = encoder.tokenizer
    if tokenizer is None or not isinstance(tokenizer.model, WordLevel):
        return  # published worlds spell out any word
    texts = dict.fromkeys(turn.motion_text for turn in data.folder.turns)
    unknown = tuple(dict.fromkeys(word for text in texts for word in unknown_words(tokenizer, text)))
    if unknown:
        told = ", ".join(map(repr, unknown[:WORDS_TOLD])) + (", ..." if len(unknown) > WORDS_TOLD else "")
        raise ValueError(
            f"the encoder's vocabulary lacks {told} of the captions in {data.folder.path}; a world's words are chosen "
            "when it is made, so train a new one on this dataset"
        )


def _check_games(parts: WorldParts, data: TrainingData) -> None:
    if not data.games():
        raise ValueError(f"{data.folder.path} has no game to train on; games.jsonl lists sequences of clips")
    tokenizer = parts.of("engine").tokenizer
    for turn in data.folder.turns:
        if unknown := tokenizer.unknown_words(turn.instruction):
            raise ValueError(
                f"{turn.clip}: the engine's vocabulary lacks {unknown[0]!r}; make it from this dataset's words"
            )


def _check_frames(stage: str, config: StageConfig, parts: WorldParts, data: TrainingData) -> None:
    if "frames" in data.store:
        found = tuple(data.store.gather(["frames"], torch.tensor([0]), "cpu")["frames"].shape[1:])
    elif "frames" not in STAGES[stage].reads and not _reads_clips(stage, config, parts, data):
        return
    else:
        DatasetFolder.open(data.folder.path)  # with clips, which a stage that finds all it reads in a cache may lack
        found = data.clip_shape
    first_alone = STAGES[stage].reads == ("states",) and config.encoder_frame == "first"  # all that the encoder sees
    check_clips(found, parts.spec, found[0] if first_alone else None)
    most = parts.spec.decoder.frames
    odd = [length for length in config.clip_lengths if length % 8 != 1 or not 1 <= length <= most]
    if odd:  # latents are decoded 3, 2, 2, ... at a time, so their number is odd (reference-facts 8.1)
        raise ValueError(f"clip length {odd[0]}; the VAE rebuilds 1, 9, 17, ... up to {most} frames")


def _missing(stage: str, config: StageConfig, data: TrainingData) -> set[str]:
    """The features that a stage reads, itself or to compute others, and that are not in memory or mapped yet."""
    known = set(data.store.features)
    wanted = set(STAGES[stage].reads)
    if config.history_own > 0:
        wanted.add("predicted")
    if "states" in wanted - known:
        wanted |= {"text", "image"}
    return {IMAGE_FEATURES[config.encoder_frame] if name == "image" else name for name in wanted} - known


def _reads_clips(stage: str, config: StageConfig, parts: WorldParts, data: TrainingData) -> bool:
    """Whether clips are read: for features that neither memory nor the cache has, or shown where latents are not."""
    missing = _missing(stage, config, data)
    borrowed = STAGES[stage].borrows_decoder and config.shots_every and parts.decoder is not None
    shown = borrowed and "latents" not in data.store
    kept = cached_features(data, parts.encoder, parts.decoder)
    return bool(shown or {"latents", *IMAGE_FEATURES.values()} & missing - kept)


def prepare(
    stage: str, config: StageConfig, parts: WorldParts, data: TrainingData, device: torch.device
) -> TrainingData:
    """The data with every feature that a stage reads; those that are missing are computed from the parts."""
    missing = _missing(stage, config, data)
    # With a cache folder, clips are read when a feature is computed from them; all of them together may be too large.
    at_once = data.cache is None and {"latents", *IMAGE_FEATURES.values()} & missing
    if "frames" not in data.store and ("frames" in missing or at_once):
        data = add_frames(data)
    if "latents" in missing:
        with lent(parts.of("decoder").vae, device):
            data = add_latents(data, parts.decoder)
    if {"text", *IMAGE_FEATURES.values()} & missing:
        with lent(parts.of("encoder"), device):
            data = add_tower_features(data, parts.encoder, config.encoder_frame)
    if "states" in missing:
        with lent(parts.of("encoder"), device):
            data = add_states(data, parts.encoder, config.encoder_frame)
    if "predicted" in missing:
        with lent(parts.of("engine"), device):
            data = add_predictions(data, parts.engine, config.window, config.free_running)
    if "instruction" in missing:
        from .text_video import add_instructions  # brings diffusers' pipelines, which no other stage needs

        with lent(parts.of("decoder").text_encoder, device):
            data = add_instructions(data, parts.decoder)
    return data


LEARNERS: dict[str, Callable[[StageConfig, WorldParts, TrainingData], Learner]] = {
    "vae": lambda config, parts, data: VaeLearner(config, parts.of("decoder")),
    "towers": lambda config, parts, data: TowerLearner(config, parts.of("encoder"), data),
    "warmup": lambda config, parts, data: DiffusionLearner(config, parts.of("decoder"), parts.of("encoder")),
    "joint": lambda config, parts, data: DiffusionLearner(config, parts.of("decoder"), parts.of("encoder")),
    "predict": lambda config, parts, data: EngineLearner(config, parts.of("engine"), data),
    "adapt": lambda config, parts, data: DiffusionLearner(config, parts.of("decoder"), None),
    "distill": lambda config, parts, data: DistillLearner(config, parts.of("decoder")),
    "gc": lambda config, parts, data: TextVideoLearner(config, parts.of("decoder")),
}


@torch.no_grad()
def _finish(
    stage: str, learner: Learner, parts: WorldParts, data: TrainingData, trained: dict[str, Tensor]
) -> tuple[WorldParts, dict[str, Tensor]]:
    """Put the trained weights into the parts; returns them and the tensors of the stage file."""
    forget_names(learner, trained)
    own = dict(learner.named_parameters())
    copy_into({name: own[name] for name in trained}, trained)
    trained = {name: value.detach().cpu().clone() for name, value in trained.items()}
    keep_updates(learner)
    learner.eval().requires_grad_(False)
    if any(name.startswith("decoder.vae.encoder.") for name in trained):  # else the latents are what they were
        parts = parts.with_scaling_factor(measured_scale(parts, data))
    if STAGES[stage].mixes:
        parts.decoder.unconditional_ND.copy_(parts.encoder.unconditional())
        trained["decoder.unconditional_ND"] = parts.decoder.unconditional_ND.cpu()
    return parts, trained


@torch.no_grad()
def measured_scale(parts: WorldParts, data: TrainingData) -> float:
    """The scaling factor 1 / (standard deviation of the VAE's latents), over up to 128 clips to train on."""
    vae, clips = parts.of("decoder").vae, data.clips()
    chosen = torch.tensor(clips[:: max(1, len(clips) // MEASURED_CLIPS)][:MEASURED_CLIPS])
    total, squares, count = 0.0, 0.0, 0
    for rows in chosen.split(8):
        frames = data.store.gather(["frames"], rows, vae.device)["frames"]
        with autocast(vae.device):
            mean = vae.encode(pictures(frames).transpose(1, 2)).latent_dist.mean.double()
        total, squares, count = total + mean.sum().item(), squares + (mean**2).sum().item(), count + mean.numel()
    return (squares / count - (total / count) ** 2) ** -0.5


def _without_heads(file: Path, trained: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a stage file; helpers that only its training needs go to a file of their own beside it."""
    from safetensors.torch import save_file

    heads = {name[6:]: value for name, value in trained.items() if name.startswith("heads.")}
    if heads:
        with replacing(file.with_name(HEADS)) as part:
            save_file(heads, part)
    return {name: value for name, value in trained.items() if not name.startswith("heads.")}
