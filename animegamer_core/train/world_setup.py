"""The world that a run trains: opened, or made where there is none yet, with the models that a stage needs."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path

from ..checkpoint import World, open_world, save_world
from ..checkpoint.adapter_files import tensor_names
from ..checkpoint.downloads import published_worlds
from ..checkpoint.world import EMBEDDED, MANIFEST
from ..data.dataset import DatasetFolder
from ..data.records import ClipRecord
from ..data.vocabulary import words_of
from ..life import Life
from ..model.prompt import GameTokenizer
from ..spec import ModelSpec, get_spec
from ..state import clean_text
from .job import models_of
from .parts import WorldParts
from .request import TrainRequest
from .stages import STAGES, StageConfig

UNCONDITIONAL = "unconditional_ND"  # of the decoder, zero until a stage trains the encoder together with it


def world_exists(name: str) -> bool:
    """Whether `open_world` finds something by that name; otherwise a folder will be made."""
    folder = EMBEDDED.get(name, Path(name))
    if (folder / MANIFEST).is_file() or published_worlds(folder):
        return True
    return not folder.exists() and folder.name.lower() in published_worlds(folder.parent)


def open_or_make_world(request: TrainRequest, folder: DatasetFolder, report: Callable[[str], object]) -> World:
    """The world to train, made if it does not exist; ValueError if it has another spec than requested, and for a new
    one if another stage has to come first.
    """
    name = request.world
    if name in EMBEDDED and (Path(name) / MANIFEST).is_file():
        raise ValueError(f"{name} is both a built-in world and a folder here; give ./{name}, or rename the folder")
    if world_exists(name):
        world = open_world(name)
        if request.spec and get_spec(request.spec).name != world.spec.name:
            raise ValueError(f"{name} has spec {world.spec.name!r}, not {request.spec!r}; drop --spec")
        return world
    if not request.spec:
        raise ValueError(f"{name} does not exist yet; choose the sizes of a new world with --spec")
    spec = get_spec(request.spec)
    _models_to_create(request.stage, name, ())
    provenance = {"dataset": folder.path.name, **folder.motion_provenance}  # evaluations measure motion in the same way
    life = Life(words=words_of(folder))
    world = save_world(name, spec, motion_table=folder.motion_table, provenance=provenance, life=life)
    report(f"new world {name} (spec {spec.name})")
    return world


def check_writable(request: TrainRequest, world: World) -> None:
    """ValueError for a world that recipe scratch must not write into: published files, and the embedded ones."""
    default = "" if request.recipe else f", the default for spec {world.spec.name!r},"
    remedy = "give --recipe lora or lora24, which write an adapter to play with"
    if not (world.folder / MANIFEST).is_file():
        raise ValueError(
            f"recipe scratch{default} writes into the world, but {request.world} holds published files, which are "
            f"never changed; {remedy}, or `convert` them to a folder of your own"
        )
    if any(place.is_dir() and place.samefile(world.folder) for place in EMBEDDED.values()):
        raise ValueError(
            f"recipe scratch{default} writes into the world, but {request.world} is part of this package, which is "
            f"never changed; {remedy}, or copy {world.folder} to a folder of your own"
        )


def load_or_make_models(world: World, request: TrainRequest, config: StageConfig, folder: DatasetFolder) -> WorldParts:
    """The models that a stage needs: the world's own, and new ones that the stage creates; ValueError names the stage
    that has to come first.
    """
    parts = WorldParts.load(world, models_of(request.stage, config.shots_every > 0)).in_memory()
    missing = _models_to_create(request.stage, request.world, parts.models)
    if STAGES[request.stage].reads_representations and not _represents_shots(world, request.start):
        raise ValueError(
            f"stage {request.stage} reads representations, but the encoder of {request.world} has not learned to make "
            "them yet; train stage joint first"
        )
    if not missing:
        return parts
    tokenizer = world.tokenizer() if world.has("engine") else words_tokenizer(folder.turns, world.spec)
    return replace(parts, **WorldParts.new(world.spec, tokenizer, world.profile, config.seed, missing).models)


def _models_to_create(stage: str, world: str, there: Container[str]) -> tuple[str, ...]:
    """The models that a small world lacks and the stage creates; ValueError where another stage has to come first."""
    missing = tuple(name for name in STAGES[stage].needs if name not in there)
    for name in missing:
        if name not in STAGES[stage].makes:
            first = next(other for other, facts in STAGES.items() if name in facts.makes)
            raise ValueError(f"{world} has no {name} yet, which stage {stage} needs; train stage {first} first")
    return missing


def _represents_shots(world: World, start: Sequence[Path]) -> bool:
    """Whether a stage trained the encoder together with the decoder, which then has its unconditional state."""
    if any(f"decoder.{UNCONDITIONAL}" in tensor_names(path) for path in start):
        return True
    return world.has("decoder") and bool(world.storage.source("decoder").tensor(UNCONDITIONAL).any())


def words_tokenizer(turns: Sequence[ClipRecord], spec: ModelSpec) -> GameTokenizer:
    """A tokenizer of all words in a dataset's instructions; ValueError if they are more than the spec's vocabulary."""
    return small_tokenizer(dataset_words(turns), spec)


def dataset_words(turns: Sequence[ClipRecord]) -> list[str]:
    """The lower-case words of captions and instructions, sorted."""
    from tokenizers.pre_tokenizers import Whitespace

    splitter = Whitespace()
    captioned = [turn for turn in turns if turn.captioned]
    texts = (clean_text(text).lower() for turn in captioned for text in (turn.caption, turn.instruction))
    return sorted({word for text in texts for word, _ in splitter.pre_tokenize_str(text)})


def small_tokenizer(words: Sequence[str], spec: ModelSpec) -> GameTokenizer:
    """A tokenizer of these words; ValueError if they are more than the spec's vocabulary."""
    tokenizer = GameTokenizer.from_words(words, spec.state.tokens)
    if tokenizer.size > spec.engine.vocab_size:
        count = len(set(words))
        raise ValueError(
            f"a vocabulary of {count} words is needed, but spec {spec.name!r} has room for "
            f"{spec.engine.vocab_size - tokenizer.size + count}; use a larger spec or fewer words"
        )
    return tokenizer
