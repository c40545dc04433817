"""The table of a bench: each part of a turn as the stock calls compute it and as we do, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .measure import Timing
from .trials import Drift, Trials
from .updates import UpdatesCost

HEAD = (
    f"{'part':8} {'stock s':>9} {'ours s':>9} {'spread':>15} {'ratio':>6} {'ms a step':>15}"
    f" {'TFLOP/s':>13} {'of matmul':>9} {'GiB held':>13} {'reserved':>13}"
)


@dataclass(frozen=True)
class Row:
    """One part of a turn. steps, our_steps: of the stock sampler and of ours, 0 for parts without."""

    part: str
    stock: Timing
    ours: Timing
    steps: int = 0
    our_steps: int = 0

    @property
    def ratio(self) -> float:
        """How many times quicker ours is."""
        return self.stock.median / self.ours.median

    def line(self, matmul: float) -> str:
        """The row as text. matmul: TFLOP/s that this machine reaches at best."""
        stock, ours = self.stock, self.ours
        spread = f"{min(ours.seconds):.3f} .. {max(ours.seconds):.3f}"
        steps = _pair(1000 * stock.median / self.steps, 1000 * ours.median / self.our_steps) if self.steps else "-"
        share = "-" if ours.tflops is None else f"{100 * ours.tflops / matmul:.0f} %"
        return (
            f"{self.part:8} {stock.median:>9.3f} {ours.median:>9.3f} {spread:>15} {self.ratio:>6.2f} {steps:>15}"
            f" {_pair(stock.tflops, ours.tflops):>13} {share:>9}"
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
    return "-" if stock is None or ours is None else f"{_short(stock)} / {_short(ours)}"


def _short(value: float) -> str:
    """Three digits, none of them in an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


@dataclass(frozen=True)
class Bench:
    """All rows, and what it takes to repeat them."""

    rows: tuple[Row, ...]
    matmul: float
    facts: Mapping[str, Any]
    trials: Trials | None = None
    drift: Drift | None = None
    updates: tuple[UpdatesCost, ...] = ()

    @property
    def text(self) -> str:
        """The printed table."""
        costs = (cost.line for cost in self.updates)
        table = "\n".join([HEAD, *(row.line(self.matmul) for row in self.rows), *self._notes, *costs])
        return table if self.trials is None else f"{table}\n\n{self.trials.text}"

    @property
    def _notes(self) -> list[str]:
        """What a tuned turn costs before its first shot and in likeness."""
        if self.drift is None:
            return []
        first = ", ".join(f"{row.part} {row.ours.first:.1f} s" for row in self.rows if row.part in ("sampler", "vae"))
        return [self.drift.text, f"(ours, the first time: {first})"]

    def values(self) -> dict[str, Any]:
        """Plain values for a json file."""
        return {
            **self.facts,
            "matmul_tflops": self.matmul,
            "rows": [row.values() for row in self.rows],
            "alone": None if self.trials is None else self.trials.values(),
            "drift": None if self.drift is None else asdict(self.drift),
            "updates": [cost.values() for cost in self.updates],
        }
