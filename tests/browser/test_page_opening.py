"""A new story of the Play tab that begins with a picture or a part of a film, by mouse and by keys."""

import numpy as np
import pytest
from PIL import Image
from play_tab import TURN

from animegamer_core.media.video import read_clip, write_clip

SEA = "Character: Miko; Motion: gently wave hello; Background: day beach."
RUN = "Character: Miko; Motion: swiftly run; Background: day beach."
STEP = 7  # grey levels between two frames of the film


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """Four seconds at 8 frames a second, whose greys tell the frame."""
    path = tmp_path_factory.mktemp("films") / "my walk.mp4"
    greys = np.arange(32, dtype=np.uint8)[:, None, None, None] * STEP + 10
    write_clip(path, np.broadcast_to(greys, (32, 96, 144, 3)).copy(), 8)
    return path


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures") / "own.png"
    Image.new("RGB", (300, 200), "teal").save(path)
    return path


def choose(tab, story, path, at=None, text=None):
    """Fill the form of a new story."""
    tab.close_story()
    tab.page.fill(".ag-new input", story)
    tab.page.select_option(".ag-new select", tab.world)
    tab.page.set_input_files(".ag-new input[type=file]", path)
    if at is not None:
        tab.page.fill("input[name=opening-at]", str(at))
    if text is not None:
        tab.page.fill("input[name=opening-text]", text)


def begin(tab):
    tab.page.locator(".ag-new .ag-main").click()
    tab.page.wait_for_selector(".ag-game:visible")


def source(tab, kind="video"):
    return tab.page.locator(f".ag-screen {kind}").get_attribute("src")


def test_a_story_begins_with_a_part_of_a_film_and_goes_on_without_it(tab, film, server):
    choose(tab, "from a film", film, at=1.5, text="Miko waves")
    begin(tab)
    tab.page.wait_for_selector(".ag-text:focus")  # also after an upload the player can write at once
    assert "type=input" in source(tab) and source(tab).endswith("#t=1.5")
    assert tab.page.locator(".ag-stage .ag-words span").all_inner_texts() == ["Miko waves"]
    assert tab.page.locator(".ag-stage .ag-number").inner_text() == "0"
    tab.comfy.shot("opening-before-turn-1")
    tab.sketch()
    tab.play(SEA, 1)
    (branch,) = tab.saved("from a film")["branches"]
    clip = branch["opening_clip"]
    frames = read_clip(server.output_dir / clip["subfolder"] / clip["filename"]).frames
    assert [round((float(frame.mean()) - 10) / STEP) for frame in frames] == list(range(12, 29))
    (server.input_dir / "my walk.mp4").unlink()
    tab.play(RUN, 2)
    prompts = [entry["prompt"][2] for entry in server.get("/history").values()]
    turns = [(prompt, prompt["animegamer-turn"]["inputs"]) for prompt in prompts if "animegamer-turn" in prompt]
    ours = [set(prompt) for prompt, inputs in turns if inputs.get("story") == "from a film"]
    assert ["animegamer-opening" in nodes for nodes in ours] == [True, False]


def test_an_export_begins_with_turn_0_if_asked(tab, server):
    folder = server.output_dir / "animegamer" / "from a film"
    for checked, turns in ((False, 2), (True, 3)):
        tab.page.click(".ag-top .pi-download")
        box = tab.page.locator("dialog.ag-export input[name=show-opening]")
        assert box.is_visible()
        box.set_checked(checked)
        if checked:
            tab.comfy.shot("opening-export")
        tab.page.locator("dialog.ag-export .ag-main").click()
        tab.page.wait_for_selector(".ag-files a", timeout=TURN)
        tab.wait_until_idle()
        assert len(read_clip(folder / "story.mp4").frames) == 17 * turns


def test_a_reload_before_turn_1_does_not_lose_the_opening(tab, picture):
    choose(tab, "from a picture", picture)
    tab.page.click(".ag-opening-more button.ag-second")
    tab.page.wait_for_selector(".ag-opening-look img + img", timeout=TURN)  # what the world reads in it
    tab.comfy.shot("opening-read")
    begin(tab)
    assert "own" in source(tab, "img")
    tab.comfy.open()
    tab.open()
    tab.page.wait_for_selector(".ag-game:visible")
    assert tab.page.inner_text(".ag-name") == "from a picture" and "own" in source(tab, "img")
    assert not tab.page.locator(".ag-pause:visible").count(), "a picture does not move"
    tab.play(SEA, 1)
    (branch,) = tab.saved("from a picture")["branches"]
    assert branch["opening"] == "stands still" and branch["opening_clip"]
    tab.comfy.open()
    tab.open()
    tab.wait_for_turn(1)
    tab.page.locator(".ag-stop").first.click()
    tab.page.wait_for_selector(".ag-stop[aria-current]:first-child")
    assert "openings" in source(tab)


def test_what_an_opening_shows_is_checked_and_gone_on_with(tab, picture):
    page, notes = tab.page, tab.page.locator(".ag-opening-more .ag-check-notes:visible")
    choose(tab, "of Miko", picture)
    page.select_option(".ag-new select", "toybox")
    page.fill("input[name=opening-text]", "Mikko waves in the castle")
    notes.wait_for()
    assert page.locator(".ag-new .ag-marks u").all_inner_texts() == ["Mikko", "waves"]
    tab.comfy.shot("opening-check")
    for word in ("Miko", "wave"):
        notes.get_by_role("button", name=f"\u2192 {word}").first.click()
    notes.wait_for(state="hidden")
    assert page.input_value("input[name=opening-text]") == "Miko wave in the castle"
    begin(tab)
    page.wait_for_selector(".ag-proposal")
    proposals = page.locator(".ag-proposal .ag-story-name").all_inner_texts()
    assert len(proposals) == 3 and all("Miko" in one and one.endswith(" castle") for one in proposals)
    page.fill(".ag-text", "They dance")
    page.get_by_text("Read as: Character: Miko; Motion: steadily dance; Background: day castle.").wait_for()


def test_what_is_no_picture_is_refused_when_it_is_chosen(tab, picture, tmp_path):
    note = tmp_path / "photo.heic"
    note.write_text("no picture")
    choose(tab, "from a note", note)
    tab.page.wait_for_selector(".ag-opening .ag-alert:visible")
    assert tab.page.locator(".ag-opening .ag-alert").inner_text().startswith("photo.heic cannot be shown; save it as")
    assert tab.page.input_value(".ag-new input[type=file]") == "" and not tab.page.is_visible(".ag-opening-more")
    Image.open(picture).save(tmp_path / "own.tiff")
    choose(tab, "from a scan", tmp_path / "own.tiff")
    tab.page.wait_for_function("() => document.querySelector('.ag-opening-look img')?.complete")
    assert tab.page.is_visible(".ag-opening-more") and not tab.page.is_visible(".ag-opening .ag-alert")
    tab.page.locator(".ag-opening-file button").click()
    assert not tab.page.is_visible(".ag-opening-more"), "the next story begins with none"
