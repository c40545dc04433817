"""Sequences of clips that make games: consecutive shots of one film, in the order they are shown."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .records import ClipRecord

SHORTEST = 2  # clips; fewer make no game
GAP = 30.0  # most seconds between two clips of a game, where credits or clips without a caption are missing


@dataclass(frozen=True, kw_only=True)
class GamePlan:
    """How clips become games."""

    turns: int = 10
    """Clips per game."""
    held_out: float = 0.1
    """Fraction of the games to hold out; at least one of two or more games, unless 0. A rebuild keeps every clip in its
    split; to choose again, delete games.jsonl."""

    def __post_init__(self) -> None:
        if self.turns < SHORTEST:
            raise ValueError(f"turns is {self.turns}; expected at least {SHORTEST}, the clips of the shortest game")
        if not 0 <= self.held_out < 1:
            raise ValueError(f"held_out is {self.held_out}; expected from 0 to below 1")


def games_of(
    records: Sequence[ClipRecord], plan: GamePlan, before: Mapping[str, bool] = MappingProxyType({})
) -> list[tuple[str, list[str], bool]]:
    """(name, clips, held out) of each game; records are in order of film and time, as turns.jsonl has them.

    The number of games alone decides which are held out: one in so many, evenly over the films, or the last one of a
    few. before: clip -> whether an earlier build held it out. If that build held out any, clips stay on their side,
    since models were trained on one and measured on the other; the fraction then applies to games of new clips alone.
    """
    held_clips = {clip for clip, held in before.items() if held}
    games = [game for game in _split(records, plan, held_clips) if len(game) >= SHORTEST or game[0].clip in held_clips]
    count, fraction = len(games), plan.held_out
    held = {number for number in range(count) if int((number + 1) * fraction) > int(number * fraction)}
    if not held and fraction and count > 1:
        held = {count - 1}
    if held_clips:
        stay = [number for number, game in enumerate(games) if game[0].clip in held_clips]
        new = [number for number, game in enumerate(games) if not any(record.clip in before for record in game)]
        most = min(len(held) - len(stay), len(new))
        held = {*stay, *(new[(place + 1) * len(new) // most - 1] for place in range(most))}
    return [(f"game-{n:05d}", [record.clip for record in game], n in held) for n, game in enumerate(games)]


def _split(records: Sequence[ClipRecord], plan: GamePlan, held_out: Collection[str]) -> Iterator[list[ClipRecord]]:
    """Runs of consecutive clips, at most plan.turns long, either all held out or none."""
    game: list[ClipRecord] = []
    for record in records:
        if game and (
            len(game) == plan.turns
            or record.film != game[-1].film
            or record.start - game[-1].end > GAP
            or (game[-1].clip in held_out) != (record.clip in held_out)
        ):
            yield game
            game = []
        game.append(record)
    if game:
        yield game
