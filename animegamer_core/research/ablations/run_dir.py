"""The work folder of the ablations: shared data, and what each variant has trained. A killed run loses little.

job.json            budget, seed and base world; another job is refused
dataset/ games/     drawn clips (for the engine's games: first frames)
features/           latents and encoder features of the dataset, computed once
variants/<name>/    lock, runs/<stage>/ of the training, <family>.json once it is scored
"""

from __future__ import annotations

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
from ...toybox.dataset import DatasetGames, write_dataset
from ...train.cache_job import cache_features
from ...train.loop import RunOptions
from ...train.parts import WorldParts
from ...train.run import RESULT, train_stage
from ...train.training_data import IMAGE_FEATURES, TrainingData, add_frames
from ..toybox_recipe.build_dir import Deadline, clip_progress
from .budgets import Budget
from .variants import VARIANTS, Variant

CACHED = ("latents", "text", *IMAGE_FEATURES.values())
SHARED = ("vae", "text_tower", "image_tower")  # parts of the base world that no variant trains
WAIT_S = 1.0  # between tries of a lock that another process holds
Say = Callable[[str], object]


@dataclass(frozen=True)
class RunDir:
    """A work folder. world: the base, whose VAE, encoders, tokenizer and probes every variant uses unchanged."""

    folder: Path
    world: World
    budget: Budget
    say: Say
    seed: int = 0
    device: str = "cpu"
    workers: int | None = None
    compile: bool = False

    def begin(self) -> None:
        """Write or check job.json; ValueError if the folder holds another job or the base world lacks a part."""
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

    def variant_dir(self, variant: str) -> Path:
        """A variant's folder."""
        return self.folder / "variants" / variant

    def stage_dir(self, variant: str, stage: str) -> Path:
        """The folder of a stage that a variant trains."""
        return self.variant_dir(variant) / "runs" / stage

    def stage_file(self, variant: str, stage: str) -> Path:
        """The weights of a finished stage."""
        return self.stage_dir(variant, stage) / f"{stage}.safetensors"

    def is_trained(self, variant: str, stage: str) -> bool:
        """Whether a stage is finished."""
        return (self.stage_dir(variant, stage) / RESULT).is_file() and self.stage_file(variant, stage).is_file()

    def scores_file(self, variant: str, family: str) -> Path:
        """The file of a variant's scores."""
        return self.variant_dir(variant) / f"{family}.json"

    @cached_property
    def dataset(self) -> DatasetFolder:
        """The clips; missing ones are drawn."""
        return self._drawn("dataset", self.budget.casting)

    def _drawn(self, name: str, casting: DatasetGames, pictures_only: bool = False) -> DatasetFolder:
        return write_dataset(self.folder / name, casting, self.workers, clip_progress(self.say, name), pictures_only)

    @contextmanager
    def lock(self, name: str, deadline: Deadline, done: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Hold one of the folder's locks, waiting for another process if needed.

        Yields False without the lock if the time ran out, or if `done` says that another process did the work.
        """
        path, owned = self.folder / name / "lock", False
        with ExitStack() as stack:
            while not owned and not done():
                try:
                    stack.enter_context(locked(path, f"{path} is held"))
                    owned = True
                except ValueError:
                    if deadline.over:
                        break
                    time.sleep(WAIT_S)
            yield owned

    def training_data(self, deadline: Deadline) -> TrainingData | None:
        """The dataset with its features on the device; None if the time ran out first."""
        with self.lock(".", deadline) as owned:
            return self._training_data if owned else None

    @cached_property
    def _training_data(self) -> TrainingData:
        folder, features = self.dataset, self.folder / "features"
        cache_features(folder.path, self.world.folder, features, CACHED, device=self.device)
        store = FeatureStore.open(features, CACHED, self.device)
        blank = FeatureStore.open(features, ("blank_text",), self.device).features["blank_text"]
        return TrainingData(folder, store, blank_text=blank.shards[0][0])

    def games(self, deadline: Deadline) -> TrainingData | None:
        """The engine's training data: the budget's own games for it, else the same dataset."""
        if self.budget.played is None:
            data = self.training_data(deadline)
            return None if data is None else data.without("latents")
        with self.lock(".", deadline) as owned:
            if not owned:
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
        """A variant's models after some stages: the base's VAE and encoders, all else from random weights."""
        spec = self.spec(variant)
        made = WorldParts.new(spec, self.world.tokenizer(), PROFILES["paper"], self.seed)
        made.decoder.vae = self.world.load_decoder(dtype=torch.float32, parts=("vae",)).vae
        models = self.world.load_encoder(dtype=torch.float32, parts=("text_tower", "image_tower"))
        for name in ("text_tower", "image_tower", "tokenizer"):
            setattr(made.encoder, name, getattr(models, name))
        for owner, stage in done:
            made = made.with_stage_file(self.stage_file(owner, stage))
        return made

    def train(self, variant: Variant, family: str, deadline: Deadline) -> bool:
        """Train what a variant still lacks for a family of scores; False if the time ran out."""
        path = variant.path(family)
        return all(self._train(owner, path[:index], stage, deadline) for index, (owner, stage) in enumerate(path))

    def _train(self, name: str, before: tuple[tuple[str, str], ...], stage: str, deadline: Deadline) -> bool:
        """One stage of the variant `name`, unless it is done."""
        if self.is_trained(name, stage):
            return True
        # The process with the lock may continue with the variant's next stage: do not wait for that.
        with self.lock(f"variants/{name}", deadline, lambda: self.is_trained(name, stage)) as owned:
            if self.is_trained(name, stage):
                return True
            data = None
            if owned and not deadline.over:
                data = self.games(deadline) if stage == "predict" else self.training_data(deadline)
            if data is None or deadline.over:
                return False
            variant = VARIANTS[name]
            config = replace(self.budget.config(variant, stage, self.seed), minutes=deadline.minutes)
            if self.compile and stage != "predict":  # prompts of many lengths would each be compiled again
                config = replace(config, compile=True)
            options = RunOptions(on_step=self._step_reporter(f"{name}, {stage}"), device=torch.device(self.device))
            run = self.stage_dir(name, stage)
            return train_stage(stage, config, self.parts(variant, before), data, run, options).done

    def _step_reporter(self, what: str) -> Callable[[int, int, dict[str, float]], None]:
        def report(done: int, count: int, values: dict[str, float]) -> None:
            if done % max(1, count // 6) < 20 or done == count:
                self.say(f"{what}: {done}/{count} loss {values['loss']:.4g}, {values['seconds']:.0f} s")

        return report


def trained_with(run_dir: RunDir, variant: Variant, family: str) -> dict[str, dict[str, object]]:
    """Stage -> which variant trained it, for how many steps and seconds."""
    found = {}
    for owner, stage in variant.path(family):
        config = run_dir.budget.config(VARIANTS[owner], stage, run_dir.seed)
        result = run_dir.stage_dir(owner, stage) / RESULT
        seconds = round(read_json(result)["seconds"], 1) if result.is_file() else None
        found[stage] = {"by": owner, "steps": config.steps, "batch": config.batch, "seconds": seconds}
    return found
