"""The rows of the parity table, and the differences that they show."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

ABSENT = "absent"


@dataclass(frozen=True)
class Row:
    """One part: the number of cases (0: absent), the largest absolute difference, and the tolerance."""

    part: str
    cases: int
    difference: float = 0.0
    tolerance: float = 0.0

    @property
    def absent(self) -> bool:
        """Whether the folder has nothing for this part."""
        return self.cases == 0

    @property
    def ok(self) -> bool:
        """Whether the part agrees or is absent; NaN does not agree."""
        return self.absent or self.difference <= self.tolerance

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        if self.absent:
            return self.part, "0", ABSENT, f"{self.tolerance:g}", "-"
        return (
            self.part,
            str(self.cases),
            f"{self.difference:.3g}",
            f"{self.tolerance:g}",
            "ok" if self.ok else "NOT OK",
        )


def row(part: str, tolerance: float, differences: Iterable[float]) -> Row:
    """The row of a part from the differences of its cases."""
    found = list(differences)
    return Row(part, len(found), max(found, default=0.0, key=_nan_last), tolerance)


def graded_row(part: str, tolerance: float, cases: Iterable[tuple[float, float]]) -> Row:
    """The row of (difference, tolerance) cases; it shows the case with the largest ratio of the two.

    tolerance: shown if there are no cases.
    """
    found = list(cases)
    worst = max(found, default=(0.0, tolerance), key=lambda case: _nan_last(case[0]) / case[1])
    return Row(part, len(found), *worst)


def _nan_last(difference: float) -> float:
    return math.inf if math.isnan(difference) else difference


def gap(ours: Tensor, theirs: Tensor) -> float:
    """The largest absolute difference; infinite for different shapes."""
    if ours.shape != theirs.shape:
        return math.inf
    return float((ours.double() - theirs.double()).abs().max())


def mismatch(ours: object, theirs: object) -> float:
    """0 if two values are equal, else 1."""
    return 0.0 if ours == theirs else 1.0


def table(rows: Iterable[Row]) -> str:
    """The rows as aligned text."""
    lines = [("part", "cases", "max abs difference", "tolerance", "ok"), *(row.cells for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
