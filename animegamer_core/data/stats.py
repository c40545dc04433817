"""`dataset stats`: the statistics of a dataset, as a table to read. `stats_picture` draws them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..life import PUBLISHED_RULES
from ..state import MotionScope
from .dataset import DatasetFolder
from .jsonl_tables import DROPPED, SET_ASIDE, read_objects
from .records import CAPTION_FIELDS, ClipRecord

LEVEL_NAMES = tuple(scope.name.lower() for scope in MotionScope)
MOST = 8  # of names, films, words that are listed


@dataclass(frozen=True)
class DatasetFacts:
    """What table and picture show. Counts are of clips, the largest first; `dropped` counts segments by reason."""

    name: str
    turns: tuple[ClipRecord, ...]
    lengths: tuple[int, ...]  # clips of each game
    held_out: int
    motion: Mapping[str, Any]
    aside: int
    dropped: Mapping[str, int]
    dropped_by_film: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: DatasetFolder) -> DatasetFacts:
        """The facts of a folder, with its dropped and set-aside clips."""
        dropped = read_objects(folder.path / DROPPED)
        return cls(
            name=folder.path.resolve().name,
            turns=folder.turns,
            lengths=tuple(len(game.clips) for game in folder.games),
            held_out=sum(game.held_out for game in folder.games),
            motion=folder.motion,
            aside=len(read_objects(folder.path / SET_ASIDE)),
            # 'duplicate of <clip>' counts as duplicate
            dropped=_largest(str(row.get("reason", "")).split(" of ")[0] for row in dropped),
            dropped_by_film=_largest(str(row.get("film", "")) for row in dropped),
        )

    @property
    def films(self) -> dict[str, int]:
        """Clips of each film."""
        return _largest(turn.film for turn in self.turns)

    @property
    def characters(self) -> dict[str, int]:
        """Clips of each character."""
        return _largest(name for turn in self.turns for name in turn.character or ())

    @property
    def captions(self) -> dict[str, int]:
        """Clips by how much of their caption is there, and those that were set aside."""
        parts = Counter(
            "whole" if not turn.missing else "none" if turn.missing == CAPTION_FIELDS else "in part"
            for turn in self.turns
        )
        return {name: parts[name] for name in ("whole", "in part", "none")} | {"set aside": self.aside}

    def words(self, name: str) -> dict[str, int]:
        """Clips by the words of a caption field."""
        return _largest(value for turn in self.turns if (value := getattr(turn, name)))

    def level(self, number: int) -> np.ndarray:
        """Motion values (n,) of a level's clips, in px per frame."""
        found = [
            turn.motion_value for turn in self.turns if turn.motion_level == number and turn.motion_value is not None
        ]
        return np.array(found, dtype=float)


def _largest(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def stats(folder: str | Path) -> str:
    """The table of a dataset folder; DatasetError if it cannot be read."""
    facts = DatasetFacts.of(DatasetFolder.open(folder))
    parts = [_heading(facts), _levels(facts), _character_stats(facts)]
    films = {film: facts.films.get(film, 0) for film in {**facts.films, **facts.dropped_by_film}}
    parts.append(_counts("film", films, len(facts.turns), facts.dropped_by_film))
    parts.append(_counts("character", facts.characters, len(facts.turns)))
    parts += [_counts(name, facts.words(name), len(facts.turns)) for name in ("motion", "background", "adverb")]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _heading(facts: DatasetFacts) -> list[str]:
    seconds = sum(turn.end - turn.start for turn in facts.turns)
    games = f"{len(facts.lengths)} ({facts.held_out} held out)"
    if facts.lengths:
        games += f" of {min(facts.lengths)} to {max(facts.lengths)} clips, median {np.median(facts.lengths):g}"
    dropped = ", ".join(f"{reason} {count}" for reason, count in facts.dropped.items())
    rows = {
        "dataset": facts.name,
        "clips": f"{len(facts.turns)} of {counted(len(facts.films), 'film')}, {clock(seconds)}",
        "games": games,
        "captions": ", ".join(f"{name} {count}" for name, count in facts.captions.items()),
        "dropped": counted(sum(facts.dropped.values()), "segment") + (f": {dropped}" if dropped else ""),
    }
    if facts.motion:
        backend, threshold = facts.motion.get("backend", "unknown"), facts.motion.get("threshold", "unknown")
        fraction = facts.motion.get("slow_fraction")
        slow = f" or {fraction} of the fast pixels" if fraction else ""
        rows["motion"] = f"backend {backend}, magnitudes under {threshold} px{slow} ignored"
    return [f"{name:<10} {text}" for name, text in rows.items()]


def _levels(facts: DatasetFacts) -> list[str]:
    if not any(facts.level(number).size for number in range(1, 6)):
        return []
    lines = [f"{'motion level':<14}{'clips':>8}{'share':>8}   {'px a frame':<18}{'median':>8}"]
    for number, name in enumerate(LEVEL_NAMES, start=1):
        values = facts.level(number)
        span = f"{values.min():.2f} .. {values.max():.2f}" if values.size else "-"
        median = f"{np.median(values):.2f}" if values.size else "-"
        shown = share(values.size, len(facts.turns))
        lines.append(f"{f'{number} {name}':<14}{values.size:>8}{shown:>8}   {span:<18}{median:>8}")
    return lines


def _character_stats(facts: DatasetFacts) -> list[str]:
    lines = [f"{'stat':<14}{'less':>8}{'same':>8}{'more':>8}{'missing':>10}"]
    for name in PUBLISHED_RULES.names:
        counts = Counter(getattr(turn, name) for turn in facts.turns)
        lines.append(f"{name:<14}{counts[-1]:>8}{counts[0]:>8}{counts[1]:>8}{counts[None]:>10}")
    return lines


def _counts(title: str, counts: Mapping[str, int], clips: int, dropped: Mapping[str, int] | None = None) -> list[str]:
    """A table of the most frequent names; for films also the dropped segments."""
    if not counts:
        return []
    more = f"{'dropped':>9}" if dropped is not None else ""
    lines = [f"{f'{title} ({len(counts)})':<42}{'clips':>8}{'share':>8}{more}"]
    for name, count in list(counts.items())[:MOST]:
        more = f"{dropped.get(name, 0):>9}" if dropped is not None else ""
        lines.append(f"{brief(name, 40):<42}{count:>8}{share(count, clips):>8}{more}")
    if len(counts) > MOST:
        lines.append(f"... and {len(counts) - MOST} more")
    return lines


def counted(count: int, thing: str) -> str:
    """A number of things, as `1 clip` or `3 clips`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def brief(text: str, room: int) -> str:
    """A name on one line, shortened to `room` characters."""
    plain = " ".join(text.split())
    return plain if len(plain) <= room else f"{plain[: room - 3]}..."


def share(count: int, whole: int) -> str:
    """A count in per cent; `-` if the whole is 0."""
    return f"{100 * count / whole:.0f} %" if whole else "-"


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
