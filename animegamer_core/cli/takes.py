"""Options of `play` for judged takes: each turn is drawn several times, and the best take is kept."""

from __future__ import annotations

import typing

from ..story.player import PlayedTurn
from ..story.takes import Takes, needs_judge, scores_text

if typing.TYPE_CHECKING:
    from ..checkpoint import World


def takes_of(args: typing.Any, world: World, device: str) -> Takes | None:
    """The takes that these arguments ask for; None if one is drawn without a judge.

    ValueError if the arguments contradict one another, or if nothing can judge the world's shots.
    """
    if not needs_judge(args.takes, args.bar, args.most_takes):
        return None
    from ..evaluate.judges import open_judge

    return Takes(open_judge(world, device), args.takes, args.bar, args.most_takes)


def takes_line(played: PlayedTurn) -> str:
    """The judge's scores of a turn's takes, as one line."""
    return f"takes: {scores_text([(take.seed, take.judged) for take in played.takes], played.turn.seed)}"
