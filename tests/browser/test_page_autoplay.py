"""The Play tab: proposed instructions, and a world that plays by itself until the player takes over."""

import pytest
from play_tab import TURN

SEA = "Character: Miko; Motion: gently wave hello; Background: day beach."


@pytest.fixture(scope="module")
def life(tab):
    """A story of one turn."""
    tab.begin("a life")
    tab.sketch(1)
    tab.play(SEA, 1)
    return tab


def texts(life):
    return life.branches("a life")["main"]


def test_a_proposal_is_written_into_the_form_and_can_be_changed(life):
    page = life.page
    page.wait_for_selector(".ag-proposals .ag-story")  # after each turn, without a click
    proposals = page.locator(".ag-proposals .ag-story")
    offered = [button.get_attribute("title") for button in proposals.all()]
    assert len(set(offered)) == 3
    life.comfy.shot("play-suggestions")
    page.click(".ag-suggest")
    page.wait_for_function(
        "(first) => document.querySelector('.ag-proposals .ag-story')?.title !== first", arg=offered[0]
    )
    offered = [button.get_attribute("title") for button in proposals.all()]
    proposals.nth(1).focus()
    page.keyboard.press("Tab")
    pencil = page.evaluate("() => document.activeElement.matches('.ag-edit') && document.activeElement.ariaLabel")
    assert pencil, "the pencil comes after its proposal, and has a name"
    page.keyboard.press("Enter")
    page.wait_for_selector(".ag-text:focus")
    assert page.input_value(".ag-text") == offered[1]
    page.keyboard.press("End")
    page.keyboard.type(" Slowly.")
    page.keyboard.press("Enter")
    life.wait_for_turn(2)
    assert texts(life) == [SEA, f"{offered[1]} Slowly."]
    page.wait_for_selector(".ag-proposals .ag-story")
    now = [button.get_attribute("title") for button in proposals.all()]
    assert len(set(now)) == 3 and not set(now) & set(offered), "they were for another turn"


def test_a_click_on_a_proposal_plays_it_and_leaves_the_form_alone(life):
    page = life.page
    page.fill(".ag-text", "for later")
    chosen = page.locator(".ag-proposals .ag-story").nth(2)
    wanted = chosen.get_attribute("title")
    chosen.click()
    life.wait_for_turn(3)
    assert texts(life)[2] == wanted and page.input_value(".ag-text") == "for later"
    page.fill(".ag-text", "")


def test_autoplay_plays_its_turns_and_says_how_many_are_to_come(life):
    page = life.page
    page.fill("input[name=autoplay]", "2")
    with life.server.paused():  # or the first of the two turns may end before it is looked at
        page.click(".ag-autoplay")
        page.wait_for_function("() => /\\d/.test(document.querySelector('.ag-ask [role=status]').textContent)")
        life.comfy.shot("play-autoplay")
    life.wait_for_turn(5)
    page.wait_for_function("() => !document.querySelector('.ag-ask [role=status]').textContent")
    life.wait_until_idle()
    assert len(texts(life)) == 5 and all("Miko" in text for text in texts(life))


def test_writing_takes_over_after_the_running_turn(life):
    page, before = life.page, len(texts(life))
    page.fill("input[name=autoplay]", "50")
    page.click(".ag-autoplay")
    page.wait_for_selector(".ag-doing:visible")
    page.type(".ag-text", "Miko naps")
    page.wait_for_function("() => !document.querySelector('.ag-ask [role=status]').textContent", timeout=TURN)
    life.wait_until_idle()
    count = len(texts(life))
    assert count > before, "the running turn was kept"
    page.press(".ag-text", "Enter")
    life.wait_for_turn(count + 1)
    assert texts(life)[-1] == "Miko naps"
