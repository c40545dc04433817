"""Trains one stage: settings, run folder, models and features, the loop, and what it writes.

The command line calls `train_one_stage`, the node `train_adapter`; both end in `_run`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from .. import messages
from ..checkpoint import World, open_world
from ..checkpoint.adapter_files import adapted_models, adapter_facts, tensor_names
from ..checkpoint.adapters import as_stated, reading_of
from ..checkpoint.save import writing
from ..checkpoint.storage import note_of, read_json, write_json
from ..data.cache import FeatureStore
from ..data.dataset import DatasetFolder
from ..files import locked
from ..spec import TRAINED_PROFILES, get_profile
from .checkpoints import CHECKPOINTS, list_checkpoints
from .distributed import close_at_exit, processes
from .log import LOG, PICTURE, Report, RunProgress, how_it_stopped, plot_log, read_log, report_interrupt
from .loop import RunOptions
from .parts import WorldParts, has_encoder_features
from .request import TrainRequest
from .run import RESULT, StageResult, check_free, train_stage
from .stages import BASELINE_STAGES, SCRATCH_SPECS, STAGES, StageConfig, lr_warning, models_of
from .trainer import keeps_frozen_in_bf16, set_cublas_workspace
from .training_data import Progress, TrainingData
from .world_setup import check_writable, load_or_make_models, open_or_make_world

JOB = "job.json"
LOCK = ".lock"
FEATURES = "features"
IN_WORLD = "in_world"  # key of a run's result: the world folder that holds its weights
FEATURE_ENCODERS = ("text_tower", "image_tower")  # a world's parts that compute features of texts and clips
BRIEF_LOG_LINES = 500
CPU_SAMPLES = 2  # at a time: more save no time on a CPU and take memory (stage vae of the Toybox: 1.6 GiB per clip)


def train_one_stage(request: TrainRequest, report: Report) -> int:
    """Train the stage; returns the exit status.

    ValueError if arguments, data or files do not fit, or if the GPU is out of memory. After Ctrl-C, reports what was
    saved and how to continue.
    """
    try:
        _train(request, report)
        close_at_exit()
        return 0
    except KeyboardInterrupt:
        if read_log(request.out / LOG):
            _plot_losses(request.out)
        report(how_it_stopped(request.out))
        return 130
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0]
        saved = list_checkpoints(request.out / CHECKPOINTS)
        raise ValueError(
            f"stage {request.stage} does not fit in GPU memory ({reason}); try --checkpointing, a smaller --per-card, "
            f"or several GPUs with FSDP2{', each with --resume to continue' if saved else ''}"
        ) from error


def train_adapter(
    stage: str,
    config: StageConfig,
    world: World,
    dataset: Path,
    out: Path,
    start: Sequence[tuple[Path, float]] = (),
    cache: Path | None = None,
    options: RunOptions = RunOptions(),  # noqa: B008  frozen
    on_progress: Progress | None = None,
) -> StageResult:
    """Train a stage, or continue its run; the world is not changed. Works within a larger program.

    world: as `to_train` returns it. start: adapters and their strengths, applied in order. cache: the folder of
    computed features, None for one in `out`. on_progress: called while features are computed; its exceptions reach the
    caller. ValueError, before the first step, if world, data or settings do not fit together.
    """
    check_free(out, options)
    folder = DatasetFolder.open(dataset, clips=False)  # train_stage checks them if it reads clips
    data = TrainingData(folder, FeatureStore(), cache=cache or out / FEATURES, on_progress=on_progress)

    def load() -> WorldParts:
        return needed_parts(stage, config, world, data, options.device, [path for path, _ in start])

    with torch.inference_mode(False), torch.enable_grad(), _own_accelerate():
        with hold_run_folder(out, origin_of(stage, folder, start, world)):
            return train_stage(stage, config, load().with_stage_files(start), data, out, options)


def _train(request: TrainRequest, report: Report) -> None:
    """Train the stage into an adapter, into the world itself (recipe scratch), or a baseline for diffusers."""
    folder = DatasetFolder.open(request.dataset, clips=False)
    is_baseline = request.stage in BASELINE_STAGES
    for file in request.start:
        adapted_models(file, is_baseline)  # ValueError for a file that is not an adapter for this stage
        report(f"starts from {file}")
    if is_baseline:
        _train_baseline(request, folder, report)
        return
    with processes().main_process_first():
        world = open_or_make_world(request, folder, report)
    recipe = request.recipe or ("scratch" if world.spec.name in SCRATCH_SPECS else "lora")
    if recipe == "scratch" and not STAGES[request.stage].optional:
        check_writable(request, world)
        if request.resume and is_in_world(request):
            report(
                f"{request.out} is finished, and {request.world} has its weights; choose another --out to train further"
            )
            return
        with writing(world.folder) if processes().is_main_process else nullcontext():
            # opened again: another program may have written to it before it was locked
            _train_in_place(request, _as_trained(request, open_world(request.world), report), folder, report)
        return
    world = _as_trained(request, world, report)
    config = _checked_config(request, recipe, report, world)
    progress = RunProgress(request.stage, report)
    options = _options(request, progress)
    result = train_adapter(
        request.stage, config, world, request.dataset, request.out, request.starts, request.cache, options,
        progress.feature,
    )  # fmt: skip
    if _finished(request, result, config, report):
        report(f"wrote {result.file}")


def _train_in_place(request: TrainRequest, world: World, folder: DatasetFolder, report: Report) -> None:
    """Recipe scratch, with the world locked against other writers."""
    config = _checked_config(request, "scratch", report, world)
    if config.lora_rank:
        # If a run was killed after writing the world and before noting that, the LoRA would be applied twice.
        raise ValueError(
            f"lora_rank is {config.lora_rank}, but recipe scratch trains the full weights in place; drop it, or give "
            "--recipe lora, which writes an adapter"
        )
    with hold_run_folder(request.out, origin_of(request.stage, folder, request.starts, world, in_place=True)):
        parts = load_or_make_models(world, request, config, folder)
        report(f"trains {request.world} in place")
        result = _run(request, config, parts, folder, request.cache, report)  # features of a small world fit in memory
        if result.file is None:
            return
        if processes().is_main_process:
            result.parts.save(as_stated(world, adapter_facts(result.file)), max_shard_bytes=config.shard_mb * 2**20)
            path = request.out / RESULT
            write_json(path, {**read_json(path), IN_WORLD: str(world.folder.resolve())})
        report(f"wrote {request.world}")
        report(f"wrote {result.file}")


def _train_baseline(request: TrainRequest, folder: DatasetFolder, report: Report) -> None:
    """Stage gc: trains on a small world or a folder of CogVideoX-2B, and writes a folder for diffusers, `gc` in --out.

    The world or folder is not changed.
    """
    from .text_video import is_pipeline, new_text_video, open_text_video, save_text_video

    path = Path(request.world)
    stock = is_pipeline(path)
    config = _checked_config(request, request.recipe or ("lora" if stock else "scratch"), report)
    if config.lora_rank and not stock:
        raise ValueError(
            f"{request.world} is not a CogVideoX-2b folder, which LoRA needs; give one, or --recipe scratch"
        )
    world = None if stock else open_world(request.world)
    with hold_run_folder(request.out, origin_of(request.stage, folder, request.starts, world)):
        if stock:
            half = keeps_frozen_in_bf16(config, processes().device)
            parts = open_text_video(path, torch.bfloat16 if half else torch.float32)
        else:
            parts = new_text_video(world, folder, config.seed)
        cache = request.cache or (request.out / FEATURES if stock else None)
        result = _run(request, config, parts, folder, cache, report)
        if result.file is not None and processes().is_main_process:
            report(f"wrote {save_text_video(result.parts.decoder, result.file, request.out / request.stage)}")


def _run(
    request: TrainRequest,
    config: StageConfig,
    parts: WorldParts,
    folder: DatasetFolder,
    cache: Path | None,
    report: Report,
) -> StageResult:
    progress = RunProgress(request.stage, report)
    data = TrainingData(folder, FeatureStore(), cache=cache, on_progress=progress.feature)
    parts = parts.with_stage_files(request.starts)
    result = train_stage(request.stage, config, parts, data, request.out, _options(request, progress))
    _finished(request, result, config, report)
    return result


def _as_trained(request: TrainRequest, world: World, report: Report) -> World:
    """The world as the stage reads it; reports the profile if requested, and the world's warnings."""
    world = to_train(request.stage, world, request.start, request.profile)
    if request.profile or world.warnings:
        report(f"reads turns with profile {world.profile.name}")
    for line in world.warnings:
        report(f"warning: {line}")
    return world


def _checked_config(request: TrainRequest, recipe: str, report: Report, world: World | None = None) -> StageConfig:
    """The stage's configuration; reports a warning if its learning rate is unusual.

    A CPU computes only a few samples at a time, unless that would change the loss or the request sets the number.
    """
    config = request.config(recipe, None if world is None else world.spec)
    if world is not None and world.trained_window is not None and "window" not in request.options:
        config = replace(config, window=world.trained_window)
    may_split = not STAGES[request.stage].contrasts and "per_card" not in request.options
    at_once = config.batch // (processes().num_processes * config.accumulation)
    if processes().device.type == "cpu" and may_split and min(at_once, config.per_card or at_once) > CPU_SAMPLES:
        config = replace(config, per_card=CPU_SAMPLES)
        report(f"to save memory, a CPU computes at most {CPU_SAMPLES} samples at a time; --per-card allows more")
    if config.deterministic:
        set_cublas_workspace()
    if (warning := lr_warning(config)) is not None:
        report(f"warning: {warning}")
    return config


def _options(request: TrainRequest, progress: RunProgress) -> RunOptions:
    on_interrupt = report_interrupt if processes().is_main_process else None
    return RunOptions(request.resume, progress.step, on_interrupt=on_interrupt)


def _finished(request: TrainRequest, result: StageResult, config: StageConfig, report: Report) -> bool:
    """Whether the stage is done; plots its losses, and reports how to continue if it was stopped."""
    _plot_losses(request.out)
    if not result.done:
        report(f"stopped at step {result.step} of {config.steps}; the same command with --resume continues")
    return result.done


def _plot_losses(out: Path) -> None:
    if processes().is_main_process:
        plot_log(out / LOG, out / PICTURE)


def is_in_world(request: TrainRequest) -> bool:
    """Whether the folder's run is done and this world has its weights; ValueError if another world has them."""
    path = request.out / RESULT
    result = read_json(path) if path.is_file() else {}
    if result.get("stage") != request.stage or IN_WORLD not in result:
        return False
    if result[IN_WORLD] != str(Path(request.world).resolve()):
        raise ValueError(
            f"{request.out} is finished, and {result[IN_WORLD]} has its weights, not {request.world}; choose another "
            f"--out, or use {request.out / request.stage}.safetensors (--lora to play with it, --start to train)"
        )
    return True


def to_train(stage: str, world: World, start: Sequence[Path], profile: str | None = None) -> World:
    """The world with the profile and window with which a stage reads turns, and with which its result is played.

    start: the adapters that the stage starts from. profile: how turns are read; None for the engine's own, or `paper`
    if none of our stages has trained the engine. ValueError for a profile that cannot be trained or that the stage does
    not use, and for adapters that contradict one another.
    """
    facts = STAGES[stage]
    if profile is not None and not facts.games:
        raise ValueError(f"stage {stage} reads no turns, so a profile has no effect; do not set one")
    if profile is not None and profile not in TRAINED_PROFILES:
        raise ValueError(f"profile {profile!r} cannot be trained; choose {' or '.join(TRAINED_PROFILES)}")
    if not facts.games:
        return world
    reading = reading_of(world, [adapter_facts(path) for path in start], checked=profile is None)
    read = dataclasses.replace(world, profile=reading.profile, trained_window=reading.window)
    if not facts.trains_engine:
        return read if profile is None else read.with_profile(profile)
    chosen = profile or (TRAINED_PROFILES[0] if reading.window is None else reading.profile.name)
    return dataclasses.replace(read, profile=get_profile(chosen))


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
    dtype = torch.bfloat16 if keeps_frozen_in_bf16(config, device or processes().device) else torch.float32
    needs, prefixes = STAGES[stage].needs, tuple(f"encoder.{part}." for part in FEATURE_ENCODERS)
    changed = "text" in STAGES[stage].outdates or any(
        name.startswith(prefixes) for path in start for name in tensor_names(path)
    )
    encoders = changed or not has_encoder_features(world, config, data)
    if "encoder" in needs and encoders and world.has("encoder") and (lacking := world.missing(FEATURE_ENCODERS)):
        raise ValueError(f"stage {stage} computes features of clips and texts, but {lacking[0]}")
    parts = WorldParts.load(world, models_of(stage, config.shots_every > 0), dtype, config.trainable, encoders)
    for name in needs:
        parts.of(name)
    return parts


class ChangedOrigin(ValueError):
    """A run is continued with another stage, profile, world, dataset or starting adapter."""

    def __init__(self, out: Path, name: str, before: object, now: object) -> None:
        super().__init__(
            f"{out} holds a run with another {name} ({messages.brief(before, 40)}, now {messages.brief(now, 40)}); "
            "choose another folder for this run"
        )
        self.name = name


def origin_of(
    stage: str,
    folder: DatasetFolder,
    start: Sequence[tuple[Path, float]],
    world: World | None,
    in_place: bool = False,
) -> dict[str, object]:
    """What a run starts from, as job.json in its folder states it.

    world: as the stage reads it; None if it reads no world. in_place: whether the run writes to the world, which then
    differs afterwards.
    """
    # a run with starting adapters always notes the world: on a changed world, they would be applied twice
    is_noted = world is not None and (start or not in_place)
    return {
        "stage": stage,
        "profile": world.profile.name if world is not None and STAGES[stage].games else None,
        "world": world.fingerprint if is_noted else None,
        "dataset": folder.digest(captions=True),
        # digits of the hash, since many adapters have the same name; reading a missing file fails later
        "start": [
            [path.name, strength, note_of(path).sha256[:12] if path.is_file() else ""] for path, strength in start
        ],
    }


@contextmanager
def hold_run_folder(out: Path, notes: Mapping[str, object]) -> Iterator[None]:
    """Lock a run's folder while the block runs, and note in it what the run starts from (`origin_of`).

    ValueError if another training is running in the folder; ChangedOrigin if the run there has a checkpoint and another
    origin.
    """
    refusal = f"{out}: another training is running here; wait for it, stop it, or choose another folder"
    with locked(out / LOCK, refusal) if processes().is_main_process else nullcontext():
        with processes().main_process_first():
            path = out / JOB
            if path.is_file() and list_checkpoints(out / CHECKPOINTS):
                _check_same(out, read_json(path), notes)
            else:
                (out / RESULT).unlink(missing_ok=True)  # of a run whose checkpoints were removed
            write_json(path, notes)
        yield


def check_origin(out: Path, notes: Mapping[str, object]) -> None:
    """ChangedOrigin if the folder's run has another origin; writes nothing."""
    if (out / JOB).is_file():
        _check_same(out, read_json(out / JOB), notes)


def _check_same(out: Path, before: Mapping[str, object], notes: Mapping[str, object]) -> None:
    """ChangedOrigin for the first note that differs from the earlier ones."""
    if before.get("world") is None:  # the run wrote to its world
        before = {**before, "world": notes["world"]}
    for name, value in json.loads(json.dumps(notes)).items():
        if before.get(name) != value:
            raise ChangedOrigin(out, name, before.get(name), value)


@contextmanager
def _own_accelerate() -> Iterator[None]:
    """Reset accelerate's state, which is global, after the block, unless it was set before."""
    from accelerate import PartialState

    if PartialState._shared_state:
        yield
        return
    try:
        yield
    finally:
        PartialState._reset_state()


def brief(row: StageConfig, **chosen: float) -> StageConfig:
    """A recipe's row for a short interactive run: warm-up over at most a tenth of the steps, frequent logging.

    chosen: fields with other values, such as fewer steps; 0 keeps the row's value. The accumulation is reduced to a
    divisor of the batch if necessary.
    """
    config = dataclasses.replace(row, **{name: value for name, value in chosen.items() if value})
    return dataclasses.replace(
        config,
        accumulation=math.gcd(config.batch, row.accumulation),
        lr_warmup=min(row.lr_warmup, config.steps // 10),
        log_every=max(1, config.steps // BRIEF_LOG_LINES),
        save_every=min(row.save_every, max(50, config.steps // 10)),
    )
