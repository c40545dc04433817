"""A turn as a program asks for it over HTTP: its fields, with their types and ranges. Imports no torch."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..messages import brief

MAX_SEED = 0xFFFFFFFFFFFFFFFF
LAST_TURN = 1_000_000


class TurnRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What POST /animegamer/turn takes. motion: predicted, the name of a motion scope, or pixels per frame."""

    world: str
    story: str
    instruction: str
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    motion: str | Annotated[float, msgspec.Meta(ge=0, le=999)] = "predicted"
    after: Annotated[int, msgspec.Meta(ge=-1, le=LAST_TURN)] = -1
    line: str = ""

    def __post_init__(self) -> None:
        if self.seed > MAX_SEED:  # msgspec compares with smaller numbers only
            raise ValueError(f"seed is {brief(self.seed, 60)}; expected at most {MAX_SEED}")
