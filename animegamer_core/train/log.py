"""The log of a run: a line of JSON every few steps."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, TypedDict

import msgspec

from ..files import append_line, write_text
from ..json_files import to_type
from ..messages import brief

LOG = "log.jsonl"
PICTURE = "loss.png"
_Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]  # larger ones are no float


class _Step(TypedDict):
    step: _Whole


def read_log(path: Path) -> list[dict[str, float]]:
    """The lines of a log; empty without a file. An incomplete last line of a killed run is skipped.

    ValueError for any other line that is not an object of numbers. Values that were not finite are left out.
    """
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    return [_numbers(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]


def _numbers(line: bytes, where: str) -> dict[str, float]:
    try:
        # Earlier versions wrote NaN, which is not JSON.
        values = to_type(json.loads(line, parse_constant=lambda _: None), dict[str, _Whole | float | None], "the line")
        to_type(values, _Step, "the line")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: {brief(error)}; delete the line") from error
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}


class RunLog:
    """Appends to a run's log. Lines after the step that a run continues from are removed first."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = [line for line in read_log(path) if line["step"] <= step]
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))

    def write(self, step: int, values: dict[str, float]) -> None:
        """Add a line; values that are not finite are written as null."""
        numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}  # JSON has no NaN
        append_line(self.path, json.dumps({"step": step, **numbers}) + "\n")
