"""One stage from start to end: check, prepare features, train, put the result into the world's parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env
from torch import Tensor, nn

from ..checkpoint.storage import write_json
from .adapters import save_stage_file, take_off_updates
from .engine_learner import EngineLearner, add_predictions
from .learners import DiffusionLearner, Learner, TowerLearner, VaeLearner
from .loop import RunOptions, copy_into, run_loop
from .material import (
    IMAGE_FEATURES,
    TrainingData,
    add_frames,
    add_latents,
    add_states,
    add_tower_features,
    autocast,
    pictures,
)
from .parts import WorldParts
from .stages import StageConfig

HEADS = "heads.safetensors"
RESULT = "result.json"
MEASURED_CLIPS = 128
FRESH = {  # what a stage leaves out of date: features that its result computes anew
    "vae": ("latents",),
    "towers": ("text", "image", "image_random", "states", "predicted"),
    "warmup": ("states", "predicted"),
    "joint": ("states", "predicted"),
    "predict": ("predicted",),
    "adapt": (),
}


@dataclass(frozen=True)
class StageResult:
    """done: whether all steps are taken; if not, the same call goes on from the last checkpoint.

    parts and data are for the next stage: parts hold the trained weights, data no feature that they outdate. seconds:
    time in the loop, over all calls. file: the stage file, None while the stage is unfinished.
    """

    done: bool
    step: int
    seconds: float
    parts: WorldParts
    data: TrainingData
    file: Path | None = None


def processes() -> PartialState:
    """The processes of this run as accelerate counts them, also where its launcher asked for the CPU."""
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))


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
    device = options.device or processes().device
    check_stage(stage, config, parts, data)
    data = prepare(stage, config, parts, data, device)
    learner = LEARNERS[stage](config, parts, data)
    result = run_loop(stage, config, learner, data, out, options)
    if not result.done:
        take_off_updates(learner, merge=False)  # the next call begins as this one did, and loads the checkpoint
        return StageResult(False, result.step, result.seconds, parts, data)
    parts, trained = _finish(stage, learner, parts, data, result.trained)
    file = out / f"{stage}.safetensors"
    if processes().is_main_process:
        _write(file, stage, config, parts, trained)
        write_json(out / RESULT, {"stage": stage, "steps": result.step, "seconds": result.seconds})
    return StageResult(True, result.step, result.seconds, parts, data.without(*FRESH[stage]), file)


def check_stage(stage: str, config: StageConfig, parts: WorldParts, data: TrainingData) -> None:
    """ValueError for whatever would fail later."""
    count = processes().num_processes
    if config.batch % (count * config.accumulation):
        raise ValueError(
            f"batch {config.batch} cannot be split over {count} processes and {config.accumulation} parts; "
            "choose a multiple of their product"
        )
    if not data.clips():
        raise ValueError(f"{data.folder.path} has no clip to train on; are all games held out?")
    uncaptioned = [turn.clip for turn in data.folder.turns if not turn.captioned] if stage != "vae" else []
    if uncaptioned:
        raise ValueError(f"{len(uncaptioned)} clips have no caption, the first is {uncaptioned[0]}; caption them first")
    if stage in ("predict", "adapt"):
        _check_games(parts, data)
    _check_frames(config, parts, data)


def _check_games(parts: WorldParts, data: TrainingData) -> None:
    if not data.games():
        raise ValueError(f"{data.folder.path} has no game to train on; games.jsonl lists sequences of clips")
    tokenizer = parts.of("engine").tokenizer
    for turn in data.folder.turns:
        if unknown := tokenizer.unknown_words(turn.instruction):
            raise ValueError(
                f"{turn.clip}: the engine's vocabulary lacks {unknown[0]!r}; make it from this dataset's words"
            )


def _check_frames(config: StageConfig, parts: WorldParts, data: TrainingData) -> None:
    decoder = parts.spec.decoder
    wanted = (decoder.frames, decoder.height, decoder.width, 3)
    if "frames" in data.store:
        found = tuple(data.store.gather(["frames"], torch.tensor([0]), "cpu")["frames"].shape[1:])
    elif "latents" in data.store:
        return
    else:
        found = data.folder.frames(0).shape
    if found != wanted:
        raise ValueError(f"clips are {found} (frames, height, width, 3); spec {parts.spec.name!r} reads {wanted}")
    odd = [length for length in config.clip_lengths if length % 8 != 1 or not 1 <= length <= decoder.frames]
    if odd:  # latents are decoded 3, 2, 2, ... at a time, so their number is odd (reference-facts 8.1)
        raise ValueError(f"clip length {odd[0]}; the VAE rebuilds 1, 9, 17, ... up to {decoder.frames} frames")


def prepare(
    stage: str, config: StageConfig, parts: WorldParts, data: TrainingData, device: torch.device
) -> TrainingData:
    """The data with every feature that a stage reads; those that are missing are computed from the parts."""
    encoder_needed = stage in ("warmup", "joint", "predict", "adapt")
    image = IMAGE_FEATURES[config.encoder_frame]
    missing = {
        "latents": stage in ("warmup", "joint", "adapt") and "latents" not in data.store,
        "text": encoder_needed and not {"text", image} <= set(data.store.features),
        "states": stage in ("predict", "adapt") and "states" not in data.store,
        "predicted": (stage == "adapt" or config.history_own > 0) and "predicted" not in data.store,
    }
    missing["text"] = missing["text"] and (missing["states"] or stage in ("warmup", "joint"))
    if "frames" not in data.store and (stage in ("vae", "towers") or missing["latents"] or missing["text"]):
        data = add_frames(data)
    if missing["latents"]:
        data = add_latents(data, _on(device, parts.of("decoder")))
    if missing["text"]:
        data = add_tower_features(data, _on(device, parts.of("encoder")), config.encoder_frame)
    if missing["states"]:
        data = add_states(data, _on(device, parts.of("encoder")), config.encoder_frame)
    if missing["predicted"]:
        data = add_predictions(data, _on(device, parts.of("engine")), config.window, config.free_running)
    return data


def _on(device: torch.device, model: nn.Module) -> nn.Module:
    """The model moved in place; parts without memory stay so."""
    return model._apply(lambda tensor: tensor if tensor.is_meta else tensor.to(device))


LEARNERS: dict[str, Callable[[StageConfig, WorldParts, TrainingData], Learner]] = {
    "vae": lambda config, parts, data: VaeLearner(config, parts.of("decoder")),
    "towers": lambda config, parts, data: TowerLearner(config, parts.of("encoder"), data),
    "warmup": lambda config, parts, data: DiffusionLearner(config, parts.of("decoder"), parts.of("encoder")),
    "joint": lambda config, parts, data: DiffusionLearner(config, parts.of("decoder"), parts.of("encoder")),
    "predict": lambda config, parts, data: EngineLearner(config, parts.of("engine"), data),
    "adapt": lambda config, parts, data: DiffusionLearner(config, parts.of("decoder"), None),
}


@torch.no_grad()
def _finish(
    stage: str, learner: Learner, parts: WorldParts, data: TrainingData, trained: dict[str, Tensor]
) -> tuple[WorldParts, dict[str, Tensor]]:
    """Put the trained weights into the parts; returns them and the tensors of the stage file."""
    own = dict(learner.named_parameters())
    copy_into({name: own[name] for name in trained}, trained)
    trained = {name: value.detach().cpu().clone() for name, value in trained.items()}
    take_off_updates(learner, merge=True)
    learner.eval().requires_grad_(False)
    if any(name.startswith("decoder.vae.encoder.") for name in trained):  # else the latents are what they were
        parts = parts.with_scaling_factor(measured_scale(parts, data))
    if stage in ("warmup", "joint"):
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


def _write(file: Path, stage: str, config: StageConfig, parts: WorldParts, trained: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file

    heads = {name[6:]: value for name, value in trained.items() if name.startswith("heads.")}
    if heads:
        save_file(heads, file.with_name(HEADS))
    rest = {name: value for name, value in trained.items() if not name.startswith("heads.")}
    save_stage_file(file, stage, config, rest, parts.spec.to_dict())
