"""`train all`: prints a plan, then runs the stages of a recipe one after another, like `train STAGE`; skips done ones.

The stages are checked with models without weights, so that whatever would make a later one fail is refused before the
first step of the first one.
"""

from __future__ import annotations

import gc
import shlex
import time
import typing
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from ..data.dataset import DatasetFolder
from ..spec import PROGRAM, ModelSpec, get_profile, get_spec
from ..weights import World, open_world
from ..weights.parts import PLAY_PARTS, build_model, empty_parameters
from ..weights.storage import read_json
from .checkpoints import CHECKPOINTS, RESULT, list_checkpoints, step_of
from .distributed import processes
from .job import FEATURES, is_in_world, train_one_stage
from .log import Report
from .parts import WorldParts, name_stored, set_trainable
from .run import LEARNERS, check_free, check_stage, stage_file
from .stages import ADAPTER_STAGES, SCRATCH, SCRATCH_SPECS, STAGES_IN_ORDER, StageConfig, TrainRequest, models_of
from .training_data import TrainingData
from .world_setup import words_tokenizer, world_exists

_KINDS = typing.get_type_hints(StageConfig)


def train_all(request: TrainRequest, report: Report) -> int:
    """Print the plan and train the stages; returns the exit status.

    ValueError, before the first step, if options, data or files do not fit one of the stages.
    """
    folder = DatasetFolder.open(request.dataset, clips=False)  # check_stage checks them if a stage reads clips
    world = open_world(request.world) if world_exists(request.world) else None
    if world is None and not request.spec:
        raise ValueError(f"{request.world} does not exist yet; choose the sizes of a new world with --spec")
    spec = world.spec if world is not None else get_spec(request.spec)
    recipe = request.recipe or (SCRATCH if spec.name in SCRATCH_SPECS else "lora")
    # features of small worlds stay in memory; otherwise one folder serves all stages
    request = replace(request, cache=request.cache or (None if recipe == SCRATCH else request.out / FEATURES))
    runs = _stage_requests(request, recipe)
    done = {run.stage for run in runs if _is_done(run.out) and (recipe != SCRATCH or is_in_world(run))}
    configs = {run.stage: run.config(recipe, spec) for run in runs}

    data = TrainingData(folder, cache=request.cache)
    for stage, config in configs.items():
        if stage not in done:
            parts = _bare_parts(models_of(stage, config.shots_every > 0), world, spec, folder)
            check_stage(stage, config, parts, data)
            with empty_parameters():
                set_trainable(LEARNERS[stage](replace(config, compile=False), parts, data), config)
    report(f"plan: recipe {recipe}, world {request.world} (spec {spec.name}), dataset {folder.path}")
    for run in runs:
        saved, steps = list_checkpoints(run.out / CHECKPOINTS), configs[run.stage].steps
        left = "done" if run.stage in done else f"{steps - (step_of(saved[-1]) if saved else 0):,} of {steps:,} steps"
        report(f"  {run.stage:8} {left}, from {', '.join(path.stem for path in run.start) or 'the world'}")
    if request.plan:
        return 0

    processes().wait_for_everyone()  # no process writes before all have read the folders
    begun, limit = time.monotonic(), request.options.get("minutes", 0.0)
    for at, run in enumerate(runs):
        if run.stage in done:
            continue
        report(f"stage {run.stage}, {at + 1} of {len(runs)}")
        if limit:
            # for all stages together; never 0, which means no limit, and no process may skip a stage alone
            left = max(1e-6, limit - (time.monotonic() - begun) / 60)
            run = replace(run, options={**run.options, "minutes": left})
        status = train_one_stage(run, report)
        processes().wait_for_everyone()  # the main process writes the adapter that the next stage starts from
        gc.collect()  # models are in reference cycles, and the next stage needs their memory
        if status or not _is_done(run.out):
            report(f"{at} of {len(runs)} stages are done; the same command with --resume continues in {run.stage}")
            return status
    report("all stages are done")
    if recipe != SCRATCH or not open_world(request.world).missing(PLAY_PARTS):
        files = () if recipe == SCRATCH else (*runs[-1].start, stage_file(runs[-1].out, runs[-1].stage))
        loras = (word for file in files for word in ("--lora", str(file)))
        report(shlex.join([*PROGRAM.split(), "play", "--world", request.world, *loras]))
    return 0


def _stage_requests(request: TrainRequest, recipe: str) -> list[TrainRequest]:
    """What each stage of the run is asked for, in the order of training.

    ValueError for a folder that holds a run and no --resume, and for an unfinished stage in it that is not included.
    """
    whole = STAGES_IN_ORDER if recipe == SCRATCH else ADAPTER_STAGES
    names = [name.strip() for name in request.stages.split(",")] if request.stages else whole
    if unknown := sorted({*names} - {*whole}):
        raise ValueError(f"--stages: recipe {recipe!r} does not run {unknown[0]!r}; choose from {', '.join(whole)}")
    settings = _read_settings(request.set, whole)
    trained: list[Path] = []
    requests: list[TrainRequest] = []
    for name in whole:
        out = request.out / name
        if name in names:
            check_free(out, request.resume or request.plan)
            options, start = {**request.options, **settings[name]}, (*request.start, *trained)
            requests.append(replace(request, stage=name, out=out, options=options, start=start))
        elif recipe != SCRATCH and not _is_done(out):
            if list_checkpoints(out / CHECKPOINTS):
                raise ValueError(f"{out} holds an unfinished run; add {name} to --stages, or move it away")
            continue
        if recipe != SCRATCH:
            trained.append(stage_file(out, name))
    return requests


def _bare_parts(models: Sequence[str], world: World | None, spec: ModelSpec, folder: DatasetFolder) -> WorldParts:
    """The world's models on the meta device, named by the world's files."""
    has_engine = world is not None and world.has("engine")
    tokenizer = world.tokenizer() if has_engine else words_tokenizer(folder.turns, spec, folder.stats)
    profile = world.profile if world is not None else get_profile("paper")
    parts = build_model(lambda: WorldParts.new(spec, tokenizer, profile, models=models))
    if parts.encoder is not None:  # on the meta device, T5's shared embedding is created twice
        parts.encoder.text_tower.set_input_embeddings(parts.encoder.text_tower.get_input_embeddings())
    if world is not None:
        name_stored(parts.models, world)
    return parts


def _is_done(out: Path) -> bool:
    """Whether a stage's folder holds its result and its adapter."""
    path = out / RESULT
    return path.is_file() and read_json(path).get("stage") == out.name and stage_file(out, out.name).is_file()


def _read_settings(given: Iterable[str], stages: Iterable[str]) -> dict[str, dict[str, typing.Any]]:
    """The options of --set by stage; ValueError for one that is not STAGE.OPTION=VALUE with one of these stages."""
    found: dict[str, dict[str, typing.Any]] = {name: {} for name in stages}
    for text in given:
        place, equals, value = text.partition("=")
        stage, _, option = place.strip().replace("-", "_").partition(".")
        if not equals or stage not in found or option not in _KINDS:
            raise ValueError(
                f"--set {text}: expected STAGE.OPTION=VALUE, such as joint.steps=2000, with one of the stages "
                f"{', '.join(found)} and an option that `train --help` lists"
            )
        words = value.split() if typing.get_origin(_KINDS[option]) is tuple else value.strip()
        try:
            found[stage][option] = msgspec.convert(words, _KINDS[option], strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"--set {text}: {error}") from error
    return found
