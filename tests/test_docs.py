"""README, CONTRIBUTING and docs/: commands are run or parsed, and links lead somewhere."""

import argparse
import importlib.util
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from PIL import Image

from animegamer_core.__main__ import main
from animegamer_core.cli import options

ROOT = Path(__file__).parent.parent
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}


def commands_of(page: str) -> list[str]:
    """The lines of a page's bash blocks, without their remarks."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGES[page], re.DOTALL)
    lines = [re.split(r"\s+# ", line)[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


COMMANDS = list(dict.fromkeys(line for page in PAGES for line in commands_of(page)))
FILM = [line for line in COMMANDS if "captioner script" in line]
LONGER = ("--world", "--lora", "--auto", "--suggest")  # options of a play that is only parsed here
PLAYED = [line for line in COMMANDS if " play " in line and not any(option in line for option in LONGER)]
PARITY = [line for line in COMMANDS if " parity " in line]
DRAWN = ["python docs/make_pictures.py"]
MADE = [line for line in COMMANDS if line.startswith("make ")]
TESTS = [line for line in COMMANDS if line.startswith("pytest ")]
INSTALLED = [line for line in COMMANDS if "pip install" in line]
OWNED = re.search(r'^Repository = "(.+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)  # once filled
CLONED = [f"git clone {OWNED[1] if OWNED else 'REPOSITORY-ADDRESS'} ComfyUI-AnimeGamer"]
RUN = {*FILM, *PLAYED, *PARITY, *DRAWN, *MADE, *TESTS, *INSTALLED, *CLONED}
PARSED = [line for line in COMMANDS if line not in RUN]  # they need downloads, a GPU, somebody's film, or minutes


class Parsed(Exception):
    """Raised in place of what a command would do, once its arguments are understood."""


@pytest.fixture
def stop_when_parsed(monkeypatch):
    """The parsers of verbs, and of the programs under tests/measure, stop once they understood the words."""

    def stopping(understand):
        def parse(*args, **options):
            understand(*args, **options)
            raise Parsed

        return parse

    monkeypatch.setattr(options, "parse", stopping(options.parse))
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stopping(argparse.ArgumentParser.parse_args))


def words_of(line: str) -> list[str]:
    """The words behind the launcher: `-m module ...` or `script.py ...`."""
    if counted := re.search(r"\$\(seq (\d+) (\d+)\)", line):
        line = line.replace(counted[0], " ".join(map(str, range(int(counted[1]), int(counted[2]) + 1))))
    words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=\S*", word)]
    if words[:2] == ["accelerate", "launch"]:
        script = next(index for index, word in enumerate(words) if word.endswith(".py"))
        return words[script:]
    assert words[0] == "python", line
    return words[1:]


def run_line(line: str, monkeypatch) -> None:
    """Run a python command in this process; what it raises is passed on."""
    words = words_of(line)
    if words[:2] == ["-m", "animegamer_core"]:
        assert main(words[2:]) == 0, line
        return
    module = words[0] == "-m"
    monkeypatch.setattr(sys, "argv", words[1:] if module else words)
    if module:
        sys.modules.pop(words[1], None)  # as a fresh process would have it
        runpy.run_module(words[1], run_name="__main__")
    else:
        monkeypatch.setattr(sys, "path", [str((ROOT / words[0]).parent), *sys.path])
        runpy.run_path(str(ROOT / words[0]), run_name="__main__")


def test_the_targets_of_make_exist():
    if shutil.which("make"):
        for line in MADE:
            subprocess.run([*line.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


def test_playing_as_the_page_says(tmp_path, monkeypatch):
    game = re.search(r"```text\n(Character: .*?)```", PAGES["docs/playing.md"], re.DOTALL)[1]
    (tmp_path / "my-game.txt").write_text(game, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert len(PLAYED) == 4
    for line in PLAYED:
        run_line(f"{line} --steps 1", monkeypatch)
    story = tmp_path / "out" / "my-game"
    assert {"turn-001.mp4", "turn-002.mp4", "story.mp4", "contact-sheet.png"} <= {path.name for path in story.iterdir()}


def test_the_python_examples_run(tmp_path, monkeypatch):
    """In their order: the second goes on from the first."""
    monkeypatch.chdir(tmp_path)
    example = "\n".join(re.findall(r"```python\n(.*?)```", PAGES["docs/playing.md"], re.DOTALL))
    (tmp_path / "example.py").write_text(example.replace("seed=1)", "seed=1, steps=2)"), encoding="utf-8")
    assert tuple(runpy.run_path(str(tmp_path / "example.py"))["frames"].shape) == (17, 3, 192, 288)


def test_a_film_becomes_a_dataset_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(FILM) == 1
    for line in FILM:
        try:
            run_line(line.replace("workflows/", f"{ROOT}/workflows/"), monkeypatch)
        except SystemExit as done:
            assert not done.code, line
    made = {path.name for path in (tmp_path / "out" / "mine").iterdir()}
    assert {"clips", "turns.jsonl", "games.jsonl", "dataset.json", "review.html", "stats.png"} <= made


def test_parity_as_the_pages_say(monkeypatch):
    monkeypatch.chdir(ROOT)
    (line,) = PARITY
    run_line(line, monkeypatch)


def test_the_pictures_are_drawn_by_their_script(tmp_path):
    assert set(DRAWN) <= set(COMMANDS)
    spec = importlib.util.spec_from_file_location("make_pictures", ROOT / "docs" / "make_pictures.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(["--out", str(tmp_path), "--turns", "1", "--steps", "2"])
    shown = {path.name for path in (ROOT / "docs" / "pictures").iterdir()} | {"characters.jpg"}  # in js, for the page
    assert {path.name for path in tmp_path.iterdir()} == shown
    with Image.open(tmp_path / "game.webp") as new, Image.open(ROOT / "docs" / "pictures" / "game.webp") as shown:
        assert new.size == shown.size and (new.n_frames, shown.n_frames) == (17, 6 * 17)


@pytest.mark.parametrize("line", PARSED)
def test_commands_that_need_more_are_understood(line, stop_when_parsed, monkeypatch, capsys):
    """The program's own parser takes every word: options, values, and what has to be given."""
    try:
        with pytest.raises(Parsed):
            run_line(line, monkeypatch)
    except SystemExit:
        pytest.fail(capsys.readouterr().err)


@cache
def anchors_of(path: Path) -> frozenset[str]:
    """The anchors that GitHub gives a page's headings."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    text = re.sub(r"```.*?```", "", PAGES[page], flags=re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not target.startswith("https://")]
    for target in targets:
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), target
        assert not anchor or anchor in anchors_of(path.resolve()), target


def test_every_page_is_reached_from_the_readme():
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", PAGES["README.md"]))
    assert linked == {page for page in PAGES if page.startswith("docs/")}
