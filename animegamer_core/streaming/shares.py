"""What each stack of a turn gets of a card, planned from sizes alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..spec import ModelSpec

GIB = 2**30
PROMPT_TOKENS = 6000  # a window of about 18 turns
SPARE = 16  # a budget's sixteenth is for the workspaces of cuBLAS and cuDNN, and for gaps between tensors
AHEAD = 2  # of the blocks that pass through, one computes while the next arrives


@dataclass(frozen=True)
class Share:
    """What one stack gets of a card, in bytes. The estimate of a plan; nothing is moved by it.

    rest: weights outside the blocks. blocks: weights of each block. working: what the stack computes with beside its
    weights. staying: indices of the blocks that stay on the card while the stack computes. pinned: whether the weights
    wait in pinned host memory.
    """

    name: str
    rest: int
    blocks: tuple[int, ...]
    working: int
    staying: tuple[int, ...]
    pinned: bool = True

    @property
    def passing(self) -> tuple[int, ...]:
        """Bytes of each block that passes through the card whenever the stack computes."""
        return tuple(size for index, size in enumerate(self.blocks) if index not in self.staying)

    @property
    def weights(self) -> int:
        """The most bytes of its own weights on the card at once."""
        window = min(AHEAD * max(self.passing, default=0), sum(self.passing))
        return self.rest + sum(self.blocks) - sum(self.passing) + window

    @property
    def peak(self) -> int:
        """The most bytes on the card while it computes."""
        return self.weights + self.working

    @property
    def text(self) -> str:
        """One line for a person."""
        stays = f"{len(self.staying)} of {len(self.blocks)} blocks stay, " if self.blocks else ""
        passes = f"{sum(self.passing) / GIB:.2f} GiB pass through each time" if self.passing else "all of it stays"
        waits = "" if self.pinned else "; the host lacks the memory to pin its weights, so they come slowly"
        return f"{self.name}: {stays}{passes}; about {self.peak / GIB:.2f} GiB while it computes{waits}"


def plan_share(name: str, rest: int, blocks: Sequence[int], working: int, budget_bytes: int) -> Share:
    """The share with the most staying blocks, evenly apart, that a budget holds; ValueError says what it would take."""
    for count in range(len(blocks), -1, -1):
        share = Share(name, rest, tuple(blocks), working, _spread(count, len(blocks)))
        if share.peak <= usable(budget_bytes):
            return share
    needed = math.ceil(10 * share.peak * SPARE / (SPARE - 1) / GIB) / 10
    raise ValueError(
        f"the {name} needs {needed} GiB of a GPU's memory, even where its weights pass through block by block, and "
        f"{budget_bytes / GIB:.1f} GiB are given; give {needed} GiB or more, or use the CPU"
    )


def prefill_bytes(spec: ModelSpec, tokens: int, item: int) -> int:
    """About the memory, beside weights, in which an engine reads a prompt of `tokens`; item: bytes of a number.

    Keys and values of every layer, the three wide rows of a feed-forward and a few of the model's own width, the mask.
    """
    engine = spec.engine
    key_width = engine.hidden // engine.heads * engine.kv_heads
    row = 2 * key_width * engine.layers + 3 * engine.intermediate + 5 * engine.hidden
    return (row * tokens + 2 * tokens**2) * item


def usable(budget_bytes: int) -> int:
    """What of a budget is planned with."""
    return budget_bytes - budget_bytes // SPARE


def _spread(count: int, total: int) -> tuple[int, ...]:
    """`count` of the numbers below `total`, evenly apart: what stays gives time to what comes after it."""
    return tuple(index for index in range(total) if (index + 1) * count // total > index * count // total)
