"""A graph with a node's earlier name and inputs runs, once the pack tells ComfyUI what took its place."""

import urllib.error

import pytest
from comfy_server import OLDER, ROOT, ComfyServer
from graphs import PLAY, WAVE, load, node
from tiny_world import save_tiny_world

from animegamer_core.story.story import Story

NOW = [*PLAY, "model", "story"]
ROW = {"old_node_id": "PlayStory", "new_node_id": "PlayGameStory", "old_widget_ids": ["story", "lines"]}
ROW["input_mapping"] = [{"new_id": name, "old_id": name} for name in NOW]
ROW["input_mapping"].append({"new_id": "instructions", "old_id": "lines"})
ROW["output_mapping"] = [{"new_idx": 0, "old_idx": 0}]
# A pack beside ours that loads ours a second time, with a row, as if PlayGameStory had once been PlayStory.
RENAMED = f"""
import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location

async def comfy_entrypoint():
    folder = {str(ROOT)!r}
    spec = spec_from_file_location("renamed", folder + "/__init__.py", submodule_search_locations=[folder])
    sys.modules["renamed"] = module_from_spec(spec)
    nodes = importlib.import_module("renamed.nodes")
    nodes.REPLACED = ({ROW!r},)

    class Renamed(nodes.AnimeGamerExtension):
        async def get_node_list(self):
            return []

    return Renamed()
"""


@pytest.fixture
def renamed(server, tmp_path):
    """A ComfyUI in which the row is registered."""
    try:
        server.get("/node_replacements")
    except urllib.error.HTTPError:
        pytest.skip(f"{OLDER}replacement of nodes")
    comfy = ComfyServer(tmp_path / "comfyui")
    pack = comfy.base / "custom_nodes" / "renamed"
    pack.mkdir()
    (pack / "__init__.py").write_text(RENAMED, encoding="utf-8")
    save_tiny_world(comfy.models_dir / "animegamer" / "tiny")
    comfy.start()
    yield comfy
    comfy.stop()


def test_a_graph_with_the_earlier_name_runs(renamed):
    (replacement,) = renamed.get("/node_replacements")["PlayStory"]
    assert replacement == ROW
    old = node("PlayStory", **PLAY | {"model": ["load", 0], "story": "old", "lines": WAVE})
    old["_meta"] = {"title": "as a page sends it"}  # ComfyUI replaces no node without one
    renamed.run({"load": load(), "play": old})
    (turn,) = Story.read(renamed.output_dir / "animegamer", "old").session(1, 0).turns
    assert turn.instruction == WAVE
