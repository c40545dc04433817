"""Weights from inside ComfyUI: the dialog, the button of Load AnimeGamer and the node, against a hub of our own."""

import json
import re
import shutil

import published_files as made
import pytest
from comfy_server import running
from graphs import START, WAVE, load, node, predict
from hub_repositories import released_repositories
from hub_server import Hub
from pages import ComfyPage
from play_tab import TAB, TURN

DIALOG = "dialog.ag-weights[open]"
CONSENT = f"{DIALOG} .ag-check:has-text('licences') input"
ALL_THERE = "() => /All files are in/.test(document.querySelector('.ag-weights-facts').innerText)"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A hub with a tiny published world."""
    folder = tmp_path_factory.mktemp("released")
    made.write_mistral(folder / "Mistral-7B-Instruct-v0.1")
    originals = made.make_originals(folder / "Mistral-7B-Instruct-v0.1")
    made.write_all(folder, originals)
    with Hub() as hub:
        hub.repositories = released_repositories(folder, originals)
        yield hub


@pytest.fixture(scope="module")
def server(tmp_path_factory, hub):
    """A ComfyUI that asks this hub."""
    surroundings = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "", "NO_PROXY": "*"}
    with running(tmp_path_factory.mktemp("comfyui"), **surroundings) as comfy:
        yield comfy


def with_room(route):
    """The answer as if the disk had room for the published files: this hub's are tiny."""
    answer = route.fetch()
    route.fulfill(response=answer, json=answer.json() | {"fits": True})


@pytest.fixture(scope="module")
def comfy(browser, server, shots):
    """Its page."""
    page = ComfyPage(browser.new_page(viewport={"width": 1400, "height": 1000}), server.url, shots)
    page.page.route(re.compile(r"/animegamer/weights\?"), with_room)
    page.open()
    yield page
    page.page.close()


@pytest.fixture
def folder(server):
    """The model folder, empty."""
    path = server.models_dir / "animegamer"
    shutil.rmtree(path, ignore_errors=True)
    return path


def get(**inputs):
    return {"get": node("GetAnimeGamerWeights", **{"weights": "qiqi", "towers": False, "accept": False} | inputs)}


def files(folder):
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not path.endswith(".lock"))


def test_the_node_downloads_nothing_without_consent_and_all_with_it(server, folder, hub):
    hub.asked = []
    entry = server.run(get())
    (report,) = entry["outputs"]["get"]["text"]
    assert "European Union" in report and "MLLM-Qiqi/pytorch_model.bin" in report and "To download" in report
    assert "Nothing was downloaded" in entry["outputs"]["get"]["animegamer_notes"][-1]
    assert hub.asked == [] and not files(folder)
    server.run(get(accept=True))
    there = {path.partition("-")[0] for path in files(folder)}
    assert {"qiqi/world.json", "qiqi/engine/model", "qiqi/vae/model"} <= there
    turn = {"load": load(world="qiqi"), "history": node("GameHistory", **START)}
    turn |= {"predict": predict(["history", 0], WAVE), "show": node("StateDisplay", state=["predict", 0])}
    server.run(turn)


def test_a_saved_graph_does_not_bring_consent_along(comfy):
    """Not even in the prompt that Run would queue."""
    before, after, queued = comfy.page.evaluate("""async () => {
      const consent = () => app.graph.nodes[0].widgets.find(({ name }) => name === "accept");
      app.graph.clear();
      app.graph.add(LiteGraph.createNode("GetAnimeGamerWeights"));
      consent().value = true;
      const before = Object.values((await app.graphToPrompt()).output)[0].inputs.accept;
      const saved = JSON.parse(JSON.stringify(app.graph.serialize()));
      await app.loadGraphData(saved, true, true, "sent");
      return [before, consent().value, Object.values((await app.graphToPrompt()).output)[0].inputs.accept];
    }""")
    assert (before, after, queued) == (True, False, False)


def test_the_play_tab_asks_for_consent_and_then_plays(comfy, server, folder, hub):
    page = comfy.page
    hub.asked = []
    page.locator(TAB).click()
    page.wait_for_selector(".ag-new")
    page.select_option(".ag-new select", "qiqi")
    assert "not installed" in page.locator(".ag-new option[value=qiqi]").inner_text()
    page.click(".ag-get-weights")
    page.wait_for_selector(f"{DIALOG} .ag-licence:not(:empty)")
    shown = page.locator(DIALOG).inner_text()
    assert all(words in shown for words in ("European Union", "the game engine", "fetch qiqi --out"))
    links = [link.get_attribute("href") for link in page.locator(f"{DIALOG} a").all()]
    assert "https://huggingface.co/TencentARC/AnimeGamer" in links and len(links) == 3
    page.set_viewport_size({"width": 1024, "height": 640})
    get = page.locator(f"{DIALOG} .ag-main")
    assert get.is_disabled() and not hub.asked and get.bounding_box()["y"] < 570, "in view without scrolling"
    comfy.shot("weights-dialog")
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.check(CONSENT)
    page.click(f"{DIALOG} .ag-main")
    page.wait_for_function(ALL_THERE)
    assert "qiqi/world.json" in files(folder)
    page.click(f"{DIALOG} button:has-text('Close')")
    page.wait_for_function("() => document.querySelector('.ag-new option[value=qiqi]').textContent === 'qiqi'")
    page.fill(".ag-new input", "with weights")
    page.click(".ag-new .ag-main")
    page.wait_for_selector(".ag-game:visible")
    page.fill(".ag-text", WAVE)
    page.press(".ag-text", "Enter")
    page.wait_for_selector(".ag-line-strip, .ag-screen video", timeout=TURN)
    page.click(".ag-top button >> nth=0")


def press_button(comfy):
    """Click the button that the canvas draws on a Load AnimeGamer, which the Play tab may cover."""
    if comfy.page.locator(".ag-play:not(dialog)").count():
        comfy.page.locator(TAB).click()
        comfy.page.wait_for_selector(".ag-play:not(dialog)", state="detached")
    if comfy.page.locator(".p-dialog:visible").count():  # older pages show a failed prompt in a dialog
        comfy.page.keyboard.press("Escape")
        comfy.page.wait_for_selector(".p-dialog", state="detached")
    comfy.page.mouse.click(*comfy.run_script("widget_at", ["LoadAnimeGamer", "Get weights"]))
    comfy.page.wait_for_selector(f"{DIALOG}:not([aria-busy]) .ag-licence:not(:empty)")


def test_the_button_of_load_animegamer_opens_the_dialog_and_is_not_saved(comfy, folder):
    page = comfy.page
    comfy.load_prompt({"1": load(world="sosuke")})
    saved = page.evaluate("() => app.graph.nodes[0].serialize().widgets_values")
    assert json.dumps(saved) == json.dumps(["sosuke", "auto", "auto", "world", 1, "none", 1, "world"])
    press_button(comfy)
    assert page.input_value(f"{DIALOG} select") == "sosuke"
    page.check(CONSENT)
    page.click(f"{DIALOG} .ag-main")  # the hub has no decoder of this film
    page.wait_for_selector(f"{DIALOG} .ag-alert:visible")
    assert "has no file for the shot decoder of sosuke" in page.locator(f"{DIALOG} .ag-foot > .ag-alert").inner_text()
    page.select_option(f"{DIALOG} select", "base models")
    page.wait_for_function("() => /No weights of AnimeGamer/.test(document.querySelector('.ag-licence').innerText)")
    assert "European Union" not in page.locator(f"{DIALOG} .ag-licence").inner_text()
    assert not page.is_checked(CONSENT), "other licences, another consent"
    page.keyboard.press("Escape")
    assert page.locator(DIALOG).count() == 0
