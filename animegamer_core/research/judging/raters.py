"""A study with people: each rater gets a folder with a page of clips side by side, and a rating sheet to fill in.

Agents are shown as A, B, C, D in an order that differs between raters and games; key.json says which is which, and must
be kept from the raters. A rater's folder needs no other files, no server and no network.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import msgspec

from ...evaluate.world.records import GameRecord
from ...files import PART, replacing, write_text
from ...json_files import JsonError, read_json
from ...messages import brief
from ...state import CharacterState
from .agreement import shown_order
from .rating_sheets import CRITERIA, LETTERS, RatingSheet
from .runs import Comparison, as_json

KEY, SHEET, PAGE, CLIPS = "key.json", "sheet.csv", "index.html", "clips"
FORMAT = 1
MOST_RATERS = 500
UNDATED = 946_684_800  # the year 2000: real dates would show which clips were played together
_PAGE = Path(__file__).with_name("raters_page") / "page.html"
_KEEP = "This says which agent is which. Keep it from the raters until all sheets are back."

OnRater = Callable[[int, int], None]  # (folders written, folders in all)


@dataclass(frozen=True)
class Study:
    """Which rater ranks what.

    name: study-<8 hex digits>. agents: their names. characters: game -> main character. games: rater -> the games in
    this rater's order. orders: rater -> game -> which agent (0, 1, ...) is A, B ...
    """

    name: str
    agents: tuple[str, ...]
    characters: Mapping[str, str]
    games: Mapping[str, tuple[str, ...]]
    orders: Mapping[str, Mapping[str, tuple[int, ...]]]

    def sheet(self, rater: str) -> RatingSheet:
        """A rater's empty sheet."""
        characters = tuple(self.characters[game] for game in self.games[rater])
        return RatingSheet(f"{self.name}-{rater}", characters, len(self.agents))

    @property
    def raters(self) -> tuple[str, ...]:
        """rater-01, rater-02 and so on."""
        return tuple(self.games)


def plan_study(comparison: Comparison, raters: int, games: int, seed: int) -> Study:
    """Plan a study of some games that all runs have, the same for all raters; ValueError for numbers out of range."""
    if not 2 <= len(comparison.agents) <= len(LETTERS):
        raise ValueError(f"{len(comparison.agents)} runs; expected 2 to {len(LETTERS)}, as the paper's scale has")
    if not 1 <= raters <= MOST_RATERS:
        raise ValueError(f"raters is {raters}; expected 1 to {MOST_RATERS}")
    if not 1 <= games <= len(comparison.games):
        raise ValueError(f"games is {games}; the runs have {len(comparison.games)} finished games in common")
    chosen = random.Random(f"raters/{seed}").sample(comparison.games, games)
    names = [f"rater-{number:02}" for number in range(1, raters + 1)]
    order_of = {name: tuple(random.Random(f"raters/{seed}/{name}").sample(chosen, games)) for name in names}
    orders = {
        name: {game: shown_order(f"raters/{seed}/{game}", number, len(comparison.agents)) for game in chosen}
        for number, name in enumerate(names)
    }
    characters = {game: comparison.record(0, game).character for game in chosen}
    asked = json.dumps([seed, comparison.agents, sorted(chosen), raters, [dict(run.asked) for run in comparison.runs]])
    digest = hashlib.sha256(asked.encode()).hexdigest()[:8]
    return Study(f"study-{digest}", comparison.agents, characters, order_of, orders)


def write_study(study: Study, comparison: Comparison, out: Path, on_rater: OnRater | None = None) -> list[Path]:
    """Write key.json and every rater's folder; returns the paths of the pages. A second call updates the folder.

    ValueError if the folder holds another study or other files.
    """
    _claim(study, out)
    pages: list[Path] = []
    copies: dict[Path, Path] = {}
    for number, rater in enumerate(study.raters, start=1):
        pages.append(_write_rater(study, comparison, out / rater, rater, copies))
        if on_rater is not None:
            on_rater(number, len(study.raters))
    return pages


class _Rater(msgspec.Struct):
    games: tuple[str, ...]
    orders: dict[str, tuple[int, ...]]


class _Key(msgspec.Struct):
    """The content of key.json; ValueError for another format, or if games and orders do not match."""

    format: int
    study: str
    agents: tuple[str, ...]
    characters: dict[str, str]
    raters: dict[str, _Rater]

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"format {self.format}, this program reads {FORMAT}")
        everybody, games = list(range(len(self.agents))), sorted(self.characters)
        for rater, row in self.raters.items():
            if sorted(row.games) != games:
                raise ValueError(f"wrong games of {brief(rater)}")
            if any(sorted(row.orders.get(game, ())) != everybody for game in games):
                raise ValueError(f"wrong orders of {brief(rater)}")


def read_key(out: Path) -> Study:
    """The study in a folder; ValueError if there is none."""
    path = out / KEY
    if not path.is_file():
        raise ValueError(f"{out}: no study here (no {KEY}); give the --out folder of `evaluate raters`")
    try:
        key = read_json(path, _Key)
    except JsonError as error:
        raise ValueError(f"{error}; not a study's key, write the study again") from error
    games = {rater: row.games for rater, row in key.raters.items()}
    orders = {rater: row.orders for rater, row in key.raters.items()}
    return Study(key.study, key.agents, key.characters, games, orders)


def _claim(study: Study, out: Path) -> None:
    """Write key.json into a folder that is empty or holds this study; ValueError for any other folder."""
    if (out / KEY).is_file():
        if (known := read_key(out).name) != study.name:
            raise ValueError(f"{out} holds another study, {known}; choose a new folder")
    elif out.is_dir() and any(not path.name.startswith(PART) for path in out.iterdir()):
        raise ValueError(f"{out} holds other files and no {KEY}; choose a new folder")
    raters = {
        rater: {"sheet": study.sheet(rater).name, "games": study.games[rater], "orders": dict(study.orders[rater])}
        for rater in study.raters
    }
    values: dict[str, Any] = {"note": _KEEP, "format": FORMAT, "study": study.name, "agents": study.agents}
    write_text(out / KEY, as_json({**values, "characters": dict(study.characters), "raters": raters}))


def _write_rater(study: Study, comparison: Comparison, folder: Path, rater: str, copies: dict[Path, Path]) -> Path:
    """Write a rater's clips under neutral names, the page, and the sheet unless it exists (it may be filled in).

    copies: clip of a run -> its copy in an earlier rater's folder, to which later copies are hard-linked.
    """
    if not (folder / SHEET).is_file():
        with replacing(folder / SHEET) as part:  # a byte order mark tells spreadsheet programs that the file is UTF-8
            part.write_text(study.sheet(rater).text(), encoding="utf-8-sig", newline="")
    games = []
    for number, game in enumerate(study.games[rater], start=1):
        games.append(f"<h2>Game {number}: a life of {escape(study.characters[game])}</h2>\n")
        games += _turns(comparison, game, study.orders[rater][game], folder / CLIPS / f"game-{number}", copies)
    questions = "".join(f"<li><b>{name}</b>: {question}</li>\n" for name, question in CRITERIA.values())
    page = Template(_PAGE.read_text(encoding="utf-8")).substitute(questions=questions, games="".join(games))
    write_text(folder / PAGE, page)
    return folder / PAGE


def _put_clip(source: Path, path: Path, copies: dict[Path, Path]) -> None:
    """Copy a clip without its date, or hard-link it to an earlier copy."""
    undated = path.is_file() and path.stat().st_mtime == UNDATED
    if not (undated and filecmp.cmp(path, source, shallow=False)):
        with replacing(path) as part:
            _copy(copies.get(source), source, part)
    copies.setdefault(source, path)


def _copy(known: Path | None, source: Path, part: Path) -> None:
    if known is not None:
        try:
            os.link(known, part)
            return
        except OSError:  # no hard links on this disk, or too many to one file
            part.unlink(missing_ok=True)
    shutil.copyfile(source, part)
    os.utime(part, (UNDATED, UNDATED))


def _turns(
    comparison: Comparison, game: str, order: tuple[int, ...], clips: Path, copies: dict[Path, Path]
) -> Iterator[str]:
    """Yield a game's turns as HTML, and copy their shots into `clips`.

    A turn shows the request, and for each letter the shot and the stats after it.
    """
    records = [comparison.record(agent, game) for agent in order]
    stats = [_stats_after(record) for record in records]
    for turn, asked in enumerate(comparison.game(game).turns):
        parts = ", ".join(asked.characters), f"{asked.adverb} {asked.motion}".strip(), asked.background
        yield f"<h3>Turn {turn + 1}: {escape('; '.join(parts))}</h3>\n<div>\n"
        for letter, agent, record, after in zip(LETTERS, order, records, stats, strict=False):
            source = comparison.folder(agent, game) / record.turns[turn].shown
            clip = clips / f"turn-{turn + 1:02d}-{letter}{source.suffix}"
            _put_clip(source, clip, copies)
            src = f"{CLIPS}/{clips.name}/{clip.name}"
            film = f'<video src="{src}" autoplay loop muted playsinline controls></video>'
            shot = film if clip.suffix == ".mp4" else f'<img src="{src}" alt="">'
            yield f"<figure>{shot}<figcaption><b>{letter}</b> {after[turn]}</figcaption></figure>\n"
        yield "</div>\n"


def _stats_after(record: GameRecord) -> list[str]:
    """The stats after every turn as text; the same text for every turn if the agent predicts no stats."""
    state, shown = CharacterState(), []
    for turn in record.turns:
        if turn.change is None:
            return ["predicts no stats"] * len(record.turns)
        state = state.after(turn.change)
        shown.append(f"stamina {state.stamina}, social {state.social}, entertainment {state.entertainment}")
    return shown
