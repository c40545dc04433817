"""The list of stories in the Play tab: search, thumbnails, rename, copy, delete and undo, by mouse and keyboard."""

import pytest
from saved_story import copy_story

NAMES = ("by the sea", "castle night", "forest walk", "forest picnic", "long road")


@pytest.fixture(scope="module")
def page(tab, server):
    root = server.output_dir / "animegamer"
    for name in NAMES:
        copy_story(root / name)
    tab.close_story()  # the page opens with the story that was open last
    tab.comfy.open()
    tab.open()
    tab.page.wait_for_selector(".ag-library li")
    return tab.page


def names(page):
    return set(page.locator(".ag-story-name").all_inner_texts())


def button(page, story, icon):
    return page.locator(".ag-library li", has_text=story).locator(f"button:has(.pi-{icon})")


def test_search_finds_by_words(page):
    page.fill(".ag-library input[type=search]", "walk FOREST")
    assert names(page) == {"forest walk"}
    page.fill(".ag-library input[type=search]", "nowhere")
    assert "No story matches" in page.locator(".ag-library ul").inner_text()
    page.fill(".ag-library input[type=search]", "")
    assert names(page) >= set(NAMES)


def test_each_story_has_a_picture(page, tab):
    page.wait_for_function("() => document.querySelectorAll('video.ag-thumb[src]').length >= 3")
    loaded = "() => [...document.querySelectorAll('video.ag-thumb[src]')].every((video) => video.videoWidth > 0)"
    page.wait_for_function(loaded)
    tab.comfy.shot("story-list")
    assert page.locator("video.ag-thumb").count() >= len(NAMES)


def test_rename_by_keyboard(page, server):
    button(page, "long road", "pencil").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label')") == "New name of long road"
    page.keyboard.type("short road")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.innerText?.includes('short road')")
    assert "long road" not in names(page) and (server.output_dir / "animegamer" / "short road" / "story.json").exists()
    button(page, "short road", "pencil").click()
    page.keyboard.type("castle night")
    page.keyboard.press("Enter")
    page.wait_for_selector(".ag-library .ag-alert:visible")
    assert "already" in page.locator(".ag-library .ag-alert").inner_text()
    page.keyboard.press("Escape")
    assert "short road" in names(page)


def test_duplicate_then_delete_and_undo(page):
    button(page, "castle night", "copy").click()
    page.wait_for_function("() => document.activeElement.innerText?.includes('castle night copy')")
    button(page, "castle night copy", "trash").click()
    page.wait_for_selector(".ag-removed")
    assert "castle night copy" not in names(page)
    page.keyboard.press("Enter")  # the focus is on Undo
    page.wait_for_function("() => document.activeElement.innerText?.includes('castle night copy')")
    assert {"castle night", "castle night copy"} <= names(page) and not page.locator(".ag-removed").count()


def test_a_name_that_exists_asks_and_an_absent_world_opens_its_weights(tab):
    page, story = tab.page, tab.page.locator(".ag-library .ag-story-name").first.inner_text()
    page.fill(".ag-new input", story)
    page.locator(".ag-new .ag-main").click()
    page.wait_for_selector(".ag-existing:visible")
    assert story in page.locator(".ag-existing p").inner_text() and page.locator(".ag-game:visible").count() == 0
    page.fill(".ag-new input", "another name")
    page.select_option(".ag-new select", "qiqi")
    assert page.locator(".ag-existing:visible").count() == 0
    page.locator(".ag-new .ag-main").click()
    dialog = page.locator("dialog.ag-weights")
    dialog.wait_for()
    assert "Nobody has tried" in dialog.inner_text() and "log in" in dialog.inner_text()
    dialog.get_by_role("button", name="Close").click()
    page.select_option(".ag-new select", tab.world)
