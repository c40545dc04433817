"""The rooms stay rooms: imports go one way, light rooms stay light, and the public surface changes only on purpose."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = ROOT / "animegamer_core"
LAYERS = (
    {"spec", "state", "files", "page", "layers", "fonts"},
    {"prompt", "encoder", "sampler", "shelf", "lines", "index"},
    {"engine", "decoder"},
    {"checkpoint", "story", "video", "sheet", "tuning", "halves", "streaming"},
    {"models", "presets", "play", "data"},
    {"train"},
    {"toybox"},
    {"evaluate"},
    {"parity", "play_cli", "dataset_cli", "bench"},
    {"__main__"},
)
RANK = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}
NEVER = {"comfy", "comfy_api", "comfy_extras", "folder_paths", "nodes", "server"}  # ComfyUI and our view of it
LIGHT = (
    "spec",
    "state",
    "files",
    "prompt",
    "shelf",
    "lines",
    "index",
    "story",
    "models",
    "tuning",
    "presets",
    "play",
    "play_cli",
    "dataset_cli",
    "sheet",
    "fonts",
    "checkpoint",
    "__main__",
)
HEAVY = {"torch", "diffusers", "transformers", "peft", "accelerate", "av", "cv2", "matplotlib", "PIL"}


def modules():
    return sorted(CORE.rglob("*.py"))


def room_of(path):
    return path.relative_to(CORE).parts[0].removesuffix(".py")


def imports(path):
    """(room or top-level module, whether it is one of ours) of every import in a file, wherever it stands."""
    depth = len(path.relative_to(CORE).parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0], False
        elif isinstance(node, ast.ImportFrom) and node.level == depth:
            rooms = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            yield from ((room, True) for room in rooms)


def test_every_file_is_in_a_known_room():
    assert {room_of(path) for path in modules()} - {"__init__"} == set(RANK)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(CORE)))
def test_imports_go_one_way(path):
    room = room_of(path)
    if room == "__init__":
        assert not list(imports(path))
        return
    for other, ours in imports(path):
        assert other != "animegamer_core", "imports inside the package are relative"
        assert other not in NEVER
        if ours and other != room:
            assert RANK[other] <= RANK[room], f"{room} imports {other}, which stands above it"


def test_no_rooms_import_each_other_in_a_ring():
    """Rooms of one layer may know each other, but never both ways: neither could be read, moved or left out alone."""
    below = {
        room: {other for path in modules() if room_of(path) == room for other, ours in imports(path) if ours} - {room}
        for room in RANK
    }
    while free := [room for room, others in below.items() if not others & set(below)]:
        for room in free:
            del below[room]
    assert not below, f"a ring among {sorted(below)}"


ABOVE_TRAINING = {f"{name}.py" for name in "benchmark build calibrate dataset probes scenes scorers".split()}


def test_the_drawn_world_does_not_need_its_training():
    """What draws and names the Toybox stands below training; only its build stands above."""
    drawing = [path for path in CORE.glob("toybox/*.py") if path.name not in ABOVE_TRAINING]
    assert len(drawing) > 10
    for path in drawing:
        assert not [room for room, ours in imports(path) if ours and room not in ("files", "state")], path


@pytest.mark.parametrize("room", LIGHT)
def test_light_rooms_import_no_heavy_library(room):
    code = f"import sys, animegamer_core.{room}; print(*({HEAVY!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_a_storys_index_reads_without_torch(tmp_path):
    code = (
        "import sys; from animegamer_core.story import Story; "
        f"story = Story.open({str(tmp_path)!r}, 'tale', 'w', 'f'); story.session(0, 4); print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False"]


PUBLIC = {
    "files": "append_line locked mode_of_new replacing save_picture write_text",
    "page": "script_safe write_page",
    "fonts": "drawable font_of",
    "index": "alone check_new check_story_name check_there read_index story_names write_index",
    "lines": "Line LineEntry line_names",
    "models": "LoadedModels Models PlaySettings",
    "halves": "Halves copies second_device split",
    "play": "PlayedTurn Player choose_device export keep_turn put_shot state_key",
    "sheet": "contact_sheet",
    "shelf": "OpeningKey Shelf ShotKey StateKey address_of opening_address opening_key with_opening_address",
    "spec": "DecoderSpec EncoderSpec EngineSpec ImageTowerSpec ModelSpec Profile Reading StateSpec TextTowerSpec "
    "VaeSpec dtype_name get_profile get_spec",
    "state": "CharacterState GameSession GameState Instruction MotionScope MotionTable StateChange Turn clean_text "
    "level_of motion_text read_instructions scope_name",
    "story": "Story",
    "video": "Clip clip_suffix join_clips read_clip to_uint8 write_clip",
    "engine": "EngineOutput GameEngine Replies additive_mask",
    "decoder": "ShotDecoder",
}


@pytest.mark.parametrize("room", PUBLIC)
def test_public_names_change_on_purpose(room):
    """Nodes, notebooks and saved stories hold these names; a change here is a change for people."""
    tree = ast.parse((CORE / f"{room}.py").read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    names = {node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")}
    assert names == set(PUBLIC[room].split())


def test_addresses_keep_their_fields():
    """A field more or less would make every story on every disk unknown."""
    from animegamer_core.shelf import ShotKey, StateKey, address_of

    state = StateKey("w", None, "run", 4, "paper", "float32")
    shot = ShotKey("w", "s", 1, 2.5, 20, "cosine", "float32")
    assert address_of(state) == "81e6795d43df22cce59fc53e65a675483a8f8cf7bc26983e6205236ecdfa1a7d"
    assert address_of(shot) == "a4ccddef1dd9ccd72ed6fc0e7865e27d4184288883c8ab43a063e2bd2ffe36b4"


def test_the_verbs_and_the_options_of_play():
    import argparse

    from animegamer_core.__main__ import VERBS
    from animegamer_core.play_cli import add_arguments

    assert list(VERBS) == ["play", "convert", "fetch", "new", "parity", "dataset", "train", "evaluate", "bench"]
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = {name for action in parser._actions for name in (action.option_strings[-1:] or [action.dest])}
    assert options == {"file", "--help"} | {
        f"--{name}"
        for name in (
            "world stage-file out name resume branch window seed steps guidance preset profile motion "
            "device engine-device halves dtype"
        ).split()
    }


def test_requirements_are_the_projects_own_without_torch():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = ast.literal_eval(text.split("\ndependencies = ")[1].split("]")[0] + "]")
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == [line for line in listed if "torch" not in line]


def test_every_dependency_has_a_tested_version():
    import re

    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    asked = set(re.findall(r'"([A-Za-z-]+)>=', text.split("[project.urls]")[0].split("\ndependencies")[1]))
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0] for line in lines if "==" in line}
    assert asked <= pinned
