"""The work folder of the ablations, and the data that all variants share. A killed run loses only a few steps.

job.json                    budget and base world; a run with others is refused
dataset/ games/             drawn clips (games/: only first frames, for the engine)
features/                   latents and encoder features of the dataset, computed once
variants/<name>/seed-<n>/   lock, runs/<stage>/ of the training, <family>.json once it is scored (`seed_runs`)
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from ...checkpoint import World
from ...checkpoint.storage import read_json, write_json
from ...data.cache import FeatureStore
from ...data.dataset import DatasetFolder
from ...files import locked
from ...spec import ModelSpec
from ...toybox.dataset import DatasetGames, write_dataset
from ...train.cache_job import cache_features
from ...train.training_data import IMAGE_FEATURES, TrainingData, add_frames
from ..toybox_recipe.build_dir import Deadline, clip_progress
from .budgets import Budget
from .variants import Variant

CACHED = ("latents", "text", *IMAGE_FEATURES.values())
SHARED = ("vae", "text_tower", "image_tower")  # parts of the base world that variants use unchanged
# Of a token. With 256, patches of 4x4 latents of 16 channels, the small decoder, 256 wide, hardly learned motion: ACC-F
# 0.19 after 3,300 steps, and 17.6 dB. With 128 it reached 0.83 and 21.6 dB.
MOST_VALUES = 128
WAIT_S = 1.0  # between attempts to get a lock that another process holds
Say = Callable[[str], object]


@dataclass(frozen=True)
class RunDir:
    """A work folder. world: the base, whose VAE, text and image encoder, tokenizer and probes all variants use."""

    folder: Path
    world: World
    budget: Budget
    say: Say
    device: str = "cpu"
    workers: int | None = None
    compile: bool = False

    def begin(self) -> None:
        """Write or check job.json.

        ValueError if the folder was made with another budget or base world, or if the base world lacks a part.
        """
        if missing := self.world.missing((*SHARED, "engine")):
            raise ValueError(missing[0])
        parts = {part: sorted(note.sha256 for note in self.world.storage.notes(part).values()) for part in SHARED}
        job = json.loads(json.dumps({"budget": asdict(self.budget), "world": parts}))
        path = self.folder / "job.json"
        before = read_json(path) if path.is_file() else job
        changed = [name for name, value in job.items() if before.get(name) != value]
        if changed:
            raise ValueError(f"{self.folder} holds ablations of another {changed[0]}; give another folder (--work)")
        write_json(path, job)

    @cached_property
    def dataset(self) -> DatasetFolder:
        """The dataset of clips; draws missing ones."""
        return self._drawn("dataset", self.budget.casting)

    def _drawn(self, name: str, casting: DatasetGames, pictures_only: bool = False) -> DatasetFolder:
        return write_dataset(self.folder / name, casting, self.workers, clip_progress(self.say, name), pictures_only)

    @contextmanager
    def lock(self, name: str, deadline: Deadline, done: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Hold one of the folder's locks; waits if another process holds it. Yields True with the lock.

        Yields False without it if the time ran out, or if done() says that another process has done the work.
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
            if not owned:
                return None
            _ = self._features
        return self._training_data  # read without the lock: gigabytes, for which other processes need not wait

    @cached_property
    def _features(self) -> Path:
        """The folder with the dataset's features; computes missing ones."""
        features = self.folder / "features"
        cache_features(self.dataset.path, self.world.folder, features, CACHED, device=self.device)
        return features

    @cached_property
    def _training_data(self) -> TrainingData:
        store = FeatureStore.open(self._features, CACHED, self.device)
        blank = FeatureStore.open(self._features, ("blank_text",), self.device).features["blank_text"]
        return TrainingData(self.dataset, store, blank_text=blank.shards[0][0])

    def games(self, deadline: Deadline) -> TrainingData | None:
        """The engine's training data: the budget's games for it, or the same dataset; None if the time ran out."""
        if self.budget.played is None:
            data = self.training_data(deadline)
            return None if data is None else data.without("latents")
        with self.lock(".", deadline) as owned:
            if not owned:
                return None
            folder = self._drawn("games", self.budget.played, pictures_only=True)
        return add_frames(TrainingData(folder, FeatureStore())).to(self.device)

    def spec(self, variant: Variant) -> ModelSpec:
        """The sizes of a variant's models: the budget's, but with the base's patches if larger ones hold too much."""
        base, sizes = self.world.spec, dict(self.budget.decoder)
        if sizes.get("patch", 0) ** 2 * base.decoder.vae.latent_channels > MOST_VALUES:
            del sizes["patch"]
        return replace(
            base,
            encoder=replace(base.encoder, variant=variant.encoder),
            decoder=replace(base.decoder, **sizes),
        )
