"""Plans one GPU's memory, which offloaded models use in turn."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from ...model.decoder import ShotDecoder
from ...model.engine import GameEngine
from .budget import GIB, PROMPT_TOKENS, StackBudget, plan_stack, prefill_bytes, usable_bytes
from .stacks import Stack, StackModules, tensors_of, total_bytes


class MemoryPlan:
    """One GPU's memory, which offloaded models use in turn. They compute as usual, in one thread at a time.

    budget_bytes: the most GPU memory that this process may use from now on; torch enforces it. Offloaded weights are in
    pinned memory if the host has enough, which takes an eighth more and makes copying fast. Otherwise they stay where
    they were loaded, such as in mapped files, and each copy pins them; the budget's `text` then says so. ValueError if
    the device has less memory free than the budget.
    """

    def __init__(self, device: torch.device, budget_bytes: int) -> None:
        _cap_gpu_memory(device, budget_bytes)
        self.device = device
        self.budget_bytes = budget_bytes
        self._stacks: list[Stack] = []  # the most recently used one is last

    def offload(self, model: GameEngine | ShotDecoder) -> tuple[StackBudget, ...]:
        """Offload a model, wherever its weights are now; returns the budget of each of its stacks.

        Changes the model in place and for good: optimize it before, and do not move it afterwards. A decoder then
        decodes in tiles if decoding whole shots does not fit. ValueError if the budget is too small for one of the
        stacks.
        """
        parts = stacks_of(model, self.budget_bytes)
        pinned = _host_can_pin(total_bytes(tensors_of(model)))
        budgets = tuple(replace(plan_stack(*part.sizes, self.budget_bytes), pinned=pinned) for part in parts)
        if isinstance(model, ShotDecoder):
            model.tiled = _needs_tiles(model, self.budget_bytes)
        stacks = [Stack(part, budget, self.device, self.make_room) for part, budget in zip(parts, budgets, strict=True)]
        inside = {id(tensor) for part in parts for tensor in tensors_of(part.model)}
        for tensor in tensors_of(model):  # other code finds out a model's device from those outside
            if id(tensor) not in inside:
                tensor.data = tensor.data.to(self.device)
        self._stacks = [*stacks, *self._stacks]
        return budgets

    def make_room(self, stack: Stack) -> None:
        """Free GPU memory for a stack, and copy its staying weights there."""
        if self._stacks[-1] is stack and stack.cached_bytes:
            return
        others = [other for other in self._stacks if other is not stack]
        room = usable_bytes(self.budget_bytes) - stack.budget.peak
        # Stacks compute in a fixed cycle, so the one used last is needed last.
        for other in reversed(others):
            excess = sum(each.cached_bytes for each in others) - room
            other.free(other.cached_bytes - max(0, excess))
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # torch caches memory in the sizes of other stacks' tensors
        stack.load()
        self._stacks = [*others, stack]


def stacks_of(model: GameEngine | ShotDecoder, budget_bytes: int) -> tuple[StackModules, ...]:
    """The parts of a model that are offloaded, each with its working memory."""
    if isinstance(model, GameEngine):
        llm = model.llm
        working = prefill_bytes(model.spec, PROMPT_TOKENS, llm.lm_head.weight.element_size())
        entries = (llm.model.embed_tokens, llm.model, llm.lm_head)
        return (StackModules("engine", llm, llm.model, tuple(llm.model.layers), entries, working),)
    transformer, vae = model.transformer, model.vae
    blocks = tuple(transformer.transformer_blocks)  # a tiny decoder is in no stack: it stays on the GPU, for previews
    decoding = model.tiled_bytes if _needs_tiles(model, budget_bytes) else model.working_bytes
    return (
        StackModules("transformer", transformer, transformer, blocks, (transformer,), model.sampling_bytes),
        StackModules("VAE", nn.ModuleList((vae.encoder, vae.decoder)), vae, (), (vae.encoder, vae.decoder), decoding),
    )


def _needs_tiles(decoder: ShotDecoder, budget_bytes: int) -> bool:
    """Whether a decoder decodes in tiles already, or must because of the budget."""
    return decoder.tiled or total_bytes(tensors_of(decoder.vae)) + decoder.working_bytes > usable_bytes(budget_bytes)


def _cap_gpu_memory(device: torch.device, budget_bytes: int) -> None:
    """Limit torch to the budget on this GPU; ValueError if it has less memory free."""
    free, total = torch.cuda.mem_get_info(device)
    available = free + torch.cuda.memory_reserved(device)
    if available < budget_bytes:
        raise ValueError(
            f"{device} has {available / GIB:.1f} GiB free, but the budget is {budget_bytes / GIB:.1f} GiB; close "
            "other programs that use it, or give a smaller budget"
        )
    if device.index is not None:  # diffusers creates its streams on the current device and synchronizes that one
        torch.cuda.set_device(device)
    torch.cuda.set_per_process_memory_fraction(budget_bytes / total)


def _host_can_pin(weights: int) -> bool:
    """Whether the host has enough free memory to pin this many bytes of weights, with a reserve."""
    from accelerate.utils import get_max_memory

    return get_max_memory()["cpu"] > weights + weights // 4 + 2 * GIB
