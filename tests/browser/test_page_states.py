"""What the page says of a turn that runs, of drafts, of deleted stories, and of nodes in subgraphs."""

from graphs import START as NEW_GAME
from graphs import WAVE, draw, load, node, predict
from pages import script
from play_tab import TURN

from animegamer_core.spec import SPECS


def test_a_reload_in_mid_turn_shows_it_as_running(tab, slow):
    tab.begin("long turns", slow)
    tab.sketch(1000)
    tab.tell(WAVE, "Shift+Enter")
    tab.page.wait_for_selector(".ag-preview:visible", timeout=TURN)
    tab.comfy.open()
    tab.open()
    words = tab.page.locator(".ag-status-words")
    words.wait_for()
    tab.page.wait_for_function(
        "() => /Drawing|Playing/.test(document.querySelector('.ag-status-words').textContent)", timeout=5_000
    )
    assert "waits" not in words.inner_text()
    tab.page.locator(".ag-stop-button").click()
    tab.wait_until_idle()


def test_decode_shot_ends_on_the_moving_clip(comfy, server, world):
    graph = {"1": load(world=world), "2": node("GameHistory", **NEW_GAME), "3": predict(["2", 0], WAVE, model="1")}
    graph |= {"4": draw(["3", 0], model="1"), "5": node("PreviewImage", images=["4", 0])}
    comfy.load_prompt(graph)
    # The second time all of it is cached, and ComfyUI tells the page only of its output nodes. So after loading the
    # graph again, this node would show nothing, unless the page had kept something.
    for _ in range(2):
        comfy.run_graph()
        # A turn that was drawn ahead may have ended since.
        shown = [entry["outputs"]["4"] for entry in server.get("/history").values() if "4" in entry["outputs"]][-1]
        (clip,) = shown["images"]
        comfy.page.wait_for_function(script("plays"), arg=clip["filename"], timeout=15_000)
        assert (server.base / clip["type"] / clip["subfolder"] / clip["filename"]).is_file()
        usual = SPECS[world].decoder.steps
        assert shown["animegamer_draft"] == [
            f"A draft, drawn in 1 of {usual} sampling steps; set steps to 0 to use them all."
        ]
        assert "A draft" in comfy.page.locator(".ag-notes.ag-in-node").last.inner_text()
    comfy.shot("decode-shot-clip")
    comfy.page.evaluate("() => app.api.dispatchEvent(new CustomEvent('executing', { detail: '4' }))")
    assert not comfy.page.locator(".ag-notes.ag-in-node:visible").count(), "they are of the run before"
