"""The review page: one HTML file next to the clips, to review a dataset in a browser and correct its captions.

It opens from the disk and needs no server, no network and no files but the clips. `corrections.apply_corrections` reads
what it exports; under ComfyUI's address it sends that there itself. Its parts are in review_page/.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ..files import write_text
from ..game.director import EVERYDAY
from .dataset import DatasetFolder, read_dataset
from .films.film_index import finished_scenes, read_film_index, strip_folder
from .films.survey import COLUMNS, ROWS, STEP, WIDTH, picture_height
from .records import DROPPED, SET_ASIDE, ClipRecord, Dropped, SetAside, readable_rows

REVIEW = "review.html"
_PARTS = Path(__file__).with_name("review_page")
_SCRIPTS = ("dom.js", "changes.js", "grid.js", "scenes.js", "editor.js", "main.js")  # in this order, as one
# The page may load clips and pictures from its folder, and run its own script only.
_POLICY = (
    "default-src 'none'; media-src 'self' file:; img-src 'self' file:; style-src {style}; script-src {script}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
_STRICT = '"use strict";\n'
_KEYS = tuple(name for name in ClipRecord.__struct_fields__ if name not in ("said", "kept"))
_SHOWN_PROBLEMS = 200


def write_review(folder: str | Path) -> Path:
    """Write a dataset's review page, which lists unreadable lines too; returns its path.

    ValueError: not a dataset folder.
    """
    read, problems = read_dataset(folder)
    if problems and not read.turns:
        raise ValueError(str(problems[0]))
    style, page, *scripts = (_PARTS.joinpath(name).read_text("utf-8") for name in ("style.css", "page.html", *_SCRIPTS))
    script = _STRICT + "\n".join(scripts).replace(_STRICT, "")
    page = page.replace("__POLICY__", _POLICY.format(style=_hash(style), script=_hash(script)))
    page = page.replace("__STYLE__", style).replace("__SCRIPT__", script)
    # last, since untrusted text may contain a mark
    page = page.replace("__DATA__", _script_safe(page_data(read, list(map(str, problems)))))
    write_text(read.path / REVIEW, page)
    return read.path / REVIEW


def _script_safe(value: Any) -> str:
    """JSON that cannot end its script block, or begin a comment or a tag in it."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(text: str) -> str:
    """The source of a part in the page's content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def page_data(folder: DatasetFolder, problems: list[str]) -> dict[str, Any]:
    """The dataset as the page shows it, with set-aside clips in their place by film and time."""
    games: dict[str, dict[str, Any]] = {}  # the first game of each clip, and the clip's place in it
    for game in folder.games:
        for at, clip in enumerate(game.clips, start=1):
            place = {"name": game.name, "at": at, "of": len(game.clips), "held_out": game.held_out}
            games.setdefault(folder.turns[clip].clip, place)
    found: list[tuple[ClipRecord, dict[str, str] | None, Any]]
    found = [(turn, None, games.get(turn.clip)) for turn in folder.turns]
    for row in readable_rows(folder.path / SET_ASIDE, SetAside):
        found.append((row.record, {"reason": row.reason, "reply": row.reply}, None))
    films = list(dict.fromkeys(record.film for record, _, _ in found))
    found.sort(key=lambda row: (films.index(row[0].film), row[0].start))
    return {
        "name": folder.path.resolve().name,
        "digest": folder.digest(captions=True),
        "keys": _KEYS,
        "stats": msgspec.to_builtins(folder.stats),
        "adverbs": _adverbs(folder.turns),
        "clips": [
            {"values": [getattr(record, key) for key in _KEYS], "aside": aside, "game": game}
            for record, aside, game in found
        ],
        "games": len(folder.games),
        "films": _films_of(folder, problems),
        "dropped": [  # [film, start, end, reason, the clip's path if it can be restored]
            [row.film, row.start, row.end, row.reason, row.record and row.record.clip]
            for row in readable_rows(folder.path / DROPPED, Dropped)
        ],
        "problems": problems[:_SHOWN_PROBLEMS],
    }


def _adverbs(turns: Iterable[ClipRecord]) -> list[str]:
    """The adverb to propose for each motion level: the one that most of the level's clips have, or an everyday one."""
    used = Counter((turn.motion_level, turn.adverb) for turn in turns if turn.adverb)
    most = {level: word for (level, word), _ in reversed(used.most_common())}
    return [most.get(level, words[0]) for level, words in enumerate(EVERYDAY.adverbs, start=1)]


def _films_of(folder: DatasetFolder, problems: list[str]) -> list[dict[str, Any]]:
    """Each film's scenes, and how its strip of pictures is in its files. A damaged entry joins the problems."""
    try:
        films = read_film_index(folder.path)
    except ValueError as error:
        problems.append(str(error))
        return []
    found = []
    for name, film in films.items():
        width, height = film.survey.facts.get("width"), film.survey.facts.get("height")
        has_strip = bool(width and height) and any(strip_folder(folder.path, name).glob("*.jpg"))
        sheets = {"step": STEP, "columns": COLUMNS, "rows": ROWS, "width": WIDTH}
        found.append(
            {
                "name": name,
                "seconds": film.survey.seconds,
                "strip": {**sheets, "height": picture_height(width, height)} if has_strip else None,
                "uncut": len(film.survey.scenes) - len(finished_scenes(folder.path, name)),
                "scenes": [[round(scene.start, 3), round(scene.end, 3), scene.begins] for scene in film.survey.scenes],
            }
        )
    return found
