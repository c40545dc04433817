"""What a program asks for over HTTP, a turn or a change of a story: fields, types and ranges. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ..messages import brief
from .takes import MOST_TAKES

MAX_SEED = 0xFFFFFFFFFFFFFFFF
LAST_TURN = 1_000_000


class TurnRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What POST /animegamer/turn takes. motion: predicted, the name of a motion scope, or pixels per frame. takes:
    how many are drawn and judged; the best is kept. bar, most_takes: as of the node Play Game Story.
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
        if self.seed > MAX_SEED:  # msgspec compares with smaller numbers only
            raise ValueError(f"seed is {brief(self.seed, 60)}; expected at most {MAX_SEED}")


class StoryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What POST /animegamer/stories takes. to: the new name; ticket: what `delete` answered, for `restore`."""

    do: Literal["rename", "duplicate", "delete", "restore"]
    name: str = ""
    to: str = ""
    ticket: str = ""
