"""The README's commands: run where a CPU without a network can, otherwise held to what the programs accept."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from animegamer_core.evaluate.table.paper import ABLATIONS, PAPER

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.split("  #")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]
TRIED = [line for line in COMMANDS if "toybox.film" in line or "captioner script" in line]
PLAYED = [line for line in COMMANDS if " play " in line and "--world" not in line]
INSTALL = 'pip install -e ".[data]"'
# These need downloads, a GPU, somebody's film, or minutes.
WORDS = ("convert", "fetch", "core new", "dataset", "train", "--world", "toybox.build", "evaluate", "bench")

ELSEWHERE = [line for line in COMMANDS if line not in TRIED and any(word in line for word in WORDS)]


def module_call(line):
    words = shlex.split(line)
    assert words[:2] == ["python", "-m"], line
    return [sys.executable, *words[1:]]


def test_the_two_commands_are_targets():
    assert COMMANDS[:2] == ["make play", "make test"]
    if shutil.which("make"):
        for line in COMMANDS[:2]:
            subprocess.run([*line.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


def test_playing_as_the_readme_says(tmp_path, monkeypatch):
    game = re.search(r"```text\n(Character: .*?)```", README, re.DOTALL)[1]
    (tmp_path / "my-game.txt").write_text(game, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert len(PLAYED) == 4
    for line in PLAYED:
        steps = [] if "--steps" in line else ["--steps", "4"]
        done = subprocess.run([*module_call(line), *steps], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    story = tmp_path / "out" / "my-game"
    assert {"turn-001.mp4", "turn-002.mp4", "story.mp4", "contact-sheet.png"} <= {path.name for path in story.iterdir()}


def test_the_python_example_runs(tmp_path, monkeypatch):
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1].replace("seed=1)", "seed=1, steps=2)")
    script = tmp_path / "example.py"
    script.write_text(example + "\nprint(tuple(frames.shape))\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(17, 3, 96, 144)"


def test_a_film_becomes_a_dataset_as_the_readme_says(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert len(TRIED) == 2
    for line in TRIED:
        done = subprocess.run(module_call(line), cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    made = {path.name for path in (tmp_path / "out" / "mine").iterdir()}
    assert {"clips", "turns.jsonl", "games.jsonl", "dataset.json", "review.html", "stats.png"} <= made


def printed_rows(head):
    """The README's table with this first cell of its head: row name -> cells by column."""
    (table,) = (part for part in README.split("\n\n") if part.startswith(f"| {head} |"))
    columns, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines())
    return {row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in rows}


NAMES = {"CLIP-I": "clip_i", "DreamSim": "dreamsim", "ACC-F": "acc_f", "MAE-F": "mae_f"}
CLIPS_ROWS = {name: ABLATIONS[name] for name in ABLATIONS if name != "w/o adapt"}
GAMES_ROWS = {"full": PAPER["AnimeGamer"], "w/o adapt": ABLATIONS["w/o adapt"]}
PRINTED_AS = {
    "full (window 4)": "full",
    "random frame": "w/ random frame",
    "without warm-up": "w/o warm-up",
    "without motion scope": "w/o f_ms",
    "without adaptation": "w/o adapt",
}


@pytest.mark.parametrize(
    ("head", "published"), [("clips, encoded and decoded again", CLIPS_ROWS), ("games, played", GAMES_ROWS)]
)
def test_brackets_hold_the_papers_figures_of_the_same_thing(head, published):
    """Games have the main table's, clips the ablation table's, whose row full is of clips; other rows have none."""
    found = {}
    for name, row in printed_rows(head).items():
        cells = {NAMES[column]: re.search(r"\[([0-9.]+)\]", cell) for column, cell in row.items() if column in NAMES}
        if any(cells.values()):
            found[PRINTED_AS.get(name, name)] = {key: float(cell[1]) for key, cell in cells.items()}
    assert found == {name: {key: row[key] for key in NAMES.values()} for name, row in published.items()}


def test_the_papers_columns_hold_its_main_table_and_motion_is_compared_without_calibration():
    rows, keys = printed_rows("50 games"), {"acc_f": "ACC-F, uncalibrated", "mae_f": "MAE-F, uncalibrated"}
    for key, name in keys.items():
        for player in ("AnimeGamer", "GC"):
            assert float(rows[name][f"paper: {player}"]) == PAPER[player][key]
    assert all(row["GC"] == "-" for name, row in rows.items() if "calibration" in name), "GC cannot be calibrated"
    assert not any("character's pictures" in name for name in rows), "the truth scores below the Toybox there"


def test_parity_as_the_readme_says():
    line = next(line for line in COMMANDS if " parity " in line)
    subprocess.run(module_call(line), cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize(
    "line", [line for line in COMMANDS if line not in TRIED and any(word in line for word in ELSEWHERE)]
)
def test_commands_that_need_more_are_understood(line):
    """Every option that the README shows is one that the verb's help lists."""
    words = module_call(line)
    count = 3 if words[2] != "animegamer_core" else 5 if words[3] in ("dataset", "evaluate") else 4
    verb = words[:count]
    if verb[-1].startswith("-"):  # `evaluate --world W` means `evaluate world --world W`
        verb[-1] = "world"
    helped = subprocess.run([*verb, "--help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for option in re.findall(r"--[a-z-]+", line):
        assert option in helped, f"{option} of: {line}"


def test_no_command_is_left_out():
    known = {
        *COMMANDS[:2],
        INSTALL,
        *TRIED,
        *PLAYED,
        *(line for line in COMMANDS if any(word in line for word in ELSEWHERE)),
    }
    assert [line for line in COMMANDS if line not in known and " parity " not in line] == []
