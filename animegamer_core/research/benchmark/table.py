"""The benchmark's table: each part of a turn with stock modules and with ours, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .drift import Drift
from .lora import LoraCost
from .measure import Timing
from .optimizations import OptimizationTable

HEAD = (
    f"{'part':8} {'stock s':>9} {'ours s':>9} {'spread':>15} {'ratio':>6} {'ms a step':>15}"
    f" {'TFLOP/s':>13} {'of matmul':>9} {'GiB held':>13} {'reserved':>13}"
)


@dataclass(frozen=True)
class Row:
    """One part of a turn. steps, our_steps: of the stock sampler and of ours; 0 for other parts."""

    part: str
    stock: Timing
    ours: Timing
    steps: int = 0
    our_steps: int = 0

    @property
    def ratio(self) -> float:
        """How many times as fast as the stock part ours is."""
        return self.stock.median / self.ours.median

    def line(self, matmul: float) -> str:
        """The row as text. matmul: TFLOP/s that a matrix product reaches on this machine."""
        stock, ours = self.stock, self.ours
        spread = f"{min(ours.seconds):.3f} .. {max(ours.seconds):.3f}"
        steps = _pair(1000 * stock.median / self.steps, 1000 * ours.median / self.our_steps) if self.steps else "-"
        of_matmul = "-" if ours.tflops is None else f"{100 * ours.tflops / matmul:.0f} %"
        return (
            f"{self.part:8} {stock.median:>9.3f} {ours.median:>9.3f} {spread:>15} {self.ratio:>6.2f} {steps:>15}"
            f" {_pair(stock.tflops, ours.tflops):>13} {of_matmul:>9}"
            f" {_pair(stock.allocated, ours.allocated):>13} {_pair(stock.reserved, ours.reserved):>13}"
        )

    def values(self) -> dict[str, Any]:
        """Plain values for a json file."""
        sides = {
            name: {**asdict(timing), "median": timing.median, "tflops": timing.tflops}
            for name, timing in (("stock", self.stock), ("ours", self.ours))
        }
        return {"part": self.part, "ratio": self.ratio, "steps": self.steps, "our_steps": self.our_steps, **sides}


def _pair(stock: float | None, ours: float | None) -> str:
    if stock is None or ours is None:
        return "-"
    return " / ".join(f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in (stock, ours))


@dataclass(frozen=True)
class BenchmarkResult:
    """All rows, and the facts that are needed to repeat the benchmark."""

    rows: tuple[Row, ...]
    matmul: float
    facts: Mapping[str, Any]
    each: OptimizationTable | None = None
    drift: Drift | None = None
    lora: tuple[LoraCost, ...] = ()

    def row(self, part: str) -> Row:
        """The row of a part."""
        return next(row for row in self.rows if row.part == part)

    @property
    def text(self) -> str:
        """The printed table."""
        lines = [HEAD, *(row.line(self.matmul) for row in self.rows)]
        if self.drift is not None:
            first = ", ".join(f"{part} {self.row(part).ours.first:.1f} s" for part in ("sampler", "vae"))
            lines += [self.drift.text, f"(ours, the first time: {first})"]
        lines += [cost.line for cost in self.lora]
        return "\n".join(lines if self.each is None else [*lines, "", self.each.text])

    def values(self) -> dict[str, Any]:
        """Plain values for a json file."""
        return {
            **self.facts,
            "matmul_tflops": self.matmul,
            "rows": [row.values() for row in self.rows],
            "alone": None if self.each is None else asdict(self.each),
            "drift": None if self.drift is None else asdict(self.drift),
            "updates": [asdict(cost) for cost in self.lora],
        }
