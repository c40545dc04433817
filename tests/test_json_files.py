"""JSON from outside is checked as it is read, and its error names file, line and field."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from animegamer_core.json_files import JsonError, read_json, read_rows, read_text


@dataclass(frozen=True)
class Turn:
    seed: int
    motion: float = 0.0
    names: tuple[str, ...] = ()
    inner: dict[str, float] = field(default_factory=dict)

    def __post_init__(self):
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; expected 0 or more")


WRONG = {
    b'{"seed": true}': "field seed: expected a whole number, got true or false",
    b'{"seed": -1}': "seed is -1; expected 0 or more",
    b'{"seed": 1, "names": ["a", 3]}': r"field names\[1\]: expected a text, got a whole number",
    b'{"motion": 1}': "field seed is missing",
    b'{"seed": 1, "motion": NaN}': "not JSON",
    b"\xff\xfe": "not JSON",
    b"[" * 100_000: "expected an object",
    b'{"seed": 1, "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}": "not JSON",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_said_with_its_field(text, tmp_path):
    path = tmp_path / "turn.json"
    path.write_bytes(text)
    with pytest.raises(JsonError, match=WRONG[text]) as caught:
        read_json(path, Turn)
    assert str(caught.value).startswith(str(path)) and len(str(caught.value)) < 300


def test_a_table_is_read_line_by_line(tmp_path):
    path = tmp_path / "turns.jsonl"
    path.write_bytes(b'{"seed": 1}\n{"seed": "x"}\nnonsense\n{"seed": 4}\n{"seed": 5')
    rows = list(read_rows(path, Turn))
    assert [(row.number, row.value) for row in rows if row.problem is None] == [(1, Turn(1)), (4, Turn(4))]
    problems = [row.problem.split(":")[0].split(" (")[0] for row in rows if row.problem]
    assert problems == ["field seed", "not JSON", "not JSON"]
    assert list(read_rows(Path("nowhere"), Turn)) == []


def test_what_editors_add_to_a_file_is_passed_over(tmp_path):
    path = tmp_path / "rows.jsonl"
    for encoding in ("utf-8-sig", "utf-16"):  # Notepad and Excel write the one, PowerShell 5 the other
        path.write_text('{"seed": 1}\n\n  \n{"seed": 2}\n', encoding, newline="\r\n")
        assert [(row.number, row.value.seed) for row in read_rows(path, Turn)] == [(1, 1), (4, 2)]
        assert read_text(path).split()[1] == "1}"
        path.write_text('\n{"seed": 1}\n', encoding, newline="\r\n")
        assert read_json(path, Turn).seed == 1
