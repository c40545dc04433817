"""Whether a world exists, a new world's vocabulary, and a small world that continues another's training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from ..data.dataset import DatasetFolder
from ..data.records import ClipRecord
from ..data.vocabulary import life_of
from ..game.life import STATS, Stat
from ..model.prompt import GameTokenizer
from ..spec import ModelSpec
from ..weights import World, save_world
from ..weights.adapter_files import adapter_facts
from ..weights.adapters import with_facts
from ..weights.world import EFFORT, EMBEDDED, MANIFEST
from .parts import WorldParts, with_guidance
from .sampling import random_seed

BEGAN_AS = "began as"  # key of the new world's provenance


def world_exists(name: str) -> bool:
    """Whether `open_world` finds something by that name; otherwise a folder will be made."""
    return (EMBEDDED.get(name, Path(name)) / MANIFEST).is_file()


def words_tokenizer(
    turns: Sequence[ClipRecord], spec: ModelSpec, stats: Sequence[Stat] = STATS, words: Sequence[str] = ()
) -> GameTokenizer:
    """A tokenizer of these words, of those in a dataset's captions and instructions, and of its stats' tags.

    ValueError if they are more than the spec's vocabulary.
    """
    from tokenizers.pre_tokenizers import Whitespace

    splitter = Whitespace()
    captioned = [turn for turn in turns if turn.captioned]
    texts = (text.lower() for turn in captioned for text in (turn.caption, turn.instruction))
    words = [*words, *sorted({word for text in texts for word, _ in splitter.pre_tokenize_str(text)})]
    tokenizer = GameTokenizer.from_words(words, spec.state.tokens, stats)
    if tokenizer.size > spec.engine.vocab_size:
        count = len(set(words))
        raise ValueError(
            f"a vocabulary of {count} words is needed, but spec {spec.name!r} has room for "
            f"{spec.engine.vocab_size - tokenizer.size + count}; use a larger spec or fewer words"
        )
    return tokenizer


def extended_world(start: World, dataset: DatasetFolder, out: str | Path, seed: int = 0) -> World:
    """A copy of a small world in a new folder, whose vocabulary has the dataset's words after its own.

    Every weight is the start's; the rows of new words are drawn from the normal distribution of its words' rows. The
    motion table, the stats and the words to propose turns with are the dataset's. Probes are left out: they are the
    start's.
    ValueError if `out` holds a world already, if the start is not a whole small world, or if there are too many words.
    """
    from tokenizers.models import WordLevel

    folder = Path(out)
    if (folder / MANIFEST).is_file():
        raise ValueError(f"{folder} already holds a world; choose another folder (--out)")
    parts = WorldParts.load(start).in_memory().with_spec(with_guidance(start.spec))
    engine, encoder = parts.of("engine"), parts.of("encoder")
    parts.of("decoder")
    if not isinstance(engine.tokenizer.backend.model, WordLevel):
        raise ValueError(f"world {start.spec.name!r} spells any word, so it needs no new ones; train it on the dataset")
    ids = engine.tokenizer.backend.get_vocab(with_added_tokens=True)
    own = [word for word in sorted(ids, key=ids.__getitem__) if not word.startswith("<")]
    tokenizer = words_tokenizer(dataset.turns, start.spec, dataset.stats, own)
    for name, table in {
        "engine": engine.llm.get_input_embeddings(),
        "engine output": engine.llm.get_output_embeddings(),
        "text encoder": encoder.text_tower.get_input_embeddings(),
    }.items():
        _move_rows(table, ids, tokenizer, own, random_seed(seed, name))
    engine.tokenizer, encoder.tokenizer = tokenizer, tokenizer.backend
    provenance = {BEGAN_AS: f"{start.spec.name} ({start.fingerprint[:12]})", "dataset": dataset.path.name}
    licence = f" ({start.licence.rstrip('.')})" if start.licence else ""
    world = save_world(
        folder,
        parts.spec,
        profile=start.profile.name,
        motion_table=dataset.motion_table,
        provenance=provenance | dataset.motion_provenance,
        licence=f"It began with the weights of {start.spec.name}{licence}, and was made to be trained on "
        f"{dataset.path.name}, whose licences apply too.",
        trained_window=start.trained_window,
        life=life_of(dataset),
    )
    return parts.save(world)


def finished_world(made: World, files: Sequence[tuple[Path, float]], out: str | Path, effort: float = 1.0) -> World:
    """A copy of a world in a new folder, whose weights are those of these adapters; none is left to apply.

    effort: the part of their full training that it had; the world states it, and warns its players where it is small.
    """
    parts = WorldParts.load(made).in_memory().with_stage_files(files)
    for path, _ in files:
        made = with_facts(made, adapter_facts(path))
    return parts.save(replace(made, folder=Path(out), provenance={**made.provenance, EFFORT: f"{effort:g}"}))


@torch.no_grad()
def _move_rows(table: nn.Module, ids: dict[str, int], new: GameTokenizer, own: Sequence[str], seed: int) -> None:
    """Give each entry of the new vocabulary the row that it had in the old one, and a new word a random row."""
    before_VH: Tensor = table.weight.clone()
    words_VH = before_VH[[ids[word] for word in own]]
    generator = torch.Generator().manual_seed(seed)
    for index in range(new.size):
        entry = new.backend.id_to_token(index)
        if entry in ids:
            table.weight[index] = before_VH[ids[entry]]
        else:
            table.weight[index] = torch.normal(words_VH.mean(0), words_VH.std(0), generator=generator)
