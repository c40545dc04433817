"""What ComfyUI's own page shows of the pack: commands and their keys, settings, messages, the About page."""

import pytest
from play_tab import MESSAGE


def press(page, key):
    """A key on the page, not in a field."""
    page.evaluate("() => document.activeElement?.blur()")
    page.keyboard.press(key)


def close_tab(page):
    if page.locator(".ag-play").count():
        press(page, "Shift+P")
    page.wait_for_selector(".ag-play", state="detached")


def message(page, words):
    """A message of ComfyUI with these words, once it is there."""
    found = page.locator(MESSAGE, has_text=words)
    found.first.wait_for(timeout=60_000)
    return found.first


def shown(page):
    """Which turn and seed the tab shows."""
    return page.locator(".ag-takes [aria-pressed=true]").get_attribute("aria-label")


@pytest.fixture(scope="module")
def page(tab):
    tab.open()
    close_tab(tab.page)
    return tab.page


def test_a_turn_is_played_by_keys_alone(page, tab):
    press(page, "Shift+P")
    tab.begin("keys alone")
    tab.sketch()
    page.fill(".ag-text", "Character: Miko; Motion: dance; Background: day beach.")
    page.keyboard.press("Alt+Enter")
    tab.wait_for_turn(1)
    press(page, "Shift+U")
    page.wait_for_function("() => document.querySelector('.ag-text').value.includes('dance')")
    assert not page.locator(".ag-stage .ag-number").is_visible()
    page.press(".ag-text", "Shift+Enter")
    page.wait_for_function("() => document.querySelectorAll('.ag-takes video').length === 4", timeout=240_000)
    tab.wait_until_idle()
    first = shown(page)
    seen = []
    for _ in range(4):
        press(page, "Shift+T")
        seen.append(shown(page))
    assert len(set(seen)) == 4 and seen[-1] == first


def test_the_settings_stand_together_in_comfyuis_dialog(page, tab):
    page.evaluate("() => app.extensionManager.command.execute('Comfy.ShowSettingsDialog')")
    dialog = page.locator("[role=dialog]").last
    dialog.get_by_text("AnimeGamer", exact=True).first.click()
    for name in ("Play clips automatically", "Show a shot while it is drawn", "Notify me when work ends"):
        dialog.get_by_text(name).first.wait_for()
    tab.comfy.shot("settings")
    dialog.get_by_text("About", exact=True).first.click()
    badge = dialog.get_by_text("AnimeGamer v").first
    badge.wait_for()
    tab.comfy.shot("about")
    address = dialog.locator("a", has_text="AnimeGamer docs").get_attribute("href")
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert "# In ComfyUI" in page.evaluate("async (url) => (await fetch(url)).text()", address)


def test_a_deleted_story_is_told_and_comes_back_by_the_key_from_a_closed_tab(page, tab):
    tab.close_story()
    page.locator(".ag-library li", has_text="keys alone").locator("button:has(.pi-trash)").click()
    message(page, "keys alone is in the trash")
    tab.comfy.shot("message")
    close_tab(page)
    press(page, "Shift+U")
    page.wait_for_function("() => document.activeElement.matches('.ag-story')")
    assert page.locator(".ag-library li", has_text="keys alone").count() == 1
