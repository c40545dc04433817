"""The log of a run: one line of json every few steps."""

from __future__ import annotations

import json
import math
from pathlib import Path

from ..files import append_line, write_text
from ..json_files import read_rows

LOG = "log.jsonl"
PICTURE = "loss.png"


def read_log(path: Path) -> list[dict[str, float]]:
    """The lines of a log, [] without a file; an incomplete last line, from a killed run, is skipped.

    ValueError names any other line that is not an object of numbers. Numbers that were not finite are left out.
    """
    rows = list(read_rows(path, dict[str, int | float | None]))
    if rows and not path.read_bytes().endswith(b"\n"):
        rows.pop()
    for row in rows:
        problem = row.problem or ("" if "step" in row.value else "field step is missing")
        if problem:
            raise ValueError(f"{path}:{row.number}: {problem}; delete the line")
    return [{name: value for name, value in row.value.items() if value is not None} for row in rows]


class RunLog:
    """Appends to a run's log. Lines after the step that a run continues from are removed first."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_log(path) if line["step"] <= step]
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))

    def write(self, step: int, values: dict[str, float]) -> None:
        """Add a line."""
        numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}  # JSON has no NaN
        append_line(self.path, json.dumps({"step": step, **numbers}) + "\n", sync=False)
