"""A study with people: for each rater a folder with a page of clips side by side, and a sheet to fill in.

Agents are shown as A, B, C, D in an order that is shuffled for every rater and game; key.json says who is who, and is
not for raters. A rater's folder needs no other file, no server and no network.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...files import PART, replacing, write_text
from ...page import write_page
from ...state import CharacterState
from ..table.records import GameRecord
from .agreement import shown_order
from .runs import Contest, as_json
from .sheets import CRITERIA, FIXED, LETTERS, Blank

KEY, SHEET, PAGE, CLIPS = "key.json", "sheet.csv", "index.html", "clips"
FORMAT = 1
MOST_RATERS = 500
UNDATED = 946_684_800  # 2000: dates of clips would tell which of them were played together
_PARTS = Path(__file__).with_name("raters_page")
_KEEP = "This says which agent is which. Keep it from the raters until all sheets are back."

OnRater = Callable[[int, int], None]  # (folders written, of how many)


@dataclass(frozen=True)
class Study:
    """Who rates what. name: study-<8 hex digits>. agents: their names. characters: game -> its main character.

    games: rater -> the games in the order of that rater. orders: rater -> game -> which agent (0, 1, ...) is A, B ...
    """

    name: str
    agents: tuple[str, ...]
    characters: Mapping[str, str]
    games: Mapping[str, tuple[str, ...]]
    orders: Mapping[str, Mapping[str, tuple[int, ...]]]

    def blank(self, rater: str) -> Blank:
        """A rater's empty sheet."""
        shown = tuple(self.characters[game] for game in self.games[rater])
        return Blank(f"{self.name}-{rater}", shown, len(self.agents))

    @property
    def raters(self) -> tuple[str, ...]:
        """rater-01, rater-02 and so on."""
        return tuple(self.games)


def plan_study(contest: Contest, raters: int, games: int, seed: int) -> Study:
    """A study of some of the games that all runs have, the same for all raters; ValueError for numbers out of range."""
    if not 2 <= len(contest.agents) <= len(LETTERS):
        raise ValueError(
            f"{len(contest.agents)} runs; people rank 2 to {len(LETTERS)} of them, as the paper's scale does"
        )
    if not 1 <= raters <= MOST_RATERS:
        raise ValueError(f"raters is {raters}; expected 1 to {MOST_RATERS}")
    if not 1 <= games <= len(contest.games):
        raise ValueError(f"games is {games}; the runs have {len(contest.games)} finished games in common")
    chosen = random.Random(f"raters/{seed}").sample(contest.games, games)
    names = [f"rater-{number:02}" for number in range(1, raters + 1)]
    order_of = {name: tuple(random.Random(f"raters/{seed}/{name}").sample(chosen, games)) for name in names}
    orders = {
        name: {game: shown_order(f"raters/{seed}/{game}", number, len(contest.agents)) for game in chosen}
        for number, name in enumerate(names)
    }
    characters = {game: contest.record(0, game).character for game in chosen}
    asked = json.dumps([seed, contest.agents, sorted(chosen), raters, [dict(run.asked) for run in contest.runs]])
    digest = hashlib.sha256(asked.encode()).hexdigest()[:8]
    return Study(f"study-{digest}", contest.agents, characters, order_of, orders)


def write_study(study: Study, contest: Contest, out: Path, on_rater: OnRater | None = None) -> list[Path]:
    """Write the key and every rater's folder; returns the pages. The same call again brings the folder up to date.

    ValueError: the folder holds another study, or other files.
    """
    _claim(study, out)
    pages: list[Path] = []
    copies: dict[Path, Path] = {}
    for number, rater in enumerate(study.raters, start=1):
        pages.append(_write_rater(study, contest, out / rater, rater, copies))
        if on_rater is not None:
            on_rater(number, len(study.raters))
    return pages


def read_key(out: Path) -> Study:
    """The study in a folder; ValueError where there is none."""
    path = out / KEY
    if not path.is_file():
        raise ValueError(f"{out}: no study here (no {KEY}); give the --out of `evaluate raters`")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']!r}, this program reads {FORMAT}")
        study = Study(
            name=str(values["study"]),
            agents=tuple(map(str, values["agents"])),
            characters=dict(values["characters"]),
            games={rater: tuple(row["games"]) for rater, row in values["raters"].items()},
            orders={
                rater: {game: tuple(map(int, order)) for game, order in row["orders"].items()}
                for rater, row in values["raters"].items()
            },
        )
        everybody = list(range(len(study.agents)))
        for rater, games in study.games.items():
            if sorted(games) != sorted(study.characters) or len(set(games)) < len(games):
                raise ValueError(f"the games of {rater} are others")
            if any(sorted(study.orders[rater][game]) != everybody for game in games):
                raise ValueError(f"the orders of {rater} are none")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: not a study's key ({str(error)[:200]}); write the study anew") from error
    return study


def _claim(study: Study, out: Path) -> None:
    """Write the key into a folder that is empty or holds this study."""
    if (out / KEY).is_file():
        if (known := read_key(out).name) != study.name:
            raise ValueError(f"{out} holds {known}, which is another study; choose a new folder")
    elif out.is_dir() and any(not path.name.startswith(PART) for path in out.iterdir()):
        raise ValueError(f"{out} holds other files and no {KEY}; choose a new folder")
    raters = {
        rater: {"sheet": study.blank(rater).sheet, "games": study.games[rater], "orders": dict(study.orders[rater])}
        for rater in study.raters
    }
    values: dict[str, Any] = {"note": _KEEP, "format": FORMAT, "study": study.name, "agents": study.agents}
    write_text(out / KEY, as_json({**values, "characters": dict(study.characters), "raters": raters}))


def _write_rater(study: Study, contest: Contest, folder: Path, rater: str, copies: dict[Path, Path]) -> Path:
    """A rater's clips under names that tell nothing, the page, and the sheet unless it is there (perhaps filled in).

    copies: clips of runs -> where a rater of this study has them, for the raters to come.
    """
    games = [
        {
            "name": f"Game {number}",
            "character": study.characters[game],
            "turns": _turns(contest, game, study.orders[rater][game], _Place(folder, number, copies)),
        }
        for number, game in enumerate(study.games[rater], start=1)
    ]
    blank = study.blank(rater)
    if not (folder / SHEET).is_file():
        with replacing(folder / SHEET) as part:  # by its first mark a spreadsheet program knows that it is UTF-8
            part.write_text(blank.text(), encoding="utf-8-sig", newline="")
    return _write_page(folder, blank, games)


@dataclass(frozen=True)
class _Place:
    """Where a rater's clips of one game go. copies: as of `_write_rater`."""

    folder: Path
    game: int
    copies: dict[Path, Path]

    def put(self, source: Path, turn: int, letter: str) -> str:
        """The clip at its place, of no date, linked to another rater's where the disk can; its path in the folder."""
        name = f"{CLIPS}/game-{self.game}-turn-{turn:02d}-{letter}{source.suffix}"
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not _is_copy(place, source):
            with replacing(place) as part:
                _copy(self.copies.get(source), source, part)
        self.copies.setdefault(source, place)
        return name


def _is_copy(place: Path, source: Path) -> bool:
    undated = place.is_file() and place.stat().st_mtime == UNDATED
    return undated and filecmp.cmp(place, source, shallow=False)


def _copy(known: Path | None, source: Path, part: Path) -> None:
    """A link to a copy that is known, else a new one."""
    if known is not None:
        try:
            os.link(known, part)
            return
        except OSError:  # a disk without links, or with too many of one file
            part.unlink(missing_ok=True)
    shutil.copyfile(source, part)
    os.utime(part, (UNDATED, UNDATED))


def _turns(contest: Contest, game: str, order: tuple[int, ...], place: _Place) -> list[dict[str, Any]]:
    """What the page shows of a game's turns: what was asked, and a shot a letter with the gauges after it."""
    columns = [_gauges(contest.record(agent, game)) for agent in order]
    turns = []
    for number, asked in enumerate(contest.game(game).turns):
        shots = []
        for letter, agent, gauges in zip(LETTERS, order, columns, strict=False):
            source = contest.folder(agent, game) / contest.record(agent, game).turns[number].shown
            src = place.put(source, number + 1, letter)
            shots.append({"letter": letter, "src": src, "gauges": gauges[number]})
        told = {"who": ", ".join(asked.characters), "what": f"{asked.adverb} {asked.motion}".strip()}
        turns.append({**told, "where": asked.background, "shots": shots})
    return turns


def _gauges(record: GameRecord) -> list[dict[str, int] | None]:
    """The gauges after every turn; None for every turn where the agent predicts none."""
    state, shown = CharacterState(), []
    for turn in record.turns:
        if turn.change is None:
            return [None] * len(record.turns)
        state = state.after(turn.change)
        shown.append({"stamina": state.stamina, "social": state.social, "entertainment": state.entertainment})
    return shown


def _write_page(folder: Path, blank: Blank, games: list[dict[str, Any]]) -> Path:
    data = {
        "sheet": blank.sheet,
        "head": [*FIXED, *blank.letters],
        "rows": blank.rows,
        "letters": list(blank.letters),
        "criteria": [{"key": key, "name": name, "asks": asks} for key, (name, asks) in CRITERIA.items()],
        "games": games,
    }
    return write_page(folder / PAGE, _PARTS, ["page.js"], data)
