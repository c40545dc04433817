"""The panel Training below the canvas: log, loss curve and shots of runs of Train LoRA Stage."""

import re

import pytest
from graphs import train
from pages import script
from play_tab import MESSAGE

WORDS = ".ag-training .ag-status-words"
PATIENCE_S = 600  # a busy machine takes ten times as long
TOGGLE = "() => app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.animegamer.training')"


@pytest.fixture(scope="module")
def page(comfy):
    yield comfy.page
    if comfy.page.locator(".ag-training").count():
        comfy.page.evaluate(TOGGLE)


def words(page):
    return page.locator(WORDS).inner_text()


def wait_for(page, start, timeout=None):
    """Until the panel's words begin with `start`."""
    page.locator(WORDS, has_text=re.compile(f"^{start}")).wait_for(timeout=timeout)


def test_a_run_is_shown_while_it_trains(page, server, comfy):
    page.evaluate(TOGGLE)
    queued = server.queue(train(run="shown", shots_every=2))
    wait_for(page, "Training: step", PATIENCE_S * 1000)
    assert page.locator(".ag-training select").input_value() == '{"run":"shown","stage":"adapt"}'
    page.wait_for_function(script("training_in_view"), timeout=PATIENCE_S * 1000)
    server.wait(queued, PATIENCE_S)
    wait_for(page, "Finished")
    assert words(page) == "Finished: 4 steps"
    rows = page.locator(".ag-training-log li").all_inner_texts()
    assert len(rows) == 4 and rows[0].startswith("step 4  loss 0.")
    assert page.locator(".ag-training .ag-bar").get_attribute("aria-valuenow") == "100"
    corners = page.locator(".ag-training polyline.ag-of-loss").get_attribute("points").split()
    assert len(corners) == 4 and corners[0].startswith("0,") and corners[-1].startswith("400,")
    assert page.locator(".ag-training .ag-plot").get_attribute("aria-label").startswith("loss 0.")
    page.wait_for_function("() => document.querySelector('.ag-training-shots img').naturalWidth > 300")
    comfy.shot("training")


def test_shots_are_walked_by_keys(page):
    caption = page.locator(".ag-training-shots .ag-faint").first
    assert caption.inner_text() == "Shots at step 4"
    page.locator(".ag-training-shots button").first.focus()
    page.keyboard.press("ArrowLeft")
    assert caption.inner_text() == "Shots at step 2"
    assert page.locator(".ag-training-shots img").get_attribute("alt").startswith("Step 2: dataset clips")
    page.locator(".ag-training-shots button").last.click()
    assert caption.inner_text() == "Shots at step 4" and page.locator(".ag-training-shots button").last.is_disabled()


def test_an_interrupted_run_stops_in_a_message_and_goes_on_from_the_list(page, server, comfy):
    page.evaluate(TOGGLE)
    page.wait_for_selector(".ag-training", state="detached")
    folder = server.output_dir / "animegamer" / "runs" / "broken off" / "adapt"
    queued = server.queue(train(run="broken off", steps=200))
    server.wait_until(lambda: (folder / "log.jsonl").is_file() and (folder / "log.jsonl").read_text(), PATIENCE_S)
    server.post("/interrupt", {})
    page.locator(MESSAGE, has_text="adapt: you stopped it. Run it again").wait_for(timeout=PATIENCE_S * 1000)
    server.wait(queued, PATIENCE_S)
    page.evaluate(TOGGLE)
    wait_for(page, "Not running: step")
    page.select_option(".ag-training select", '{"run":"shown","stage":"adapt"}')
    wait_for(page, "Finished: 4 steps$")
    page.evaluate(TOGGLE)
    page.wait_for_selector(".ag-training", state="detached")


def test_a_stage_of_a_film_is_one_of_three_and_asks_for_no_shots(page):
    film = {"run": "film", "stage": "predict", "active": True, "ended": False, "draws": False, "sheets": [], "log": []}
    film |= {"steps": 3, "number": 2, "stages": 3, "before": 10, "of": 15, "curve": [{"step": 2, "loss": 1}]}
    film |= {"left": 2400, "log": [{"step": 1, "seconds": 10}, {"step": 2, "seconds": 24}]}
    answer = {"runs": [{"run": "film", "stage": "predict"}], **film}
    page.route("**/animegamer/training*", lambda route: route.fulfill(json=answer))
    page.evaluate(TOGGLE)
    wait_for(page, "Training stage")
    said = "Training stage 2 of 3: step 2 of 3 \u00b7 14 s per step \u00b7 about 40 min left in all, at this pace"
    assert words(page) == said
    assert page.locator(".ag-training .ag-bar").get_attribute("aria-valuenow") == "80"
    assert page.locator(".ag-training-shots").is_hidden()
    answer |= {"prepares": [4, 16], "before": 0, "left": None, "log": []}
    page.evaluate(TOGGLE)
    page.evaluate(TOGGLE)
    wait_for(page, "Preparing the clips: 4 of 16$")
    assert page.locator(".ag-training .ag-bar").get_attribute("aria-valuenow") == "25", "as on the node"
    page.unroute("**/animegamer/training*")


def test_the_time_left_in_all_stages_is_on_the_node(page):
    add = "() => app.graph.add(LiteGraph.createNode('TrainFilmWorld')).id"
    other = page.evaluate(add.replace("TrainFilmWorld", "LoadAnimeGamer"))
    event = {"node": page.evaluate(add), "run": "film", "stage": "joint", "state": "trains", "left": 2400}
    tell = "(event) => app.api.dispatchEvent(new CustomEvent('animegamer.training', { detail: event }))"
    page.evaluate(tell, event)
    note = page.locator(".ag-notes.ag-in-node", has_text="Training: about 40 min left in all, at this pace")
    note.wait_for()
    page.evaluate(tell, event | {"node": other})  # as if another workflow were open by now
    assert note.count() == 1
    assert page.evaluate("(id) => app.graph.getNodeById(id).properties.animegamer_notes", event["node"]) == []
    page.evaluate(tell, event | {"state": "stopped", "left": None})
    note.wait_for(state="detached")
