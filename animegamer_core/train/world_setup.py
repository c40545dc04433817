"""The world that a run trains: opened, or made where there is none yet, with the models that a stage needs."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ..checkpoint import World, open_world, save_world
from ..checkpoint.adapter_files import tensor_names
from ..checkpoint.world import EMBEDDED, MANIFEST
from ..data.dataset import DatasetFolder
from ..data.records import ClipRecord
from ..data.vocabulary import words_of
from ..life import Life
from ..model.prompt import GameTokenizer
from ..spec import ModelSpec, get_spec
from ..state import clean_text
from .parts import WorldParts, with_guidance
from .request import TrainRequest
from .sampling import random_seed
from .stages import STAGES, StageConfig, models_of

UNCONDITIONAL = "unconditional_ND"  # of the decoder, zero until a stage trains the encoder together with it


def world_exists(name: str) -> bool:
    """Whether `open_world` finds something by that name; otherwise a folder will be made."""
    folder = EMBEDDED.get(name, Path(name))
    return (folder / MANIFEST).is_file()


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
    """ValueError for a world that recipe scratch must not write into: the embedded ones."""
    default = "" if request.recipe else f", the default for spec {world.spec.name!r},"
    remedy = "give --recipe lora or lora24, which write an adapter to play with"
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


BEGAN_AS = "began as"  # key of the new world's provenance


def extended_world(start: World, dataset: DatasetFolder, out: str | Path, seed: int = 0) -> World:
    """A copy of a small world in a new folder, whose vocabulary has the dataset's words after its own.

    Every weight is the start's; the rows of new words are drawn from the normal distribution of its words' rows. The
    motion table and the words to propose turns with are the dataset's. Probes, scoring models and the rules of the
    stats are left out: they are the start's.
    ValueError if `out` holds a world already, if the start is not a whole small world, or if there are too many words.
    """
    folder = Path(out)
    if (folder / MANIFEST).is_file():
        raise ValueError(f"{folder} already holds a world; choose another folder (--out)")
    parts = WorldParts.load(start).in_memory().with_spec(with_guidance(start.spec))
    engine, encoder = parts.of("engine"), parts.of("encoder")
    parts.of("decoder")
    old = engine.tokenizer
    own = _words(old)
    if not own:
        raise ValueError(f"world {start.spec.name!r} spells any word, so it needs no new ones; train it on the dataset")
    tokenizer = small_tokenizer([*own, *dataset_words(dataset.turns)], start.spec)
    for name, table in {
        "engine": engine.llm.get_input_embeddings(),
        "engine output": engine.llm.get_output_embeddings(),
        "text encoder": encoder.text_tower.get_input_embeddings(),
    }.items():
        _move_rows(table, old, tokenizer, own, random_seed(seed, name))
    engine.tokenizer, encoder.tokenizer = tokenizer, tokenizer.backend
    provenance = {BEGAN_AS: f"{start.spec.name} ({start.fingerprint[:12]})", "dataset": dataset.path.name}
    world = save_world(
        folder,
        parts.spec,
        profile=start.profile.name,
        motion_table=dataset.motion_table,
        provenance=provenance | dataset.motion_provenance,
        licence=_licence(start, dataset),
        trained_window=start.trained_window,
        life=Life(words=words_of(dataset)),
    )
    return parts.save(world)


def _licence(start: World, dataset: DatasetFolder) -> str:
    """The notice of a world that continues another's training on a dataset."""
    began = f"It began with the weights of {start.spec.name}"
    own = f" ({start.licence.rstrip('.')})" if start.licence else ""
    return f"{began}{own}, and was made to be trained on {dataset.path.name}, whose licences apply too."


def _words(tokenizer: GameTokenizer) -> list[str]:
    """The words of a word-level vocabulary in the order of their ids; empty for any other tokenizer."""
    from tokenizers.models import WordLevel

    if not isinstance(tokenizer.backend.model, WordLevel):
        return []
    entries = tokenizer.backend.get_vocab(with_added_tokens=True)
    return [word for word in sorted(entries, key=entries.__getitem__) if not word.startswith("<")]


@torch.no_grad()
def _move_rows(table: nn.Module, old: GameTokenizer, new: GameTokenizer, own: list[str], seed: int) -> None:
    """Give each entry of the new vocabulary the row that it had in the old one, and a new word a random row."""
    before_VH: Tensor = table.weight.clone()
    ids = old.backend.get_vocab(with_added_tokens=True)
    words_VH = before_VH[[ids[word] for word in own]]
    generator = torch.Generator().manual_seed(seed)
    for index in range(new.size):
        entry = new.backend.id_to_token(index)
        if entry in ids:
            table.weight[index] = before_VH[ids[entry]]
        else:
            table.weight[index] = torch.normal(words_VH.mean(0), words_VH.std(0), generator=generator)
