"""`train all`: prints a plan, then runs the stages of a recipe one after another, like `train STAGE`; skips done ones.

The plan is made from models without weights, so that whatever would make a later stage fail is refused before the first
step of the first one.
"""

from __future__ import annotations

import gc
import shlex
import time
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from ..data.dataset import DatasetFolder
from ..spec import PROGRAM, ModelSpec, get_profile, get_spec
from ..weights import World, open_world
from ..weights.parts import PLAY_PARTS, build_model, empty_parameters
from ..weights.storage import read_json
from .cache import FeatureStore
from .checkpoints import CHECKPOINTS, RESULT, list_checkpoints, step_of
from .distributed import processes
from .job import FEATURES, is_in_world, train_one_stage
from .log import Report
from .parts import WorldParts, name_of, new_model, set_trainable
from .run import LEARNERS, check_free, check_stage, stage_file
from .stages import SCRATCH_SPECS, STAGES, STAGES_IN_ORDER, StageConfig, TrainRequest, models_of
from .training_data import TrainingData, name_weights
from .world_setup import words_tokenizer, world_exists

SCRATCH = "scratch"
_KINDS = typing.get_type_hints(StageConfig)


@dataclass(frozen=True)
class StageRun:
    """One stage of the run. begins: the stages whose adapters it starts from. steps: how many are done."""

    request: TrainRequest
    config: StageConfig
    begins: tuple[str, ...]
    done: bool
    steps: int


@dataclass(frozen=True)
class Chain:
    """All stages of a run and what they share.

    world: None if the first stage creates it. trained: this run's stages, and those whose adapters an earlier run left,
    in the order of training.
    """

    request: TrainRequest
    recipe: str
    world: World | None
    spec: ModelSpec
    folder: DatasetFolder
    runs: Sequence[StageRun]
    trained: Sequence[str]

    def check(self) -> None:
        """ValueError for anything that would make a stage fail before its first step; uses models without weights."""
        data = TrainingData(self.folder, FeatureStore(), cache=self.request.cache)
        for run in (run for run in self.runs if not run.done):
            stage, config = run.request.stage, replace(run.config, compile=False)
            parts = self.bare_parts(models_of(stage, config.shots_every > 0))
            check_stage(stage, config, parts, data)
            with empty_parameters():
                set_trainable(LEARNERS[stage](config, parts, data), config)

    def bare_parts(self, models: Iterable[str]) -> WorldParts:
        """The world's models on the meta device, named by the world's files."""
        world, spec = self.world, self.spec
        has_engine = world is not None and world.has("engine")
        tokenizer = world.tokenizer() if has_engine else words_tokenizer(self.folder.turns, spec, self.folder.stats)
        reader = tokenizer.backend
        if world is not None and world.has("encoder"):
            reader = world.storage.text_tokenizer() if world.has("text_tower") else None
        profile = world.profile if world is not None else get_profile("paper")
        made = {name: build_model(partial(new_model, name, spec, tokenizer, profile, reader)) for name in models}
        if "encoder" in made:  # on the meta device, T5's shared embedding is created twice
            made["encoder"].text_tower.set_input_embeddings(made["encoder"].text_tower.get_input_embeddings())
        for path in ("decoder.vae", "encoder.text_tower", "encoder.image_tower"):  # so that their features are found
            model, _, part = path.partition(".")
            if model in made and world is not None and world.has(part):
                name_weights(made[model].get_submodule(part), name_of(world, part))
        return WorldParts(spec, **made)

    def table(self) -> list[str]:
        """The plan as lines of text."""
        clips, games = len(self.folder.training_clips), sum(not game.held_out for game in self.folder.games)
        about = (
            f"plan: recipe {self.recipe}, world {self.request.world} (spec {self.spec.name}), dataset "
            f"{self.folder.path} with {clips:,} clips and {games:,} games to train on"
        )
        rows = [("stage", "begins from", "steps left", "a step")]
        for run in self.runs:
            stage, config = run.request.stage, run.config
            left = "done" if run.done else f"{config.steps - run.steps:,} of {config.steps:,}"
            samples = f"{config.batch} {'games' if stage == 'predict' else 'clips'}"
            rows.append((stage, ", ".join(run.begins) or "the world", left, samples))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return [about, *("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)]

    def train(self, report: Report) -> tuple[int, bool]:
        """Train the stages that are not done; returns (exit status, whether all stages are done now)."""
        begun, limit = time.monotonic(), self.request.options.get("minutes", 0.0)
        for at, run in enumerate(self.runs):
            if run.done:
                continue
            report(f"stage {run.request.stage}, {at + 1} of {len(self.runs)}")
            options = dict(run.request.options)
            if limit:
                # for all stages together; never 0, which means no limit, and no process may skip a stage alone
                options["minutes"] = max(1e-6, limit - (time.monotonic() - begun) / 60)
            status = train_one_stage(replace(run.request, options=options), report)
            processes().wait_for_everyone()  # the main process writes the adapter that the next stage starts from
            gc.collect()  # models are in reference cycles, and the next stage needs their memory
            if status or not _is_done(run.request.out):
                report(
                    f"{at} of {len(self.runs)} stages are done; the same command with --resume continues in "
                    f"{run.request.stage}"
                )
                return status, False
        return 0, True

    def report_how_to_play(self, report: Report) -> None:
        """Report that all stages are done, and the command that plays the result if the world is then complete."""
        request = self.request
        words = [*PROGRAM.split(), "play", "--world", request.world]
        if self.recipe == SCRATCH:
            playable = not open_world(request.world).missing(PLAY_PARTS)
        else:
            last = self.runs[-1].request.stage
            names = [name for name in (*begins_from(last), last) if name in self.trained]
            files = [*request.start, *(stage_file(request.out / name, name) for name in names)]
            words += [word for file in files for word in ("--lora", str(file))]
            playable = True
        report("all stages are done" + ("; this plays the world with them:" if playable else ""))
        if playable:
            report(shlex.join(words))


def train_all(request: TrainRequest, report: Report) -> int:
    """Print the plan and train the stages; returns the exit status.

    ValueError, before the first step, if options, data or files do not fit one of the stages.
    """
    chain = _open(request)
    chain.check()
    for line in chain.table():
        report(line)
    if request.plan:
        return 0
    processes().wait_for_everyone()  # no process writes before all have read the folders
    status, done = chain.train(report)
    if done:
        chain.report_how_to_play(report)
    return status


def _open(request: TrainRequest) -> Chain:
    """Open the run's world and dataset, and set up its stages.

    ValueError if they do not fit together, or if the folder holds an earlier run.
    """
    folder = DatasetFolder.open(request.dataset, clips=False)  # check_stage checks them if a stage reads clips
    world = open_world(request.world) if world_exists(request.world) else None
    if world is None and not request.spec:
        raise ValueError(f"{request.world} does not exist yet; choose the sizes of a new world with --spec")
    spec = world.spec if world is not None else get_spec(request.spec)
    recipe = request.recipe or (SCRATCH if spec.name in SCRATCH_SPECS else "lora")
    scratch = recipe == SCRATCH
    if scratch and request.start:
        raise ValueError("--start: recipe scratch starts from the world itself; drop it, or give --recipe lora")
    # features of small worlds stay in memory; otherwise one folder serves all stages
    request = replace(request, cache=request.cache or (None if scratch else request.out / FEATURES))
    names, settings = stages_of(recipe, request.stages), read_settings(request.set, stages_of(recipe))
    requests = {}
    for name in names:
        check_free(request.out / name, request.resume or request.plan)
        requests[name] = replace(
            request,
            stage=name,
            out=request.out / name,
            profile=request.profile if STAGES[name].games else None,  # other stages read no turns
            options={**request.options, **settings[name]},
        )
    trained = names if scratch else _with_earlier(request.out, stages_of(recipe), names)
    runs = []
    for name in names:
        begins = () if scratch else tuple(before for before in begins_from(name) if before in trained)
        files = [stage_file(request.out / before, before) for before in begins]
        stage = replace(requests[name], start=(*request.start, *files))
        saved = list_checkpoints(stage.out / CHECKPOINTS)
        done = _is_done(stage.out) and (not scratch or is_in_world(stage))
        runs.append(StageRun(stage, stage.config(recipe, spec), begins, done, step_of(saved[-1]) if saved else 0))
    return Chain(request, recipe, world, spec, folder, runs, trained)


def _with_earlier(out: Path, names: Sequence[str], own: Sequence[str]) -> list[str]:
    """This run's own stages, and earlier ones whose adapters are in its folder.

    ValueError for an unfinished stage in the folder that this run does not include.
    """
    for name in names:
        if name not in own and not _is_done(out / name) and list_checkpoints(out / name / CHECKPOINTS):
            raise ValueError(f"{out / name} holds an unfinished run; add {name} to --stages, or move it away")
    return [name for name in names if name in own or _is_done(out / name)]


def _is_done(out: Path) -> bool:
    """Whether a stage's folder holds its result and its adapter."""
    path = out / RESULT
    return path.is_file() and read_json(path).get("stage") == out.name and stage_file(out, out.name).is_file()


def stages_of(recipe: str, chosen: str | None = None) -> tuple[str, ...]:
    """A recipe's stages in the order of training. chosen: only these, such as "joint,predict".

    ValueError for a stage that the recipe does not run.
    """
    whole = tuple(name for name in STAGES_IN_ORDER if recipe == SCRATCH or STAGES[name].after is not None)
    if chosen is None:
        return whole
    names = {name.strip() for name in chosen.split(",")}
    if unknown := sorted(names - set(whole)):
        raise ValueError(f"--stages: recipe {recipe!r} does not run {unknown[0]!r}; choose from {', '.join(whole)}")
    return tuple(name for name in whole if name in names)


def read_settings(given: Iterable[str], stages: Iterable[str]) -> dict[str, dict[str, typing.Any]]:
    """The options of --set by stage; ValueError for one that is not STAGE.OPTION=VALUE with one of these stages."""
    found: dict[str, dict[str, typing.Any]] = {name: {} for name in stages}
    for text in given:
        place, equals, value = text.partition("=")
        stage, dot, option = place.strip().partition(".")
        if not (dot and equals):
            raise ValueError(f"--set {text}: expected STAGE.OPTION=VALUE, such as joint.steps=2000")
        if stage not in found:
            raise ValueError(
                f"--set {text}: there is no stage {stage!r} in this recipe; choose from {', '.join(found)}"
            )
        option = option.strip().replace("-", "_")
        if option not in _KINDS:
            raise ValueError(f"--set {text}: there is no stage option {option!r}; `train --help` lists them")
        words = value.split() if typing.get_origin(_KINDS[option]) is tuple else value.strip()
        try:
            found[stage][option] = msgspec.convert(words, _KINDS[option], strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"--set {text}: {error}") from error
    return found


def begins_from(stage: str) -> tuple[str, ...]:
    """All stages whose adapters a stage starts from, in the order of training."""
    found: set[str] = set()
    waiting = [stage]
    while waiting:
        after = set(STAGES[waiting.pop()].after or ()) - found
        found |= after
        waiting += after
    return tuple(name for name in STAGES_IN_ORDER if name in found)
