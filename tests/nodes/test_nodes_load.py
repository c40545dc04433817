"""The pack as ComfyUI's loader and static tools see it, without a ComfyUI."""

import ast
import importlib.util
import re
import sys
import tempfile
from pathlib import Path

import pytest
from comfy_server import OLDER, server  # noqa: F401  a fixture
from comfy_stub import ComfyStub

from animegamer_core.__main__ import VERBS

ROOT = Path(__file__).parents[2]
NODES = sorted((ROOT / "nodes").glob("*.py"))
# ComfyUI 0.3.64 refuses a whole pack for one keyword that it does not know.
SLOT = {"default", "min", "max", "step", "multiline", "optional", "options", "control_after_generate", "upload"}
SLOT |= {"is_output_list"}
with tempfile.TemporaryDirectory() as folder:
    SCHEMAS = {schema.node_id: schema for schema in ComfyStub(Path(folder)).schemas()}


def inputs_of(kind):
    """(required, optional) inputs of one of our nodes."""
    optional = [item.id for item in SCHEMAS[kind].inputs if item.facts.get("optional")]
    return [item.id for item in SCHEMAS[kind].inputs if item.id not in optional], optional


def outputs_of(kind):
    """[(name, type)] of one of our nodes."""
    return [(item.display_name, item.type) for item in SCHEMAS[kind].outputs]


def test_what_was_released_is_still_there():
    """Saved graphs fill widgets by their order, and link outputs by their place."""
    for line in (Path(__file__).parent / "released.txt").read_text(encoding="utf-8").splitlines()[1:]:
        kind, _, words = line.partition(": ")
        inputs, outputs = (part.split() for part in words.split(">"))
        if kind == "verbs":
            assert set(inputs) <= set(VERBS)
            continue
        assert [item.id for item in SCHEMAS[kind].inputs][: len(inputs)] == inputs, kind
        assert [f"{name}:{kept}" for name, kept in outputs_of(kind)][: len(outputs)] == outputs, kind


def test_the_root_imports_nothing():
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    assert not [item for item in tree.body if isinstance(item, ast.Import | ast.ImportFrom)]
    spec = importlib.util.spec_from_file_location("animegamer_pack", ROOT / "__init__.py")
    before = set(sys.modules)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert set(sys.modules) == before
    assert (ROOT / module.WEB_DIRECTORY).is_dir() and not hasattr(module, "NODE_CLASS_MAPPINGS")


def test_static_tools_find_every_node():
    tree = ast.parse((ROOT / "nodes" / "__init__.py").read_text(encoding="utf-8"))
    (literal,) = (
        item.value
        for item in tree.body
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "NODE_CLASS_MAPPINGS"
    )
    assert sorted(key.value for key in literal.keys) == sorted(SCHEMAS)


@pytest.mark.parametrize("path", NODES, ids=lambda path: path.name)
def test_only_keywords_of_the_oldest_version_are_used(path):
    for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = ast.unparse(item.func) if isinstance(item, ast.Call) else ""
        if re.fullmatch(r"(io\..*|\w+Socket)\.(Input|Output)", name):
            assert {word.arg for word in item.keywords} <= SLOT, f"{name} in line {item.lineno}"


@pytest.mark.parametrize("path", NODES, ids=lambda path: path.name)
def test_only_two_modules_call_comfyui(path):
    """And at module level there is nothing but the standard library, comfy_api and our own modules."""
    tree = ast.parse(path.read_text(encoding="cp1252"))
    for item in ast.walk(tree):
        names = [alias.name for alias in item.names] if isinstance(item, ast.Import) else []
        if isinstance(item, ast.ImportFrom) and not item.level:
            names = [item.module]
        roots = {name.split(".")[0] for name in names}
        if path.name not in ("comfyui.py", "routes.py"):
            assert not roots & {"comfy", "folder_paths", "server", "execution", "nodes"}, f"line {item.lineno}"
    for item in tree.body:
        if isinstance(item, ast.Import | ast.ImportFrom) and not getattr(item, "level", 0):
            root = (item.module if isinstance(item, ast.ImportFrom) else item.names[0].name).split(".")[0]
            assert root in ("comfy_api", "msgspec") or root in sys.stdlib_module_names, (
                f"{path.name} imports {root} at once"
            )


def test_requirements_are_those_of_the_project():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = {line for line in lines if line and not line.startswith("#")}
    tomllib = pytest.importorskip("tomllib")  # Python 3.11 and newer
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    given = set(project["project"]["dependencies"])
    assert wanted == {line for line in given if not line.startswith("torch")}, "ComfyUI brings torch"
    assert not [line for line in given if "==" in line], "never pins a user's packages"
    assert project["project"]["license"] == "Apache-2.0", "setuptools ends the form with a table in 2027"
    comfy = project["tool"]["comfy"]
    assert comfy["PublisherId"] == "" and comfy["DisplayName"] and "web" not in comfy
    assert comfy["requires-comfyui"] == ">=0.3.64"


def test_the_real_loader_finds_every_node(server):  # noqa: F811
    info = server.get("/object_info")
    ours = {name: facts for name, facts in info.items() if facts["python_module"].endswith("ComfyUI-AnimeGamer")}
    assert ours.keys() == SCHEMAS.keys()
    for name, facts in ours.items():
        order = facts["input_order"]
        assert (order.get("required", []), order.get("optional", [])) == inputs_of(name)
        assert list(zip(facts["output_name"], facts["output"], strict=True)) == outputs_of(name)
        assert facts["description"] and facts["display_name"] and facts["category"] == "AnimeGamer", name
        for group in (facts["input"].get(name, {}) for name in ("required", "optional")):
            assert all(len(spec) > 1 and spec[1].get("tooltip") for spec in group.values()), name
        assert all(facts["output_tooltips"]), name
    assert "ComfyUI-AnimeGamer (IMPORT FAILED)" not in server.log_text()
