"""`train STAGE`: the command line of training. Its options are read off StageConfig's fields."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import typing
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch

from ..checkpoint import World, open_world, save_world
from ..checkpoint.downloads import published_worlds
from ..checkpoint.storage import read_json, write_json
from ..checkpoint.world import EMBEDDED, MANIFEST, writing
from ..data.cache import FeatureStore
from ..data.dataset import DatasetFolder
from ..data.records import ClipRecord
from ..prompt import GameTokenizer
from ..spec import TRAINED_PROFILES, ModelSpec, get_spec
from ..state import clean_text
from .adapters import tensor_names, trained_by
from .chain import ALL, add_all_arguments, refuse_all_arguments
from .checkpoints import CHECKPOINTS, list_checkpoints
from .determinism import set_cublas_workspace
from .job import FEATURES, Job, models_of, own_run, run_job, to_train
from .log import LOG, PICTURE, read_log
from .loop import RunOptions
from .material import TrainingData
from .parts import MODELS, WorldParts
from .plot import plot_log
from .run import RESULT, StageResult, train_stage
from .spread import close_at_exit, processes
from .staged import as_stated, trained_file
from .stages import (
    ALL_STAGES,
    BASELINE_STAGES,
    RECIPES,
    SCRATCH_SPECS,
    STAGES,
    STAGES_IN_ORDER,
    StageConfig,
    lr_warning,
    stage_config,
    to_make,
)
from .telling import Telling, how_it_stopped, tell_interrupt
from .weights import halves_frozen

IN_WORLD = "in_world"  # of a run's result: the world folder that has got it
CPU_SAMPLES = 2  # at a time: more take memory there (1.6 GiB a clip in stage vae of the Toybox's size) and save no time
NOTHING = "unconditional_ND"  # in the decoder's part, zero until a stage trains the encoder along


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `train`."""
    parser.add_argument(
        "stage",
        choices=(*ALL_STAGES, ALL),
        help=f"what to train; a new world takes {', '.join(STAGES_IN_ORDER)} in this order. distill: the decoder "
        "learns to draw with one pass a step; leaves a stage file with every recipe. gc: the text-to-video baseline; "
        "leaves a folder gc in --out. all: the stages of the recipe one after another",
    )
    parser.add_argument("--dataset", required=True, type=Path, help="dataset folder")
    parser.add_argument(
        "--world",
        required=True,
        help="world to begin from: a folder, made if it is new; a small one is trained in place (see --recipe). "
        "'toybox' or published files, for a recipe that leaves them as they are; for gc CogVideoX-2b's folder, or a "
        "small world's",
    )
    parser.add_argument("--spec", help="sizes of a new world: tiny, toybox, release")
    parser.add_argument("--out", required=True, type=Path, help="folder for log, checkpoints and the stage file")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument(
        "--recipe",
        choices=tuple(RECIPES),
        help="lora: as in the paper, for cards of 80 GB; lora24: for one of 24 GB; both leave a stage file, and the "
        "world as it is. scratch: all weights, written into the world folder (default for specs tiny and toybox)",
    )
    parser.add_argument("--start", nargs="*", type=Path, default=(), help="stage files to begin from, in order")
    parser.add_argument(
        "--profile",
        choices=TRAINED_PROFILES,
        help="how turns are read, in training and then in play (default: as the engine was trained to be read; paper "
        "for one that no stage of ours has trained yet)",
    )
    parser.add_argument(
        "--cache", type=Path, help="folder of computed features (`dataset cache`); without it, one in --out"
    )
    add_all_arguments(parser)
    group = parser.add_argument_group("stage options (defaults: the recipe's row for the stage)")
    kinds = typing.get_type_hints(StageConfig)
    for field in dataclasses.fields(StageConfig):
        group.add_argument(
            f"--{field.name.replace('_', '-')}",
            default=argparse.SUPPRESS,
            dest=f"option_{field.name}",
            **_shown(kinds[field.name]),
            help=field.metadata["help"],
            **_reading(kinds[field.name]),
        )


def _shown(kind: typing.Any) -> dict[str, str]:
    """What stands for the value in the help; a switch has none."""
    return {} if kind is bool else {"metavar": {int: "N", float: "X"}.get(kind, "VALUE")}


def _reading(kind: typing.Any) -> dict[str, typing.Any]:
    """How argparse reads a field of this type."""
    if kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(kind) is tuple:
        return {"nargs": "*", "type": typing.get_args(kind)[0]}
    return {"type": kind}


def config_of(args: argparse.Namespace, recipe: str, spec: str = "") -> StageConfig:
    """The recipe's row for the stage, with the options that were given; spec: the name of the world's."""
    given = {name[7:]: value for name, value in vars(args).items() if name.startswith("option_")}
    changes = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return dataclasses.replace(stage_config(args.stage, recipe, spec), **changes)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run(args: argparse.Namespace, say: Callable[[str], object] = _say) -> int:
    """Train the stage; returns the exit status. ValueError for arguments, data or files that do not fit, and where a
    card's memory does not suffice.

    Of the processes of `accelerate launch`, the main one alone speaks and writes. Interrupted, what is kept and the way
    to go on are told.
    """
    say = say if processes().is_main_process else lambda line: None
    if args.stage == ALL:
        from .all import run_all  # which calls this function for each stage

        return run_all(args, run, say)
    try:
        refuse_all_arguments(args)
        status = _run(args, say)
        close_at_exit()
        return status
    except KeyboardInterrupt:
        if read_log(args.out / LOG):
            _draw_losses(args.out)
        say(how_it_stopped(args.out))
        return 130
    except torch.OutOfMemoryError as error:
        told = str(error).partition(". ")[0]
        kept = " With one of these --resume goes on." if list_checkpoints(args.out / CHECKPOINTS) else ""
        raise ValueError(
            f"stage {args.stage} does not fit into the card's memory ({told}); --checkpointing, a smaller --per-card, "
            f"or several cards with FSDP2 take less of it.{kept}"
        ) from error


def _run(args: argparse.Namespace, say: Callable[[str], object]) -> int:
    folder = DatasetFolder.open(args.dataset, clips=False)  # train_stage looks for them if it reads any
    if args.stage in BASELINE_STAGES:
        return _run_baseline(args, folder, say)
    with processes().main_process_first():
        world = _world(args, folder, say)
    recipe = args.recipe or ("scratch" if world.spec.name in SCRATCH_SPECS else "lora")
    if recipe == "scratch" and not STAGES[args.stage].optional:
        return _run_scratch(args, world, folder, say)
    world = _to_train(args, world, say)
    config = _checked_config(args, recipe, say, world)
    start = [(file, 1.0) for file in args.start]
    for file in args.start:
        trained_by(file)  # refuses what is none before it is told
        say(f"begins from {file}")
    job = Job(args.stage, config, world, args.dataset, args.out, start, args.cache)
    telling = Telling(args.stage, say)
    result = _told(args, run_job(job, _options(args, telling), telling.feature), config, say)
    if result.done:
        say(f"wrote {result.file}")
    return 0


def _to_train(args: argparse.Namespace, world: World, say: Callable[[str], object]) -> World:
    """The world as the stage reads it; a warning where that is not how its engine was trained to be read."""
    world = to_train(args.stage, world, args.start, args.profile)
    if args.profile or world.warnings:
        say(f"reads turns by profile {world.profile.name}")
    for line in world.warnings:
        say(f"warning: {line}")
    return world


def _checked_config(
    args: argparse.Namespace, recipe: str, say: Callable[[str], object], world: World | None = None
) -> StageConfig:
    """The stage's configuration, with a warning where its learning rate is unusual; on a CPU in small parts, unless
    parts change its losses or were asked for.
    """
    config = config_of(args, recipe, "" if world is None else world.spec.name)
    if world is not None and world.trained_window is not None and not hasattr(args, "option_window"):
        config = dataclasses.replace(config, window=world.trained_window)
    chosen = STAGES[args.stage].contrasts or hasattr(args, "option_per_card")
    at_once = config.batch // (processes().num_processes * config.accumulation)
    many = min(at_once, config.per_card or at_once) > CPU_SAMPLES
    if processes().device.type == "cpu" and many and not chosen:
        config = dataclasses.replace(config, per_card=CPU_SAMPLES)
        say(f"on a CPU at most {CPU_SAMPLES} samples are computed at a time, to save memory; --per-card allows more")
    if config.deterministic:
        set_cublas_workspace()
    if (warning := lr_warning(config)) is not None:
        say(f"warning: {warning}")
    return config


def _begun_from(parts: WorldParts, files: Sequence[Path], say: Callable[[str], object]) -> WorldParts:
    """The parts with the stage files that training begins from."""
    for file in files:
        parts = parts.with_stage_file(file)
        say(f"begins from {file}")
    return parts


def _options(args: argparse.Namespace, telling: Telling) -> RunOptions:
    """How the stage is run: with its losses told."""
    heard = tell_interrupt if processes().is_main_process else None
    return RunOptions(args.resume, telling.step, getattr(args, "after_step", None), on_interrupt=heard)


def _told(
    args: argparse.Namespace, result: StageResult, config: StageConfig, say: Callable[[str], object]
) -> StageResult:
    """What a run came to, with its losses drawn, also where it was stopped."""
    _draw_losses(args.out)
    if not result.done:
        say(f"stopped at step {result.step} of {config.steps}; the same command with --resume goes on")
    return result


def _draw_losses(out: Path) -> None:
    """Draw a run's log; of several processes, the main one alone."""
    if processes().is_main_process:
        plot_log(out / LOG, out / PICTURE)


def _run_scratch(args: argparse.Namespace, world: World, folder: DatasetFolder, say: Callable[[str], object]) -> int:
    """Recipe scratch: the world folder gets what was trained, once: a later stage may have trained it further."""
    _check_own(args, world)
    if args.resume and _is_in_world(args, world):
        say(f"{args.out} has ended, and {args.world} got what it trained; give another --out to train it further")
        return 0
    with writing(world.folder) if processes().is_main_process else nullcontext():
        # opened again: until the lock was held, somebody else may have written
        return _train_in_place(args, open_world(args.world), folder, say)


def _train_in_place(args: argparse.Namespace, world: World, folder: DatasetFolder, say: Callable[[str], object]) -> int:
    """Recipe scratch, in a world that nobody else writes to."""
    world = _to_train(args, world, say)
    config = _checked_config(args, "scratch", say, world)
    if config.lora_rank:
        # A run that was stopped between writing the world and noting it would put them on top once more.
        raise ValueError(
            f"lora_rank is {config.lora_rank}, and recipe scratch trains whole weights in place; leave it out, or give "
            "--recipe lora, which leaves a stage file"
        )
    # A world that changed since would get the low-rank updates of files to begin from twice.
    begun_from = world if args.start else None
    profile = world.profile.name if STAGES[args.stage].games else None
    with own_run(args.out, args.stage, folder, [(file, 1.0) for file in args.start], begun_from, profile):
        telling = Telling(args.stage, say)
        # features of a small world fit into memory
        data = TrainingData(folder, FeatureStore(), cache=args.cache, on_progress=telling.feature)
        parts = _begun_from(_new_or_own(world, args, config, folder), args.start, say)
        say(f"trains {args.world} in place")
        result = train_stage(args.stage, config, parts, data, args.out, _options(args, telling))
        if _told(args, result, config, say).done:
            if processes().is_main_process:
                result.parts.save(as_stated(world, trained_file(result.file)), max_shard_bytes=config.shard_mb * 2**20)
                write_json(args.out / RESULT, {**read_json(args.out / RESULT), IN_WORLD: str(world.folder.resolve())})
            say(f"wrote {args.world}")
            say(f"wrote {result.file}")
    return 0


def _is_in_world(args: argparse.Namespace, world: World) -> bool:
    """Whether the folder's run of this stage has ended, and its weights are in the world; ValueError where they are in
    another.
    """
    path = args.out / RESULT
    result = read_json(path) if path.is_file() else {}
    if result.get("stage") != args.stage or IN_WORLD not in result:
        return False
    if result[IN_WORLD] != str(world.folder.resolve()):
        raise ValueError(
            f"{args.out} has ended, and {result[IN_WORLD]} got what it trained, not {args.world}; give another --out, "
            f"or put {args.out / args.stage}.safetensors on top (--stage-file to play with it, --start to train on)"
        )
    return True


def _check_own(args: argparse.Namespace, world: World) -> None:
    """ValueError for a world that recipe scratch must not write into: published files, and the embedded ones."""
    default = "" if args.recipe else f", the default for spec {world.spec.name!r},"
    remedy = "give --recipe lora or lora24, which leave a stage file to play with"
    if not (world.folder / MANIFEST).is_file():
        raise ValueError(
            f"recipe scratch{default} writes into the world, and {args.world} are published files, which stay as they "
            f"are; {remedy}, or `convert` them to a folder of your own"
        )
    if any(place.is_dir() and place.samefile(world.folder) for place in EMBEDDED.values()):
        raise ValueError(
            f"recipe scratch{default} writes into the world, and {args.world} is a part of this package, which stays "
            f"as it is; {remedy}, or copy {world.folder} to a folder of your own"
        )


def _run_baseline(args: argparse.Namespace, folder: DatasetFolder, say: Callable[[str], object]) -> int:
    """Stage gc: from a small world or a folder of CogVideoX-2B to one that diffusers opens, --out/gc; both stay as they
    are.
    """
    from .text_video import is_pipeline, new_text_video, open_text_video, save_text_video

    place = Path(args.world)
    stock = is_pipeline(place)
    config = _checked_config(args, args.recipe or ("lora" if stock else "scratch"), say)
    if config.lora_rank and not stock:
        raise ValueError(
            f"{args.world} is no CogVideoX-2b folder, which low-rank updates need; or give --recipe scratch"
        )
    start = [(file, 1.0) for file in args.start]
    with own_run(args.out, args.stage, folder, start, None if stock else open_world(args.world)):
        if stock:
            half = halves_frozen(config, processes().device)
            parts = open_text_video(place, torch.bfloat16 if half else torch.float32)
        else:
            parts = new_text_video(open_world(args.world), folder, config.seed)
        parts = _begun_from(parts, args.start, say)
        telling, cache = Telling(args.stage, say), args.cache or (args.out / FEATURES if stock else None)
        data = TrainingData(folder, FeatureStore(), cache=cache, on_progress=telling.feature)
        result = train_stage(args.stage, config, parts, data, args.out, _options(args, telling))
        if _told(args, result, config, say).done and processes().is_main_process:
            say(f"wrote {save_text_video(result.parts.decoder, result.file, args.out / args.stage)}")
    return 0


def _world(args: argparse.Namespace, folder: DatasetFolder, say: Callable[[str], object]) -> World:
    """The world to train, made anew where there is none; ValueError if it has another spec than asked for, and for a
    new one if another stage has to come first.
    """
    name = args.world
    if name in EMBEDDED and (Path(name) / MANIFEST).is_file():
        raise ValueError(f"{name} is a world of this package and a folder here; give ./{name}, or rename the folder")
    if is_there(name):
        world = open_world(name)
        if args.spec and get_spec(args.spec).name != world.spec.name:
            raise ValueError(f"{name} has spec {world.spec.name!r}, not {args.spec!r}; leave --spec out")
        return world
    if not args.spec:
        raise ValueError(f"{name} is no world yet; say with --spec which sizes it shall have")
    spec = get_spec(args.spec)
    to_make(args.stage, name, ())
    world = save_world(name, spec, motion_table=folder.motion_table, provenance=_provenance(folder))
    say(f"new world {name} (spec {spec.name})")
    return world


def is_there(name: str) -> bool:
    """Whether `open_world` looks at something of that name, rather than a folder to be made."""
    folder = EMBEDDED.get(name, Path(name))
    if (folder / MANIFEST).is_file() or published_worlds(folder):
        return True
    return not folder.exists() and folder.name.lower() in published_worlds(folder.parent)


def _provenance(folder: DatasetFolder) -> dict[str, str]:
    """What a new world says of its dataset; evaluations measure motion as it was measured there."""
    return {"dataset": folder.path.name, **folder.motion_provenance}


def _new_or_own(world: World, args: argparse.Namespace, config: StageConfig, folder: DatasetFolder) -> WorldParts:
    """The models that a stage needs: the world's own, and those new that it makes; ValueError names the stage that has
    to come first.
    """
    parts = WorldParts.load(world, models_of(args.stage, config.shots_every > 0)).in_memory()
    missing = to_make(args.stage, args.world, {name for name in MODELS if getattr(parts, name) is not None})
    if STAGES[args.stage].reads_representations and not _represents(world, args.start):
        raise ValueError(
            f"{args.world}'s encoder has not learned yet to represent shots, which stage {args.stage} reads; "
            "stage joint teaches it"
        )
    if not missing:
        return parts
    tokenizer = world.tokenizer() if world.has("engine") else words_tokenizer(folder.turns, world.spec)
    made = WorldParts.new(world.spec, tokenizer, world.profile, config.seed, missing)
    return dataclasses.replace(parts, **{name: getattr(made, name) for name in missing})


def _represents(world: World, start: Sequence[Path]) -> bool:
    """Whether a stage trained the encoder together with the decoder, which keeps its representation of nothing."""
    if any(f"decoder.{NOTHING}" in tensor_names(path) for path in start):
        return True
    return world.has("decoder") and bool(world.storage.source("decoder").tensor(NOTHING).any())


def words_tokenizer(turns: Sequence[ClipRecord], spec: ModelSpec) -> GameTokenizer:
    """A tokenizer of all words in a dataset's instructions; ValueError if the spec has no room for them."""
    from tokenizers.pre_tokenizers import Whitespace

    splitter = Whitespace()
    texts = (clean_text(turn.instruction).lower() for turn in turns if turn.captioned)
    words = sorted({word for text in texts for word, _ in splitter.pre_tokenize_str(text)})
    tokenizer = GameTokenizer.from_words(words, spec.state.tokens)
    if tokenizer.size > spec.engine.vocab_size:
        raise ValueError(
            f"the dataset has {len(words)} words and spec {spec.name!r} room for "
            f"{spec.engine.vocab_size - tokenizer.size + len(words)}; use a larger spec or fewer words"
        )
    return tokenizer
