"""Runs a stage in one call, from a world and a dataset folder to an adapter; nodes and the command line use it.

`run_job` does not write to the world. Runs that do (recipe scratch) share the check that a run continues as it began.
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

from .. import messages
from ..checkpoint import World
from ..checkpoint.adapter_files import adapter_facts, tensor_names
from ..checkpoint.adapters import reading_of
from ..checkpoint.storage import note_of, read_json, write_json
from ..data.cache import FeatureStore
from ..data.dataset import DatasetFolder
from ..files import locked
from ..spec import TRAINED_PROFILES, get_profile
from .checkpoints import CHECKPOINTS, list_checkpoints
from .distributed import processes
from .loop import RunOptions
from .parts import Loading, WorldParts, has_encoder_features
from .run import RESULT, StageResult, check_free, train_stage
from .stages import STAGES, StageConfig
from .trainer import keeps_frozen_in_bf16
from .training_data import Progress, TrainingData

JOB = "job.json"
LOCK = ".lock"
FEATURES = "features"
FEATURE_ENCODERS = ("text_tower", "image_tower")  # a world's parts that compute features of texts and clips
BRIEF_LOG_LINES = 500


class ChangedOrigin(ValueError):
    """A run is continued with another stage, profile, world, dataset or starting adapter."""

    def __init__(self, out: Path, name: str, before: object, now: object) -> None:
        super().__init__(
            f"{out} holds a run with another {name} ({messages.brief(before, 40)}, now {messages.brief(now, 40)}); "
            "choose another folder for this run"
        )
        self.name = name


@dataclass(frozen=True)
class Job:
    """One stage to train.

    world: as `to_train` returns it. out: the run's folder, for log, checkpoints and the adapter. start: adapters and
    their strengths, applied in order before the first step. cache: the folder of computed features, None for one in
    `out`.
    """

    stage: str
    config: StageConfig
    world: World
    dataset: Path
    out: Path
    start: Sequence[tuple[Path, float]] = ()
    cache: Path | None = None


def run_job(job: Job, options: RunOptions = RunOptions(), on_progress: Progress | None = None) -> StageResult:  # noqa: B008  frozen
    """Train the job's stage, or continue its run. Works under inference mode and within a larger program.

    on_progress: called while features are computed before the first step; its exceptions reach the caller. ValueError,
    before the first step, if world, data or settings do not fit together, or if the folder holds another job.
    """
    check_free(job.out, options)
    folder = DatasetFolder.open(job.dataset, clips=False)  # train_stage checks them if it reads clips
    with torch.inference_mode(False), torch.enable_grad(), _own_accelerate():
        with hold_run_folder(job.out, RunOrigin(job.stage, folder, job.start, job.world)):
            data = TrainingData(folder, FeatureStore(), cache=job.cache or job.out / FEATURES, on_progress=on_progress)
            device, files = options.device or processes().device, [path for path, _ in job.start]
            loading = how_to_load(job.stage, job.config, job.world, data, device, files)
            parts = needed_parts(job.world, job.stage, loading).with_stage_files(job.start)
            return train_stage(job.stage, job.config, parts, data, job.out, options)


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


def how_to_load(
    stage: str, config: StageConfig, world: World, data: TrainingData, device: torch.device, start: Sequence[Path] = ()
) -> Loading:
    """How to load a stage's models into the least memory.

    Frozen weights are loaded in bf16 if the stage keeps them so. The text and image encoder are not loaded if the cache
    folder has their features and no starting adapter changes them.
    """
    dtype = torch.bfloat16 if keeps_frozen_in_bf16(config, device) else torch.float32
    prefixes = tuple(f"encoder.{part}." for part in FEATURE_ENCODERS)
    changed = "text" in STAGES[stage].outdates or any(
        name.startswith(prefixes) for path in start for name in tensor_names(path)
    )
    needed = changed or not has_encoder_features(world, config, data)
    return Loading(dtype, config.trainable, needed, sheets=config.shots_every > 0)


def models_of(stage: str, sheets: bool) -> tuple[str, ...]:
    """The models that a stage loads: those that it needs, and a decoder if only its contact sheets need one."""
    facts = STAGES[stage]
    return (*facts.needs, "decoder") if sheets and facts.borrows_decoder else facts.needs


def needed_parts(world: World, stage: str, loading: Loading = Loading()) -> WorldParts:  # noqa: B008  frozen
    """Load the models that a stage needs; ValueError names the first that the world lacks."""
    needs = STAGES[stage].needs
    if (
        "encoder" in needs
        and loading.feature_encoders
        and world.has("encoder")
        and (lacking := world.missing(FEATURE_ENCODERS))
    ):
        raise ValueError(f"stage {stage} computes features of clips and texts, but {lacking[0]}")
    parts = WorldParts.load(world, models_of(stage, loading.sheets), loading)
    for name in needs:
        parts.of(name)
    return parts


@dataclass(frozen=True)
class RunOrigin:
    """What a run starts from.

    folder: the dataset. start: adapters with their strengths. world: as the stage reads it; None if it reads no world.
    in_place: whether the run writes to the world, which then differs afterwards.
    """

    stage: str
    folder: DatasetFolder
    start: Sequence[tuple[Path, float]]
    world: World | None
    in_place: bool = False

    def notes(self) -> dict[str, object]:
        """The origin as job.json in the run's folder states it."""
        # a run with starting adapters always notes the world: on a changed world, they would be applied twice
        is_noted = self.world is not None and (self.start or not self.in_place)
        return {
            "stage": self.stage,
            "profile": self.world.profile.name if self.world is not None and STAGES[self.stage].games else None,
            "world": self.world.fingerprint if is_noted else None,
            "dataset": self.folder.digest(captions=True),
            # digits of the hash, since many adapters have the same name; reading a missing file fails later
            "start": [
                [path.name, strength, note_of(path).sha256[:12] if path.is_file() else ""]
                for path, strength in self.start
            ],
        }


@contextmanager
def hold_run_folder(out: Path, origin: RunOrigin) -> Iterator[None]:
    """Lock a run's folder while the block runs, and note in it what the run starts from.

    ValueError if another training is running in the folder; ChangedOrigin if the run there has a checkpoint and another
    origin.
    """
    refusal = f"{out}: another training is running here; wait for it, stop it, or choose another folder"
    with locked(out / LOCK, refusal) if processes().is_main_process else nullcontext():
        with processes().main_process_first():
            notes, path = origin.notes(), out / JOB
            if path.is_file() and list_checkpoints(out / CHECKPOINTS):
                _check_same(out, read_json(path), notes)
            else:
                (out / RESULT).unlink(missing_ok=True)  # of a run whose checkpoints were removed
            write_json(path, notes)
        yield


def check_origin(out: Path, origin: RunOrigin) -> None:
    """ChangedOrigin if the folder's run has another origin; writes nothing."""
    if (out / JOB).is_file():
        _check_same(out, read_json(out / JOB), origin.notes())


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
