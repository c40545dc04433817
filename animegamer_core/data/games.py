"""Sequences of clips that make games: consecutive shots of one film, in the order they are shown."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .records import ClipRecord


@dataclass(frozen=True, kw_only=True)
class GamePlan:
    """How clips become games.

    turns: clips of a game. shortest: a rest of fewer clips is no game. gap: seconds between two clips that may be
    missing from a game, such as credits or what had no valid caption. held_out: share of the games kept from training
    for validation: at least one of two games or more, unless it is 0.
    """

    turns: int = 10
    shortest: int = 2
    gap: float = 30.0
    held_out: float = 0.1

    def __post_init__(self) -> None:
        if self.shortest < 1:
            raise ValueError(f"shortest is {self.shortest}; a game takes 1 clip or more")
        if self.turns < self.shortest:
            raise ValueError(f"turns is {self.turns}; expected {self.shortest} or more, the clips of the shortest game")
        if not 0 <= self.held_out < 1 or self.gap < 0:
            raise ValueError(f"held_out {self.held_out} must lie from 0 to below 1, and gap {self.gap} be 0 or more")


def games_of(
    records: Sequence[ClipRecord], plan: GamePlan, before: Mapping[str, bool | None] = MappingProxyType({})
) -> list[tuple[str, list[str], bool]]:
    """(name, clips, held out) of each game; records are in order of film and time, as turns.jsonl has them.

    Which games are held out depends on their number alone: one in so many, spread evenly over the films. Where there
    are too few for that, it is the last one.

    before: clip -> whether an earlier build held it out, None where no game showed it. Where one held out any, clips
    stay on their side, since stages were trained on the one and measured on the other: the share then decides over
    games of other clips alone. A clip without a side that stands amid held-out ones, as one does whose line was deleted
    and comes back, is held out with them.
    """
    kept_back = _kept_back(records, plan.gap, before)
    rows = [row for row in _rows(records, plan, kept_back) if len(row) >= plan.shortest or row[0].clip in kept_back]
    held = _held_out(len(rows), plan.held_out)
    if kept_back:
        stay = [number for number, row in enumerate(rows) if row[0].clip in kept_back]
        new = [number for number, row in enumerate(rows) if not any(record.clip in before for record in row)]
        held = {*stay, *_spread(new, len(held) - len(stay))}
    return [(f"game-{number:05d}", [record.clip for record in row], number in held) for number, row in enumerate(rows)]


def _kept_back(records: Sequence[ClipRecord], gap: float, before: Mapping[str, bool | None]) -> set[str]:
    """The clips that were held out, and those without a side between two of them."""
    kept_back = {clip for clip, held in before.items() if held}
    found, waiting = set(kept_back), None  # waiting: those without a side since the last one that was held out
    for last, record in itertools.pairwise([None, *records]):
        if last is not None and _apart(last, record, gap):
            waiting = None
        if record.clip in kept_back:
            found.update(waiting or ())
            waiting = []
        elif before.get(record.clip) is False:
            waiting = None
        elif waiting is not None:
            waiting.append(record.clip)
    return found


def _held_out(count: int, share: float) -> set[int]:
    spread = {number for number in range(count) if int((number + 1) * share) > int(number * share)}
    return spread or ({count - 1} if share and count > 1 else set())


def _spread(numbers: Sequence[int], most: int) -> list[int]:
    """So many of the numbers, or all, spread evenly."""
    most = min(most, len(numbers))
    return [numbers[(place + 1) * len(numbers) // most - 1] for place in range(most)]


def _rows(records: Sequence[ClipRecord], plan: GamePlan, kept_back: Collection[str]) -> Iterator[list[ClipRecord]]:
    """Clips that follow one another; those that are kept back share no row with others."""
    row: list[ClipRecord] = []
    for record in records:
        if row and (len(row) == plan.turns or _parts(row[-1], record, plan.gap, kept_back)):
            yield row
            row = []
        row.append(record)
    if row:
        yield row


def _parts(one: ClipRecord, next_one: ClipRecord, gap: float, kept_back: Collection[str]) -> bool:
    """Whether a game that shows one clip cannot go on with the next."""
    return _apart(one, next_one, gap) or (one.clip in kept_back) != (next_one.clip in kept_back)


def _apart(one: ClipRecord, next_one: ClipRecord, gap: float) -> bool:
    return next_one.film != one.film or next_one.start - one.end > gap
