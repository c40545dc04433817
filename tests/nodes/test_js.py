"""js/: its logic under node's own test runner, and rules that every file keeps."""

import json
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

from animegamer_core.game.life import STATS
from animegamer_core.game.plain import NOTES

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for path in (ROOT / "js").glob("*") if path.suffix in (".js", ".mjs"))
FORBIDDEN = {
    "writes to window": r"\b(window|globalThis)(\.\w+|\[[^\]]+\])+\s*(=(?!=)|\+=|\?\?=)",
    "markup from text": r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment",
    "code from text": r"\beval\(|new Function|setTimeout\(\s*[\"'`]",
    "network addresses": r"(https?:)?//[a-z0-9-]+\.[a-z]",
    "listeners on the document": r"document\.(body\.)?addEventListener",
    "patched prototypes": r"\.prototype\.\w+\s*=",
}


def test_the_logic_passes_under_node():
    node = shutil.which("node")
    if node is None:
        warnings.warn("SKIPPED: tests/js: no `node` found; install Node.js 18 or newer", stacklevel=1)
        pytest.skip("no `node` found; install Node.js 18 or newer to run tests/js")
    files = sorted((ROOT / "tests" / "js").glob("*.test.mjs"))
    assert files
    run = subprocess.run([node, "--test", *map(str, files)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]


@pytest.mark.parametrize("rule", FORBIDDEN)
def test_no_file_breaks_a_rule(rule):
    code = {path.name: re.sub(r'"http://www\.w3\.org/2000/svg"', "", path.read_text("utf-8")) for path in SOURCES}
    comments = re.compile(r"^\s*(//|\*|/\*).*$", re.MULTILINE)
    found = [name for name, text in code.items() if re.search(FORBIDDEN[rule], comments.sub("", text))]
    assert not found, f"{rule}: {found}"


def test_only_the_entry_point_imports_comfyui():
    doors = [path.name for path in SOURCES if "/scripts/a" in path.read_text("utf-8")]
    assert doors == ["animegamer.js"]


def test_every_import_is_there():
    for path in SOURCES:
        for name in re.findall(r'from "(\./[^"]+)"', path.read_text("utf-8")):
            assert (path.parent / name).is_file(), f"{path.name} imports {name}"


def english_texts():
    """The English table, as JavaScript."""
    return (ROOT / "js" / "translations.mjs").read_text("utf-8").split("const zh")[0]


def test_every_text_that_is_used_is_in_the_table():
    table = english_texts()
    said = {word for path in SOURCES for word in re.findall(r'\bsay\("(\w+)"', path.read_text("utf-8"))}
    assert said
    assert not {word for word in said if not re.search(rf"\b{word}: ", table)}
    assert not [key for key, note in NOTES.items() if f'  {key}: "{note}"' not in table]


def test_every_text_in_the_table_is_used():
    table = english_texts()
    code = "".join(path.read_text("utf-8") for path in SOURCES if path.name != "translations.mjs")
    known = {*(stat.name for stat in STATS), *NOTES}  # the server names these
    assert not [word for word in re.findall(r'(\w+): "', table) if f'"{word}"' not in code and word not in known]


@pytest.mark.parametrize("language", ["zh", "ja"])
def test_commands_and_settings_are_translated(language):
    def table(name):
        return json.loads((ROOT / "locales" / language / f"{name}.json").read_text("utf-8"))

    commands = re.findall(r'command\("(\w+)"', (ROOT / "js" / "commands.mjs").read_text("utf-8"))
    settings = (ROOT / "js" / "settings.mjs").read_text("utf-8")
    ids = re.findall(r'"(AnimeGamer\.[\w.]+)"', settings)
    assert commands and ids
    assert table("commands").keys() == {f"AnimeGamer_{name}" for name in commands}
    assert table("settings").keys() == {name.replace(".", "_") for name in ids}
    groups = {re.findall(r'"([^"]+)"', line)[1] for line in re.findall(r"category: (\[.*\])", settings)}
    assert table("main")["settingsCategories"].keys() == groups
