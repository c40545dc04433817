"""Streamed models on one card: who is there, who passes through, and who leaves to make room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from weakref import WeakSet

import torch
from diffusers.hooks import apply_group_offloading
from torch import Tensor, nn

from ..decoder import ShotDecoder
from ..engine import GameEngine
from .shares import GIB, PROMPT_TOKENS, Share, plan_share, prefill_bytes, usable

_STREAMED: WeakSet[nn.Module] = WeakSet()


def plan(model: GameEngine | ShotDecoder, budget_bytes: int, prompt_tokens: int = PROMPT_TOKENS) -> tuple[Share, ...]:
    """The share of each of a model's stacks, from its sizes alone: a model on the meta device serves as well.

    Arguments as for `Card`. ValueError says what the budget would have to be.
    """
    return tuple(plan_share(*part.sizes, budget_bytes) for part in _parts(model, prompt_tokens, budget_bytes))


def is_streamed(model: nn.Module) -> bool:
    """Whether a model's weights pass through a card: it then computes in one thread, on that card, and nowhere else."""
    return model in _STREAMED


class Card:
    """One GPU's memory, which streamed models use by turns. They compute as ever, in one thread at a time.

    budget_bytes: all that this process sets aside on the GPU from now on; torch is told to keep to it. prompt_tokens:
    the longest prompt that the engine will read. pinned: weights wait in pinned memory, an eighth larger than they are,
    which is the quick way; otherwise where they were loaded, such as in mapped files, and are pinned at each passage.
    None: pinned if the host has the memory; each share's `text` tells.
    """

    def __init__(
        self, device: torch.device, budget_bytes: int, *, prompt_tokens: int = PROMPT_TOKENS, pinned: bool | None = None
    ) -> None:
        _claim(device, budget_bytes)
        self.device = device
        self.budget_bytes = budget_bytes
        self.prompt_tokens = prompt_tokens
        self.pinned = pinned
        self._stacks: list[_Stack] = []  # in the order of their last use

    def stream(self, model: GameEngine | ShotDecoder) -> tuple[Share, ...]:
        """Let a model compute on this card, wherever its weights are now; returns the share of each of its stacks.

        It is changed in place and for good: tune it before, and leave its device alone from then on. A decoder decodes
        in tiles from now on if its whole decode does not fit. ValueError: the budget is too small for one of its
        stacks, or the model is streamed already.
        """
        if is_streamed(model):
            raise ValueError("this model is streamed already; load another to stream it elsewhere")
        parts = _parts(model, self.prompt_tokens, self.budget_bytes)
        shares = tuple(plan_share(*part.sizes, self.budget_bytes) for part in parts)
        pinned = _host_holds(_bytes(_tensors(model))) if self.pinned is None else self.pinned
        shares = tuple(replace(share, pinned=pinned) for share in shares)
        if isinstance(model, ShotDecoder):
            model.tiled = _tiled(model, self.budget_bytes)
        stacks = [_Stack(part, share, self) for part, share in zip(parts, shares, strict=True)]
        for tensor in _outside(model, parts):  # code asks these for a model's device
            tensor.data = tensor.data.to(self.device)
        self._stacks = [*stacks, *self._stacks]
        _STREAMED.add(model)
        return shares

    @property
    def held_bytes(self) -> int:
        """The weights that are on the card between two computations."""
        return sum(stack.held_bytes for stack in self._stacks)

    def enter(self, stack: _Stack) -> None:
        """Bring a stack's weights onto the card, as far as its share goes, and take away what is in their way."""
        if self._stacks[-1] is stack and stack.held_bytes:
            return
        others = [other for other in self._stacks if other is not stack]
        room = usable(self.budget_bytes) - stack.share.peak
        # Stacks take turns in a circle, so the one that was used last is the one that is needed last.
        for other in reversed(others):
            other.leave(other.held_bytes - max(0, sum(each.held_bytes for each in others) - room))
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # room that torch keeps for tensors of another stack's sizes is no room
        stack.enter()
        self._stacks = [*others, stack]


@dataclass(frozen=True)
class _Part:
    """A stack as it lies in its model. root: its forward is one pass through the blocks. doors: whoever calls one of
    these begins to compute with the stack.
    """

    name: str
    model: nn.Module
    root: nn.Module
    blocks: tuple[nn.Module, ...]
    doors: tuple[nn.Module, ...]
    working: int

    @property
    def rest(self) -> list[Tensor]:
        """Its tensors outside the blocks."""
        inside = {id(tensor) for block in self.blocks for tensor in _tensors(block)}
        return [tensor for tensor in _tensors(self.model) if id(tensor) not in inside]

    @property
    def sizes(self) -> tuple[str, int, tuple[int, ...], int]:
        """What `plan_share` asks for."""
        return self.name, _bytes(self.rest), tuple(_bytes(_tensors(block)) for block in self.blocks), self.working


def _parts(model: GameEngine | ShotDecoder, prompt_tokens: int, budget_bytes: int) -> tuple[_Part, ...]:
    if isinstance(model, GameEngine):
        llm = model.llm
        working = prefill_bytes(model.spec, prompt_tokens, llm.lm_head.weight.element_size())
        doors = (llm.model.embed_tokens, llm.model, llm.lm_head)
        return (_Part("engine", llm, llm.model, tuple(llm.model.layers), doors, working),)
    drawing, vae = model.transformer, model.vae
    blocks, decoding = tuple(drawing.transformer_blocks), model.working_bytes
    if _tiled(model, budget_bytes):
        decoding = model.tiled_bytes
    return (
        _Part("transformer", drawing, drawing, blocks, (drawing,), model.sampling_bytes),
        _Part("VAE", vae, vae, (), (vae.encoder, vae.decoder), decoding),
    )


def _tiled(decoder: ShotDecoder, budget_bytes: int) -> bool:
    """Whether a decoder has to decode in tiles, or was told to."""
    return decoder.tiled or _bytes(_tensors(decoder.vae)) + decoder.working_bytes > usable(budget_bytes)


class _Stack:
    """The weights of a part: those that stay while it computes, as units that come and go, and those that pass."""

    def __init__(self, part: _Part, share: Share, card: Card) -> None:
        self.share = share
        self._device = card.device
        pinned = share.pinned and card.device.type == "cuda"
        groups = [part.rest, *(_tensors(part.blocks[index]) for index in share.staying)]
        self._units = [_Unit(tensors, pinned) for tensors in groups]
        passing = [block for index, block in enumerate(part.blocks) if index not in share.staying]
        if passing:
            _pass_through(part.root, passing, card.device, pinned)
        for door in part.doors:
            door.register_forward_pre_hook(lambda *_: card.enter(self))

    @property
    def held_bytes(self) -> int:
        """What of it is on the card, between two computations."""
        return sum(unit.bytes for unit in self._units if unit.here)

    def enter(self) -> None:
        """Bring all units that are missing."""
        for unit in self._units:
            unit.enter(self._device)

    def leave(self, kept_bytes: int) -> None:
        """Let units go, the last ones first, until no more than `kept_bytes` of them are on the card."""
        for unit in reversed(self._units):
            if self.held_bytes > kept_bytes:
                unit.leave()


class _Unit:
    """Tensors that come to the card and leave it together; a copy of them waits on the host all the time."""

    def __init__(self, tensors: Iterable[Tensor], pinned: bool) -> None:
        self._waiting: list[tuple[Tensor, Tensor]] = []
        for tensor in tensors:  # one by one, so that the host never holds two copies of a whole model
            self._waiting.append((tensor, _on_host(tensor, pinned)))
            tensor.data = self._waiting[-1][1]
        self.bytes = _bytes(tensor for tensor, _ in self._waiting)
        self.here = False

    def enter(self, device: torch.device) -> None:
        """Copy to the card what is not there; the copies are ordered before whatever is computed next."""
        if not self.here:
            for tensor, waiting in self._waiting:
                tensor.data = waiting.to(device, non_blocking=True, copy=True)
        self.here = True

    def leave(self) -> None:
        """Forget the card's copy."""
        for tensor, waiting in self._waiting:
            tensor.data = waiting
        self.here = False


class _Passing(nn.Module):
    """Blocks that pass through the card, seen by themselves, with the pass that runs them as forward.

    The library learns the blocks' order, which it needs to copy ahead, only of a module that also holds something
    outside of its blocks; the mark is that.
    """

    def __init__(self, root: nn.Module, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.register_buffer("mark", torch.zeros(1))
        self.forward = root.forward


def _pass_through(root: nn.Module, blocks: Sequence[nn.Module], device: torch.device, pinned: bool) -> None:
    """Have these blocks of a root copied to the device when they compute, and forgotten there afterwards.

    No record_stream: with it the program runs ahead of the GPU, and blocks would arrive faster than they are used up.
    """
    for block in blocks:
        _Unit(_tensors(block), pinned)  # the library pins all before it lets the first go, which holds two copies
    passing = _Passing(root, blocks)
    apply_group_offloading(
        passing,
        onload_device=device,
        offload_type="block_level",
        num_blocks_per_group=1,
        use_stream=device.type == "cuda",
        low_cpu_mem_usage=not pinned,
    )
    root.forward = passing.forward


def _claim(device: torch.device, budget_bytes: int) -> None:
    """Have torch keep to the budget on this GPU; ValueError if it is no GPU or has less to give."""
    if device.type != "cuda":
        raise ValueError(f"weights pass through the memory of an NVIDIA or AMD GPU, and the device is {device}")
    free, total = torch.cuda.mem_get_info(device)
    given = free + torch.cuda.memory_reserved(device)
    if given < budget_bytes:
        raise ValueError(
            f"{device} has {given / GIB:.1f} GiB to give, and {budget_bytes / GIB:.1f} GiB were asked for; close other "
            "programs that use it, or give a smaller budget"
        )
    if (
        device.index is not None
    ):  # the library makes its streams on the current device, and waits for what that one does
        torch.cuda.set_device(device)
    torch.cuda.set_per_process_memory_fraction(budget_bytes / total)


def _host_holds(weights: int) -> bool:
    """Whether the host has the memory to pin so many bytes of weights, and some to spare."""
    from accelerate.utils import get_max_memory

    return get_max_memory()["cpu"] > weights + weights // 4 + 2 * GIB


def _on_host(tensor: Tensor, pinned: bool) -> Tensor:
    waiting = tensor.data.cpu()
    return waiting.pin_memory() if pinned else waiting


def _outside(model: nn.Module, parts: Iterable[_Part]) -> list[Tensor]:
    inside = {id(tensor) for part in parts for tensor in _tensors(part.model)}
    return [tensor for tensor in _tensors(model) if id(tensor) not in inside]


def _tensors(module: nn.Module) -> list[Tensor]:
    return list(chain(module.parameters(), module.buffers()))


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
