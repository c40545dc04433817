"""`train all`: prints a plan, then runs the stages of a recipe one after another, like `train STAGE`; skips done ones.

The plan is made from models without weights, so that whatever would make a later stage fail is refused before the first
step of the first one.
"""

from __future__ import annotations

import gc
import re
import shlex
import time
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from ..checkpoint import World, open_world
from ..checkpoint.adapter_files import PLAYED
from ..checkpoint.empty_parameters import empty_parameters
from ..checkpoint.parts import PLAY_PARTS, build_model
from ..checkpoint.storage import read_json
from ..data.cache import FeatureStore
from ..data.dataset import DatasetFolder
from ..model.prompt import GameTokenizer
from ..spec import PROGRAM, ModelSpec, get_profile, get_spec
from .checkpoints import CHECKPOINTS, check_settings, list_checkpoints, read_state, step_of
from .distributed import processes
from .job import FEATURES, check_origin, is_in_world, origin_of, to_train, train_one_stage
from .log import Report
from .parts import WorldParts, name_of, new_model
from .request import TrainRequest
from .run import LEARNERS, RESULT, check_stage
from .stages import SCRATCH_SPECS, STAGES, STAGES_IN_ORDER, StageConfig, models_of
from .trainable import read_config, set_trainable
from .training_data import TrainingData, name_weights
from .world_setup import words_tokenizer, world_exists


@dataclass(frozen=True)
class StageRun:
    """One stage of the run. begins: the stages whose adapters it starts from. steps: how many are done."""

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


def train_all(request: TrainRequest, report: Report) -> int:
    """Print the plan and train the stages; returns the exit status.

    ValueError, before the first step, if options, data or files do not fit one of the stages.
    """
    chain = _open(request)
    _check_stages(chain)
    for line in _table(chain):
        report(line)
    if request.plan:
        return 0
    processes().wait_for_everyone()  # no process writes before all have read the folders
    status, done = _train_stages(chain, report)
    if done:
        _report_how_to_play(chain, report)
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
    names = stages_of(recipe, request.stages)
    for name in () if request.resume or request.plan else names:
        if list_checkpoints(request.out / name / CHECKPOINTS) or _is_done(request.out / name):
            out = request.out / name
            raise ValueError(f"{out} already holds a run; continue it (--resume), or choose another folder (--out)")
    settings = read_settings(request.set, stages_of(recipe))
    requests = {name: _stage_request(request, name, settings[name]) for name in names}
    own = {name: requests[name].config(recipe, spec) for name in names}
    configs = own if scratch else _with_earlier(request.out, stages_of(recipe), own)
    runs = []
    for name in names:
        begins = () if scratch else begins_from(name, configs)
        files = [stage_file(request.out / before) for before in begins]
        stage = replace(requests[name], start=(*request.start, *files))
        runs.append(_stage_run(stage, own[name], begins, recipe, world, folder))
    has_engine = world is not None and world.has("engine")
    tokenizer = world.tokenizer() if has_engine else words_tokenizer(folder.turns, spec)
    return Chain(request, recipe, world, spec, tokenizer, folder, runs, configs)


def _stage_request(request: TrainRequest, stage: str, settings: Mapping[str, object]) -> TrainRequest:
    """The request of one stage, in a folder of its name."""
    profile = request.profile if STAGES[stage].games else None  # other stages read no turns
    options = {**request.options, **settings}
    return replace(request, stage=stage, out=request.out / stage, profile=profile, options=options)


def _with_earlier(out: Path, names: Sequence[str], own: Mapping[str, StageConfig]) -> dict[str, StageConfig]:
    """The configurations of this run's stages, and of earlier stages whose adapters are in its folder.

    ValueError for an unfinished stage in the folder that this run does not include.
    """
    found = {}
    for name in names:
        if name in own:
            found[name] = own[name]
        elif _is_done(out / name):
            found[name] = read_config(stage_file(out / name))[1]
        elif list_checkpoints(out / name / CHECKPOINTS):
            raise ValueError(f"{out / name} holds an unfinished run; add {name} to --stages, or move it away")
    return found


def _is_done(out: Path) -> bool:
    """Whether a stage's folder holds its result and its adapter."""
    path = out / RESULT
    return path.is_file() and read_json(path).get("stage") == out.name and stage_file(out).is_file()


def _stage_run(
    request: TrainRequest,
    config: StageConfig,
    begins: tuple[str, ...],
    recipe: str,
    world: World | None,
    folder: DatasetFolder,
) -> StageRun:
    """A stage and its progress; ValueError if its folder holds another run, or one with other settings."""
    saved = list_checkpoints(request.out / CHECKPOINTS)
    done = _is_done(request.out) and (recipe != SCRATCH or is_in_world(request))
    if saved or done:
        read = world and to_train(request.stage, world, request.start, request.profile)
        origin = origin_of(request.stage, folder, request.starts, read, in_place=recipe == SCRATCH)
        check_origin(request.out, origin)
        left = saved[-1] if saved else stage_file(request.out)
        stored = read_state(left).config if saved else asdict(read_config(left)[1])
        if "window" not in request.options:  # an unset window may come from the world
            config = replace(config, window=stored["window"])
        check_settings(left, request.stage, stored, config)
    return StageRun(request, config, begins, done, step_of(saved[-1]) if saved else 0)


def _check_stages(chain: Chain) -> None:
    """ValueError for anything that would make a stage fail before its first step; uses models without weights."""
    data = TrainingData(chain.folder, FeatureStore(), cache=chain.request.cache)
    for run in (run for run in chain.runs if not run.done):
        parts = bare_parts(chain, models_of(run.stage, run.config.shots_every > 0))
        check_stage(run.stage, run.config, parts, data)
        plain = replace(run.config, compile=False)
        with empty_parameters():
            set_trainable(LEARNERS[run.stage](plain, parts, data), plain)


def bare_parts(chain: Chain, models: Iterable[str]) -> WorldParts:
    """The world's models on the meta device, named by the world's files."""
    world, spec, tokenizer, reader = chain.world, chain.spec, chain.tokenizer, chain.tokenizer.backend
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


def _table(chain: Chain) -> list[str]:
    """The plan as lines of text."""
    clips, games = len(chain.folder.training_clips), sum(not game.held_out for game in chain.folder.games)
    about = (
        f"plan: recipe {chain.recipe}, world {chain.request.world} (spec {chain.spec.name}), dataset "
        f"{chain.folder.path} with {clips:,} clips and {games:,} games to train on"
    )
    rows = [("stage", "begins from", "steps left", "a step")]
    for run in chain.runs:
        left = "done" if run.done else f"{run.config.steps - run.steps:,} of {run.config.steps:,}"
        samples = f"{run.config.batch} {'games' if run.stage == 'predict' else 'clips'}"
        rows.append((run.stage, ", ".join(run.begins) or "the world", left, samples))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [about, *("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)]


def stage_file(out: Path) -> Path:
    """The path of the adapter that a stage writes in its folder."""
    return out / f"{out.name}.safetensors"


def _train_stages(chain: Chain, report: Report) -> tuple[int, bool]:
    """Train the stages that are not done; returns (exit status, whether all stages are done now)."""
    begun, limit = time.monotonic(), chain.request.options.get("minutes", 0.0)
    for at, run in enumerate(chain.runs):
        if run.done:
            continue
        report(f"stage {run.stage}, {at + 1} of {len(chain.runs)}")
        options = dict(run.request.options)
        if limit:
            # for all stages together; never 0, which means no limit, and no process may skip a stage alone
            options["minutes"] = max(1e-6, limit - (time.monotonic() - begun) / 60)
        status = train_one_stage(replace(run.request, options=options), report)
        processes().wait_for_everyone()  # the main process writes the adapter that the next stage starts from
        gc.collect()  # models are in reference cycles, and the next stage needs their memory
        if status or not _is_done(run.request.out):
            report(
                f"{at} of {len(chain.runs)} stages are done; the same command with --resume continues in {run.stage}"
            )
            return status, False
    return 0, True


def _report_how_to_play(chain: Chain, report: Report) -> None:
    """Report that all stages are done, and the command that plays the result if the world is then complete."""
    request = chain.request
    words = [*PROGRAM.split(), "play", "--world", request.world]
    if chain.recipe == SCRATCH:
        playable = not open_world(request.world).missing(PLAY_PARTS)
    else:
        names = played_with(chain.runs[-1].stage, chain.configs)
        files = [*request.start, *(stage_file(request.out / name) for name in names)]
        words += [word for file in files for word in ("--lora", str(file))]
        playable = bool(names)
    report("all stages are done" + ("; this plays the world with them:" if playable else ""))
    if playable:
        report(shlex.join(words))


SCRATCH = "scratch"
_KINDS = typing.get_type_hints(StageConfig)
_MODEL = re.compile(r"\^?(encoder|decoder|engine)\\?\.")  # the beginning of a pattern that names a model
_SWITCHES = {"true": True, "false": False, "on": True, "off": False, "1": True, "0": False}
Configs = Mapping[str, StageConfig]  # in the order of training


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
        found[stage][option] = _value(text, value.strip(), _KINDS[option])
    return found


def _value(text: str, value: str, kind: typing.Any) -> typing.Any:
    """Convert a value to the field's type; ValueError if that fails. text: the whole option, for the message."""
    try:
        if kind is bool:
            return _SWITCHES[value.lower()]
        if typing.get_origin(kind) is tuple:
            return tuple(typing.get_args(kind)[0](word) for word in value.split())
        return kind(value)
    except (KeyError, ValueError) as error:
        expected = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "values of its type")
        raise ValueError(f"--set {text}: expected {expected}, not {value!r}") from error


def begins_from(stage: str, configs: Configs) -> tuple[str, ...]:
    """The stages whose adapters a stage starts from, in order. configs: of the stages that have or will have adapters.

    These are the stages in `Stage.after` and those that they started from, without adapters that a later one replaces
    entirely, and without those that change no model that this stage loads.
    """
    models = set(models_of(stage, configs[stage].shots_every > 0))
    before = [name for name in _lineage(stage) if name in configs]
    return tuple(name for name in _not_replaced(before, configs) if _models_trained(name, configs[name]) & models)


def played_with(last: str, configs: Configs) -> tuple[str, ...]:
    """The stages whose adapters are needed to play a world that was trained up to stage `last`."""
    before = [name for name in (*_lineage(last), last) if name in configs]
    return tuple(name for name in _not_replaced(before, configs) if _models_trained(name, configs[name]) & PLAYED)


def _lineage(stage: str) -> tuple[str, ...]:
    """All stages that come before this one, in the order of training."""
    found: set[str] = set()
    waiting = [stage]
    while waiting:
        after = set(STAGES[waiting.pop()].after or ()) - found
        found |= after
        waiting += after
    return tuple(name for name in STAGES_IN_ORDER if name in found)


def _not_replaced(names: list[str], configs: Configs) -> list[str]:
    """The stages, without those that trained only whole weights all of which a later stage trains too."""

    def replaced(name: str, later: str) -> bool:
        return not configs[name].lora_rank and set(configs[name].trainable) <= set(configs[later].trainable)

    return [name for at, name in enumerate(names) if not any(replaced(name, later) for later in names[at + 1 :])]


def _models_trained(stage: str, config: StageConfig) -> set[str]:
    """The models that a stage changes; a pattern that names no model may change any model that the stage needs."""
    facts, found = STAGES[stage], set()
    for pattern in (*config.trainable, *(config.lora_targets if config.lora_rank else ())):
        named = _MODEL.match(pattern)
        found |= {named[1]} if named else set(facts.needs)
    return found | ({"decoder"} if facts.mixes else set())
