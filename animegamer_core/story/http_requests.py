"""HTTP requests for a turn or a change of a story: fields, types and ranges. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ..messages import brief

MAX_SEED = 0xFFFFFFFFFFFFFFFF
LAST_TURN = 1_000_000


class TurnRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /animegamer/turn. motion: predicted, the name of a motion scope, or pixels per frame."""

    world: str
    story: str
    instruction: str
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    motion: str | Annotated[float, msgspec.Meta(ge=0, le=999)] = "predicted"
    after: Annotated[int, msgspec.Meta(ge=-1, le=LAST_TURN)] = -1
    branch: str = ""

    def __post_init__(self) -> None:
        _check_seed("seed", self.seed)


def _check_seed(name: str, seed: int) -> None:
    if seed > MAX_SEED:  # msgspec compares with smaller numbers only
        raise ValueError(f"{name} is {brief(seed, 60)}; expected at most {MAX_SEED}")


class StoryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /animegamer/stories. to: the new name; ticket: the answer of `delete`, for `restore`."""

    do: Literal["rename", "duplicate", "delete", "restore"]
    name: str = ""
    to: str = ""
    ticket: str = ""
