"""Low-rank updates (LoRA) of linear layers: beside the weights, by peft's layers, or added to them.

An update is often smaller than the last bit of a 16-bit weight: added there, much of its effect is gone, so only
float32 weights take updates in. R rank.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from .parts import PARTS, part_names
from .storage import LONGEST, CheckpointError

if typing.TYPE_CHECKING:
    from peft.tuners.lora import LoraLayer

    from .folders import Storage

WORLD = "world"  # the adapter that a world's own updates have; files on top are numbered
_LORA = re.compile(r"\.lora_[AB]\.")


@dataclass(frozen=True)
class LowRank:
    """The update of one layer: W + scale * up @ down. down: (R, inputs). up: (outputs, R)."""

    down: Tensor
    up: Tensor
    scale: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the weight that it updates."""
        return self.up.shape[0], self.down.shape[1]

    @property
    def bytes(self) -> int:
        """What it takes to store."""
        return self.down.nbytes + self.up.nbytes

    def delta(self, device: torch.device | str = "cpu") -> Tensor:
        """(outputs, inputs) fp32: what it adds to the weight."""
        return self.scale * (self.up.to(device, torch.float32) @ self.down.to(device, torch.float32))


LowRanks = Mapping[str, LowRank]  # name of a linear layer -> its update


def is_lora(name: str) -> bool:
    """Whether a parameter of that name belongs to a low-rank update."""
    return _LORA.search(name) is not None


def plain_name(name: str) -> str:
    """A tensor's name in the same model without updates."""
    return name.replace(".base_layer.", ".")


def plain_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and stored buffers by the names that they have without updates, and without these."""
    return {plain_name(name): value for name, value in model.state_dict(keep_vars=True).items() if not is_lora(name)}


def lora_layers(model: nn.Module) -> Iterator[tuple[str, LoraLayer]]:
    """(name, layer) of each layer that has updates beside its weight."""
    from peft.tuners.lora import LoraLayer

    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer))


def linear_layers(model: nn.Module) -> list[str]:
    """The names of a model's linear layers, with or without updates."""
    from peft.tuners.lora import LoraLayer

    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | LoraLayer) and not name.endswith(".base_layer") and not is_lora(f"{name}.")
    ]


def check_fit(model: nn.Module, updates: LowRanks, where: Path) -> None:
    """CheckpointError for an update of a layer that the model lacks, or of another shape; `where` they come from."""
    linears = set(linear_layers(model))
    for name, update in updates.items():
        if name not in linears:
            raise CheckpointError(f"{where}: updates {name[:LONGEST]!r}; this world has no such linear layer")
        shape = tuple(_base(model.get_submodule(name)).weight.shape)
        if shape != update.shape:
            raise CheckpointError(f"{where}: the update of {name!r} is for {update.shape}, this world has {shape}")


@torch.no_grad()
def attach(model: nn.Module, updates: LowRanks, adapter: str, strength: float = 1.0) -> None:
    """Give layers their updates, in place: beside 16-bit weights as an adapter of this name, added to wider ones.

    strength: the share of them that counts. The layers' shapes must fit.
    """
    beside: dict[str, LowRank] = {}
    for name, update in updates.items():
        weight = _base(model.get_submodule(name)).weight
        assert tuple(weight.shape) == update.shape, f"{name}: {tuple(weight.shape)} for an update of {update.shape}"
        if weight.element_size() < 4:
            beside[name] = update
        elif strength:
            weight.data = weight.data + strength * update.delta(weight.device).to(weight.dtype)
    if beside:
        _put_beside(model, beside, adapter)
        set_strength(model, adapter, strength)


def _put_beside(model: nn.Module, updates: LowRanks, adapter: str) -> None:
    from peft.tuners.lora import Linear

    ranks = {name: len(update.down) for name, update in updates.items()}
    inject(model, ranks, adapter, low_cpu_mem_usage=True)
    for name, update in updates.items():
        layer = typing.cast("LoraLayer", model.get_submodule(name))
        weight = _base(layer).weight
        for half, value in ((layer.lora_A, update.down), (layer.lora_B, update.up)):
            own = value.detach().to(weight.device, weight.dtype, copy=True)
            half[adapter].weight = nn.Parameter(own, requires_grad=False)
        layer.lora_alpha[adapter] = update.scale * len(update.down)  # peft divides by the rank again
        if type(layer) is Linear:
            layer.__class__ = _in_play(Linear)
        layer.eval()


@cache
def _in_play(kind: type[LoraLayer]) -> type[LoraLayer]:
    """A kind of peft's layers that adds each update by the matrix product itself where nothing is trained: peft scales
    and adds in passes of their own over rows as wide as the result. A compiler makes one of these passes, and would
    copy the result before anything is added in place. A class, since compiled blocks share code by the classes in them.
    """

    class InPlay(kind):
        def forward(self, rows: Tensor) -> Tensor:
            weights = [self.base_layer.weight, *(half.weight for half in self.lora_A.values())]
            plain = not (torch.is_grad_enabled() or self.training or torch.compiler.is_compiling())
            if not plain or any(weight.dtype != rows.dtype for weight in weights):
                return super().forward(rows)
            result = self.base_layer(rows)
            flat, given = result.view(-1, result.shape[-1]), rows.reshape(-1, rows.shape[-1])
            for adapter, half in self.lora_A.items():
                if scale := self.scaling[adapter]:
                    flat.addmm_(given @ half.weight.T, self.lora_B[adapter].weight.T, alpha=scale)
            return result

    return InPlay


def inject(model: nn.Module, ranks: Mapping[str, int], adapter: str, **others: typing.Any) -> None:
    """Add an adapter to these layers (name -> rank), all of whose adapters then count; others: of LoraConfig, and
    low_cpu_mem_usage, which leaves its weights without memory.
    """
    from peft import LoraConfig, inject_adapter_in_model

    lean = others.pop("low_cpu_mem_usage", False)
    names, first = {name: re.escape(name) for name in ranks}, next(iter(ranks.values()))
    config = LoraConfig(
        r=first,
        target_modules="|".join(names.values()),
        rank_pattern={f"^{names[name]}$": rank for name, rank in ranks.items() if rank != first},
        **others,
    )
    inject_adapter_in_model(config, model, adapter_name=adapter, low_cpu_mem_usage=lean)
    vars(model).pop("peft_config", None)  # peft's note for its own wrapper, which there is none of
    for _, layer in lora_layers(model):
        layer.set_adapter(list(layer.lora_A))  # peft leaves the newest one alone active
        layer.requires_grad_(False)


def set_strength(model: nn.Module, adapter: str, strength: float) -> None:
    """Let an adapter that lies beside weights count by another share, without touching a weight."""
    for _, layer in lora_layers(model):
        layer.set_scale(adapter, strength)


def weaken(layer: nn.Module, factor: float) -> None:
    """Let all updates beside a layer's weight count less, as if that weight with them were scaled by the factor."""
    for adapter in getattr(layer, "scaling", {}):
        layer.scaling[adapter] *= factor


@torch.no_grad()
def take_in(model: nn.Module) -> None:
    """Add the updates beside float32 weights to these; those beside narrower ones stay where they are."""
    for name, layer in list(lora_layers(model)):
        weight = _base(layer).weight
        if weight.element_size() >= 4:
            for update in _updates(layer).values():
                weight.data = weight.data + update.delta(weight.device).to(weight.dtype)
            _replace(model, name, _base(layer))


def detach(model: nn.Module, *adapters: str) -> None:
    """Drop adapters; layers that have no other are plain ones again."""
    for name, layer in list(lora_layers(model)):
        for adapter in set(adapters) & set(layer.lora_A):
            layer.delete_adapter(adapter)
        if not layer.lora_A:
            _replace(model, name, _base(layer))


def note_changed(model: nn.Module, names: Iterable[str]) -> None:
    """Remember that these tensors (plain names) are no longer as the world stores them."""
    model.changed_tensors = changed_tensors(model) | set(names)


def changed_tensors(model: nn.Module) -> frozenset[str]:
    """The tensors (plain names) of a model that files on top changed since it was loaded."""
    return frozenset(getattr(model, "changed_tensors", ()))


@torch.no_grad()
def restore(model: nn.Module, storages: Mapping[str, Storage]) -> None:
    """Bring a model back to what its world stores (part -> where it is stored), with the world's own updates alone."""
    changed, places = changed_tensors(model), plain_tensors(model)
    detach(model, *(adapter for adapter in adapters_of(model) if adapter != WORLD))
    set_strength(model, WORLD, 1.0)
    for part, storage in storages.items():
        names = part_names(PARTS[part].model, part, changed)
        source = storage.source(part) if names else None
        for stored, name in names.items():
            places[name].copy_(source.tensor(stored))
        wide = {name.removesuffix(".weight") for name in names.values() if places[name].element_size() >= 4}
        updates = storage.lora(part) if wide else {}
        attach(model, {name: update for name, update in updates.items() if name in wide}, WORLD)
    model.changed_tensors = frozenset()


def adapters_of(model: nn.Module) -> tuple[str, ...]:
    """The names of all adapters that lie beside weights, in order."""
    return tuple(dict.fromkeys(adapter for _, layer in lora_layers(model) for adapter in layer.lora_A))


def free_name(model: nn.Module) -> str:
    """A name that no adapter has yet."""
    taken = set(adapters_of(model))
    return next(name for number in range(len(taken) + 1) if (name := f"file{number}") not in taken)


def updates_of(model: nn.Module, adapter: str | None = None) -> dict[str, LowRank]:
    """Layer -> its update by an adapter, or of all of them together where None is given."""
    found = {}
    for name, layer in lora_layers(model):
        own = _updates(layer)
        chosen = list(own.values()) if adapter is None else [own[adapter]] if adapter in own else []
        if len(chosen) > 1:
            ups = [update.scale * update.up.float() for update in chosen]
            found[name] = LowRank(torch.cat([update.down.float() for update in chosen]), torch.cat(ups, dim=1))
        elif chosen:
            found[name] = chosen[0]
    return found


def stacked_updates(layers: Sequence[nn.Module]) -> dict[str, LowRank]:
    """Adapter -> its update of the layer whose rows are those of these layers, which read the same, one after the
    other; empty where none of them has updates.
    """
    own = [_updates(layer) if hasattr(layer, "lora_A") else {} for layer in layers]
    return {
        adapter: _stacked([updates.get(adapter) for updates in own], [len(layer.weight) for layer in layers])
        for adapter in dict.fromkeys(name for updates in own for name in updates)
    }


def _stacked(updates: Sequence[LowRank | None], rows: Sequence[int]) -> LowRank:
    found = [update for update in updates if update is not None]
    scales = {update.scale for update in found}
    shared = scales.pop() if len(scales) == 1 else None  # else each goes into its own rows
    ups = [
        found[0].up.new_zeros(count, 0)
        if update is None
        else update.up
        if shared is not None
        else update.scale * update.up
        for update, count in zip(updates, rows, strict=True)
    ]
    down = torch.cat([update.down for update in found])
    return LowRank(down, torch.block_diag(*ups), 1.0 if shared is None else shared)


def strengths_of(model: nn.Module) -> list[tuple[str, str, float]]:
    """(layer, adapter, scale) of all updates beside weights: what they count beyond their own numbers."""
    return [(name, adapter, scale) for name, layer in lora_layers(model) for adapter, scale in layer.scaling.items()]


def _updates(layer: LoraLayer) -> dict[str, LowRank]:
    halves = {adapter: (layer.lora_A[adapter].weight, layer.lora_B[adapter].weight) for adapter in layer.lora_A}
    return {adapter: LowRank(down, up, layer.scaling[adapter]) for adapter, (down, up) in halves.items()}


def _base(layer: nn.Module) -> nn.Linear:
    """The linear layer itself, below its updates."""
    return typing.cast(nn.Linear, layer.get_base_layer() if hasattr(layer, "get_base_layer") else layer)


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)
