"""Benchmark games as text, one line a turn: what the player types and what the right answer is.

The lines are those of the paper's constructor (supplement, section 4):
`<S>Characters</S><MD>Motion</MD><EV>Environment</EV><ML>Level</ML><MA>Adverb</MA><SC>0</SC><ET>1</ET><ST>-1</ST>`.
A file has games with a blank line between them. Lines that start with # are comments; `# name: qiqi-01` in a game
names it, other games are game-001 and so on by their place in the file. Names and words must fit in an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..files import is_plain_name
from ..game.life import MOTION, STATS, Values
from ..game.state import Instruction, clean_text
from ..json_files import read_text
from ..messages import quoted
from .captions.replies import LONGEST_WORDS, why_unfit
from .records import first_problems

TAGS = ("S", "MD", "EV", "ML", "MA", *(stat.tag for stat in STATS))  # in this order
NUMBERS = {number.tag: tuple(map(str, sorted(number.choices))) for number in (MOTION, *STATS)}
FORM = "".join(f"<{tag}>...</{tag}>" for tag in TAGS)
_LINE = re.compile("".join(rf"\s*<{tag}>([^<>]*)</{tag}>" for tag in TAGS) + r"\s*")
_NAME = re.compile(r"#\s*name:\s*(.*)")
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
_SHOWN = 60  # characters of a wrong text that a message quotes


class BenchmarkError(ValueError):
    """A benchmark that cannot be played: the file, the line's number, its text and what was expected.

    expected: the expected line, in our own words alone; "" for a whole file.
    """

    def __init__(self, found: str, expected: str = "") -> None:
        super().__init__(f"{found}; expected {expected}" if expected else found)
        self.expected = expected


@dataclass(frozen=True)
class BenchmarkTurn:
    """One turn: who does what where, its motion level (1..5), and how it changes the character stats.

    characters: the main one first. background: '{time} {place}', or the one word of the paper's form.
    """

    characters: tuple[str, ...]
    motion: str
    background: str
    level: int
    adverb: str
    change: Values = field(hash=False)

    @property
    def instruction(self) -> str:
        """What the player types, in the published form."""
        return Instruction(self.characters, self.motion, self.background, self.adverb).checked().text

    @property
    def line(self) -> str:
        """The turn as a line of a benchmark file."""
        values = (
            ", ".join(self.characters),
            self.motion,
            self.background,
            self.level,
            self.adverb,
            *(self.change[stat.name] for stat in STATS),
        )
        return "".join(f"<{tag}>{value}</{tag}>" for tag, value in zip(TAGS, values, strict=True))


@dataclass(frozen=True)
class BenchmarkGame:
    """The turns of one game. Its name is a valid file name, under which results are stored."""

    name: str
    turns: tuple[BenchmarkTurn, ...]


def read_benchmark(path: Path) -> tuple[BenchmarkGame, ...]:
    """The games of a file; BenchmarkError names the file and every wrong line, ValueError one that is no text."""
    return parse_benchmark(read_text(path), str(path))


def parse_benchmark(text: str, source: str = "the benchmark") -> tuple[BenchmarkGame, ...]:
    """The games of a text; BenchmarkError names every wrong line, with `source` before its number."""
    games: dict[str, list[BenchmarkTurn]] = {}
    problems: list[str] = []
    name, game = "", None  # name: for the next game, also with a blank line in between
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        try:
            if not line:
                game = None
            elif match := _NAME.fullmatch(line):
                name = check_game_name(match[1])
            elif not line.startswith("#"):
                turn = parse_turn(line)
                if game is None:
                    own, name = name or f"game-{len(games) + 1:03}", ""
                    if own in games:
                        raise BenchmarkError(f"the name {own} is used by an earlier game; give each game its own")
                    game = games[own] = []
                game.append(turn)
        except BenchmarkError as error:
            problems.append(f"{source}, line {number}: {error}")
    if problems:
        raise BenchmarkError("\n".join(first_problems(problems)))
    if not games:
        raise BenchmarkError(f"{source} has no game; give lines of the form {FORM}")
    return tuple(BenchmarkGame(name, tuple(turns)) for name, turns in games.items())


def parse_turn(line: str) -> BenchmarkTurn:
    """The turn of a line; BenchmarkError says which part is wrong and what was expected."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise BenchmarkError(f"{quoted(line, _SHOWN)} is not a turn", FORM)
    values = dict(zip(TAGS, map(clean_text, match.groups()), strict=True))
    numbers = {tag: _number(tag, values[tag]) for tag in NUMBERS}
    characters = tuple(name.strip() for name in values["S"].split(","))
    for tag, words in (*(("S", name) for name in characters), ("MD", values["MD"]), ("EV", values["EV"])):
        _check_words(tag, words)
    if values["MA"]:
        _check_words("MA", values["MA"])
    if len(set(characters)) < len(characters):
        raise BenchmarkError(f"<S> is {quoted(values['S'], _SHOWN)}", "each character once in <S>")
    change = {stat.name: numbers[stat.tag] for stat in STATS}
    return BenchmarkTurn(characters, values["MD"], values["EV"], numbers["ML"], values["MA"], change)


def benchmark_text(games: Sequence[BenchmarkGame], remarks: Sequence[str] = ()) -> str:
    """The file's text, which `parse_benchmark` reads; the remarks come first, as comments."""
    heads = [f"# {remark}" for remark in remarks]
    blocks = ["\n".join([f"# name: {game.name}", *(turn.line for turn in game.turns)]) for game in games]
    return "\n\n".join(["\n".join(heads), *blocks] if heads else blocks) + "\n"


def check_game_name(name: str) -> str:
    """`name`; BenchmarkError if no game may have it, since its results are in a folder of that name."""
    if not _FILE_NAME.fullmatch(name) or not is_plain_name(name):
        raise BenchmarkError(
            f"{quoted(name, _SHOWN)} is not a valid name for a game; expected at most 60 of a-z, 0-9 "
            "and -, and no device name of Windows such as con"
        )
    return name


def _check_words(tag: str, words: str) -> None:
    if problem := why_unfit(words):
        found = f"<{tag}> is {quoted(words, _SHOWN)}, which {problem}"
        raise BenchmarkError(found, f"1 to {LONGEST_WORDS} letters in <{tag}>, without ; : < >")


def _number(tag: str, value: str) -> int:
    if value not in NUMBERS[tag]:
        raise BenchmarkError(f"<{tag}> is {quoted(value, _SHOWN)}", f"{' or '.join(NUMBERS[tag])} in <{tag}>")
    return int(value)
