"""The state in a node: run a graph on the page, and see the stats and the clip."""

import base64
import json
import os
import shutil
import urllib.error

import numpy as np
import pytest
from comfy_server import OLDER, ROOT
from graphs import PLAY, START, draw, load, node, predict, save_video, saved_frames
from pages import is_older, script

pytestmark = pytest.mark.usefixtures("world")

WORLD = "toybox" if "ANIMEGAMER_SHOTS" in os.environ else "tiny"  # as the fixture `world`
INSTRUCTION = "Character: Miko; Motion: {}; Background: {}."
CARD = ".ag-card.ag-in-node"
COLOURS_IN = """(id) => [...document.querySelectorAll(`[data-node-id="${id}"] *`)].map(
  (part) => getComputedStyle(part).backgroundColor)"""


def a_turn(first="swiftly run", second="barely sleep under a blanket"):
    """A graph of two turns; the second is shown and drawn."""
    return {
        "1": load(world=WORLD),
        "2": node("GameHistory", **START),
        "3": predict(["2", 0], INSTRUCTION.format(first, "day beach"), model="1"),
        "4": predict(["3", 1], INSTRUCTION.format(second, "night bedroom"), model="1"),
        "5": node("StateDisplay", state=["4", 0]),
        "6": draw(["5", 0], model="1"),
        "7": save_video("6"),
    }


def stored_state(server):
    """The state of the last run's StateDisplay, as the server's history has it."""
    return list(server.get("/history").values())[-1]["outputs"]["5"]["animegamer_state"][0]


@pytest.fixture(scope="module")
def run(comfy):
    comfy.load_prompt(a_turn())
    assert comfy.page.locator(CARD).count() == 1, "the card is there before anything ran"
    comfy.run_graph()
    return comfy


def assert_shows(comfy, state):
    """The card in StateDisplay shows a state: its stats with their changes, and the motion's word."""
    comfy.page.wait_for_selector(f"{CARD} .ag-lines")
    card = comfy.run_script("card", CARD)
    for name, value in state["stats"].items():
        change = state["changes"][name]
        assert card[name] == [value, f"{change:+d}".replace("-", "\u2212") if change else ""]
    assert (card["motion"], card["steps"]) == (state["motion"]["scope"], state["motion"]["level"])
    assert card["width"] == f"{state['stats']['stamina']}%"


def test_the_node_shows_what_the_server_predicted(run, server):
    state = stored_state(server)
    assert_shows(run, state)
    assert run.page.locator(f"{CARD} .ag-number").inner_text() == "2"
    words = run.page.locator(f"{CARD} .ag-words span").all_inner_texts()
    assert words == ["Miko", "barely sleep under a blanket", "night bedroom"]
    assert len(run.page.locator(f"{CARD} .ag-steps rect").all()) == len(state["course"]) == 2
    sizes = run.run_script("card_size", CARD)
    assert all(inner <= outer + 1 for inner, outer in zip(sizes["inner"], sizes["outer"], strict=True)), sizes
    run.page.wait_for_function("() => [...document.querySelectorAll('video')].some((video) => video.videoWidth > 0)")
    run.shot("graph-dark")


def a_story(*instructions, story):
    """A graph of one node that plays and draws these turns."""
    instructions = "\n".join(INSTRUCTION.format(instruction, "day beach") for instruction in instructions)
    play = node("PlayGameStory", **PLAY, model=["1", 0], instructions=instructions, story=story)
    return {"1": load(world=WORLD), "2": play}


def a_game_of_three(story):
    """A graph of three turns, each drawn and saved."""
    graph = {"1": load(world=WORLD), "2": node("GameHistory", **START)}
    before = ["2", 0]
    for turn in "345":
        graph[turn] = predict(before, INSTRUCTION.format("dance", "day beach"), model="1")
        graph[f"{turn}1"] = draw([turn, 0], model="1")
        graph[f"{turn}2"] = node("SaveGameStory", shot=[f"{turn}1", 3], story=story)
        before = [turn, 1]
    return graph


def ran(server):
    """The ids of the nodes that the last prompt ran, not taken from the cache."""
    entry = list(server.get("/history").values())[-1]
    cached = [
        name for kind, facts in entry["status"]["messages"] if kind == "execution_cached" for name in facts["nodes"]
    ]
    return set(entry["prompt"][2]) - set(cached)


def test_a_second_run_draws_only_what_has_changed(comfy, server):
    """The page's own players of clips, which come after the first run, are no inputs of the nodes."""
    comfy.load_prompt(a_game_of_three("again"))
    comfy.run_graph()
    comfy.page.wait_for_function("() => document.querySelectorAll('video').length >= 3")
    comfy.run_graph()
    assert ran(server) == set()
    middle = "app.graph.nodes.find((node) => String(node.id) === '41')"
    comfy.page.evaluate(f"() => {{ {middle}.widgets.find(({{ name }}) => name === 'motion').value = 'wild'; }}")
    comfy.run_graph()
    assert ran(server) == {"41", "42"}
    comfy.page.evaluate("() => app.extensionManager.workflow?.activeWorkflow?.changeTracker?.checkState()")
    comfy.page.wait_for_timeout(2_000)  # the page keeps its draft of the graph, with the value that was set here
    comfy.open()
    comfy.run_graph()
    assert ran(server) == set()


def test_a_saved_workflow_shows_the_state_again_after_a_reload(comfy, server):
    comfy.load_prompt(a_turn())
    comfy.run_graph()
    state = stored_state(server)
    assert_shows(comfy, state)
    saved = comfy.page.evaluate("() => JSON.stringify(app.graph.serialize())")
    comfy.set("Comfy.ColorPalette", "light")
    comfy.open()
    comfy.page.evaluate("async (saved) => { await app.loadGraphData(JSON.parse(saved), true, true, 'again'); }", saved)
    assert_shows(comfy, state)
    comfy.shot("graph-light")
    comfy.set("Comfy.ColorPalette", "dark")


def test_the_words_of_the_world_are_clicked_into_the_fields(comfy):
    fields = {"character": "Miko", "adverb": "gently", "motion": "dance", "time": "day", "place": "beach", "story": ""}
    comfy.load_prompt({"1": load(world="toybox"), "2": node("ComposeGameInstruction", **fields)})
    height = "() => app.graph.getNodeById(2).size[1]"
    closed = comfy.page.evaluate(height)
    comfy.page.locator(".ag-node-words summary").click()
    for word in ("Taro", "swiftly", "forest"):
        comfy.page.locator(".ag-node-words").get_by_role("button", name=word, exact=True).click()
    comfy.shot("compose-words")
    assert comfy.page.evaluate(height) > closed
    comfy.page.locator(".ag-node-words summary").click()
    comfy.page.wait_for_function(f"() => ({height})() <= Math.max({closed}, app.graph.getNodeById(2).computeSize()[1])")
    prompt = comfy.page.evaluate("async () => (await app.graphToPrompt()).output")
    assert prompt["2"]["inputs"] == fields | {"character": "Miko, Taro", "adverb": "swiftly", "place": "forest"}


def test_the_words_of_the_first_example_open_over_no_other_node(comfy):
    graph = (ROOT / "workflows" / "1-one-turn.json").read_text(encoding="utf-8")
    comfy.page.evaluate("async (graph) => { await app.loadGraphData(JSON.parse(graph)); }", graph)
    comfy.page.locator(".ag-node-words summary").click()
    boxes = "() => app.graph.nodes.map(({ comfyClass, pos, size }) => [comfyClass, ...pos, ...size])"
    comfy.page.wait_for_function(f"() => ({boxes})().find(([kind]) => kind === 'ComposeGameInstruction')[4] > 450")
    nodes = {kind: (x, y, x + width, y + height) for kind, x, y, width, height in comfy.page.evaluate(boxes)}
    left, top, right, bottom = nodes.pop("ComposeGameInstruction")
    assert not [one for one, (x, y, end, low) in nodes.items() if x < right and left < end and y < bottom and top < low]
    kinds = "app.graph.nodes.find((node) => node.comfyClass === 'ComposeGameInstruction').widgets.at(-1).label"
    assert comfy.page.evaluate(f"() => {kinds}") == "Words"
    comfy.page.locator(".ag-node-words summary").click()


def test_nodes_2_0_shows_the_card_too(comfy, server):
    if is_older(comfy.page):
        assert not comfy.page.evaluate("() => app.extensionManager.setting.get('Comfy.VueNodes.Enabled')")
        pytest.skip(f"{OLDER}finished Nodes 2.0")
    comfy.set("Comfy.VueNodes.Enabled", True)
    comfy.open()
    try:
        comfy.load_prompt(a_turn())
        comfy.run_graph()
        assert_shows(comfy, stored_state(server))
        assert "rgb(47, 174, 113)" in comfy.page.evaluate(COLOURS_IN, "5"), "slots have the colour of their links"
        comfy.shot("graph-nodes-2")
        loader = comfy.page.locator("[data-node-id='1']")
        assert loader.get_by_text("world", exact=True).count() and not loader.get_by_text("placement").count()
        loader.get_by_text("Show advanced inputs").click()
        loader.get_by_text("placement", exact=True).wait_for()
        comfy.load_prompt(a_story("calmly swim", story="shown in nodes 2"))
        comfy.run_graph()
        clip = list(server.get("/history").values())[-1]["outputs"]["2"]["images"][0]["filename"]
        comfy.page.wait_for_function(script("plays"), arg=clip, timeout=15_000)
        assert not comfy.page.get_by_text("Video failed to load").count()
        assert comfy.page.locator("[data-node-id='2'] img").count() == 0, "no picture of the drawing below the clip"
        assert not comfy.page.locator("[data-node-id='2']").get_by_text("motion_value").count(), "it is advanced"
        comfy.shot("graph-story-nodes-2")
    finally:
        comfy.set("Comfy.VueNodes.Enabled", False)
        comfy.open()


@pytest.fixture(scope="module")
def blueprints(server):
    """{name: blueprint} of the pack's subgraphs, as the server lists them."""
    try:
        listed = server.get("/global_subgraphs")
    except urllib.error.HTTPError as error:  # they came with 0.3.67
        assert error.code == 404
        pytest.skip(f"{OLDER}subgraph blueprints")
    ours = {item["name"]: key for key, item in listed.items() if item["source"] == "custom_node"}
    return {name: json.loads(server.get(f"/global_subgraphs/{key}")["data"]) for name, key in ours.items()}


@pytest.fixture(scope="module")
def film(comfy, server):
    """The film of the examples, in the input folder."""
    for path in (ROOT / "workflows" / "input").glob("my-film*"):
        shutil.copy(path, server.input_dir)
    comfy.page.evaluate("async () => app.refreshComboInNodes()")


def insert(comfy, blueprint):
    """Put a blueprint on the canvas with what it needs around it; nothing of it is lost."""
    found = comfy.page.evaluate(script("blueprint"), [blueprint, WORLD])
    (inner,) = blueprint["definitions"]["subgraphs"]
    assert found["unknown"] == [] and sorted(found["kinds"]) == sorted(part["type"] for part in inner["nodes"])
    assert found["links"] == len(inner["links"]) and found["open"] == []


def test_a_subgraph_blueprint_plays(comfy, server, blueprints):
    insert(comfy, blueprints["AnimeGamer two futures"])
    comfy.run_graph()
    outputs = list(server.get("/history").values())[-1]["outputs"]
    assert sum("animegamer_state" in shown for shown in outputs.values()) == 2


def test_the_blueprint_from_a_film_to_a_lora_is_accepted(comfy, server, blueprints, film):
    """It trains for minutes, as test_workflows_run does with the same nodes; here it is stopped."""
    assert set(blueprints) == {f"AnimeGamer {name}" for name in ("one turn", "two futures", "film to LoRA")}
    insert(comfy, blueprints["AnimeGamer film to LoRA"])
    answer = comfy.page.evaluate("async () => app.api.queuePrompt(0, await app.graphToPrompt())")
    assert not answer["node_errors"]
    ended = lambda: server.post("/interrupt", {}) and server.get(f"/history/{answer['prompt_id']}")  # noqa: E731
    server.wait_until(ended)
    (entry,) = ended().values()
    kinds = [values["class_type"] for values in entry["prompt"][2].values()]
    assert {"BuildGameDataset", "TrainLoRAStage", "PreviewAny"} <= set(kinds)


STORY = "\n".join(INSTRUCTION.format(motion, "day beach") for motion in ("gently wave hello", "dance"))


def test_app_mode_shows_what_one_would_change_and_then_the_clip(comfy, server):
    page, wanted, changes = comfy.page, ["instructions", "story", "seed"], {"instructions": STORY, "story": "as an app"}
    if not page.evaluate("() => app.extensionManager.command.commands.some(({ id }) => id === 'Comfy.ToggleLinear')"):
        assert is_older(page)
        pytest.skip(f"{OLDER}App mode")
    tour = page.get_by_text("Skip", exact=True)  # of a first visit, whenever it comes
    page.add_locator_handler(tour, lambda skip: skip.click())
    try:
        page.evaluate(script("as_app"), ["5-story", WORLD])
        inputs = page.get_by_test_id("app-mode-widget-item")
        inputs.nth(len(wanted) - 1).wait_for()
        assert [words.split("\n")[0] for words in inputs.all_inner_texts()] == wanted
        for widget, value in changes.items():
            inputs.nth(wanted.index(widget)).locator("input, textarea").first.fill(value)
        comfy.shot("app-mode")
        before = len(server.get("/history"))
        page.get_by_test_id("linear-run-button").get_by_role("button", name="Run").click()
        server.wait_until(lambda: len(server.get("/history")) > before)
        entry = list(server.get("/history").values())[-1]
        assert entry["status"]["status_str"] == "success"
        ran = [values["inputs"] for values in entry["prompt"][2].values()]
        assert all(value in [inputs.get(widget) for inputs in ran] for widget, value in changes.items())
        page.wait_for_function("() => [...document.querySelectorAll('video')].some((video) => video.videoWidth)")
    finally:
        page.remove_locator_handler(tour)
        page.evaluate("() => app.extensionManager.command.execute('Comfy.ToggleLinear')")
        comfy.open()


def test_a_saved_film_or_clip_that_is_dropped_onto_the_page_loads_its_graph(comfy, server):
    prompt = a_story("gently wave hello", story="dropped")
    prompt["2"]["inputs"]["export"] = True
    film = node("ExportGameStory", story=["2", 5], branch="", turns=-1, name="film", subtitles=False)
    comfy.load_prompt(prompt | {"3": film})
    comfy.run_graph()
    kinds, folder = {"LoadAnimeGamer", "PlayGameStory", "ExportGameStory"}, server.output_dir / "animegamer" / "dropped"
    for path in (folder / "films" / "film.mp4", folder / "story.mp4", *(folder / "shots").glob("*.mp4")):
        subfolder = path.parent.relative_to(server.output_dir).as_posix()
        address = f"/view?filename={path.name}&subfolder={subfolder}&type=output"
        assert set(comfy.run_script("drop_file", address)) == kinds, path


@pytest.mark.parametrize("height, width", [(96, 144), (480, 720), (960, 1440)])
def test_a_browser_and_core_show_the_colours_of_a_clip(comfy, server, height, width):
    from animegamer_core.media.video import write_clip

    colours = np.array(
        [(230, 30, 40), (30, 200, 60), (40, 60, 220), (250, 220, 90), *[(128,) * 3] * 2, (0,) * 3, (255,) * 3]
    )
    frame = np.repeat(colours.astype(np.uint8), width // 8, axis=0)[None].repeat(height, 0)
    path = server.base / "input" / f"colours{height}.mp4"
    write_clip(path, np.stack([frame] * 2), 8)
    shown = comfy.run_script("colours_of", base64.b64encode(path.read_bytes()).decode())
    # Chromium's own arithmetic without a GPU is 8 off for the blue of BT.709, however a film is tagged.
    assert np.abs(np.array(shown) - colours).max() <= (3 if height < 576 else 8)
    entry = server.run(
        {
            "load": node("LoadVideo", file=path.name),
            "frames": node("GetVideoComponents", video=["load", 0]),
            "show": node("PreviewImage", images=["frames", 0]),
        }
    )
    picture = saved_frames(server, entry, "show")[0]
    assert np.abs(picture[height // 2, width // 16 :: width // 8, :3].astype(int) - colours).max() <= 3
