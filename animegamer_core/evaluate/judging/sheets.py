"""The sheet that a rater fills in: one line a game and criterion, one column an agent, ranks from 1 for the best.

Written with commas; read with commas, semicolons or tabs, as a spreadsheet program saves it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LETTERS = "ABCD"
FIXED = ("sheet", "game", "character", "criterion")  # columns before the agents'
CRITERIA: dict[str, tuple[str, str]] = {  # key -> its name and what raters are asked
    "overall": ("Overall", "Which game would you rather play?"),
    "instruction": ("Instruction following", "Whose shots show best what each turn asks for?"),
    "context": ("Context consistency", "Whose places, things and story fit together best from turn to turn?"),
    "character": ("Character consistency", "Whose characters look most like themselves all along?"),
}
LARGEST_SHEET = 2**20  # bytes
SHOWN_PROBLEMS = 20
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # begin a formula in a spreadsheet program
_DELIMITERS = (",", ";", "\t")
_SHOWN = 60  # characters of a cell that a message quotes

Ranks = dict[tuple[int, str], tuple[int, ...]]  # (game 1.., criterion) -> the rank of each letter


@dataclass(frozen=True)
class Blank:
    """An empty sheet. sheet: the name that tells it from every other. characters: of the games, in the rater's order.

    agents: how many, 2 to 4.
    """

    sheet: str
    characters: tuple[str, ...]
    agents: int

    @property
    def letters(self) -> str:
        """The agents as the rater knows them."""
        return LETTERS[: self.agents]

    @property
    def rows(self) -> list[list[str]]:
        """The fixed cells of every line, none of which a spreadsheet program would compute."""
        return [
            [harmless(cell) for cell in (self.sheet, f"Game {number}", character, name)]
            for number, character in enumerate(self.characters, start=1)
            for name, _ in CRITERIA.values()
        ]

    def text(self, ranks: Mapping[tuple[int, str], Sequence[int]] | None = None) -> str:
        """The sheet as CSV, filled in with ranks where there are some."""
        keys = [(number, key) for number in range(1, len(self.characters) + 1) for key in CRITERIA]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow([*FIXED, *self.letters])
        for key, row in zip(keys, self.rows, strict=True):
            writer.writerow([*row, *((ranks or {}).get(key) or [""] * self.agents)])
        return file.getvalue()


def harmless(cell: str) -> str:
    """A cell that no spreadsheet program takes for a formula: what could begin one gets an apostrophe before it."""
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def read_sheet(path: Path, blanks: Mapping[str, Blank]) -> tuple[str, Ranks]:
    """(the sheet's name, its ranks) of a filled-in sheet; ValueError names file, line and cell of all that is wrong.

    Every game and criterion must be there once, with ranks 1 to N that are all different: ties are refused, since the
    scores of the paper know none. The characters' column is for people and not read.
    """
    rows, head = _table(path)
    named = sorted({row[0].strip() for _, row in rows if row})
    if len(named) != 1 or named[0] not in blanks:
        shown = ", ".join(ascii(name[:_SHOWN]) for name in named[:3]) or "nothing"
        raise ValueError(f"{path}, column sheet: it says {shown}; expected the name of one sheet of this study")
    blank = blanks[named[0]]
    if head != [*FIXED, *blank.letters]:
        raise ValueError(f"{path}, line 1: expected the columns {', '.join([*FIXED, *blank.letters])}")
    places = {(f"Game {number}", name): (number, key) for number, key, name in _places(blank)}
    ranks: Ranks = {}
    problems: list[str] = []
    for line, row in rows:
        where = f"{path}, line {line}"
        cells = [cell.strip() for cell in row]
        if len(cells) != len(head):
            problems.append(f"{where}: {len(cells)} cells; expected {len(head)}")
            continue
        place = places.get((cells[1], cells[3]))
        if place is None or place in ranks:
            what = f"{ascii(cells[1][:_SHOWN])}, {ascii(cells[3][:_SHOWN])}"
            problems.append(
                f"{where}, game and criterion: {what} {'stands twice' if place else 'is not of this sheet'}"
            )
            continue
        found = list(_wrong(cells[len(FIXED) :], blank.letters))
        problems += [f"{where}, column {letter}: {why}" for letter, why in found]
        ranks[place] = () if found else tuple(map(int, cells[len(FIXED) :]))
    lacking = [f"{game}, {name}" for (game, name), place in places.items() if place not in ranks]
    problems += [f"{path}: no line for {what}" for what in lacking]
    if problems:
        more = [f"... and {len(problems) - SHOWN_PROBLEMS} more"] if len(problems) > SHOWN_PROBLEMS else []
        raise ValueError("\n".join(problems[:SHOWN_PROBLEMS] + more))
    return blank.sheet, ranks


def _places(blank: Blank) -> list[tuple[int, str, str]]:
    return [(n, key, name) for n in range(1, len(blank.characters) + 1) for key, (name, _) in CRITERIA.items()]


def _wrong(cells: Sequence[str], letters: str) -> list[tuple[str, str]]:
    """(letter, what is wrong) of the rank cells that cannot be."""
    allowed = [str(rank) for rank in range(1, len(letters) + 1)]
    found = []
    for number, (letter, cell) in enumerate(zip(letters, cells, strict=True)):
        if not cell:
            found.append((letter, f"the rank is missing; expected one of {', '.join(allowed)}"))
        elif cell not in allowed:
            found.append((letter, f"{ascii(cell[:_SHOWN])} is no rank; expected one of {', '.join(allowed)}"))
        elif cell in cells[:number]:
            first = letters[cells.index(cell)]
            found.append((letter, f"rank {cell} stands in column {first} already; ties are not asked for"))
    return found


def _table(path: Path) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """(line number, cells) of all lines that are not empty, and the first line's cells."""
    data = path.read_bytes()
    if len(data) > LARGEST_SHEET:
        raise ValueError(f"{path} has {len(data)} bytes; a sheet has a few thousand")
    text = data.decode("utf-8-sig", errors="replace")  # ranks and fixed cells are plain letters in any encoding
    first = text.split("\n", 1)[0].strip().replace('"', "")  # some programs put every text in quotation marks
    delimiter = next((mark for mark in _DELIMITERS if first.startswith(f"sheet{mark}")), None)
    if delimiter is None:
        raise ValueError(f"{path}, line 1: expected the columns {', '.join(FIXED)} and the letters of the agents")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((reader.line_num, row))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not a line of CSV ({error})") from error
    return rows[1:], [cell.strip() for cell in rows[0][1]]
