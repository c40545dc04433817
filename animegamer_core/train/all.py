"""`train all`: prints a plan, then runs the stages of a recipe one after another, like `train STAGE`; skips done ones.

The plan is made from models without weights, so that whatever would make a later stage fail is refused before the first
step of the first one.
"""

from __future__ import annotations

import gc
import math
import os
import re
import shlex
import shutil
import time
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from ..checkpoint import World, open_world
from ..checkpoint.adapters import PLAYED
from ..checkpoint.empty_parameters import empty_parameters
from ..checkpoint.parts import PLAY_PARTS, build_model
from ..checkpoint.storage import read_json
from ..data.cache import FeatureStore
from ..data.dataset import DatasetFolder
from ..model.prompt import GameTokenizer
from ..spec import PROGRAM, ModelSpec, get_profile, get_spec
from .checkpoints import CHECKPOINTS, KEPT, check_settings, list_checkpoints, read_state, step_of
from .distributed import processes
from .job import FEATURES, check_origin, is_in_world, origin_of, to_train, train_one_stage
from .log import Report
from .parts import MODELS, WorldParts, has_encoder_features, name_of, new_model
from .request import TrainRequest
from .run import LEARNERS, RESULT, check_stage, features_read
from .stages import SCRATCH_SPECS, STAGES, STAGES_IN_ORDER, StageConfig, models_of
from .trainable import read_config, set_trainable
from .training_data import IMAGE_FEATURES, TrainingData, bytes_in, digest_of, name_weights
from .world_setup import words_tokenizer, world_exists

FLOAT32, HALF = 4, 2
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SPARE = 64 * 2**20  # bytes kept free for logs, pictures and the file system itself


@dataclass
class StageRun:
    """One stage of the run.

    begins: the stages whose adapters it starts from. steps: how many are done. The plan fills in checkpoint and file,
    the bytes of one checkpoint and of the adapter, and features, the bytes of those to compute before its first step.
    """

    request: TrainRequest
    config: StageConfig
    begins: tuple[str, ...]
    done: bool
    steps: int
    checkpoint: int = 0
    file: int = 0
    features: Mapping[str, int] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        """The stage's name."""
        return self.request.stage

    @property
    def kept(self) -> int:
        """How many checkpoints are kept."""
        return min(KEPT, math.ceil(self.config.steps / self.config.save_every))


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

    ValueError, before the first step, if options, data or files do not fit one of the stages, or if there is too little
    free disk space.
    """
    chain = _open(request)
    _plan(chain)
    uses = _by_disk(_disk_use(chain))
    for line in (*_table(chain), *(_disk_line(*use) for use in uses)):
        report(line)
    for folders, needed, free in uses:
        if needed + SPARE > free:
            raise ValueError(
                f"{folders} needs about {size_text(needed)} for checkpoints, features and adapters, but only "
                f"{size_text(free)} are free; free some space, choose another --out, or train fewer parameters (--set)"
            )
    if request.plan:
        return 0
    processes().wait_for_everyone()  # no process writes before all have checked the disk
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


def _plan(chain: Chain) -> None:
    """Fill in what each stage computes and writes; ValueError for anything that would make it fail."""
    cache = chain.request.cache
    data = TrainingData(chain.folder, FeatureStore(), cache=cache)
    known = _cached(chain, data)
    for run in (run for run in chain.runs if not run.done):
        names = [name for name in features_read(run.stage, run.config) if name not in known]
        run.features = {name: feature_bytes(name, chain.spec, len(chain.folder.turns)) for name in names}
        parts = bare_parts(chain, models_of(run.stage, run.config.shots_every > 0))
        check_stage(run.stage, run.config, parts, data)
        plain = replace(run.config, compile=False)
        learner = LEARNERS[run.stage](plain, parts, data)
        with empty_parameters():
            set_trainable(learner, plain)
        trained = sum(value.numel() for value in learner.parameters() if value.requires_grad)
        constant = learner.decoder.unconditional_ND.numel() if STAGES[run.stage].mixes else 0
        run.checkpoint = FLOAT32 * trained * (4 if run.config.ema else 3)  # weights, two moments, their average
        run.file = FLOAT32 * (trained + constant)
        known = (known | set(names) if cache else set()) - set(STAGES[run.stage].outdates)


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


def feature_bytes(name: str, spec: ModelSpec, clips: int) -> int:
    """The bytes of a feature of that many clips."""
    state, encoder, decoder = spec.state, spec.encoder, spec.decoder
    per_clip = {
        "frames": decoder.frames * decoder.height * decoder.width * 3,
        "latents": 2 * math.prod(decoder.latent_shape) * HALF,
        "text": state.text_tokens * encoder.text.width * HALF,
        "image": state.image_tokens * encoder.image.width * HALF,
        "states": state.tokens * state.width * HALF,
    }
    per_clip |= {"image_random": per_clip["image"], "predicted": per_clip["states"]}
    return clips * per_clip[name]


def _table(chain: Chain) -> list[str]:
    """The plan as lines of text."""
    clips, games = len(chain.folder.training_clips), sum(not game.held_out for game in chain.folder.games)
    about = (
        f"plan: recipe {chain.recipe}, world {chain.request.world} (spec {chain.spec.name}), dataset "
        f"{chain.folder.path} with {clips:,} clips and {games:,} games to train on"
    )
    rows = [("stage", "begins from", "features to compute", "steps left", "a step", "checkpoints", "file")]
    for run in chain.runs:
        begins = ", ".join(run.begins) or "the world"
        samples = f"{run.config.batch} {'games' if run.stage == 'predict' else 'clips'}"
        if run.done:
            rows.append((run.stage, begins, "-", "done", samples, "-", "-"))
            continue
        left = f"{run.config.steps - run.steps:,} of {run.config.steps:,}"
        features = ", ".join(f"{name} {size_text(count)}" for name, count in run.features.items()) or "-"
        kept = f"{run.kept} x {size_text(run.checkpoint)}"
        rows.append((run.stage, begins, features, left, samples, kept, size_text(run.file)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [about, *("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)]


def _disk_line(folders: str, needed: int, free: int) -> str:
    return f"disk: about {size_text(needed)} still to write to {folders}, {size_text(free)} free"


def _disk_use(chain: Chain) -> list[tuple[Path, int]]:
    """The folders that will be written to, and how many bytes; checkpoints of an unfinished stage are overwritten."""
    runs = [run for run in chain.runs if not run.done]
    needed = sum(run.kept * run.checkpoint + run.file for run in runs)
    needed += max((run.checkpoint for run in runs), default=0)  # a new one is written next to the old ones
    out, cache = chain.request.out, chain.request.cache
    uses = [(out, max(0, needed - sum(bytes_in(run.request.out / CHECKPOINTS) for run in runs)))]
    if cache is not None:
        features = {name: count for run in runs for name, count in run.features.items()}
        there = sum(bytes_in(cache, f"{name}-[0-9]*.safetensors") for name in features)
        uses.append((cache, max(0, sum(features.values()) - there)))
    if chain.recipe == SCRATCH and runs:
        models = bare_parts(chain, MODELS).models.values()
        sizes = [FLOAT32 * sum(value.numel() for value in model.parameters()) for model in models]
        known = sum(note.bytes for note in chain.world.files.values()) if chain.world is not None else 0
        # a new part is written next to the old one
        uses.append((Path(chain.request.world), max(0, sum(sizes) + max(sizes) - known)))
    return uses


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


def size_text(count: float) -> str:
    """A number of bytes as text: 512 B, 3.2 MiB, 12 GiB."""
    unit = 0
    while count >= 1024 and unit < len(UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {UNITS[unit]}" if count >= 10 or not unit else f"{count:.1f} {UNITS[unit]}"


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
