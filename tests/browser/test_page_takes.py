"""The Play tab: three takes that a judge looks at, the best of them marked, and another one chosen."""

import pytest
import torch
from tiny_world import save_tiny_world

from animegamer_core.toybox import probes

HUG = "Character: Miko, Taro; Motion: softly hug a friend; Background: day beach."
RUN = "Character: Miko; Motion: quickly run; Background: night forest."


@pytest.fixture(scope="module")
def judged(tab, server, world):
    """A story in a world whose shots can be judged: the tiny one with probes of random weights."""
    if world == "tiny":
        folder = server.models_dir / "animegamer" / "judged"
        save_tiny_world(folder, seed=1)  # else it would pass for the world `tiny`
        torch.manual_seed(1)
        probes.save_probes(probes.ProbeNet(), folder, {})
    tab.comfy.open()
    tab.begin("judged takes", "judged" if world == "tiny" else world)
    tab.sketch(2)
    return tab


def takes(judged):
    return judged.page.locator(".ag-takes .ag-clip")


def turn_of(judged, branch, number):
    return next(line for line in judged.saved("judged takes")["lines"] if line["name"] == branch)["turns"][number - 1]


def test_the_best_of_three_takes_is_kept_and_marked(judged):
    judged.tell(HUG, "Shift+Enter")
    judged.wait_for_turn(1)
    saved = turn_of(judged, "main", 1)
    scores = [take["score"] for take in saved["takes"]]
    assert len(scores) == 3 and saved["score"] == max(scores)
    marked = [take.inner_text() for take in takes(judged).all()]
    best = scores.index(max(scores))
    assert [text.startswith("\u2605") for text in marked] == [index == best for index in range(3)]
    assert takes(judged).nth(best).get_attribute("aria-pressed") == "true"
    assert takes(judged).nth(best).get_attribute("title") == f"Take {best + 1}, the best, score {scores[best]:.2f}"
    judged.comfy.shot("play-judged-takes")


def test_another_take_is_chosen_and_the_game_goes_on_from_it(judged):
    page, saved = judged.page, turn_of(judged, "main", 1)
    index, other = next((index, take) for index, take in enumerate(saved["takes"]) if take["shot"] != saved["shot"])
    takes(judged).nth(index).click()
    page.wait_for_function(
        "(index) => document.querySelectorAll('.ag-takes .ag-clip')[index]?.ariaPressed === 'true'", arg=index
    )
    judged.wait_until_idle()
    assert takes(judged).count() == 3 and turn_of(judged, "line-2", 1)["shot"] == other["shot"]
    judged.play(RUN, 2)
    assert judged.lines("judged takes") == {"main": [HUG], "line-2": [HUG, RUN]}


def test_takes_come_back_after_a_reload(judged):
    judged.comfy.open()
    judged.open()
    judged.page.click(".ag-top .pi-undo")
    judged.wait_for_turn(1)
    assert takes(judged).count() == 3 and sum("\u2605" in text for text in takes(judged).all_inner_texts()) == 1


def test_a_stop_between_takes_keeps_the_turn(judged):
    page = judged.page
    judged.begin("stopped takes", page.locator(".ag-game .ag-chip").inner_text())
    page.locator(".ag-fold summary").nth(1).click()
    page.fill("input[name=steps]", "40" if judged.world == "toybox" else "400")  # time enough to press Stop
    page.locator(".ag-fold summary").nth(1).click()
    judged.tell(HUG, "Shift+Enter")
    page.wait_for_function(
        "() => Number(document.querySelector('.ag-doing [role=progressbar]')?.ariaValueNow) > 36", timeout=240_000
    )
    with judged.server.paused():
        page.click(".ag-stop-button")
    judged.wait_for_turn(1)
    judged.wait_until_idle()
    (line,) = judged.saved("stopped takes")["lines"]
    assert len(line["turns"]) == 1 and 1 <= len(line["turns"][0]["takes"]) < 3
