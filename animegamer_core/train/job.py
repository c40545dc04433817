"""A stage as one call, from a world and a dataset folder to a stage file, as the nodes and the command line make it.

Nothing is written to the world. Where a run does that, the command line shares the check that it goes on as it began.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from ..checkpoint import World
from ..checkpoint.storage import note_of, read_json, write_json
from ..data.cache import FeatureStore
from ..data.dataset import DatasetFolder
from ..files import locked
from ..spec import TRAINED_PROFILES, get_profile
from .adapters import tensor_names
from .checkpoints import CHECKPOINTS, list_checkpoints
from .loop import RunOptions
from .material import Progress, TrainingData
from .parts import Loading, WorldParts, has_tower_features
from .run import RESULT, StageResult, check_free, train_stage
from .spread import processes
from .staged import reading_of, trained_file
from .stages import STAGES, StageConfig
from .weights import halves_frozen

JOB = "job.json"
LOCK = ".lock"
FEATURES = "features"
TOWERS = ("text_tower", "image_tower")
LOGGED = 500  # lines that the log of a brief run may have


@dataclass(frozen=True)
class Job:
    """What to train, on what, from where. world: as `to_train` returns it. start: stage files with their strengths,
    applied in order before the first step. out: the run's folder, which holds log, checkpoints and at last the stage
    file. cache: the folder of computed features, None for one in `out`.
    """

    stage: str
    config: StageConfig
    world: World
    dataset: Path
    out: Path
    start: Sequence[tuple[Path, float]] = ()
    cache: Path | None = None


def run_job(job: Job, options: RunOptions = RunOptions(), on_progress: Progress | None = None) -> StageResult:  # noqa: B008  frozen
    """Train the job's stage, or go on with it. It may be called under inference mode and within a larger program.

    on_progress hears of features that are computed before the first step; what it raises goes on to the caller.
    ValueError, before the first step, where world, data or settings do not fit, or the folder holds another job.
    """
    check_free(job.out, options)
    folder = DatasetFolder.open(job.dataset, clips=False)  # train_stage looks for them if it reads any
    with torch.inference_mode(False), torch.enable_grad(), _own_accelerate():
        profile = job.world.profile.name if STAGES[job.stage].games else None
        with own_run(job.out, job.stage, folder, job.start, job.world, profile):
            return _run(job, folder, options, on_progress)


def _run(job: Job, folder: DatasetFolder, options: RunOptions, on_progress: Progress | None) -> StageResult:
    data = TrainingData(folder, FeatureStore(), cache=job.cache or job.out / FEATURES, on_progress=on_progress)
    device = options.device or processes().device
    files = [path for path, _ in job.start]
    parts = needed_parts(job.world, job.stage, how_to_load(job.stage, job.config, job.world, data, device, files))
    for path, strength in job.start:
        parts = parts.with_stage_file(path, strength)
    return train_stage(job.stage, job.config, parts, data, job.out, options)


def to_train(stage: str, world: World, start: Sequence[Path], profile: str | None = None) -> World:
    """The world as a stage that begins from these files reads it, and as its result will be played.

    profile: how turns are read. None: as the engine was trained to be read; profile paper for one that none of our
    stages has trained yet. ValueError for a profile that nothing is trained by, or that the stage has no use for, and
    for files that contradict one another.
    """
    facts = STAGES[stage]
    if profile is not None and not facts.games:
        raise ValueError(f"stage {stage} reads no turns, so a profile changes nothing; leave --profile out")
    if profile is not None and profile not in TRAINED_PROFILES:
        raise ValueError(f"profile {profile!r} is not for training; choose {' or '.join(TRAINED_PROFILES)}")
    if not facts.games:
        return world
    reading = reading_of(world, [trained_file(path) for path in start], checked=profile is None)
    read = dataclasses.replace(world, profile=reading.profile, trained_window=reading.window)
    if not facts.trains_engine:
        return read if profile is None else read.with_profile(profile)
    chosen = profile or (TRAINED_PROFILES[0] if reading.window is None else reading.profile.name)
    return dataclasses.replace(read, profile=get_profile(chosen))


def how_to_load(
    stage: str, config: StageConfig, world: World, data: TrainingData, device: torch.device, start: Sequence[Path] = ()
) -> Loading:
    """The least memory that a stage's models can be loaded into: frozen weights in bf16 where the stage halves them
    anyhow, and no towers where the cache folder has their features and no file to begin from changes them.
    """
    dtype = torch.bfloat16 if halves_frozen(config, device) else torch.float32
    towers = tuple(f"encoder.{part}." for part in TOWERS)
    changed = "text" in STAGES[stage].outdates or any(
        name.startswith(towers) for path in start for name in tensor_names(path)
    )
    needed = changed or not has_tower_features(world, config, data)
    return Loading(dtype, config.trainable, needed, sheets=config.shots_every > 0)


def models_of(stage: str, sheets: bool) -> tuple[str, ...]:
    """The models that a stage loads: those it needs, and for its contact sheets a decoder that no step reads."""
    facts = STAGES[stage]
    return (*facts.needs, "decoder") if sheets and facts.borrows_decoder else facts.needs


def needed_parts(world: World, stage: str, loading: Loading = Loading()) -> WorldParts:  # noqa: B008  frozen
    """The world's models that a stage loads; ValueError names the first that it needs and the world lacks."""
    needs = STAGES[stage].needs
    if "encoder" in needs and loading.towers and world.has("encoder") and (lacking := world.missing(TOWERS)):
        raise ValueError(f"stage {stage} computes features of clips and texts, and {lacking[0]}")
    parts = WorldParts.load(world, models_of(stage, loading.sheets), loading)
    for name in needs:
        parts.of(name)
    return parts


@contextmanager
def own_run(
    out: Path,
    stage: str,
    folder: DatasetFolder,
    start: Sequence[tuple[Path, float]],
    world: World | None,
    profile: str | None = None,
) -> Iterator[None]:
    """Hold a run's folder while the block runs, and note in it what the run begins from.

    world: None where the run itself writes to it, so that it differs afterwards. profile: that turns are read by; None
    for stages that read none. ValueError while another training is at work in the folder, and if the run there, once
    it has a checkpoint, began from another stage, profile, dataset or world.
    """
    refusal = f"{out}: another training is at work here; wait for it, stop it, or choose another folder"
    with locked(out / LOCK, refusal) if processes().is_main_process else nullcontext():
        with processes().main_process_first():
            _check_same(out, stage, folder, start, world, profile)
        yield


def _check_same(
    out: Path,
    stage: str,
    folder: DatasetFolder,
    start: Sequence[tuple[Path, float]],
    world: World | None,
    profile: str | None,
) -> None:
    facts = _facts(stage, folder, start, world, profile)
    path = out / JOB
    begun = path.is_file() and list_checkpoints(out / CHECKPOINTS)
    before = read_json(path) if begun else facts
    if not begun:
        (out / RESULT).unlink(missing_ok=True)  # of a run whose checkpoints were taken away
    _refuse_other(out, before, facts)
    write_json(path, facts)


def check_job(
    out: Path,
    stage: str,
    folder: DatasetFolder,
    start: Sequence[tuple[Path, float]],
    world: World | None,
    profile: str | None = None,
) -> None:
    """ValueError where the folder's run began from another stage, profile, dataset or world; nothing is written."""
    if (out / JOB).is_file():
        _refuse_other(out, read_json(out / JOB), _facts(stage, folder, start, world, profile))


def _facts(
    stage: str,
    folder: DatasetFolder,
    start: Sequence[tuple[Path, float]],
    world: World | None,
    profile: str | None,
) -> dict[str, object]:
    """What a run begins from, as its folder notes it."""
    return {
        "stage": stage,
        "profile": profile,
        "world": world and world.fingerprint,
        "dataset": folder.digest(captions=True),
        "start": [[path.name, strength, _digest(path)] for path, strength in start],
    }


def _refuse_other(out: Path, before: Mapping[str, object], facts: Mapping[str, object]) -> None:
    """ValueError for the first fact that differs from those before."""
    if before.get("world") is None:  # as runs noted it that write to their world
        before = {**before, "world": facts["world"]}
    # runs of earlier versions noted no profile; their world tells them apart
    before = {"profile": facts["profile"], **before}
    for name, value in json.loads(json.dumps(facts)).items():
        if before.get(name) != value:
            raise ValueError(
                f"{out} holds a run of another {name} ({_short(before.get(name))}, now {_short(value)}); "
                "choose another folder for this one"
            )


def _digest(path: Path) -> str:
    """12 digits of what a stage file holds, since many have the same name; a missing one is refused when it is read."""
    return note_of(path).sha256[:12] if path.is_file() else ""


def _short(value: object) -> str:
    """A value of a run's facts in a sentence."""
    return f"{value[:12]}..." if isinstance(value, str) and len(value) > 12 else str(value)


@contextmanager
def _own_accelerate() -> Iterator[None]:
    """accelerate keeps its state for the whole process; a run that found none leaves none to the program around it."""
    from accelerate import PartialState

    if PartialState._shared_state:
        yield
        return
    try:
        yield
    finally:
        PartialState._reset_state()


def brief(row: StageConfig, **asked: float) -> StageConfig:
    """A stage's row for a run that somebody waits for: fewer steps, a warm-up of a tenth of them, often logged.

    asked: fields that were chosen; 0 keeps the row's. The row's parts of a batch are kept as far as they divide it.
    """
    config = dataclasses.replace(row, **{name: value for name, value in asked.items() if value})
    return dataclasses.replace(
        config,
        accumulation=math.gcd(config.batch, row.accumulation),
        lr_warmup=min(row.lr_warmup, config.steps // 10),
        log_every=max(1, config.steps // LOGGED),
        save_every=min(row.save_every, max(50, config.steps // 10)),
    )
