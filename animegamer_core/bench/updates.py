"""What low-rank updates (LoRA) beside 16-bit weights cost: the same turn with and without them, measured by turns."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from ..checkpoint.lora import LowRank, attach, linear_layers, updates_of
from ..presets import Preset, prepare
from ..train.stages import LORA, matching
from .measure import Timing, timed
from .turn import OurTurn

TARGETS = {"engine": LORA["predict"].lora_targets, "decoder": LORA["joint"].lora_targets}  # as published
PARTS = ("engine", "sampler")
ROUNDS = 2  # of without and with, so that a card that grows slower counts for both


@dataclass(frozen=True)
class UpdatesCost:
    """One part of a turn. without, beside: seconds of all runs. layers: how many have an update of this rank."""

    part: str
    rank: int
    layers: int
    without: tuple[float, ...]
    beside: tuple[float, ...]

    @property
    def line(self) -> str:
        """The result as text."""
        without, beside = statistics.median(self.without), statistics.median(self.beside)
        apart = 100 * (max(self.without) - min(self.without)) / without
        return (
            f"{self.part:8} {beside:.4f} s with updates of rank {self.rank} beside {self.layers} layers, {without:.4f} "
            f"without: {100 * (beside / without - 1):+.1f} % (runs without lie {apart:.1f} % apart)"
        )

    def values(self) -> dict[str, Any]:
        """Plain values for a json file."""
        return asdict(self)


def measure_updates(
    turn: OurTurn, preset: Preset, rank: int, repeats: int, say: Callable[[str], object]
) -> tuple[UpdatesCost, ...]:
    """The cost of updates of this rank for an untuned turn's models, computed as the preset says. ValueError where
    weights are float32, which take updates in.
    """
    if turn.decoder.unconditional_ND.dtype.itemsize >= 4:
        raise ValueError("float32 weights take low-rank updates in, which costs nothing; give --dtype bfloat16")
    turns = {}
    for kind in ("without", "beside"):
        own = replace(turn, engine=copy.deepcopy(turn.engine), decoder=copy.deepcopy(turn.decoder))
        if kind == "beside":
            for name, patterns in TARGETS.items():
                _attach_random(getattr(own, name), patterns, rank)
        counts = {"engine": len(updates_of(own.engine)), "sampler": len(updates_of(own.decoder))}
        parts = own.parts()
        prepare(own.decoder, preset)
        turns[kind] = parts
    device = turn.decoder.unconditional_ND.device
    found = {(part, kind): [] for part in PARTS for kind in turns}
    for _ in range(ROUNDS):
        for part in PARTS:
            for kind, parts in turns.items():
                timing: Timing = timed(parts[part], device, repeats)
                found[part, kind] += timing.seconds
    costs = tuple(
        UpdatesCost(part, rank, counts[part], tuple(found[part, "without"]), tuple(found[part, "beside"]))
        for part in PARTS
    )
    for cost in costs:
        say(f"low-rank updates: {cost.line}")
    return costs


def _attach_random(model: nn.Module, patterns: tuple[str, ...], rank: int) -> None:
    """Random updates of layers that a pattern finds; stage files name them behind the model's own name."""
    names = linear_layers(model)
    kind = "engine." if hasattr(model, "llm") else "decoder."
    chosen = matching(patterns, [f"{kind}{name}" for name in names])
    updates = {}
    for name in (chosen_name.removeprefix(kind) for chosen_name in chosen):
        rows, columns = model.get_submodule(name).weight.shape
        updates[name] = LowRank(torch.randn(rank, columns) / columns**0.5, 1e-3 * torch.randn(rows, rank))
    attach(model, updates, "file0")
