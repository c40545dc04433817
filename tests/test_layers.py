"""Imports go one way, and modules that are light to import stay light."""

import ast
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CORE = ROOT / "animegamer_core"
# From the bottom up: a package imports those of earlier rows, and never one of its own row.
ROWS = "messages|game files json_files|spec|endpoint|media model|weights|runtime data|story|train|toybox|evaluate|cli"
LAYERS = [set(row.split()) for row in (*ROWS.split("|"), "__main__")]
RANK = {package: rank for rank, layer in enumerate(LAYERS) for package in layer}
NEVER = {"comfy", "comfy_api", "comfy_extras", "folder_paths", "nodes", "server"}  # ComfyUI and our view of it
LIGHT = (
    "__main__ game.recall game.life game.state game.director spec files weights cli.dataset cli.evaluate cli.play "
    "media.contact_sheet media.text model.prompt runtime.models runtime.optimizations runtime.presets "
    "story.content_store story.folder story.opening story.player story.story story.turn"
).split()
HEAVY = {"torch", "diffusers", "transformers", "peft", "accelerate", "av", "cv2", "matplotlib"}


def modules():
    return sorted(CORE.rglob("*.py"))


def package_of(path):
    return path.relative_to(CORE).parts[0].removesuffix(".py")


def imported(path):
    """What a file imports, wherever the import stands: `torch.nn`, and ours with a dot in front, `.model.engine`."""
    package = ["", *path.relative_to(CORE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def packages_imported(path):
    """The packages of ours that a file imports from."""
    return {name.split(".")[1] for name in imported(path) if name.startswith(".")}


def test_every_file_is_in_a_known_package():
    assert {package_of(path) for path in modules()} - {"__init__"} == set(RANK)


def test_imports_go_one_way():
    for path in modules():
        package = package_of(path)
        if package == "__init__":
            assert not list(imported(path))
            continue
        others = {name.split(".")[0] for name in imported(path)}
        assert "animegamer_core" not in others, f"{path}: imports inside the package are relative"
        assert not others & NEVER, path
        for other in packages_imported(path) - {package}:
            assert RANK[other] < RANK[package], f"{path}: {package} imports {other}, which is not below it"


def test_light_modules_import_no_heavy_library():
    """Each alone, in one process: what an import of ours loaded is unloaded before the next one."""
    code = f"""
import importlib, json, sys
found, before = {{}}, set(sys.modules)
for name in {LIGHT!r}:
    importlib.import_module("animegamer_core." + name)
    found[name] = sorted({HEAVY!r} & set(sys.modules))
    for module in set(sys.modules) - before:
        if module.split(".")[0] in {HEAVY | {"animegamer_core"}!r}:
            del sys.modules[module]
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name: heavy for name, heavy in json.loads(done.stdout).items() if heavy} == {}


def test_nothing_that_registries_hold_packs_back_for():
    """Other programs, imports by a made-up name and the environment: in the command line, and where these say why."""
    allowed = {
        "animegamer_core/__main__.py": "a verb's module is loaded when it is used; colours are turned off",
        "animegamer_core/endpoint.py": "a key is in the environment and nowhere else",
        "nodes/dataset.py": "who starts ComfyUI may allow one service",
    }
    words = ("subprocess", "import_module", "os.environ", "getenv", "os.system", "eval(compile", "exec(")
    paths = [*modules(), *(ROOT / "nodes").glob("*.py")]
    found = {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if "cli" not in path.parts and any(word in path.read_text(encoding="utf-8") for word in words)
    }
    assert found == set(allowed)


def test_a_storys_index_reads_without_torch(tmp_path):
    code = (
        "import sys; from animegamer_core.story.story import Story; "
        f"story = Story.open({str(tmp_path)!r}, 'tale', 'w', 'f'); story.session(0, 4); print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False"]


def test_every_dependency_has_a_tested_version():
    import re

    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    asked = set(re.findall(r'"([A-Za-z-]+)>=', text.split("[project.urls]")[0].split("\ndependencies")[1]))
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert asked <= {line.split("==")[0] for line in lines if "==" in line}


def test_one_run_can_collect_all_tests():
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]  # pytest imports them by these
    assert sorted(names) == sorted(set(names))
