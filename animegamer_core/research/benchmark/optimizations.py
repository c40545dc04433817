"""Measures each optimization alone: what it saves, and how far it drifts from the plain computation."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...runtime.optimizations import approximations, optimize
from .drift import drift, in_float32, short_shot
from .measure import Timing, time_work
from .turn import OurTurn

HEAD = f"{'alone':13} {'sampler s':>10} {'ratio':>6} {'vae s':>8} {'ratio':>6} {'first run s':>12} {'drift':>9}"


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
