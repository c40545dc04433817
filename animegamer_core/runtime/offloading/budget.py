"""Computes each stack's memory budget from the sizes of its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...spec import ModelSpec

GIB = 2**30
PROMPT_TOKENS = 6000  # a window of about 18 turns
SPARE = 16  # one sixteenth of a budget is kept for cuBLAS and cuDNN workspaces and for fragmentation
PREFETCHED = 2  # offloaded blocks on the GPU at once: one computes while the next is copied


@dataclass(frozen=True)
class StackBudget:
    """The GPU memory that one stack will use, estimated in bytes. This only computes; it does not move weights.

    rest: weights outside the blocks. blocks: weights of each block. working: memory besides the weights while the stack
    computes. staying: indices of the blocks that stay on the GPU while the stack computes. pinned: whether the
    offloaded weights are in pinned host memory.
    """

    name: str
    rest: int
    blocks: tuple[int, ...]
    working: int
    staying: tuple[int, ...]
    pinned: bool = True

    @property
    def offloaded(self) -> tuple[int, ...]:
        """The sizes in bytes of the blocks that are copied to the GPU whenever the stack computes."""
        return tuple(size for index, size in enumerate(self.blocks) if index not in self.staying)

    @property
    def weights(self) -> int:
        """The most bytes of its weights that are on the GPU at once."""
        prefetched = min(PREFETCHED * max(self.offloaded, default=0), sum(self.offloaded))
        return self.rest + sum(self.blocks) - sum(self.offloaded) + prefetched

    @property
    def peak(self) -> int:
        """The most bytes that are on the GPU while it computes."""
        return self.weights + self.working

    @property
    def text(self) -> str:
        """The budget as one line for the user."""
        stays = f"{len(self.staying)} of {len(self.blocks)} blocks stay on the GPU, " if self.blocks else ""
        copied = f"{sum(self.offloaded) / GIB:.2f} GiB are copied each time" if self.offloaded else "all of it stays"
        slow = "" if self.pinned else "; the host has too little memory to pin the weights, so copying is slow"
        return f"{self.name}: {stays}{copied}; about {self.peak / GIB:.2f} GiB while it computes{slow}"


def plan_stack(name: str, rest: int, blocks: Sequence[int], working: int, budget_bytes: int) -> StackBudget:
    """The budget in which as many blocks stay as fit, evenly spaced; ValueError says how much memory is needed.

    rest, blocks, working: bytes, see StackBudget.
    """
    total = len(blocks)
    for count in range(total, -1, -1):  # evenly spaced, so that offloaded blocks are copied while others compute
        staying = (index for index in range(total) if (index + 1) * count // total > index * count // total)
        budget = StackBudget(name, rest, tuple(blocks), working, tuple(staying))
        if budget.peak <= usable_bytes(budget_bytes):
            return budget
    needed = math.ceil(10 * budget.peak * SPARE / (SPARE - 1) / GIB) / 10
    raise ValueError(
        f"the {name} needs {needed} GiB of GPU memory, even with its weights offloaded block by block, but the budget "
        f"is {budget_bytes / GIB:.1f} GiB; give {needed} GiB or more, or use the CPU"
    )


def prefill_bytes(spec: ModelSpec, tokens: int, item: int) -> int:
    """Approximate bytes, besides the weights, that an engine needs to read a prompt of `tokens`.

    item: bytes per number. Counts the keys and values of every layer, three wide feed-forward activations, a few
    activations of the model's width, and the mask.
    """
    engine = spec.engine
    key_width = engine.hidden // engine.heads * engine.kv_heads
    row = 2 * key_width * engine.layers + 3 * engine.intermediate + 5 * engine.hidden
    return (row * tokens + 2 * tokens**2) * item


def usable_bytes(budget_bytes: int) -> int:
    """The budget without its spare part."""
    return budget_bytes - budget_bytes // SPARE
