"""A rater's page, opened from the disk in a real Chromium. No ComfyUI is needed."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from judging_world import ADVERBS, turn_record
from pages import DiskPage, faint_texts, opened, overflow

from animegamer_core.evaluate.world.records import GameRecord, begin_run, game_folder
from animegamer_core.evaluate.world.runner import write_moving
from animegamer_core.media.video import write_clip
from animegamer_core.research.judging.ranks import read_ranks
from animegamer_core.research.judging.raters import plan_study, read_key, write_study
from animegamer_core.research.judging.rating_sheets import CRITERIA
from animegamer_core.research.judging.runs import open_comparison
from animegamer_core.state import StateChange
from animegamer_core.toybox.benchmark import true_game
from animegamer_core.toybox.drawing.draw import draw_shot

EVIL = "<img src=x onerror='window.caught=1'>"  # as it would stand in a benchmark that nobody checked
NAMES = ("Zeta", "Quux", "Vega")


def toybox_run(folder, name, change, spoil, suffix=".mp4"):
    """Three turns of a Toybox game as one of three players would have made them."""
    begin_run(folder, {"player": {"name": name}, "benchmark": {"games": ["game-001", "game-002"]}, "seed": 0}, {})
    for number, game in enumerate(("game-001", "game-002")):
        turns = []
        for turn, scene in enumerate(true_game(f"heldout-{900_010 + number}").scenes[:3], start=1):
            frames = spoil(draw_shot(scene))
            clip = f"turn-{turn:02d}{suffix}"
            path = game_folder(folder, game) / clip
            path.parent.mkdir(parents=True, exist_ok=True)
            (write_clip if suffix == ".mp4" else write_moving)(path, frames, 8)
            line = (
                f"<S>=Miko {number}</S><MD>walk &amp, look</MD><EV>{scene.time} {scene.place}</EV>"
                f"<ML>2</ML><MA>{ADVERBS[1]}</MA><SC>0</SC><ET>1</ET><ST>-1</ST>"
            )
            turns.append(turn_record(turn, line, clip, change))
        GameRecord(game, name, 0, 8.0, {}, tuple(turns)).save(folder)
    return folder


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    spoils = (lambda clip: clip, lambda clip: np.roll(clip, 1, axis=3), lambda clip: (clip // 2).astype(np.uint8))
    changes = (StateChange(1, 1, -1), StateChange(0, 0, 1), None)
    suffixes = (".mp4", ".mp4", ".webp")
    runs = [toybox_run(folder / n, n, changes[i], spoils[i], suffixes[i]) for i, n in enumerate(NAMES)]
    comparison = open_comparison(runs)
    write_study(plan_study(comparison, 2, 2, 0), comparison, folder / "out #?%41")
    return folder / "out #?%41"


class RaterPage(DiskPage):
    """The page of one rater."""

    entry = "index.html"
    ready = "() => document.querySelector('.shot')"

    def rank(self, key, place, value):
        self.page.locator(f"[data-place='{key}-{place}-{value}']").check(force=True)

    def ranks(self, key):
        """The rank of each letter as it is shown; 0 for none."""
        return self.page.evaluate(
            "(key) => [...document.querySelectorAll(`[data-key='${key}'] .line`)].map((line) =>"
            " Number(line.querySelector('input:checked')?.value ?? 0))",
            key,
        )

    def rank_all(self, rows):
        for key, row in zip(CRITERIA, rows, strict=True):
            for place, value in enumerate(row):
                self.rank(key, place, value)

    def save(self):
        with self.page.expect_download() as download:
            self.page.locator("#export").click()
        return download.value


@pytest.fixture
def rater(browser, study, tmp_path):
    with opened(browser, RaterPage, shutil.copytree(study / "rater-01", tmp_path / "alone")) as rater:
        yield rater


def test_clips_stand_side_by_side_and_play(rater):
    page = rater.page
    assert page.locator(".turn").count() == 3 and page.locator(".shot").count() == 9
    assert page.locator(".turn").first.locator(".letter").all_inner_texts() == ["A", "B", "C"]
    page.wait_for_function(
        "() => [...document.querySelectorAll('video')].slice(0, 2).every((it) => it.currentTime > 0)"
    )
    assert page.evaluate("() => [...document.querySelectorAll('.shot img')].every((it) => it.naturalWidth === 144)")
    tops = {round(page.locator(".shot").nth(number).bounding_box()["y"]) for number in range(3)}
    assert len(tops) == 1
    assert rater.text("#game").startswith("Game 1 of 2: a life of =Miko")
    assert "slowly walk &amp, look" in rater.text(".told")
    assert page.locator(".no-gauges").count() == 3 and page.locator(".gauges").count() == 6
    assert re.search(
        r"stamina\s+45\s+social\s+55\s+entertainment\s+55", " ".join(page.locator(".gauges").all_inner_texts())
    )
    rater.shot("raters")
    first = page.locator(".turn video").first
    page.locator(".screen").first.click()
    assert first.evaluate("(film) => film.paused")
    page.locator(".screen").first.press("Enter")
    assert not first.evaluate("(film) => film.paused")
    first.evaluate("(film) => { film.pause(); film.currentTime = 1; }")
    page.locator("#together").click()
    page.wait_for_function("() => [...document.querySelectorAll('video')].every((it) => !it.paused)")
    assert first.evaluate("(film) => film.currentTime") < 1


def test_words_stay_words(browser, study, tmp_path):
    folder = shutil.copytree(study / "rater-01", tmp_path / "evil")
    text = (folder / "index.html").read_text("utf-8")
    told = EVIL.replace("<", "\\u003c").replace(">", "\\u003e")
    (folder / "index.html").write_text(text.replace("walk \\u0026amp, look", told).replace("=Miko 0", told), "utf-8")
    with opened(browser, RaterPage, folder) as rater:
        assert EVIL in rater.text(".told") and rater.page.evaluate("() => window.caught") is None


def test_two_never_share_a_rank(rater):
    rater.rank("overall", 0, 1)
    assert rater.ranks("overall") == [1, 0, 0]
    rater.rank("overall", 1, 1)
    assert rater.ranks("overall") == [0, 1, 0]
    rater.rank("overall", 0, 3)
    assert rater.ranks("overall") == [3, 1, 2], "the last one needs no choice"
    rater.rank("overall", 2, 3)
    assert rater.ranks("overall") == [2, 1, 3]
    assert rater.ranks("context") == [0, 0, 0] and rater.text("#done") == "1 of 8 rankings"


def test_ranks_can_be_given_by_keys(rater):
    rater.page.locator("[data-place='overall-0-1']").focus()
    rater.page.keyboard.press("Space")
    rater.page.keyboard.press("ArrowRight")
    assert rater.ranks("overall") == [2, 0, 0]
    assert rater.page.evaluate("() => document.activeElement.dataset.place") == "overall-0-2"
    rater.page.keyboard.press("Tab")
    assert rater.page.evaluate("() => document.activeElement.dataset.place").startswith("overall-1-")


def test_ranks_stay_after_the_page_is_closed_and_are_each_raters_own(rater, study):
    rater.rank_all([(1, 2, 3), (2, 1, 3), (3, 2, 1), (1, 3, 2)])
    rater.page.locator("#after").click()
    assert rater.page.locator("#after").is_disabled(), "the last game"
    rater.rank("overall", 0, 2)
    rater.reopen(lambda: rater.text("#game").startswith("Game 2"))
    assert rater.ranks("overall") == [2, 0, 0]
    rater.page.locator("#before").click()
    assert rater.ranks("context") == [3, 2, 1] and rater.text("#done") == "4 of 8 rankings"
    assert rater.page.locator("#games button.whole").all_inner_texts() == ["Game 1"]
    other = RaterPage(rater.page.context.new_page(), study / "rater-02")
    other.open()
    assert other.text("#done") == "0 of 8 rankings" and not other.wrong


def test_what_was_kept_badly_is_forgotten(rater):
    key = rater.page.evaluate("() => Object.keys(localStorage)[0] ?? KEY")
    for kept in (
        '{"ranks": [{"overall": [1, 1, 2]}, {"overall": "x"}], "at": 9, "theme": 3}',
        "{",
        "[]",
        '{"ranks": 4}',
    ):
        rater.page.evaluate("([key, kept]) => localStorage.setItem(key, kept)", [key, kept])
        rater.open()
        assert rater.ranks("overall") == [0, 0, 0] and rater.text("#game").startswith("Game 1")


def test_what_is_missing_is_shown_before_anything_is_saved(rater):
    rater.page.locator("#after").click()
    rater.page.locator("#export").click()
    assert rater.text("#notice") == "8 rankings are still missing. The first: Game 1, Overall."
    assert rater.text("#game").startswith("Game 1")
    assert rater.page.evaluate("() => document.activeElement.dataset.place") == "overall-0-1"
    assert rater.page.locator(".criterion.lacking").count() == 1
    assert rater.page.evaluate("() => document.getElementById('notice').getBoundingClientRect().bottom < innerHeight")
    rater.shot("raters-missing")


def test_the_saved_sheet_is_read_back_as_it_was_ranked(rater, study, tmp_path):
    told = [[(1, 2, 3), (2, 1, 3), (3, 2, 1), (1, 3, 2)], [(3, 1, 2), (1, 2, 3), (2, 3, 1), (3, 2, 1)]]
    for number, rows in enumerate(told):
        rater.page.locator("#games button").nth(number).click()
        rater.rank_all(rows)
    assert rater.text("#done") == "All 8 rankings are there"
    key = read_key(study)
    download = rater.save()
    assert download.suggested_filename == f"{key.name}-rater-01.csv"
    path = tmp_path / download.suggested_filename
    download.save_as(path)
    text = path.read_bytes().decode("utf-8-sig")
    filled = {(n + 1, c): told[n][i] for n in range(2) for i, c in enumerate(CRITERIA)}
    assert text == key.sheet("rater-01").text(filled) and ",'=Miko" in text
    returned = read_ranks(key, [path])
    for number, game in enumerate(key.games["rater-01"]):
        for index, criterion in enumerate(CRITERIA):
            for place, agent in enumerate(key.orders["rater-01"][game]):
                assert returned.ranks[criterion][0, returned.games.index(game), agent] == told[number][index][place]


def test_a_missing_clip_is_told(browser, study, tmp_path):
    folder = shutil.copytree(study / "rater-01", tmp_path / "holes")
    for path in (folder / "clips").iterdir():
        if "turn-02" in path.name:
            path.unlink()
    with opened(browser, RaterPage, folder) as rater:
        rater.page.wait_for_function("() => document.querySelectorAll('.no-film').length === 3")
        assert "turn-02-A" in rater.text(".no-film")
        rater.wrong.clear()  # the browser reports the missing files


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_can_be_read_also_in_a_narrow_window(browser, study, scheme):
    with opened(browser, RaterPage, study / "rater-01", color_scheme=scheme) as rater:
        rater.rank("overall", 0, 1)
        assert faint_texts(rater.page, "body", ".screen") == []
        rater.shot(f"raters-{scheme}")
        rater.page.set_viewport_size({"width": 390, "height": 800})
        assert overflow(rater.page) == 0
        rater.shot(f"raters-{scheme}-narrow")


def test_calm_systems_start_nothing_by_themselves(browser, study):
    with opened(browser, RaterPage, study / "rater-01", reduced_motion="reduce") as rater:
        rater.page.wait_for_timeout(600)
        assert rater.page.evaluate("() => [...document.querySelectorAll('video')].every((it) => it.paused)")
        rater.page.locator("#together").click()
        rater.page.wait_for_function("() => document.querySelector('video').currentTime > 0")


def test_a_browser_that_keeps_nothing_still_ranks(browser, study):
    with opened(browser, RaterPage, study / "rater-01") as rater:
        refuse = "get() { throw new DOMException('no', 'SecurityError'); }"
        rater.page.context.add_init_script(f"Object.defineProperty(window, 'localStorage', {{ {refuse} }})")
        rater.open()
        rater.rank("overall", 1, 1)
        assert rater.ranks("overall") == [0, 1, 0] and "keeps nothing" in rater.text("#notice")
