"""The sheet that a rater fills in: one line for each game and criterion, one column for each agent; rank 1 is best.

It is written with commas, and read with commas, semicolons or tabs, since spreadsheet programs save it differently.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...messages import quoted

LETTERS = "ABCD"
FIXED = ("sheet", "game", "character", "criterion")  # columns before the agents'
CRITERIA: dict[str, tuple[str, str]] = {  # key -> its name and the question to raters
    "overall": ("Overall", "Which game would you rather play?"),
    "instruction": ("Instruction following", "Whose shots show best what each turn asks for?"),
    "context": ("Context consistency", "Whose places, things and story fit together best from turn to turn?"),
    "character": ("Character consistency", "Whose characters look most like themselves all along?"),
}
LARGEST_SHEET = 2**20  # bytes
SHOWN_PROBLEMS = 20
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of formulas in spreadsheet programs
_DELIMITERS = (",", ";", "\t")
_SHOWN = 60  # characters of a cell in an error

Ranks = dict[tuple[int, str], tuple[int, ...]]  # (game 1.., criterion) -> the rank of each letter


@dataclass(frozen=True)
class RatingSheet:
    """An empty sheet.

    name: unique among all studies. characters: the games' main characters, in the rater's order. agents: their number,
    2 to 4.
    """

    name: str
    characters: tuple[str, ...]
    agents: int

    @property
    def letters(self) -> str:
        """The agents' letters."""
        return LETTERS[: self.agents]

    @property
    def columns(self) -> list[str]:
        """The cells of the first line."""
        return [*FIXED, *self.letters]

    @property
    def keys(self) -> list[tuple[int, str]]:
        """(game 1.., criterion) of every line."""
        return [(number, key) for number in range(1, len(self.characters) + 1) for key in CRITERIA]

    @property
    def rows(self) -> list[list[str]]:
        """The fixed cells of every line, escaped so that spreadsheet programs do not take them for formulas."""
        return [
            [harmless(cell) for cell in (self.name, f"Game {number}", self.characters[number - 1], CRITERIA[key][0])]
            for number, key in self.keys
        ]

    def text(self, ranks: Mapping[tuple[int, str], Sequence[int]] | None = None) -> str:
        """The sheet as CSV, filled in with these ranks if there are any."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(self.columns)
        for key, row in zip(self.keys, self.rows, strict=True):
            writer.writerow([*row, *((ranks or {}).get(key) or [""] * self.agents)])
        return file.getvalue()


def harmless(cell: str) -> str:
    """The cell with an apostrophe in front if a spreadsheet program could take it for a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def read_sheet(path: Path, sheets: Mapping[str, RatingSheet]) -> tuple[str, Ranks]:
    """Read the (name, ranks) of a filled-in sheet; ValueError lists everything that is wrong, by file, line and cell.

    Every game and criterion must occur once, with different ranks 1 to N; ties are refused, since the paper's scores
    have none. The column of characters is for people and is not checked.
    """
    lines, head = _read_csv(path)
    names = sorted({cells[0] for _, cells in lines if cells})
    if len(names) != 1 or names[0] not in sheets:
        shown = ", ".join(quoted(name, _SHOWN) for name in names[:3]) or "nothing"
        raise ValueError(f"{path}, column sheet: found {shown}; expected the name of one sheet of this study")
    sheet = sheets[names[0]]
    if head != sheet.columns:
        raise ValueError(f"{path}, line 1: expected the columns {', '.join(sheet.columns)}")
    key_of = {(f"Game {number}", CRITERIA[key][0]): (number, key) for number, key in sheet.keys}
    ranks: Ranks = {}
    problems: list[str] = []
    for line, cells in lines:
        where = f"{path}, line {line}"
        if len(cells) != len(head):
            problems.append(f"{where}: {len(cells)} cells; expected {len(head)}")
            continue
        key = key_of.get((cells[1], cells[3]))
        if key is None or key in ranks:
            what = f"{quoted(cells[1], _SHOWN)}, {quoted(cells[3], _SHOWN)}"
            problems.append(
                f"{where}, game and criterion: {what} {'is there twice' if key else 'is not in this sheet'}"
            )
            continue
        wrong = [f"{where}, column {letter}: {why}" for letter, why in _wrong_ranks(cells[len(FIXED) :], sheet.letters)]
        problems += wrong
        ranks[key] = () if wrong else tuple(map(int, cells[len(FIXED) :]))
    problems += [f"{path}: no line for {game}, {name}" for (game, name), key in key_of.items() if key not in ranks]
    check(problems)
    return sheet.name, ranks


def check(problems: Sequence[str]) -> None:
    """ValueError with the first problems, one per line, if there are any."""
    if problems:
        more = [f"... and {len(problems) - SHOWN_PROBLEMS} more"] if len(problems) > SHOWN_PROBLEMS else []
        raise ValueError("\n".join([*problems[:SHOWN_PROBLEMS], *more]))


def _wrong_ranks(cells: Sequence[str], letters: str) -> Iterator[tuple[str, str]]:
    """Yield (letter, what is wrong) for each invalid rank in a line."""
    allowed = [str(rank) for rank in range(1, len(letters) + 1)]
    for number, (letter, cell) in enumerate(zip(letters, cells, strict=True)):
        if not cell:
            yield letter, f"the rank is missing; expected one of {', '.join(allowed)}"
        elif cell not in allowed:
            yield letter, f"{quoted(cell, _SHOWN)} is not a rank; expected one of {', '.join(allowed)}"
        elif cell in cells[:number]:
            yield letter, f"rank {cell} is already in column {letters[cells.index(cell)]}; ties are not allowed"


def _read_csv(path: Path) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """(line number, cells) of all lines with content, and the cells of the first line."""
    data = path.read_bytes()
    if len(data) > LARGEST_SHEET:
        raise ValueError(f"{path} has {len(data)} bytes; a rating sheet has a few thousand, so choose the right file")
    text = data.decode("utf-8-sig", errors="replace")  # ranks and fixed cells are ASCII in any encoding
    first = text.split("\n", 1)[0].strip().replace('"', "")  # some programs put every text in quotes
    delimiter = next((mark for mark in _DELIMITERS if first.startswith(f"sheet{mark}")), None)
    if delimiter is None:
        raise ValueError(f"{path}, line 1: expected the columns {', '.join(FIXED)} and the letters of the agents")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    lines = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                lines.append((reader.line_num, cells))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not a line of CSV ({error})") from error
    return lines[1:], lines[0][1]
