"""HTTP requests for a turn or a change of a story: fields, types and ranges. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ..messages import brief
from .takes import MOST_TAKES

MAX_SEED = 0xFFFFFFFFFFFFFFFF
LAST_TURN = 1_000_000
MOST_OFFERED, MOST_TURNS_AHEAD, MOST_PIECES = 10, 3, 100


class TurnRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /animegamer/turn. motion: predicted, the name of a motion scope, or pixels per frame. takes: how
    many are drawn and judged; the best is kept. bar, most_takes: as on the node Play Game Story.
    """

    world: str
    story: str
    instruction: str
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    motion: str | Annotated[float, msgspec.Meta(ge=0, le=999)] = "predicted"
    after: Annotated[int, msgspec.Meta(ge=-1, le=LAST_TURN)] = -1
    line: str = ""
    takes: Annotated[int, msgspec.Meta(ge=1, le=MOST_TAKES)] = 1
    bar: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    most_takes: Annotated[int, msgspec.Meta(ge=0, le=MOST_TAKES)] = 0

    def __post_init__(self) -> None:
        _check_seed("seed", self.seed)


class AheadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /animegamer/ahead. instructions: the turns that may come next; none: those that are proposed
    with `suggestion_seed`. pieces: how many states and shots to make; 0: all. The other fields are those of a turn.
    """

    world: str
    story: str
    instructions: Annotated[list[str], msgspec.Meta(max_length=MOST_OFFERED)] = []  # noqa: RUF012  msgspec copies it
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    motion: str | Annotated[float, msgspec.Meta(ge=0, le=999)] = "predicted"
    after: Annotated[int, msgspec.Meta(ge=-1, le=LAST_TURN)] = -1
    line: str = ""
    turns_ahead: Annotated[int, msgspec.Meta(ge=1, le=MOST_TURNS_AHEAD)] = 1
    pieces: Annotated[int, msgspec.Meta(ge=0, le=MOST_PIECES)] = 0
    suggestion_seed: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        for name in ("seed", "suggestion_seed"):
            _check_seed(name, getattr(self, name))


def _check_seed(name: str, seed: int) -> None:
    if seed > MAX_SEED:  # msgspec compares with smaller numbers only
        raise ValueError(f"{name} is {brief(seed, 60)}; expected at most {MAX_SEED}")


class StoryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /animegamer/stories. to: the new name; ticket: the answer of `delete`, for `restore`."""

    do: Literal["rename", "duplicate", "delete", "restore"]
    name: str = ""
    to: str = ""
    ticket: str = ""
