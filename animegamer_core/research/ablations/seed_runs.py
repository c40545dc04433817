"""The training runs of all variants with one seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ...checkpoint.storage import read_json
from ...spec import PROFILES
from ...train.checkpoints import RESULT
from ...train.loop import RunOptions
from ...train.parts import WorldParts
from ...train.run import train_stage
from ..toybox_recipe.build_dir import Deadline
from .run_dir import RunDir
from .variants import PRETRAIN, READS_SHOTS, VARIANTS, Variant

THROWN_AWAY = 1000  # added to the seed for the encoder of pretraining, which is discarded afterwards

Done = tuple[tuple[str, str], ...]  # (variant, stage) of each finished stage, in order


@dataclass(frozen=True)
class SeedRuns:
    """The runs in a work folder with one seed, which decides new weights, the order of samples, and noise."""

    run_dir: RunDir
    seed: int

    def variant_name(self, variant: str) -> str:
        """A variant's folder in the work folder; also the name of its lock."""
        return f"variants/{variant}/seed-{self.seed}"

    def stage_dir(self, variant: str, stage: str) -> Path:
        """The folder of a stage that a variant trains."""
        return self.run_dir.folder / self.variant_name(variant) / "runs" / stage

    def stage_file(self, variant: str, stage: str) -> Path:
        """The file with the weights of a finished stage."""
        return self.stage_dir(variant, stage) / f"{_trained_as(stage)}.safetensors"

    def is_trained(self, variant: str, stage: str) -> bool:
        """Whether a stage is finished."""
        return (self.stage_dir(variant, stage) / RESULT).is_file() and self.stage_file(variant, stage).is_file()

    def scores_file(self, variant: str, family: str) -> Path:
        """The file of a variant's scores."""
        return self.run_dir.folder / self.variant_name(variant) / f"{family}.json"

    def parts(self, variant: Variant, done: Done) -> WorldParts:
        """A variant's models after some stages.

        VAE, text and image encoder are the base world's; all else was trained from random weights. The shot encoder of
        pretraining is discarded, so it is not the one that is trained afterwards.
        """
        if not done:
            return self._new(variant, THROWN_AWAY + self.seed)
        made = self._new(variant, self.seed)
        for owner, stage in done:
            file = self.stage_file(owner, stage)
            if stage == PRETRAIN:
                decoder = replace(made, encoder=None, engine=None)  # the file has full's encoder too
                made = replace(made, decoder=decoder.with_stage_file(file).decoder)
            else:
                made = made.with_stage_file(file)
        return made

    def _new(self, variant: Variant, seed: int) -> WorldParts:
        world = self.run_dir.world
        made = WorldParts.new(self.run_dir.spec(variant), world.tokenizer(), PROFILES["paper"], seed)
        made.decoder.vae = world.load_decoder(dtype=torch.float32, parts=("vae",)).vae
        models = world.load_encoder(dtype=torch.float32, parts=("text_tower", "image_tower"))
        for name in ("text_tower", "image_tower", "tokenizer"):
            setattr(made.encoder, name, getattr(models, name))
        if not variant.reads_shots:  # with zero weights that are not trained, past representations have no effect
            for parameter in getattr(made.engine, READS_SHOTS).parameters():
                torch.nn.init.zeros_(parameter)
        return made

    def train(self, variant: Variant, family: str, deadline: Deadline) -> bool:
        """Train the stages that a variant still lacks for a family of scores; False if the time ran out."""
        path = variant.path(family)
        return all(self._train(owner, path[:index], stage, deadline) for index, (owner, stage) in enumerate(path))

    def _train(self, name: str, before: Done, stage: str, deadline: Deadline) -> bool:
        """Train one stage of the variant `name`, unless it is done; False if the time ran out."""
        if self.is_trained(name, stage):
            return True
        run_dir = self.run_dir
        # The process with the lock may go on to the variant's next stage; do not wait for that.
        with run_dir.lock(self.variant_name(name), deadline, lambda: self.is_trained(name, stage)) as owned:
            if self.is_trained(name, stage):
                return True
            data = None
            if owned and not deadline.over:
                data = run_dir.games(deadline) if stage == "predict" else run_dir.training_data(deadline)
            if data is None or deadline.over:
                return False
            variant = VARIANTS[name]
            config = replace(run_dir.budget.config(variant, stage, self.seed), minutes=deadline.minutes)
            if run_dir.compile and stage != "predict":  # it would compile again for every length of a prompt
                config = replace(config, compile=True)
            report = self._step_reporter(f"{name}, seed {self.seed}, {stage}")
            options = RunOptions(on_step=report, device=torch.device(run_dir.device))
            parts, run = self.parts(variant, before), self.stage_dir(name, stage)
            return train_stage(_trained_as(stage), config, parts, data, run, options).done

    def _step_reporter(self, what: str) -> Callable[[int, int, dict[str, float]], None]:
        def report(done: int, count: int, values: dict[str, float]) -> None:
            if done % max(1, count // 6) < 20 or done == count:
                self.run_dir.say(f"{what}: {done}/{count} loss {values['loss']:.4g}, {values['seconds']:.0f} s")

        return report


def scores_files(run_dir: RunDir) -> dict[tuple[str, str, int], Path]:
    """(variant, family, seed) -> the file with its scores, for all that exist."""
    found = {}
    for row in VARIANTS.values():
        for folder in sorted((run_dir.folder / "variants" / row.name).glob("seed-*")):
            seed = folder.name.removeprefix("seed-")
            for family in row.families if seed.isdecimal() else ():
                if (path := folder / f"{family}.json").is_file():
                    found[row.name, family, int(seed)] = path
    return found


def trained_with(runs: SeedRuns, variant: Variant, family: str) -> dict[str, dict[str, object]]:
    """Stage -> which variant trained it, its steps and batch size, and the seconds that it took."""
    found = {}
    for owner, stage in variant.path(family):
        config = runs.run_dir.budget.config(VARIANTS[owner], stage, runs.seed)
        result = runs.stage_dir(owner, stage) / RESULT
        seconds = round(read_json(result)["seconds"], 1) if result.is_file() else None
        found[stage] = {"by": owner, "steps": config.steps, "batch": config.batch, "seconds": seconds}
    return found


def _trained_as(stage: str) -> str:
    """The stage of `animegamer_core.train` that trains a stage of the ablations."""
    return "joint" if stage == PRETRAIN else stage
