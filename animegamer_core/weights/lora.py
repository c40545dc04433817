"""LoRA in loaded models: unmerged, in peft's layers, or merged into the weights.

A LoRA is often smaller than the last bit of a 16-bit weight, so merging loses much of its effect; only float32 weights
are merged. R rank.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..messages import shortened
from ..spec import ModelSpec
from .adapter_files import is_outside, read_adapter, read_outside
from .parts import PARTS, LoraUpdate, LoraUpdates, is_lora, part_names, plain_tensors
from .storage import LONGEST, CheckpointError

if TYPE_CHECKING:
    from peft.tuners.lora import LoraLayer

    from .storage import TensorSource


WORLD = "world"  # the adapter name of a world's own LoRA; those of adapter files are numbered


def lora_layers(model: nn.Module) -> Iterator[tuple[str, LoraLayer]]:
    """(name, layer) of each layer that has unmerged LoRA."""
    from peft.tuners.lora import LoraLayer

    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer))


def linear_layers(model: nn.Module) -> list[str]:
    """The names of a model's linear layers, with or without LoRA."""
    from peft.tuners.lora import LoraLayer

    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | LoraLayer) and not name.endswith(".base_layer") and not is_lora(f"{name}.")
    ]


def check_fit(model: nn.Module, updates: LoraUpdates, where: Path) -> None:
    """CheckpointError for LoRA of a layer that the model lacks, or of another shape. where: its folder."""
    linears = set(linear_layers(model))
    for name, update in updates.items():
        shape = tuple(_base(model.get_submodule(name)).weight.shape) if name in linears else "no such linear layer"
        if shape != update.shape:
            said = f"the LoRA for {shortened(name, LONGEST)!r} has shape {update.shape}, but this world has {shape}"
            raise CheckpointError(f"{where}: {said}")


@torch.no_grad()
def attach(model: nn.Module, updates: LoraUpdates, adapter: str, strength: float = 1.0) -> None:
    """Give layers LoRA, in place: unmerged for 16-bit weights, as an adapter of this name; merged into wider ones.

    strength: what it is multiplied by. The layers' shapes must fit.
    """
    beside: dict[str, LoraUpdate] = {}
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


def _put_beside(model: nn.Module, updates: LoraUpdates, adapter: str) -> None:
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
            layer.__class__ = _in_play(Linear)  # type: ignore[arg-type]
        layer.eval()


@cache
def _in_play(kind: type) -> type[LoraLayer]:
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
    vars(model).pop("peft_config", None)  # a note for peft's own wrapper, which is not used
    for _, layer in lora_layers(model):
        layer.set_adapter(list(layer.lora_A))  # peft activates only the latest one
        layer.requires_grad_(False)


def set_strength(model: nn.Module, adapter: str, strength: float) -> None:
    """Set the strength of an unmerged adapter, without touching a weight."""
    for _, layer in lora_layers(model):
        layer.set_scale(adapter, strength)


@contextmanager
def left_out(model: nn.Module, *adapters: str) -> Iterator[None]:
    """Compute without these unmerged adapters while the block runs; their weights get no gradient from it."""
    layers = [layer for _, layer in lora_layers(model)]
    with _active({layer: [name for name in layer.lora_A if name not in adapters] for layer in layers}):
        yield


def recomputed(block: nn.Module, *inputs: Any) -> Any:
    """`block(*inputs)`, computed once more in the backward pass to save memory, with the adapters that it has now."""
    now = {layer: list(layer.active_adapters) for _, layer in lora_layers(block)}

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _active(now)

    return checkpoint(block.__call__, *inputs, use_reentrant=False, context_fn=contexts)


@contextmanager
def _active(adapters: Mapping[LoraLayer, list[str]]) -> Iterator[None]:
    """Compute with these adapters of layers while the block runs, and with those of before after it."""
    before = {layer: list(layer.active_adapters) for layer in adapters}
    trained = [(value, value.requires_grad) for layer in adapters for value in layer.parameters()]

    def activate(those: Mapping[LoraLayer, list[str]]) -> None:
        for layer, names in those.items():
            layer.set_adapter(names)
        for value, was in trained:  # peft changes what is trained, too
            value.requires_grad_(was)

    activate(adapters)
    try:
        yield
    finally:
        activate(before)


@torch.no_grad()
def take_in(model: nn.Module) -> None:
    """Merge LoRA into float32 weights; LoRA of narrower weights stays unmerged."""
    for name, layer in list(lora_layers(model)):
        weight = _base(layer).weight
        if weight.element_size() >= 4:
            for update in _updates(layer).values():
                weight.data = weight.data + update.delta(weight.device).to(weight.dtype)
            _replace(model, name, _base(layer))


def detach(model: nn.Module, *adapters: str) -> None:
    """Remove adapters; layers without any other become plain linear layers again."""
    for name, layer in list(lora_layers(model)):
        for adapter in set(adapters) & set(layer.lora_A):
            layer.delete_adapter(adapter)
        if not layer.lora_A:
            _replace(model, name, _base(layer))


def note_changed(model: nn.Module, names: Iterable[str]) -> None:
    """Record that these tensors (names without LoRA) differ from what the world stores."""
    model.changed_tensors = changed_tensors(model) | set(names)


def changed_tensors(model: nn.Module) -> frozenset[str]:
    """The tensors (names without LoRA) that adapters changed since the model was loaded."""
    return frozenset(getattr(model, "changed_tensors", ()))


@torch.no_grad()
def restore(
    model: nn.Module,
    parts: Iterable[str],
    source_of: Callable[[str], TensorSource],
    lora_in: Callable[[str], LoraUpdates],
) -> None:
    """Restore what the model's world stores in these parts, with the world's own LoRA only."""
    changed, parameters = changed_tensors(model), plain_tensors(model)
    detach(model, *(adapter for adapter in adapters_of(model) if adapter != WORLD))
    set_strength(model, WORLD, 1.0)
    for part in parts:
        names = part_names(PARTS[part].model, part, changed)
        source = source_of(part) if names else None
        for stored, name in names.items():
            parameters[name].copy_(source.tensor(stored))
        wide = {name.removesuffix(".weight") for name in names.values() if parameters[name].element_size() >= 4}
        updates = lora_in(part) if wide else {}
        attach(model, {name: update for name, update in updates.items() if name in wide}, WORLD)
    model.changed_tensors = frozenset()


def adapters_of(model: nn.Module) -> tuple[str, ...]:
    """The names of all unmerged adapters, in order."""
    return tuple(dict.fromkeys(adapter for _, layer in lora_layers(model) for adapter in layer.lora_A))


def free_name(model: nn.Module) -> str:
    """A name that no adapter of the model has."""
    taken = set(adapters_of(model))
    return next(name for number in range(len(taken) + 1) if (name := f"file{number}") not in taken)


def lora_of(model: nn.Module, adapter: str | None = None) -> dict[str, LoraUpdate]:
    """Layer -> its LoRA of one adapter, or of all adapters together for None."""
    found = {}
    for name, layer in lora_layers(model):
        own = _updates(layer)
        chosen = list(own.values()) if adapter is None else [own[adapter]] if adapter in own else []
        if len(chosen) > 1:
            ups = [update.scale * update.up.float() for update in chosen]
            found[name] = LoraUpdate(torch.cat([update.down.float() for update in chosen]), torch.cat(ups, dim=1))
        elif chosen:
            found[name] = chosen[0]
    return found


def stacked_lora(layers: Sequence[nn.Module]) -> dict[str, LoraUpdate]:
    """Adapter -> its LoRA of one layer that stacks the rows of these layers, which have the same input; empty if none
    of them has LoRA.
    """
    own = [_updates(layer) if hasattr(layer, "lora_A") else {} for layer in layers]
    found = {}
    for adapter in dict.fromkeys(name for updates in own for name in updates):
        updates = [each.get(adapter) for each in own]
        downs = [update.down for update in updates if update is not None]
        ups = [
            downs[0].new_zeros(len(layer.weight), 0) if update is None else update.scale * update.up
            for layer, update in zip(layers, updates, strict=True)
        ]
        found[adapter] = LoraUpdate(torch.cat(downs), torch.block_diag(*ups))
    return found


def strengths_of(model: nn.Module) -> list[tuple[str, str, float]]:
    """(layer, adapter, scale) of all unmerged LoRA."""
    return [(name, adapter, scale) for name, layer in lora_layers(model) for adapter, scale in layer.scaling.items()]


def _updates(layer: LoraLayer) -> dict[str, LoraUpdate]:
    pairs = {adapter: (layer.lora_A[adapter].weight, layer.lora_B[adapter].weight) for adapter in layer.lora_A}
    return {adapter: LoraUpdate(down, up, layer.scaling[adapter]) for adapter, (down, up) in pairs.items()}


def _base(layer: nn.Module) -> nn.Linear:
    """The linear layer itself, without its LoRA."""
    return typing.cast(nn.Linear, layer.get_base_layer() if hasattr(layer, "get_base_layer") else layer)


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


_Change: TypeAlias = Tensor | tuple[Tensor, Tensor]  # a tensor's new value, or (lora_A, lora_B)


@torch.no_grad()
def apply_adapter(path: Path, kind: str, model: nn.Module, strength: float = 1.0) -> None:
    """Put what an adapter file has for one model, `encoder`, `decoder` or `engine`, into it.

    strength: 0 leaves the weights as they are, 1 gives the trained ones, others interpolate or extrapolate. LoRA is
    merged into float32 weights, and stays unmerged for narrower ones. ValueError names the first tensor that the model
    lacks, or whose shape differs.
    """
    if is_outside(path):
        if kind == "decoder":
            updates = {f"transformer.{layer}": update for layer, update in read_outside(path).items()}
            check_fit(model, updates, path)
            attach(model, updates, free_name(model), strength)
            note_changed(model, (f"{name}.weight" for name in updates))
        return
    notes, tensors = read_adapter(path)
    rank, alpha = notes.config.get("lora_rank", 0), notes.config.get("lora_alpha", 1.0)
    ours = {name.removeprefix(f"{kind}."): value for name, value in tensors.items() if name.startswith(f"{kind}.")}
    parameters, updates = plain_tensors(model), {}
    changes = _changes(path, ours, parameters)
    for name, change in changes.items():
        if isinstance(change, Tensor):
            parameter, trained = parameters[name], change.to(parameters[name].device, torch.float32)
            parameter.copy_(trained if strength == 1 else torch.lerp(parameter.float(), trained, strength))
            layer = model.get_submodule(name.rpartition(".")[0])
            for adapter in getattr(layer, "scaling", {}) if name.endswith(".weight") else ():
                layer.scaling[adapter] *= 1 - strength  # as if the LoRA of this weight were a part of it
        else:
            updates[name.removesuffix(".weight")] = LoraUpdate(change[0], change[1], alpha / rank)
    attach(model, updates, free_name(model), strength)
    note_changed(model, changes)
    if kind == "decoder" and any(name.startswith("vae.encoder.") for name in ours):
        # latents of a newly trained encoder have another scale
        before, trained = model.vae.config.scaling_factor, ModelSpec.from_dict(notes.about).decoder.vae.scaling_factor
        model.vae.register_to_config(scaling_factor=before + strength * (trained - before))


def _changes(path: Path, tensors: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> dict[str, _Change]:
    """Tensor name -> its change; ValueError for a tensor that the models lack, or of another shape."""
    changes: dict[str, _Change] = {}
    for name, value in tensors.items():
        if ".lora_B." in name:
            continue
        layer, is_low_rank, rest = name.partition(".lora_A.")
        up = tensors.get(f"{layer}.lora_B.{rest}", value[:0]) if is_low_rank else None
        target = f"{layer}.weight" if is_low_rank else name
        shape = (len(up), value.shape[1]) if is_low_rank else tuple(value.shape)
        found = tuple(parameters[target].shape) if target in parameters else "nothing"
        if found != shape:
            raise ValueError(
                f"{path}: {name} is for shape {shape}, this world has {found}; the file is for another spec"
            )
        changes[target] = (value, up) if is_low_rank else value
    return changes
