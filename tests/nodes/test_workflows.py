"""Example workflows, help pages and translations against the nodes' frozen surface; no ComfyUI is needed."""

import json
import re
from pathlib import Path

import pytest
from test_nodes_load import SCHEMAS, inputs_of, outputs_of

from animegamer_core.toybox.world import vocabulary, words
from animegamer_core.train.stages import ADAPTER_STAGES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "workflows"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
EXPECTED = "1-one-turn 10-film-to-world 11-larger-film 12-takes 2-five-turns 3-branching 4-motion-sweep".split()
EXPECTED += ["5-story", "6-own-picture", "7-train", "8-published-24gb", "8-published-8gb", "9-film"]
# no widget fills them
SOCKETS = set("model history opening state frames shot lora game_dataset audio latent video".split())
# ComfyUI's own nodes that the examples may use, with their widgets; all are in 0.3.64 and later.
CORE = {
    "SaveVideo": ["filename_prefix", "format", "codec"],
    "CreateVideo": ["fps"],
    "ImageStitch": ["direction", "match_image_size", "spacing_width", "spacing_color"],
    "PreviewImage": [],
    "PreviewAny": [],
    "LoadImage": ["image"],
    "LoadVideo": ["file"],
    "GetVideoComponents": [],
    "ImageScaleBy": ["upscale_method", "scale_by"],
}
NOTES = {"MarkdownNote"}
# The page stores one value more: of a display, of the upload button, of the bit depth that later versions ask for.
ONE_MORE = {"StateDisplay", "PlayGameStory", "LoadImage", "LoadVideo", "CreateVideo", "BuildGameDataset"}
TEXT_WIDGETS = ("instruction", "instructions", "text", "motion_text", "character", "adverb", "time", "place")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def widgets_of(kind):
    """The widgets in the order in which the page stores their values."""
    if kind in CORE:
        return CORE[kind]
    required, optional = inputs_of(kind)
    return [name for name in [*required, *optional] if name not in SOCKETS]


def live(workflow):
    """The nodes that run."""
    return [node for node in workflow["nodes"] if node["type"] not in NOTES and node["mode"] == 0]


@pytest.fixture(params=NAMES)
def workflow(request):
    return read(FOLDER / f"{request.param}.json")


def test_all_are_there_and_nothing_else():
    assert NAMES == EXPECTED
    assert sorted(path.stem for path in (FOLDER / "api").iterdir()) == NAMES
    pictures = {f"{name}.jpg" for name in [*NAMES, "play-tab"]}  # the last one is the README's
    assert {path.name for path in FOLDER.iterdir() if path.suffix != ".json"} == {"api", "input", *pictures}
    used = {node["type"] for name in NAMES for node in read(FOLDER / f"{name}.json")["nodes"]}
    assert used >= set(SCHEMAS), "every node is shown somewhere"


def stored_widgets(node):
    """{widget: its value}."""
    names, values = widgets_of(node["type"]), node.get("widgets_values") or []
    assert len(values) == len(names) + (node["type"] in ONE_MORE), node["type"]
    return dict(zip(names, values, strict=False))


def test_nodes_and_widgets_are_those_of_the_schemas(workflow):
    for node in workflow["nodes"]:
        kind = node["type"]
        if kind in NOTES:
            continue
        assert kind in SCHEMAS or kind in CORE, kind
        stored_widgets(node)
        if kind in SCHEMAS:
            named = [slot["name"] for slot in node["inputs"]]
            assert sorted(named) == sorted(sum(inputs_of(kind), []))
            assert [name for name in named if name not in SOCKETS] == widgets_of(kind)
            slots = [(slot.get("localized_name") or slot["name"], slot["type"]) for slot in node["outputs"]]
            assert slots == outputs_of(kind)


@pytest.mark.parametrize("name", ["1-one-turn", "5-story", "9-film"])
def test_app_mode_shows_widgets_and_results_that_are_there(name):
    workflow = read(FOLDER / f"{name}.json")
    nodes = {node["id"]: node for node in live(workflow)}
    shown = workflow["extra"]["linearData"]
    assert workflow["extra"]["linearMode"] is False, "it opens as a graph: its note says what to do first"
    assert 3 <= len(shown["inputs"]) <= 4 and shown["outputs"]
    for node, widget in shown["inputs"]:
        assert widget in widgets_of(nodes[node]["type"])
        assert all(slot["link"] is None for slot in nodes[node]["inputs"] if slot["name"] == widget), "a linked one"
    assert set(shown["outputs"]) <= set(nodes)


@pytest.mark.parametrize("path", sorted((ROOT / "subgraphs").iterdir()), ids=lambda path: path.stem)
def test_subgraph_blueprints_are_one_node_of_ours(path):
    """A file without a definition would show an error to every user, at every page load."""
    blueprint = read(path)
    (node,), (inner,) = blueprint["nodes"], blueprint["definitions"]["subgraphs"]
    assert node["type"] == inner["id"] and inner["name"] == node["title"] == path.stem and inner["description"]
    for side in ("inputs", "outputs"):
        names = [slot["name"] for slot in node[side]]
        assert names == [slot["name"] for slot in inner[side]] and not any(name[-1].isdecimal() for name in names)
    assert len(node["widgets_values"]) == sum("widget" in slot for slot in node["inputs"])
    for part in inner["nodes"]:
        assert set(stored_widgets(part)) == set(widgets_of(part["type"]))


def test_links_join_what_fits(workflow):
    nodes = {node["id"]: node for node in workflow["nodes"]}
    assert len(nodes) == len(workflow["nodes"]) and workflow["last_node_id"] >= max(nodes)
    for link, start, out, end, slot, kind in workflow["links"]:
        source, target = nodes[start]["outputs"][out], nodes[end]["inputs"][slot]
        assert link in source["links"] and target["link"] == link
        assert kind in (source["type"], "*") and (target["type"] in (source["type"], "*") or "widget" in target)
    assert workflow["last_link_id"] >= max(link[0] for link in workflow["links"]), (
        "or the page's next link replaces one"
    )
    held = {slot["link"] for node in nodes.values() for slot in node.get("inputs", []) if slot.get("link") is not None}
    assert held == {link[0] for link in workflow["links"]}


@pytest.mark.parametrize("name", NAMES)
def test_the_api_version_is_the_same_graph(name):
    page, api = (read(folder / f"{name}.json") for folder in (FOLDER, FOLDER / "api"))
    nodes = {str(node["id"]): node for node in live(page)}
    assert set(api) == set(nodes)
    sources = {link[0]: [str(link[1]), link[2]] for link in page["links"]}
    for key, node in nodes.items():
        assert api[key]["class_type"] == node["type"]
        given = stored_widgets(node)
        given |= {slot["name"]: sources[slot["link"]] for slot in node["inputs"] if slot.get("link") is not None}
        assert api[key]["inputs"] == given, key


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("8")])
def test_the_toybox_knows_every_word_and_needs_no_download(name):
    for node in read(FOLDER / f"{name}.json")["nodes"]:
        if node["type"] in NOTES:
            continue
        values = stored_widgets(node)
        assert values.get("world", "toybox") == "toybox" or node["type"] == "TrainFilmWorld", "which makes one"
        texts = [str(values.get(key, "")) for key in TEXT_WIDGETS]
        lines = [line for text in texts for line in text.splitlines() if not line.startswith("#")]
        assert {word for line in lines for word in words(line)} <= set(vocabulary())


def test_a_film_becomes_a_world_in_the_order_of_the_stages():
    """Each stage begins from the files of those before, and the world is played with all of them."""
    prompt = read(FOLDER / "api" / "10-film-to-world.json")
    (key,) = [key for key, node in prompt.items() if node["class_type"] == "LoadAnimeGamer"]
    stages = []
    while "lora" in prompt[key]["inputs"]:
        key = prompt[key]["inputs"]["lora"][0]
        stages.append(prompt[key]["inputs"]["stage"])
    assert tuple(stages[::-1]) == tuple(ADAPTER_STAGES)
    nodes = [node["inputs"] for node in prompt.values() if node["class_type"] == "TrainLoRAStage"]
    assert len({(node["run"], node["world"], *node["game_dataset"]) for node in nodes}) == 1


@pytest.mark.parametrize("language", ["en", "zh", "ja"])
def test_translations_are_complete_and_not_stale(language):
    table = read(ROOT / "locales" / language / "nodeDefs.json")
    assert table.keys() == SCHEMAS.keys()
    for kind, words_of in table.items():
        required, optional = inputs_of(kind)
        assert set(words_of) == {"display_name", "description", "inputs", "outputs"}
        assert sorted(words_of["inputs"]) == sorted([*required, *optional]), kind
        assert list(words_of["outputs"]) == [str(index) for index, _ in enumerate(outputs_of(kind))], kind
        texts = [words_of["description"]]
        for slot in [*words_of["inputs"].values(), *words_of["outputs"].values()]:
            assert set(slot) == ({"tooltip"} if language == "en" else {"name", "tooltip"}) and all(slot.values())
            texts.append(slot["tooltip"])
        assert all(bool(re.search(r"[\u3040-\u30ff\u4e00-\u9fff]", text)) == (language != "en") for text in texts), kind


@pytest.mark.parametrize("language", ["en", "ja", "zh"])
@pytest.mark.parametrize("kind", SCHEMAS)
def test_help_pages_name_every_input_and_output(kind, language):
    text = (ROOT / "js" / "docs" / kind / f"{language}.md").read_text(encoding="utf-8")
    required, optional = inputs_of(kind)
    rows = re.findall(r"^- `(\w+)`: .{4,}$", text, re.MULTILINE)
    assert rows == [*required, *optional, *(name for name, _ in outputs_of(kind))]
    # The page is read in a narrow sidebar, below the node's name: no title of its own, and no table.
    assert not text.startswith("#") and "\n|" not in text and text.count("\n## ") == 3
