"""The weights of a stack: some stay on the GPU while it computes, the others are copied block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from diffusers.hooks import apply_group_offloading
from torch import Tensor, nn

from .budget import StackBudget


@dataclass(frozen=True)
class StackModules:
    """A stack's modules in their model.

    root: its forward runs all blocks once. entries: the stack begins to compute when one of these modules is called.
    working: bytes that it needs besides its weights while it computes.
    """

    name: str
    model: nn.Module
    root: nn.Module
    blocks: tuple[nn.Module, ...]
    entries: tuple[nn.Module, ...]
    working: int

    @property
    def rest(self) -> list[Tensor]:
        """The tensors outside the blocks."""
        inside = {id(tensor) for block in self.blocks for tensor in tensors_of(block)}
        return [tensor for tensor in tensors_of(self.model) if id(tensor) not in inside]

    @property
    def sizes(self) -> tuple[str, int, tuple[int, ...], int]:
        """The arguments of `plan_stack`."""
        blocks = tuple(total_bytes(tensors_of(block)) for block in self.blocks)
        return self.name, total_bytes(self.rest), blocks, self.working


class Stack:
    """The weights of a part: units that stay on the GPU while the stack computes, and offloaded blocks."""

    def __init__(
        self, part: StackModules, budget: StackBudget, device: torch.device, on_entry: Callable[[Stack], None]
    ) -> None:
        """on_entry: called before the stack computes."""
        self.budget = budget
        self._device = device
        pinned = budget.pinned and device.type == "cuda"
        groups = [part.rest, *(tensors_of(part.blocks[index]) for index in budget.staying)]
        self._units = [Unit(tensors, pinned) for tensors in groups]
        offloaded = [block for index, block in enumerate(part.blocks) if index not in budget.staying]
        if offloaded:
            _offload_blocks(part.root, offloaded, device, pinned)
        for entry in part.entries:
            entry.register_forward_pre_hook(lambda *_: on_entry(self))

    @property
    def cached_bytes(self) -> int:
        """The bytes of units that are on the GPU now."""
        return sum(unit.bytes for unit in self._units if unit.on_gpu)

    def load(self) -> None:
        """Copy the units to the GPU that are not there yet."""
        for unit in self._units:
            unit.load(self._device)

    def free(self, most_bytes: int) -> None:
        """Free units, the last ones first, until at most `most_bytes` are on the GPU."""
        for unit in reversed(self._units):
            if self.cached_bytes > most_bytes:
                unit.free()


class Unit:
    """Tensors that are copied to the GPU and freed there together; the host always has a copy."""

    def __init__(self, tensors: Iterable[Tensor], pinned: bool) -> None:
        self._copies: list[tuple[Tensor, Tensor]] = []
        for tensor in tensors:  # one by one, so that the host never has two copies of a whole model
            on_host = tensor.data.cpu()
            tensor.data = on_host.pin_memory() if pinned else on_host
            self._copies.append((tensor, tensor.data))
        self.bytes = total_bytes(tensor for tensor, _ in self._copies)
        self.on_gpu = False

    def load(self, device: torch.device) -> None:
        """Copy the tensors to the GPU if they are not there; the next computation waits for the copies."""
        if not self.on_gpu:
            for tensor, on_host in self._copies:
                tensor.data = on_host.to(device, non_blocking=True, copy=True)
        self.on_gpu = True

    def free(self) -> None:
        """Free the GPU's copy."""
        for tensor, on_host in self._copies:
            tensor.data = on_host
        self.on_gpu = False


class _OffloadedBlocks(nn.Module):
    """A module with only the offloaded blocks, and the root's forward.

    The buffer is needed because diffusers learns the order of the blocks, which it needs for prefetching, only if the
    module has a tensor outside of its blocks.
    """

    def __init__(self, root: nn.Module, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.register_buffer("outside", torch.zeros(1))
        self.forward = root.forward


def _offload_blocks(root: nn.Module, blocks: Sequence[nn.Module], device: torch.device, pinned: bool) -> None:
    """Let diffusers copy these blocks of a root to the device when they compute, and free them there afterwards.

    Without record_stream: with it, the program runs ahead of the GPU and copies blocks faster than they are used.
    """
    for block in blocks:
        Unit(tensors_of(block), pinned)  # diffusers pins all before it frees any: two copies on the host
    offloaded = _OffloadedBlocks(root, blocks)
    apply_group_offloading(
        offloaded,
        onload_device=device,
        offload_type="block_level",
        num_blocks_per_group=1,
        use_stream=device.type == "cuda",
        low_cpu_mem_usage=not pinned,
    )
    root.forward = offloaded.forward


def tensors_of(module: nn.Module) -> list[Tensor]:
    """A module's parameters and buffers."""
    return list(chain(module.parameters(), module.buffers()))


def total_bytes(tensors: Iterable[Tensor]) -> int:
    """The size of all tensors together."""
    return sum(tensor.nbytes for tensor in tensors)
