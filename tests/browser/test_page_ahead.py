"""The Play tab: proposed turns are drawn ahead and play at once; the player's own turn never waits for them."""

import pytest
from play_tab import TURN
from tiny_world import save_tiny_world

from animegamer_core.story.ahead_store import ahead_bytes

SEA = "Character: Miko; Motion: gently wave hello; Background: day beach."
READY = ".ag-proposals .ag-ready:not([hidden])"
LOADED = """
() => {
  const videos = [...document.querySelectorAll(".ag-suggestions video")];
  return videos.length === 3 && videos.every((video) => video.readyState === 4);
}
"""
SHOWN = """
([number]) => {
  const video = document.querySelector(".ag-screen video");
  return video && video.readyState >= 2 && document.querySelector(".ag-stage .ag-number").textContent === number;
}
"""


@pytest.fixture(scope="module")
def ahead(tab, server, world):
    """A story of one turn, with proposals that are drawn ahead."""
    if world == "tiny":
        save_tiny_world(server.models_dir / "animegamer" / "tiny")
    tab.comfy.set("AnimeGamer.Ahead.Mode", "on")
    tab.comfy.set("AnimeGamer.Ahead.Seconds", 60)
    tab.begin("ahead")
    tab.sketch(2)
    tab.play(SEA, 1)
    yield tab
    tab.comfy.set("AnimeGamer.Ahead.Mode", "off")


def wait_for_ready(ahead, count=3):
    ahead.page.wait_for_function(
        "([ready, count]) => document.querySelectorAll(ready).length === count", arg=[READY, count], timeout=TURN
    )


def steps(ahead, count):
    """Sampling steps for the turns to come, also for those that are drawn ahead."""
    ahead.sketch(count)
    ahead.page.wait_for_timeout(200)


def queue(ahead):
    found = ahead.server.get("/queue")
    return found["queue_running"] + found["queue_pending"]


def running(ahead):
    return ahead.server.get("/queue")["queue_running"]


def in_history(ahead):
    return [
        node["class_type"]
        for entry in ahead.server.get("/history").values()
        for node in entry["prompt"][2].values()
        if node["class_type"] == "DrawTurnsAhead"
    ]


def wait_until_quiet(ahead):
    ahead.server.wait_until(lambda: not queue(ahead) and not in_history(ahead), 60)


def test_three_proposals_are_drawn_ahead_and_nothing_is_left_over(ahead):
    wait_for_ready(ahead)
    wait_until_quiet(ahead)
    ahead.comfy.shot("play-ahead")
    assert len(ahead.saved("ahead")["lines"][0]["turns"]) == 1
    assert [story["name"] for story in ahead.server.get("/animegamer/stories")["stories"]].count("ahead") == 1
    assert ".ahead" not in str(ahead.server.get("/animegamer/stories"))
    assert ahead_bytes(ahead.server.output_dir / "animegamer") > 0
    marks = ahead.page.locator(READY)
    assert {mark.get_attribute("aria-label") for mark in marks.all()} == {"Drawn ahead: plays at once"}


def test_a_click_shows_the_clip_at_once_and_it_goes_on_playing(ahead):
    page, chosen = ahead.page, ahead.page.locator(".ag-proposals .ag-story").nth(1)
    wanted = chosen.get_attribute("title")
    page.wait_for_function(LOADED)
    with ahead.server.paused():  # what is shown at once needs no answer; tests/measure/ahead.py measures the time
        chosen.click()
        page.wait_for_function(SHOWN, arg=["2"], timeout=3_000)
    page.evaluate("() => void (document.querySelector('.ag-screen video').marked = true)")
    ahead.wait_for_turn(2)
    turn = ahead.saved("ahead")["lines"][0]["turns"][1]
    assert turn["instruction"] == wanted
    assert page.evaluate("() => document.querySelector('.ag-screen video').marked"), "the same video, not begun again"
    assert turn["clip"]["filename"] in page.locator(".ag-screen video").get_attribute("src")
    wait_for_ready(ahead)


def test_a_typed_turn_does_not_wait_for_what_is_drawn_ahead(ahead):
    page = ahead.page
    steps(ahead, 900)
    ahead.server.wait_until(lambda: any("DrawTurnsAhead" in str(entry[2]) for entry in running(ahead)), 60)
    page.wait_for_timeout(300)  # a shot has begun, since the states are there; a quick machine draws it within 1.5 s
    assert any("DrawTurnsAhead" in str(entry[2]) for entry in running(ahead))
    with ahead.server.paused():  # a busy page may need longer than the shot
        ahead.tell("Miko naps")
    ahead.server.wait_until(lambda: any("Miko naps" in str(entry[2]) for entry in running(ahead)), 10)
    records = (ahead.server.output_dir / "animegamer").glob(".ahead/*/shots/*.json")
    assert not [path for path in records if '"steps": 900' in path.read_text()], "no shot was waited for"
    with ahead.server.paused():
        page.click(".ag-stop-button")
    ahead.wait_until_idle()


def test_other_settings_and_a_closed_story_end_what_runs(ahead):
    ahead.server.wait_until(lambda: any("DrawTurnsAhead" in str(entry[2]) for entry in queue(ahead)), 60)
    steps(ahead, 2)
    wait_for_ready(ahead)
    steps(ahead, 900)
    ahead.server.wait_until(lambda: any("DrawTurnsAhead" in str(entry[2]) for entry in queue(ahead)), 60)
    ahead.close_story()
    wait_until_quiet(ahead)


def test_a_reload_while_a_turn_is_drawn_leaves_nothing_in_the_history(ahead):
    ahead.begin("ahead")
    steps(ahead, 900)
    ahead.server.wait_until(lambda: any("DrawTurnsAhead" in str(entry[2]) for entry in running(ahead)), 60)
    ahead.comfy.open()
    wait_until_quiet(ahead)


def test_a_reload_keeps_the_settings_and_finds_what_is_drawn(ahead):
    ahead.comfy.open()
    assert ahead.page.evaluate("() => app.extensionManager.setting.get('AnimeGamer.Ahead.Seconds')") == 60
    ahead.begin("ahead")
    steps(ahead, 2)
    wait_for_ready(ahead)
    wait_until_quiet(ahead)


def test_off_draws_nothing(ahead):
    page = ahead.page
    ahead.comfy.set("AnimeGamer.Ahead.Mode", "off")
    page.click(".ag-top .pi-undo")
    ahead.wait_for_turn(1)
    page.wait_for_selector(".ag-proposals .ag-story")
    page.wait_for_timeout(1500)
    assert not page.locator(READY).count() and not queue(ahead)
