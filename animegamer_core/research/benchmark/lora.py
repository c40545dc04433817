"""Measures the cost of unmerged LoRA with 16-bit weights: the same turn with and without it, alternately."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from ...checkpoint.lora import attach, linear_layers, lora_of
from ...checkpoint.lora_files import LoraUpdate
from ...runtime.presets import Preset, apply_preset
from ...train.stages import LORA, matching
from .measure import time_work
from .turn import OurTurn

TARGETS = {"engine": LORA["predict"].lora_targets, "decoder": LORA["joint"].lora_targets}  # as published
PARTS = ("engine", "sampler")
ROUNDS = 2  # of both measurements in turn, so that a GPU that slows down affects both


@dataclass(frozen=True)
class LoraCost:
    """The cost for one part of a turn.

    layers: how many have LoRA. without, beside: seconds of all runs without and with LoRA.
    """

    part: str
    rank: int
    layers: int
    without: tuple[float, ...]
    beside: tuple[float, ...]

    @property
    def line(self) -> str:
        """The result as text."""
        without, beside = statistics.median(self.without), statistics.median(self.beside)
        spread = 100 * (max(self.without) - min(self.without)) / without
        return (
            f"{self.part:8} {beside:.4f} s with LoRA of rank {self.rank} beside {self.layers} layers, {without:.4f} "
            f"without: {100 * (beside / without - 1):+.1f} % (runs without differ by {spread:.1f} %)"
        )


def measure_lora(
    turn: OurTurn, preset: Preset, rank: int, repeats: int, say: Callable[[str], object]
) -> tuple[LoraCost, ...]:
    """The cost of LoRA of this rank for a plain turn's models, with the preset applied.

    ValueError for float32 weights, into which LoRA is merged.
    """
    if turn.decoder.unconditional_ND.dtype.itemsize >= 4:
        raise ValueError("LoRA is merged into float32 weights, which costs nothing; give --dtype bfloat16")
    works = {}
    for kind in ("without", "beside"):
        own = replace(turn, engine=copy.deepcopy(turn.engine), decoder=copy.deepcopy(turn.decoder))
        if kind == "beside":
            for name, patterns in TARGETS.items():
                _attach_random(getattr(own, name), name, patterns, rank)
            layers = {"engine": len(lora_of(own.engine)), "sampler": len(lora_of(own.decoder))}
        works[kind] = own.parts()
        apply_preset(own.decoder, preset)
    device = turn.decoder.unconditional_ND.device
    seconds = {(part, kind): () for part in PARTS for kind in works}
    for _ in range(ROUNDS):
        for part, kind in seconds:
            seconds[part, kind] += time_work(works[kind][part], device, repeats).seconds
    costs = tuple(
        LoraCost(part, rank, layers[part], seconds[part, "without"], seconds[part, "beside"]) for part in PARTS
    )
    for cost in costs:
        say(f"LoRA: {cost.line}")
    return costs


def _attach_random(model: nn.Module, kind: str, patterns: tuple[str, ...], rank: int) -> None:
    """Attach random LoRA to the layers that a pattern matches. kind: the model's name, with which patterns begin."""
    loras = {}
    for found in matching(patterns, [f"{kind}.{name}" for name in linear_layers(model)]):
        name = found.removeprefix(f"{kind}.")
        rows, columns = model.get_submodule(name).weight.shape
        loras[name] = LoraUpdate(torch.randn(rank, columns) / columns**0.5, 1e-3 * torch.randn(rows, rank))
    attach(model, loras, "file0")
