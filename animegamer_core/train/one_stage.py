"""Trains one requested stage and writes what it trained: an adapter, or with recipe scratch also the world itself."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from ..checkpoint import World, open_world
from ..checkpoint.adapter_files import adapted_models, adapter_facts
from ..checkpoint.adapters import as_stated
from ..checkpoint.save import writing
from ..checkpoint.storage import read_json, write_json
from ..data.cache import FeatureStore
from ..data.dataset import DatasetFolder
from .checkpoints import CHECKPOINTS, list_checkpoints
from .distributed import close_at_exit, processes
from .job import FEATURES, Job, RunOrigin, hold_run_folder, run_job, to_train
from .log import LOG, PICTURE, plot_log, read_log
from .loop import RunOptions
from .progress import Report, RunProgress, how_it_stopped, report_interrupt
from .request import TrainRequest
from .run import RESULT, StageResult, train_stage
from .stages import BASELINE_STAGES, SCRATCH_SPECS, STAGES, StageConfig, lr_warning
from .trainer import extension_note, keeps_frozen_in_bf16, set_cublas_workspace
from .training_data import TrainingData
from .world_setup import check_writable, load_or_make_models, open_or_make_world

IN_WORLD = "in_world"  # key of a run's result: the world folder that holds its weights
CPU_SAMPLES = 2  # at a time: more save no time on a CPU and take memory (stage vae of the Toybox: 1.6 GiB per clip)


def train_one_stage(request: TrainRequest, report: Report) -> int:
    """Train the stage; returns the exit status.

    ValueError if arguments, data or files do not fit, or if the GPU is out of memory. After Ctrl-C, reports what was
    saved and how to continue.
    """
    try:
        status = _train(request, report)
        close_at_exit()
        return status
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


def _train(request: TrainRequest, report: Report) -> int:
    folder = DatasetFolder.open(request.dataset, clips=False)  # train_stage checks them if it reads clips
    is_baseline = request.stage in BASELINE_STAGES
    for file in request.start:
        adapted_models(file, is_baseline)  # ValueError for a file that is not an adapter for this stage
        report(f"starts from {file}")
    if is_baseline:
        return _train_baseline(request, folder, report)
    with processes().main_process_first():
        world = open_or_make_world(request, folder, report)
    recipe = request.recipe or ("scratch" if world.spec.name in SCRATCH_SPECS else "lora")
    if recipe == "scratch" and not STAGES[request.stage].optional:
        return _train_scratch(request, world, folder, report)
    world = _as_trained(request, world, report)
    config = _checked_config(request, recipe, report, world)
    job = Job(request.stage, config, world, request.dataset, request.out, request.starts, request.cache)
    progress = RunProgress(request.stage, report)
    result = run_job(job, _options(request, progress), progress.feature)
    if _finished(request, result, config, report):
        report(f"wrote {result.file}")
    return 0


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
    if request.resume and (note := extension_note(config, request.out)) is not None:
        report(note)
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


def _train_scratch(request: TrainRequest, world: World, folder: DatasetFolder, report: Report) -> int:
    """Recipe scratch: write the trained weights into the world, but not again after a later stage trained it."""
    check_writable(request, world)
    if request.resume and is_in_world(request):
        report(f"{request.out} is finished, and {request.world} has its weights; choose another --out to train further")
        return 0
    with writing(world.folder) if processes().is_main_process else nullcontext():
        # opened again: another program may have written to it before it was locked
        return _train_in_place(request, open_world(request.world), folder, report)


def _train_in_place(request: TrainRequest, world: World, folder: DatasetFolder, report: Report) -> int:
    """Recipe scratch, with the world locked against other writers."""
    world = _as_trained(request, world, report)
    config = _checked_config(request, "scratch", report, world)
    if config.lora_rank:
        # If a run was killed after writing the world and before noting that, the LoRA would be applied twice.
        raise ValueError(
            f"lora_rank is {config.lora_rank}, but recipe scratch trains the full weights in place; drop it, or give "
            "--recipe lora, which writes an adapter"
        )
    with hold_run_folder(request.out, RunOrigin(request.stage, folder, request.starts, world, in_place=True)):
        progress = RunProgress(request.stage, report)
        # features of a small world fit into memory
        data = TrainingData(folder, FeatureStore(), cache=request.cache, on_progress=progress.feature)
        parts = load_or_make_models(world, request, config, folder).with_stage_files(request.starts)
        report(f"trains {request.world} in place")
        result = train_stage(request.stage, config, parts, data, request.out, _options(request, progress))
        if _finished(request, result, config, report):
            if processes().is_main_process:
                result.parts.save(as_stated(world, adapter_facts(result.file)), max_shard_bytes=config.shard_mb * 2**20)
                path = request.out / RESULT
                write_json(path, {**read_json(path), IN_WORLD: str(world.folder.resolve())})
            report(f"wrote {request.world}")
            report(f"wrote {result.file}")
    return 0


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


def _train_baseline(request: TrainRequest, folder: DatasetFolder, report: Report) -> int:
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
    with hold_run_folder(request.out, RunOrigin(request.stage, folder, request.starts, world)):
        if stock:
            half = keeps_frozen_in_bf16(config, processes().device)
            parts = open_text_video(path, torch.bfloat16 if half else torch.float32)
        else:
            parts = new_text_video(world, folder, config.seed)
        progress = RunProgress(request.stage, report)
        cache = request.cache or (request.out / FEATURES if stock else None)
        data = TrainingData(folder, FeatureStore(), cache=cache, on_progress=progress.feature)
        result = train_stage(
            request.stage,
            config,
            parts.with_stage_files(request.starts),
            data,
            request.out,
            _options(request, progress),
        )
        if _finished(request, result, config, report) and processes().is_main_process:
            folder_gc = save_text_video(result.parts.decoder, result.file, request.out / request.stage)
            report(f"wrote {folder_gc}")
    return 0
