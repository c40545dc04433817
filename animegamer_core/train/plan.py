"""The plan of `train all`: what each stage starts from, reads and needs; it is printed before the first step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..checkpoint import World
from ..data.cache import FeatureStore
from ..data.dataset import DatasetFolder
from ..model.prompt import GameTokenizer
from ..spec import ModelSpec
from .chain import SCRATCH
from .checkpoints import CHECKPOINTS
from .estimate import (
    Size,
    bare_learner,
    bare_parts,
    feature_bytes,
    preparing_bytes,
    size_of,
    world_bytes,
)
from .job import models_of
from .parts import MODELS, has_encoder_features, name_of
from .progress import MEASURED_STEPS, Pace, duration, seconds_a_step
from .request import TrainRequest
from .run import features_read
from .stages import STAGES, StageConfig
from .training_data import IMAGE_FEATURES, TrainingData, bytes_in, digest_of

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SPARE = 64 * 2**20  # bytes kept free for logs, pictures and the file system itself


@dataclass(frozen=True)
class StageRun:
    """One stage of the run. begins: the stages whose adapters it starts from. steps: how many steps are done."""

    request: TrainRequest
    config: StageConfig
    begins: tuple[str, ...]
    done: bool
    steps: int

    @property
    def stage(self) -> str:
        """The stage's name."""
        return self.request.stage


@dataclass(frozen=True)
class Chain:
    """All stages of a run and what they share.

    world: None if the first stage creates it. tokenizer: the engine's. folder: the dataset. configs: of this run's
    stages, and of those whose adapters an earlier run left, in the order of training.
    """

    request: TrainRequest
    recipe: str
    world: World | None
    spec: ModelSpec
    tokenizer: GameTokenizer
    folder: DatasetFolder
    runs: Sequence[StageRun]
    configs: Mapping[str, StageConfig]


@dataclass(frozen=True)
class StagePlan:
    """One stage of the plan.

    size: None if the stage is done. features: bytes, on disk or in memory, of the features to be computed before its
    first step. preparing: bytes of the largest model that computes them. seconds: per step; None if not known yet.
    """

    run: StageRun
    size: Size | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    preparing: int = 0
    seconds: float | None = None

    @property
    def steps_left(self) -> int:
        """The steps that are not done yet."""
        return 0 if self.run.done else self.run.config.steps - self.run.steps


@dataclass(frozen=True)
class Plan:
    """All stages of a run, including done ones.

    about: a sentence on recipe, world and dataset. disk_use: the folders that the run writes to, and the bytes still to
    be written there. in_memory: whether features are kept in memory instead of on disk.
    """

    about: str
    stages: Sequence[StagePlan]
    disk_use: Sequence[tuple[Path, int]]
    in_memory: bool

    def lines(self) -> list[str]:
        """The plan as lines of text."""
        return [self.about, *_table(self), *_memory(self), *_time(self), *self._disk()]

    def check_disk(self) -> None:
        """ValueError if a disk has too little free space for what will be written to it."""
        for folders, needed, free in _by_disk(self.disk_use):
            if needed + SPARE > free:
                raise ValueError(
                    f"{folders} needs about {size_text(needed)} for checkpoints, features and adapters, but only "
                    f"{size_text(free)} are free; free some space, choose another --out, or train fewer parameters "
                    "(--set)"
                )

    def _disk(self) -> list[str]:
        return [
            f"disk: about {size_text(needed)} still to write to {folders}, {size_text(free)} free"
            for folders, needed, free in _by_disk(self.disk_use)
        ]


def size_text(count: float) -> str:
    """A number of bytes as text: 512 B, 3.2 MiB, 12 GiB."""
    unit = 0
    while count >= 1024 and unit < len(UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {UNITS[unit]}" if count >= 10 or not unit else f"{count:.1f} {UNITS[unit]}"


def _table(plan: Plan) -> list[str]:
    rows = [("stage", "begins from", "features to compute", "steps left", "a step", "memory", "checkpoints", "file")]
    for stage in plan.stages:
        run, size = stage.run, stage.size
        begins = ", ".join(run.begins) or "the world"
        samples = f"{run.config.batch} {'games' if run.stage == 'predict' else 'clips'}"
        if size is None:
            rows.append((run.stage, begins, "-", "done", samples, "-", "-", "-"))
            continue
        left = f"{stage.steps_left:,} of {run.config.steps:,}"
        memory = size_text(size.weights + size.state + (sum(stage.features.values()) if plan.in_memory else 0))
        kept = f"{size.kept} x {size_text(size.checkpoint)}"
        features = ", ".join(stage.features) or "-"
        rows.append((run.stage, begins, features, left, samples, memory, kept, size_text(size.stage_file)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _memory(plan: Plan) -> list[str]:
    """Lines on the memory of the stage that takes most, and on the features."""
    sizes = [stage.size for stage in plan.stages if stage.size is not None]
    if not sizes:
        return []
    most = max(sizes, key=lambda size: size.weights + size.state)
    computed = {name: count for stage in plan.stages for name, count in stage.features.items()}
    features = ", ".join(f"{name} {size_text(count)}" for name, count in computed.items())
    lines = [
        f"memory: estimated from the sizes of the models, at most {size_text(most.weights)} of weights and "
        f"{size_text(most.state)} of gradients, optimizer state and averages; activations come on top of that"
    ]
    if features:
        preparing = max(plan.stages, key=lambda stage: stage.preparing)
        lines.append(
            f"features: {features}, {'kept in memory' if plan.in_memory else 'kept on disk'}; the largest model that "
            f"computes them, before stage {preparing.run.stage}, has {size_text(preparing.preparing)} of weights"
        )
    return lines


def _time(plan: Plan) -> list[str]:
    """A line on the remaining time of the stages whose pace is known."""
    left = [stage for stage in plan.stages if not stage.run.done]
    known = [stage for stage in left if stage.seconds is not None]
    parts = [f"{stage.run.stage} {duration(stage.seconds * stage.steps_left)}" for stage in known]
    if unknown := [stage.run.stage for stage in left if stage.seconds is None]:
        parts.append(f"{', '.join(unknown)} measured on the first {MEASURED_STEPS} steps of each")
    return [f"time left on this machine: {'; '.join(parts)}"] if parts else []


def _by_disk(uses: Sequence[tuple[Path, int]]) -> list[tuple[str, int, int]]:
    """(folders, bytes needed, bytes free) of each disk that is written to."""
    disks: dict[int, list[tuple[Path, int]]] = {}
    for folder, count in uses:
        disks.setdefault(os.stat(_existing(folder)).st_dev, []).append((folder, count))
    return [
        (
            " and ".join(dict.fromkeys(str(folder) for folder, _ in found)),
            sum(count for _, count in found),
            shutil.disk_usage(_existing(found[0][0])).free,
        )
        for found in disks.values()
    ]


def _existing(folder: Path) -> Path:
    """The folder, or the nearest existing folder above it."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def stage_file(out: Path) -> Path:
    """The path of the adapter that a stage writes in its folder."""
    return out / f"{out.name}.safetensors"


def with_paces(plan: Plan, paces: Mapping[str, Pace]) -> Plan:
    """The plan with the paces that a trial measured, by stage."""
    seconds = {name: pace.seconds for name, pace in paces.items()}
    stages = [replace(stage, seconds=seconds.get(stage.run.stage, stage.seconds)) for stage in plan.stages]
    return replace(plan, stages=stages)


def make_plan(chain: Chain) -> Plan:
    """Make the plan of a run; ValueError for anything that would make a stage fail before its first step."""
    cache = chain.request.cache
    data = TrainingData(chain.folder, FeatureStore(), cache=cache)
    known, stages = _cached(chain, data), []
    for run in chain.runs:
        names = [] if run.done else [name for name in features_read(run.stage, run.config) if name not in known]
        stages.append(_stage_plan(chain, run, data, names))
        if not run.done:
            known = (known | set(names) if cache else set()) - set(STAGES[run.stage].outdates)
    about = (
        f"plan: recipe {chain.recipe}, world {chain.request.world} (spec {chain.spec.name}), dataset "
        f"{chain.folder.path} with {len(data.clips()):,} clips and {len(data.games()):,} games to train on"
    )
    return Plan(about, stages, _disk_use(chain, stages), cache is None)


def _stage_plan(chain: Chain, run: StageRun, data: TrainingData, names: Sequence[str]) -> StagePlan:
    """Plan one stage, which computes these features; ValueError as for `make_plan`."""
    if run.done:
        return StagePlan(run)
    models = models_of(run.stage, run.config.shots_every > 0)
    parts = bare_parts(chain.world, chain.spec, chain.tokenizer, models)
    learner = bare_learner(run.stage, run.config, parts, data)
    encoders = bool({"text", *IMAGE_FEATURES.values()} & set(names))
    return StagePlan(
        run,
        size=size_of(run.stage, run.config, learner, parts, encoders),
        features={name: feature_bytes(name, chain.spec, len(chain.folder.turns)) for name in names},
        preparing=preparing_bytes(names, run.config, parts),
        seconds=seconds_a_step(run.request.out),
    )


def _cached(chain: Chain, data: TrainingData) -> set[str]:
    """The features that are known to be in the cache folder already, without loading a model."""
    run = next((run for run in chain.runs if not run.done), None)
    if data.cache is None or run is None:
        return set()
    known = set(features_read(run.stage, run.config)) if run.steps else set()  # a started run has read all of them
    if chain.world is not None and chain.recipe != SCRATCH:
        latents = data.digest("latents", digest_of([name_of(chain.world, "vae")]))
        known |= {"latents"} if data.is_cached("latents", len(data.folder.turns), latents) else set()
        if has_encoder_features(chain.world, run.config, data):
            known |= {"text", IMAGE_FEATURES[run.config.encoder_frame]}
    return known


def _disk_use(chain: Chain, stages: Sequence[StagePlan]) -> list[tuple[Path, int]]:
    """The folders that will be written to, and how many bytes; checkpoints of an unfinished stage are overwritten."""
    sizes = {stage.run.stage: stage.size for stage in stages if stage.size is not None}
    needed = sum(size.kept * size.checkpoint + size.stage_file for size in sizes.values())
    needed += max((size.checkpoint for size in sizes.values()), default=0)  # a new one is written next to the old ones
    out, cache = chain.request.out, chain.request.cache
    uses = [(out, max(0, needed - sum(bytes_in(out / name / CHECKPOINTS) for name in sizes)))]
    if cache is not None:
        features = {name: count for stage in stages for name, count in stage.features.items()}
        there = sum(bytes_in(cache, f"{name}-[0-9]*.safetensors") for name in features)
        uses.append((cache, max(0, sum(features.values()) - there)))
    if chain.recipe == SCRATCH and sizes:
        whole, largest = world_bytes(bare_parts(chain.world, chain.spec, chain.tokenizer, MODELS))
        known = sum(note.bytes for note in chain.world.files.values()) if chain.world is not None else 0
        # a new part is written next to the old one
        uses.append((Path(chain.request.world), max(0, whole + largest - known)))
    return uses
