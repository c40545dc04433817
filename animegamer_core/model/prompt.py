"""The engine's prompt, its tokenizer, and the grammar of its reply.

Training and play use the same builder, which also returns the positions of the slots. A turn reads

    <TURN> instruction <img> <frame> slot 0 .. slot N-1 </frame> </img>
    <ML> m </ML> <SC> s </SC> <ET> e </ET> <ST> t </ST> </TURN>

The next turn stops at `<ML>`; its slots are the queries that become the predicted representation (docs/reference.md,
prompt). For the paper's <MS>, <VS> and <ANIME i>, the released files have <ML>, <img> and <frame_i>.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..game.life import MOTION, STATS, Number, Stat
from ..game.state import MOST_TOKENS, check_length
from ..json_files import read_json
from ..messages import shortened
from ..spec import Profile

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

Levels = tuple[int, ...]  # the numbers of one turn: its motion level, then the change of each stat

RELEASE_SLOTS = 256  # slot tokens of the released vocabulary, of which 226 are used
STRENGTHS = range(-5, 6)
RELEASE_BASE = 32000  # entries of Mistral-7B-Instruct-v0.1's own vocabulary


@dataclass(frozen=True)
class TurnPrompt:
    """Token ids of one prompt and its slots; all (L,).

    ids_L: int64. past_L: bool, the slots of earlier representations, oldest turn first. query_L: bool, the N slots of
    the next representation.
    """

    ids_L: Tensor
    past_L: Tensor
    query_L: Tensor

    def followed_by(self, ids: Sequence[int]) -> TurnPrompt:
        """The prompt with more tokens, none of them a slot."""
        import torch

        more = torch.tensor(list(ids), dtype=self.ids_L.dtype)
        none = torch.zeros(len(more), dtype=torch.bool)
        return TurnPrompt(
            torch.cat([self.ids_L, more]), torch.cat([self.past_L, none]), torch.cat([self.query_L, none])
        )


class GameTokenizer:
    """A `tokenizers` model with the game's tags in its vocabulary; ValueError if one is missing.

    User text never encodes to a tag. stats: those of the world, whose tags stand in each turn.
    """

    def __init__(self, tokenizer: Tokenizer, stats: Sequence[Stat] = STATS) -> None:
        self.backend = tokenizer
        self.numbers: tuple[Number, ...] = (MOTION, *stats)
        missing = [name for name in tag_tokens(0, stats) if tokenizer.token_to_id(name) is None]
        if missing:
            raise ValueError(
                f"this tokenizer has no token {missing[0]!r}; a world's stats are those of the dataset that it was "
                "trained on (docs/playing.md), so take the row out of its world.json, or train a world with it"
            )

    @classmethod
    def from_file(cls, path: str | Path, stats: Sequence[Stat] = STATS) -> GameTokenizer:
        """Read a world's `tokenizer.json`; ValueError if the file is missing or damaged."""
        return cls(read_tokenizer(Path(path)), stats)

    @classmethod
    def from_mistral(cls, folder: str | Path, entries: int = RELEASE_BASE) -> GameTokenizer:
        """A Mistral's tokenizer of so many entries, with the 284 released tokens after them.

        Reads `tokenizer.json`, or `tokenizer.model` if sentencepiece and protobuf are installed. As in the released
        code, no space piece comes before the first word of a segment (transformers' legacy=False). ValueError if the
        folder has no such tokenizer.
        """
        from tokenizers import AddedToken

        tokenizer = _read_mistral(Path(folder))
        names = tag_tokens(RELEASE_SLOTS)
        plain = [name for name in names if name.startswith(("<frame_", "<Strength_"))]
        tokenizer.add_tokens([AddedToken(name, normalized=name in plain, special=name not in plain) for name in names])
        for offset, name in enumerate(names):
            if tokenizer.token_to_id(name) != entries + offset:
                raise ValueError(
                    f"{folder}: token {name} has id {tokenizer.token_to_id(name)}, expected {entries + offset}; use "
                    f"the tokenizer of {entries} entries that belongs to these weights"
                )
        return cls(tokenizer)

    @classmethod
    def from_words(cls, words: Iterable[str], slots: int, stats: Sequence[Stat] = STATS) -> GameTokenizer:
        """A small world's tokenizer: one entry per lower-case word; any other word becomes `<unk>`."""
        from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

        entries = ["<unk>", "<s>", "</s>", *dict.fromkeys(word.lower() for word in words)]
        vocabulary = {word: index for index, word in enumerate(entries)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        special = [AddedToken(name, normalized=False, special=True) for name in ("<unk>", "<s>", "</s>")]
        tokenizer.add_special_tokens(special)
        tokenizer.add_tokens([AddedToken(name, normalized=False, special=True) for name in tag_tokens(slots, stats)])
        return cls(tokenizer, stats)

    @property
    def size(self) -> int:
        """The number of entries, tags included."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    def to_str(self, pretty: bool = False) -> str:
        """The content of `tokenizer.json`. pretty: with line breaks, as the library itself writes the file."""
        return self.backend.to_str(pretty=pretty)

    def token(self, name: str) -> int:
        """The id of a tag such as `<ML>`."""
        return self.backend.token_to_id(name)

    def strength(self, value: int) -> int:
        """The id of the number `value`, -5..5."""
        return self.token(f"<Strength_{value}>")

    def strength_of(self, index: int) -> int | None:
        """The number of token `index`; None for any other token."""
        name = self.backend.id_to_token(index) or ""
        return int(name[10:-1]) if name.startswith("<Strength_") else None

    def slots(self, count: int) -> list[int]:
        """The ids of the first `count` representation slots."""
        return [self.token(f"<frame_{index:05d}>") for index in range(count)]

    def encode_text(self, text: str) -> list[int]:
        """The ids of an instruction, which was cleaned where it entered the game, so that it cannot contain a tag."""
        assert "<" not in text, f"not cleaned: {text!r}"
        # After a tag, no tokenizer puts a space piece before the first word.
        return self.backend.encode("<TURN>" + text, add_special_tokens=False).ids[1:]

    def decode_with_tags(self, ids: Sequence[int]) -> str:
        """Token ids as text with one space between tags, as the released parser expects."""
        names = {index: self.backend.id_to_token(index) or "<unk>" for index in ids}  # a spec may have spare ids

        def is_tag(index: int) -> bool:
            return names[index].startswith("<") and names[index].endswith(">")

        words: list[str] = []
        for tags, run in groupby(ids, key=is_tag):
            piece = list(run)
            words += [names[index] for index in piece] if tags else [self.backend.decode(piece)]
        return " ".join(words)

    def unknown_words(self, text: str) -> tuple[str, ...]:
        """The words that the world was not trained with, in order; none if the vocabulary can spell any word."""
        return unknown_words(self.backend, text)


def unknown_words(tokenizer: Tokenizer, text: str) -> tuple[str, ...]:
    """Like `GameTokenizer.unknown_words`, for any tokenizer, even without the game's tags."""
    unknown = tokenizer.token_to_id("<unk>")
    encoding = tokenizer.encode(text, add_special_tokens=False)
    spans = [span for index, span in zip(encoding.ids, encoding.offsets, strict=True) if index == unknown]
    words = dict.fromkeys(text[start:end] for start, end in spans)
    return tuple(word for word in words if any(char.isalnum() for char in word))


def tag_tokens(slots: int, stats: Sequence[Stat] = STATS) -> tuple[str, ...]:
    """All added tokens in the released order (with 256 slots: ids 32000..32283; docs/reference.md, tokenizer)."""
    media = ("<img>", "</img>", "<vid>", "</vid>", "<frame>", "</frame>")
    states = [tag for number in (MOTION, *stats) for tag in (number.opening, number.closing)]
    return (
        *(f"<frame_{index:05d}>" for index in range(slots)),
        *media,
        *(f"<Strength_{value}>" for value in STRENGTHS),
        "<visual>",
        *states,
        "<TURN>",
        "</TURN>",
    )


def build_prompt(
    tokenizer: GameTokenizer,
    slots: int,
    past: Sequence[tuple[str, Levels]],
    instruction: str,
    profile: Profile,
) -> TurnPrompt:
    """The prompt of the next turn. past: (instruction, levels) of the turns in the window, oldest first.

    ValueError for an instruction of too many tokens.
    """
    import torch

    ids, past_mask, query_mask = [tokenizer.token("<s>")], [False], [False]

    def extend(new: list[int], *, slot_of: list[bool] | None = None) -> None:
        ids.extend(new)
        for mask in (past_mask, query_mask):
            mask.extend([mask is slot_of] * len(new))

    def scene(text: str, slot_of: list[bool]) -> None:
        words = tokenizer.encode_text(text)
        if len(words) > MOST_TOKENS:
            check_length(text, len(words))
        extend([tokenizer.token("<TURN>"), *words])
        extend([tokenizer.token("<img>"), tokenizer.token("<frame>")])
        extend(tokenizer.slots(slots), slot_of=slot_of)
        extend([tokenizer.token("</frame>"), tokenizer.token("</img>")])

    for text, levels in past:
        scene(text, past_mask)
        extend(state_block(tokenizer, levels if profile.history_states else (0,) * len(levels), profile))
    scene(instruction, query_mask)
    extend([tokenizer.token("<ML>")])
    return TurnPrompt(torch.tensor(ids), torch.tensor(past_mask), torch.tensor(query_mask))


def state_block(tokenizer: GameTokenizer, levels: Levels, profile: Profile) -> list[int]:
    """The ids of a turn's state from `<ML>` to `</TURN>`, for past turns and for the answer in training."""
    ids = []
    for number, value in zip(tokenizer.numbers, levels, strict=True):
        ids += [tokenizer.token(number.opening), tokenizer.strength(value), tokenizer.token(number.closing)]
    if profile.doubled_stamina_end:
        ids.append(ids[-1])
    return [*ids, tokenizer.token("</TURN>")]


def parse_reply(text: str, count: int = 1 + len(STATS)) -> Levels:
    """The levels of a free reply, as the released scripts parse it: fields 0, 3, 6 and 9; zeros if one is unreadable.

    Only profile `as_run` uses it; the others choose among valid numbers (docs/reference.md, replies).
    """
    fields = text.split(" ")
    try:
        return tuple(int(fields[3 * index][10:-1]) for index in range(count))
    except (IndexError, ValueError):
        return (0,) * count


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a `tokenizers` model from a JSON file, without what is not used here: truncation, padding, post-processor.

    ValueError if the file is damaged or something else.
    """
    from tokenizers import Tokenizer

    try:
        unused = dict.fromkeys(("truncation", "padding", "post_processor"))
        content = {**read_json(path, dict[str, Any]), **unused}
        return Tokenizer.from_buffer(msgspec.json.encode(content))  # from_file raises a bare Exception
    except ValueError as error:
        why = shortened(str(error).removeprefix(f"{path}: ").rpartition("buffer: ")[2])
        raise ValueError(f"{path}: not a complete tokenizer file ({why}); convert or download it again") from error


def _read_mistral(folder: Path) -> Tokenizer:
    from tokenizers import pre_tokenizers

    if (folder / "tokenizer.json").is_file():
        tokenizer = read_tokenizer(folder / "tokenizer.json")
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=False)
        return tokenizer
    if not (folder / "tokenizer.model").is_file():
        raise ValueError(f"{folder} has neither tokenizer.json nor tokenizer.model of Mistral-7B-Instruct-v0.1")
    return read_pieces(folder, "LlamaTokenizerFast", legacy=False)


def read_pieces(folder: Path, kind: str, **options: Any) -> Tokenizer:
    """The tokenizer of a folder with sentencepiece's file alone. kind: its class in transformers."""
    import transformers

    try:
        found = getattr(transformers, kind).from_pretrained(str(folder), local_files_only=True, **options)
        return found.backend_tokenizer
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"the tokenizer in {folder} cannot be read ({shortened(error)}); run `pip install sentencepiece protobuf`, "
            "or add tokenizer.json from the same download"
        ) from error
