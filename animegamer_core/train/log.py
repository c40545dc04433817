"""The log of a run: one line of json every few steps."""

from __future__ import annotations

import json
from pathlib import Path

from ..files import append_line, write_text

LOG = "log.jsonl"
PICTURE = "loss.png"


def read_log(path: Path) -> list[dict[str, float]]:
    """The lines of a log; an incomplete last line, from a killed run, is skipped."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]


class RunLog:
    """Appends to a run's log. Lines after the step that a run continues from are removed first."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_log(path) if line["step"] <= step]
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))

    def write(self, step: int, values: dict[str, float]) -> None:
        """Add a line."""
        append_line(self.path, json.dumps({"step": step, **values}) + "\n", sync=False)
