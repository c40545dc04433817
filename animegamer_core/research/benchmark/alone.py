"""Measures single choices: what each optimization saves and how far it drifts, and what unmerged LoRA costs."""

from __future__ import annotations

import copy
import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from ...checkpoint.lora import attach, linear_layers, lora_of
from ...checkpoint.lora_files import LoraUpdate
from ...runtime.optimizations import approximations, optimize
from ...runtime.presets import Preset, apply_preset
from ...train.stages import LORA, matching
from .measure import Timing, drift, in_float32, short_shot, time_work
from .turn import OurTurn

HEAD = f"{'alone':13} {'sampler s':>10} {'ratio':>6} {'vae s':>8} {'ratio':>6} {'first run s':>12} {'drift':>9}"
TARGETS = {"engine": LORA["predict"].lora_targets, "decoder": LORA["joint"].lora_targets}  # as published
PARTS = ("engine", "sampler")
ROUNDS = 2  # of both measurements in turn, so that a GPU that slows down affects both


@dataclass(frozen=True)
class OptimizationRow:
    """One optimization.

    first: seconds of its first shot, compiling included. against: seconds of each part without it.
    """

    name: str
    sampler: Timing
    vae: Timing
    first: float
    drift: float
    against: Mapping[str, float]

    @property
    def line(self) -> str:
        """The row as text."""
        sampler, vae = self.sampler.median, self.vae.median
        name = f"{self.name} ~" if approximations([self.name]) else self.name
        return (
            f"{name:13} {sampler:>10.3f} {self.against['sampler'] / sampler:>6.2f} {vae:>8.3f}"
            f" {self.against['vae'] / vae:>6.2f} {self.first:>12.1f} {self.drift:>9.2e}"
        )


@dataclass(frozen=True)
class OptimizationTable:
    """All measured optimizations. format_drift: of the number format from float32; None if it is float32."""

    rows: tuple[OptimizationRow, ...]
    format_drift: float | None

    @property
    def text(self) -> str:
        """The printed table."""
        lines = [HEAD, *(row.line for row in self.rows)]
        if self.format_drift is not None:
            lines.append(f"(the number format drifts by {self.format_drift:.2e} from float32)")
        if approximations([row.name for row in self.rows]):
            lines.append("(~ approximate: a shot can differ by more than rounding)")
        return "\n".join(lines)


def measure_each(
    turn: OurTurn, names: Sequence[str], repeats: int, against: Mapping[str, float], say: Callable[[str], object]
) -> OptimizationTable:
    """Measure each optimization on a copy of the plain decoder. against: seconds of sampler and VAE without any."""
    plain = short_shot(turn.decoder)
    exact, device = in_float32(turn.decoder, short_shot), turn.decoder.unconditional_ND.device
    rows = []
    for name in names:
        say(f"alone: {name}")
        optimized = replace(turn, decoder=copy.deepcopy(turn.decoder))
        parts = optimized.parts()  # this takes a step, so it comes before optimizing: the first optimized step is timed
        optimize(optimized.decoder, [name])
        sampler, vae = (time_work(parts[part], device, repeats) for part in ("sampler", "vae"))
        moved = drift(short_shot(optimized.decoder), plain)
        rows.append(OptimizationRow(name, sampler, vae, sampler.first + vae.first, moved, dict(against)))
        say(rows[-1].line)
        del optimized, parts
        gc.collect()
    return OptimizationTable(tuple(rows), None if exact is None else drift(plain, exact))


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
