"""The entries to training one stage: the command line calls `train_one_stage`, the node `train_adapter`.

Both hold the run's folder, load the models, and end in `run.train_stage`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..data.dataset import DatasetFolder
from ..data.vocabulary import life_of
from ..spec import get_spec
from ..weights import World, open_world, save_world
from ..weights.adapter_files import MOTION_STAGES, adapted_models, adapter_facts
from ..weights.adapters import with_facts
from ..weights.save import writing
from ..weights.storage import read_json, write_json
from ..weights.world import EMBEDDED
from .checkpoints import RESULT, hold_run_folder
from .distributed import close_at_exit, processes
from .log import LOG, PICTURE, Report, RunProgress, how_it_stopped, plot_log, read_log
from .parts import WorldParts, needed_parts, with_guidance, world_for_stage
from .run import check_free, stage_file, train_stage
from .stages import SCRATCH, SCRATCH_SPECS, STAGES, StageConfig, TrainRequest, models_of
from .training_data import Progress, TrainingData
from .world_setup import words_tokenizer, world_exists

FEATURES = "features"
IN_WORLD = "in_world"  # key of a run's result: the world folder that holds its weights
BRIEF_LOG_LINES = 500
CPU_SAMPLES = 2  # at a time: more save no time on a CPU and take memory (stage vae of the Toybox: 1.6 GiB per clip)
IN_WEIGHTS = {  # what becomes of guidance that stage distill has put into a world's weights
    "adapt": "guidance is in this world's weights, and adapt trains it out of them; train distill again afterwards",
    "distill": "guidance is in this world's weights already, and stays there",
}
UNCONDITIONAL = "unconditional_ND"  # of the decoder, zero until a stage trains the encoder together with it


def train_one_stage(request: TrainRequest, report: Report) -> int:
    """Train the stage; returns the exit status.

    ValueError if arguments, data or files do not fit, or if the GPU is out of memory. After Ctrl-C, reports what was
    saved and how to continue.
    """
    try:
        with ExitStack() as held:
            _train(request, report, held)
        close_at_exit()
        return 0
    except KeyboardInterrupt:
        if processes().is_main_process and read_log(request.out / LOG):
            plot_log(request.out / LOG, request.out / PICTURE)
        report(how_it_stopped(request.out))
        return 130
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"stage {request.stage} does not fit in GPU memory ({str(error).partition('. ')[0]}); try --checkpointing, "
            "a smaller --per-card, or several GPUs with FSDP2; --resume continues from a saved step"
        ) from error


def train_adapter(
    stage: str,
    config: StageConfig,
    world: World,
    dataset: Path,
    out: Path,
    cache: Path,
    start: Sequence[tuple[Path, float]] = (),
    on_progress: Progress | None = None,
    device: torch.device | None = None,
    **options: Any,
) -> None:
    """Train a stage, or continue its run; the world is not changed. Works within a larger program.

    world: as `world_for_stage` returns it. start: adapters and their strengths, applied in order. cache: the folder of
    computed features. on_progress: called while features are computed; its exceptions reach the caller. options: as of
    `train_stage`. ValueError, before the first step, if world, data or settings do not fit.
    """
    check_free(out, options.get("resume", True))
    folder = DatasetFolder.open(dataset, clips=False)  # train_stage checks them if it reads clips
    data = TrainingData(folder, cache=cache, on_progress=on_progress)
    with torch.inference_mode(False), torch.enable_grad():
        with hold_run_folder(out, stage, folder, start, world):
            parts = needed_parts(stage, config, world, data, device, [path for path, _ in start])
            train_stage(stage, config, parts.with_stage_files(start), data, out, device=device, **options)


def _train(request: TrainRequest, report: Report, held: ExitStack) -> None:
    """Train the stage into an adapter, or into the world itself (recipe scratch).

    held: gets the locks on the world and on the run's folder.
    """
    stage, out, is_main = request.stage, request.out, processes().is_main_process
    folder = DatasetFolder.open(request.dataset, clips=False)  # train_stage checks them if it reads clips
    for file in request.start:
        adapted_models(file)  # ValueError for a file that is no adapter
        report(f"starts from {file}")
    progress, starts = RunProgress(stage, report), [(file, 1.0) for file in request.start]
    with processes().main_process_first():
        world = _open_or_make_world(request, folder, report)
    recipe = request.recipe or (SCRATCH if world.spec.name in SCRATCH_SPECS else "lora")
    in_place = recipe == SCRATCH and not STAGES[stage].optional
    if in_place:
        if any(place.is_dir() and place.samefile(world.folder) for place in EMBEDDED.values()):
            raise ValueError(
                f"recipe scratch writes into the world, but {request.world} is part of this package, which is never "
                f"changed; give --recipe lora or lora24, which write an adapter, or copy {world.folder} elsewhere"
            )
        if request.start:
            raise ValueError("--start: recipe scratch starts from the world itself; drop it, or give --recipe lora")
        if request.resume and is_in_world(request):
            report(f"{out} is finished, and {request.world} has its weights; choose another --out to train further")
            return
        if is_main:
            held.enter_context(writing(world.folder))
        world = open_world(request.world)  # another program may have written to it before it was locked
    world = world_for_stage(stage, world, request.start, request.profile)
    if request.profile or world.warnings:
        report(f"reads turns with profile {world.profile.name}")
    for line in world.warnings:
        report(f"warning: {line}")
    drawn = [facts.sampling.guidance for facts in map(adapter_facts, request.start) if facts.stage in MOTION_STAGES]
    is_distilled = drawn[-1:] == ["distilled"]
    if stage == "distill" and is_distilled and world.spec.decoder.guidance_scale:
        raise ValueError(
            "--start: guidance is in these weights already, and would be applied twice; start from what their own "
            "stage distill started from"
        )
    if stage in IN_WEIGHTS and (is_distilled or with_guidance(world.spec) != world.spec):
        report(f"warning: {IN_WEIGHTS[stage]}")
    config = _config(request, recipe, report, world)
    check_free(out, request.resume)
    held.enter_context(hold_run_folder(out, stage, folder, starts, world, in_place))
    cache = request.cache or (None if in_place else out / FEATURES)  # features of small worlds stay in memory
    data = TrainingData(folder, cache=cache, on_progress=progress.feature)
    if in_place:
        parts = _own_or_new_models(request, config, world, folder)
        report(f"trains {request.world} in place")
    else:
        parts = needed_parts(stage, config, world, data, None, request.start)
    ended = train_stage(stage, config, parts.with_stage_files(starts), data, out, request.resume, progress.step)
    if is_main:
        plot_log(out / LOG, out / PICTURE)
    if ended is None:
        report(how_it_stopped(out))
        return
    parts, wrote = ended[0], stage_file(out, stage)
    if in_place:
        if is_main:
            parts.save(with_facts(world, adapter_facts(wrote)))
            write_json(out / RESULT, {**read_json(out / RESULT), IN_WORLD: str(world.folder.resolve())})
        report(f"wrote {request.world}")
    report(f"wrote {wrote}")


def _open_or_make_world(request: TrainRequest, folder: DatasetFolder, report: Report) -> World:
    """The world to train, made if it does not exist; ValueError if it has another spec than requested, and for a new
    one if another stage has to come first.
    """
    name = request.world
    if world_exists(name):
        world = open_world(name)
        if request.spec and get_spec(request.spec).name != world.spec.name:
            raise ValueError(f"{name} has spec {world.spec.name!r}, not {request.spec!r}; drop --spec")
        return world
    if not request.spec:
        raise ValueError(f"{name} does not exist yet; choose the sizes of a new world with --spec")
    spec = get_spec(request.spec)
    _models_to_create(request.stage, name, ())
    provenance = {"dataset": folder.path.name, **folder.motion_provenance}  # evaluations measure motion in the same way
    world = save_world(name, spec, motion_table=folder.motion_table, provenance=provenance, life=life_of(folder))
    report(f"new world {name} (spec {spec.name})")
    return world


def _own_or_new_models(request: TrainRequest, config: StageConfig, world: World, folder: DatasetFolder) -> WorldParts:
    """The models that a stage needs: the world's own, and new ones that the stage creates; ValueError names the stage
    that has to come first.
    """
    if config.lora_rank:
        # If a run was killed after writing the world and before noting that, the LoRA would be applied twice.
        raise ValueError(
            f"lora_rank is {config.lora_rank}, but recipe scratch trains the full weights in place; drop it, or give "
            "--recipe lora, which writes an adapter"
        )
    parts = WorldParts.load(world, models_of(request.stage, config.shots_every > 0)).in_memory()
    missing = _models_to_create(request.stage, request.world, parts.models)
    # stage joint trains encoder and decoder together, and leaves the decoder its unconditional state
    represents = world.has("decoder") and bool(world.source("decoder").tensor(UNCONDITIONAL).any())
    if {"states", "predicted"} & {*STAGES[request.stage].reads} and not represents:
        raise ValueError(
            f"stage {request.stage} reads representations, but the encoder of {request.world} has not learned to make "
            "them yet; train stage joint first"
        )
    if not missing:
        return parts
    tokenizer = world.tokenizer() if world.has("engine") else words_tokenizer(folder.turns, world.spec, folder.stats)
    return replace(parts, **WorldParts.new(world.spec, tokenizer, world.profile, config.seed, missing).models)


def _models_to_create(stage: str, world: str, there: Container[str]) -> tuple[str, ...]:
    """The models that a small world lacks and the stage creates; ValueError where another stage has to come first."""
    missing = tuple(name for name in STAGES[stage].needs if name not in there)
    for name in missing:
        if name not in STAGES[stage].makes:
            first = next(other for other, facts in STAGES.items() if name in facts.makes)
            raise ValueError(f"{world} has no {name} yet, which stage {stage} needs; train stage {first} first")
    return missing


def _config(request: TrainRequest, recipe: str, report: Report, world: World) -> StageConfig:
    """The stage's configuration.

    A CPU computes only a few samples at a time, unless that would change the loss or the request sets the number.
    """
    config = request.config(recipe, world.spec)
    if world.trained_window is not None and "window" not in request.options:
        config = replace(config, window=world.trained_window)
    may_split = not STAGES[request.stage].contrasts and "per_card" not in request.options
    at_once = config.batch // processes().num_processes
    if processes().device.type == "cpu" and may_split and min(at_once, config.per_card or at_once) > CPU_SAMPLES:
        config = replace(config, per_card=CPU_SAMPLES)
        report(f"to save memory, a CPU computes at most {CPU_SAMPLES} samples at a time; --per-card allows more")
    return config


def is_in_world(request: TrainRequest) -> bool:
    """Whether the folder's run is done and this world has its weights; ValueError if another world has them."""
    path, world = request.out / RESULT, str(Path(request.world).resolve())
    result = read_json(path) if path.is_file() else {}
    holder = result.get(IN_WORLD) if result.get("stage") == request.stage else None
    if holder not in (None, world):
        raise ValueError(f"{request.out} is finished, and {holder} has its weights, not {world}; choose another --out")
    return holder is not None


def short_config(row: StageConfig, **chosen: Any) -> StageConfig:
    """A recipe's row for a short interactive run: warm-up over at most a tenth of the steps, frequent logging.

    chosen: fields with other values, such as fewer steps; 0 keeps the row's value.
    """
    config = dataclasses.replace(row, **{name: value for name, value in chosen.items() if value})
    return dataclasses.replace(
        config,
        lr_warmup=min(row.lr_warmup, config.steps // 10),
        log_every=max(1, config.steps // BRIEF_LOG_LINES),
        save_every=min(row.save_every, max(50, config.steps // 10)),
    )
