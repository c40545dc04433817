"""The tables of a dataset folder as a person edits them: lines of JSON."""

import json

from animegamer_core.data.corrections import apply_corrections


def rows_of(path):
    """The rows of a table."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path, *rows):
    """Write a table of these rows; one that is a text is written as it is."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def correct(folder, *rows):
    """Apply these corrections to a dataset; returns how many of them changed something."""
    return apply_corrections(folder, write_rows(folder.parent / "corrections.jsonl", *rows))
