"""The work folder of the ablations: what all variants share, what each has trained, and how a kill costs little.

job.json            budget, seed and base world; another job is refused
dataset/ games/     clips (the engine's games: first pictures), drawn here; turns.jsonl may come from elsewhere
features/           latents and tower features of the dataset, computed once
variants/<name>/    lock, runs/<stage>/ as training leaves them, <family>.json once it is scored
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from ...checkpoint import World
from ...checkpoint.storage import read_json, write_json
from ...data.cache import FeatureStore
from ...data.dataset import DatasetFolder
from ...files import locked
from ...spec import PROFILES, ModelSpec
from ...toybox.dataset import Casting, write_dataset
from ...train.cache_job import cache_features
from ...train.loop import RunOptions
from ...train.material import IMAGE_FEATURES, TrainingData, add_frames
from ...train.parts import WorldParts
from ...train.run import RESULT, train_stage
from ...train.stages import StageConfig
from .budgets import Budget
from .variants import VARIANTS, Variant

CACHED = ("latents", "text", *IMAGE_FEATURES.values())
SHARED = ("vae", "text_tower", "image_tower")  # parts of the base world that no variant trains
WAIT_S = 1.0  # between looks at a lock that another process holds
Say = Callable[[str], object]


class Deadline:
    """When work has to stop; minutes None: never."""

    def __init__(self, minutes: float | None = None) -> None:
        self._end = None if minutes is None else time.monotonic() + 60 * minutes

    @property
    def over(self) -> bool:
        """Whether the time has run out."""
        return self._end is not None and time.monotonic() >= self._end

    @property
    def minutes(self) -> float:
        """The minutes left as a StageConfig takes them: 0 sets no limit."""
        return 0.0 if self._end is None else max(0.001, (self._end - time.monotonic()) / 60)


@dataclass(frozen=True)
class Shop:
    """A work folder. world: the base, whose VAE, towers, tokenizer and probes every variant takes as they are."""

    folder: Path
    world: World
    budget: Budget
    say: Say
    seed: int = 0
    device: str = "cpu"
    workers: int | None = None
    compile: bool = False

    def begin(self) -> None:
        """Note what this folder is for; ValueError where it holds another job, or the base world lacks a part."""
        if missing := self.world.missing((*SHARED, "engine")):
            raise ValueError(missing[0])
        parts = {part: sorted(note.sha256 for note in self.world.storage.notes(part).values()) for part in SHARED}
        job = json.loads(json.dumps({"budget": asdict(self.budget), "seed": self.seed, "world": parts}))
        path = self.folder / "job.json"
        before = read_json(path) if path.is_file() else job
        changed = [name for name, value in job.items() if before.get(name) != value]
        if changed:
            raise ValueError(f"{self.folder} holds ablations of another {changed[0]}; give another folder (--work)")
        write_json(path, job)

    def of(self, variant: str) -> Path:
        """A variant's own folder."""
        return self.folder / "variants" / variant

    def run_of(self, variant: str, stage: str) -> Path:
        """The folder of a stage that a variant trains."""
        return self.of(variant) / "runs" / stage

    def stage_file(self, variant: str, stage: str) -> Path:
        """What a finished stage leaves."""
        return self.run_of(variant, stage) / f"{stage}.safetensors"

    def is_trained(self, variant: str, stage: str) -> bool:
        """Whether a stage has nothing left to do."""
        return (self.run_of(variant, stage) / RESULT).is_file() and self.stage_file(variant, stage).is_file()

    def scores_file(self, variant: str, family: str) -> Path:
        """Where a variant's samples are kept once it is scored."""
        return self.of(variant) / f"{family}.json"

    @cached_property
    def dataset(self) -> DatasetFolder:
        """The clips, with whatever the folder lacks drawn."""
        return self._drawn("dataset", self.budget.casting)

    def _drawn(self, name: str, casting: Casting, pictures_only: bool = False) -> DatasetFolder:
        def told(done: int, count: int) -> None:
            if done % 1000 == 0 or done == count:
                self.say(f"{name}: {done} of {count} clips")

        return write_dataset(self.folder / name, casting, self.workers, told, pictures_only)

    @contextmanager
    def held(self, name: str, deadline: Deadline, done: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Hold one of the folder's locks, waiting for another process that has it; False where the time ran out, or
        where what the lock is wanted for is done by then.
        """
        path = self.folder / name / "lock"
        with ExitStack() as stack:
            yield _acquired(stack, path, deadline, done)

    def material(self, deadline: Deadline) -> TrainingData | None:
        """The dataset with its features on the device; None where the time ran out before they were there."""
        with self.held(".", deadline) as mine:
            return self._material if mine else None

    @cached_property
    def _material(self) -> TrainingData:
        folder, features = self.dataset, self.folder / "features"
        cache_features(folder.path, self.world.folder, features, CACHED, device=self.device)
        store = FeatureStore.open(features, CACHED, self.device)
        blank = FeatureStore.open(features, ("blank_text",), self.device).features["blank_text"]
        return TrainingData(folder, store, blank_text=blank.shards[0][0])

    def games(self, deadline: Deadline) -> TrainingData | None:
        """What the engine is trained on: games of its own where the budget has them, else the same as everything."""
        if self.budget.played is None:
            data = self.material(deadline)
            return None if data is None else data.without("latents")
        with self.held(".", deadline) as mine:
            if not mine:
                return None
            folder = self._drawn("games", self.budget.played, pictures_only=True)
        return add_frames(TrainingData(folder, FeatureStore())).to(self.device)

    def spec(self, variant: Variant) -> ModelSpec:
        """The sizes of a variant's models."""
        base, steps = self.world.spec, self.budget.sampler_steps
        return replace(
            base,
            encoder=replace(base.encoder, variant=variant.encoder),
            decoder=base.decoder if steps is None else replace(base.decoder, steps=steps),
        )

    def parts(self, variant: Variant, done: tuple[tuple[str, str], ...]) -> WorldParts:
        """A variant's models after some stages: the base's VAE and towers, everything else from random weights."""
        spec = self.spec(variant)
        made = WorldParts.new(spec, self.world.tokenizer(), PROFILES["paper"], self.seed)
        made.decoder.vae = self.world.load_decoder(dtype=torch.float32, parts=("vae",)).vae
        towers = self.world.load_encoder(dtype=torch.float32, parts=("text_tower", "image_tower"))
        for name in ("text_tower", "image_tower", "tokenizer"):
            setattr(made.encoder, name, getattr(towers, name))
        for owner, stage in done:
            made = made.with_stage_file(self.stage_file(owner, stage))
        return made

    def train(self, variant: Variant, family: str, deadline: Deadline) -> bool:
        """Train what a variant still lacks for a family of scores; False where the time ran out, to go on later."""
        path = variant.path(family)
        return all(self._train(owner, path[:index], stage, deadline) for index, (owner, stage) in enumerate(path))

    def _train(self, name: str, before: tuple[tuple[str, str], ...], stage: str, deadline: Deadline) -> bool:
        """One stage of the variant `name`, unless it is done."""
        if self.is_trained(name, stage):
            return True
        # Whoever holds the lock may go straight on with the variant's next stage: that is not to be waited for.
        with self.held(f"variants/{name}", deadline, lambda: self.is_trained(name, stage)) as mine:
            if self.is_trained(name, stage):
                return True
            data = None
            if mine and not deadline.over:
                data = self.games(deadline) if stage == "predict" else self.material(deadline)
            if data is None or deadline.over:
                return False
            variant = VARIANTS[name]
            config = replace(self.budget.config(variant, stage, self.seed), minutes=deadline.minutes)
            if self.compile and stage != "predict":  # prompts of many lengths would be compiled again and again
                config = replace(config, compile=True)
            options = RunOptions(on_step=self._told(f"{name}, {stage}"), device=torch.device(self.device))
            run = self.run_of(name, stage)
            return train_stage(stage, config, self.parts(variant, before), data, run, options).done

    def _told(self, what: str) -> Callable[[int, int, dict[str, float]], None]:
        def told(done: int, count: int, values: dict[str, float]) -> None:
            if done % max(1, count // 6) < 20 or done == count:
                self.say(f"{what}: {done}/{count} loss {values['loss']:.4g}, {values['seconds']:.0f} s")

        return told


def trained_with(shop: Shop, variant: Variant, family: str) -> dict[str, dict[str, object]]:
    """Stage -> who trained it, for how many steps and seconds: what a table says of a row."""
    found = {}
    for owner, stage in variant.path(family):
        config: StageConfig = shop.budget.config(VARIANTS[owner], stage, shop.seed)
        result = shop.run_of(owner, stage) / RESULT
        seconds = round(read_json(result)["seconds"], 1) if result.is_file() else None
        found[stage] = {"by": owner, "steps": config.steps, "batch": config.batch, "seconds": seconds}
    return found


def _acquired(stack: ExitStack, path: Path, deadline: Deadline, done: Callable[[], bool]) -> bool:
    while not done():
        with contextlib.suppress(ValueError):
            stack.enter_context(locked(path, f"{path} is held"))
            return True
        if deadline.over:
            break
        time.sleep(WAIT_S)
    return False
