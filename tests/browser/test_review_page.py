"""The review page of a dataset, opened from the disk in a real Chromium. No ComfyUI is needed."""

import shutil
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from pages import DiskPage, faint_texts, opened, overflow
from tables import rows_of, write_rows

from animegamer_core.data.corrections import apply_corrections
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.data.films.film import FilmFrame
from animegamer_core.data.films.film_index import add_film, strip_folder
from animegamer_core.data.films.scenes import Scene
from animegamer_core.data.films.survey import StripWriter, Survey
from animegamer_core.data.records import CAPTION_FIELDS
from animegamer_core.data.review import write_review
from animegamer_core.toybox.dataset import DatasetGames, write_dataset

EVIL = "</script><img src=x onerror='window.caught=1'><!-- &lt;b&gt; \u2028 \U0001f98a"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Eleven clips: one without a caption, one set aside, one whose caption looks like markup."""
    folder = tmp_path_factory.mktemp("drawn") / "<b>films & games"
    write_dataset(folder, DatasetGames(games=2, held_out=1, turns=3), workers=1)
    rows = rows_of(folder / "turns.jsonl")
    for row in rows[:4]:
        row["film"] = "harbour"
    rows[5] |= dict.fromkeys(CAPTION_FIELDS)
    rows[6] |= {"motion": EVIL.replace(";", ""), "background": "night harbour"}
    record = {**rows.pop(2), **dict.fromkeys(CAPTION_FIELDS)}
    aside = {"clip": record["clip"], "reason": f"no tag {EVIL}", "reply": EVIL, "record": record}
    write_rows(folder / "turns.jsonl", *rows)
    write_rows(folder / "set_aside.jsonl", aside)
    spans = [{"film": "harbour", "start": 2.0 * n, "end": 2.0 * n + 2, "reason": "still"} for n in range(20, 23)]
    spans.append({"film": EVIL, "start": 4000.0, "end": 4002.0, "reason": f"duplicate of {record['clip']}"})
    back = record | {"start": 40.0, "end": 42.0, "clip": f"{record['clip'][:-4]}0.mp4"}
    shutil.copy(folder / record["clip"], folder / back["clip"])
    spans[0] |= {"reason": "credits", "clip": back["clip"], "record": back}
    write_rows(folder / "dropped.jsonl", *spans)
    games = rows_of(folder / "games.jsonl")
    games[0]["clips"].remove(record["clip"])
    write_rows(folder / "games.jsonl", *games)
    return folder


class Review(DiskPage):
    """The page of a dataset. asked: the dialogs that it opened."""

    entry = "review.html"
    ready = "() => document.querySelector('.card') || !document.getElementById('empty').hidden"

    def __init__(self, page, folder):
        super().__init__(page, folder)
        self.asked = []
        page.on("dialog", self._on_dialog)

    def _on_dialog(self, dialog):
        self.asked.append(dialog.type)
        dialog.accept()

    def cards(self):
        return self.page.locator(".clip")

    def view(self, name):
        self.page.locator(f"#views label:has([value={name}])").click()

    def edit(self, number):
        """Open a card's editor."""
        self.page.locator(".card").nth(number).click()
        self.page.locator("#editor[open]").wait_for()

    def fill(self, name, text):
        """Type into a field and leave it."""
        self.page.locator(f"#field-{name}").fill(text)
        self.page.locator(f"#field-{name}").blur()

    def choose(self, name, value):
        self.page.locator(f"#fields [name={name}][value='{value}']").check(force=True)

    def focused(self):
        """The number of the card that has the focus, or the id of another element."""
        return self.page.evaluate(
            "() => { const at = [...document.querySelectorAll('.card')].indexOf(document.activeElement);"
            " return at < 0 ? document.activeElement.id : at }"
        )

    def wait_for_card(self, number):
        """Wait until a card has the focus, as it gets it once the editor is closed."""
        self.page.wait_for_function(f"() => document.querySelectorAll('.card')[{number}] === document.activeElement")

    def export(self):
        """Press the button; the lines of the file that comes down."""
        with self.page.expect_download() as download:
            self.page.locator("#export").click()
        assert download.value.suggested_filename == "corrections.jsonl"
        self.file = download.value.path()
        return rows_of(self.file)


@pytest.fixture
def dataset(drawn, tmp_path):
    folder = shutil.copytree(drawn, tmp_path / drawn.name)
    write_review(folder)
    return folder


@pytest.fixture
def review(browser, dataset):
    with opened(browser, Review, dataset) as review:
        yield review


# --- looking --------------------------------------------------------------------------------------------------------


def test_clips_are_shown_with_their_labels_and_move_under_the_pointer(review):
    assert review.cards().count() == 11
    first = rows_of(review.folder / "turns.jsonl")[0]
    words = review.page.locator(".words").first.inner_text().splitlines()
    assert words[0] == ", ".join(first["character"]) and words[2] == first["background"]
    assert words[1].lower() == f"{first['adverb']} {first['motion']}"
    assert ("still", "gentle", "brisk", "fast", "wild")[first["motion_level"] - 1] in review.text(".clip .tag.end")
    review.page.wait_for_function("() => document.querySelector('.clip video').videoWidth === 288")
    assert review.page.evaluate("() => document.querySelector('.clip video').paused")
    review.cards().first.hover()
    review.page.wait_for_function("() => document.querySelector('.clip video').currentTime > 0.2")
    review.page.locator("#name").hover()
    review.page.wait_for_function("() => document.querySelector('.clip video').paused")


def test_text_of_captions_is_text_and_cannot_run_even_if_it_came_alive(review):
    """The page's own policy allows its one script, by its checksum, and nothing else."""
    title = review.text("#name")
    assert title == "<b>films & games" and review.page.title().startswith(title)
    shown = review.page.locator(".what", has_text="onerror").inner_text()
    assert EVIL.replace(";", "").replace("\u2028", "").split()[0] in shown and "\U0001f98a" in shown
    review.view("aside")
    review.edit(0)
    assert "onerror" in review.text("#why") and review.page.locator("img").count() == 0
    added = "() => document.body.append(Object.assign(document.createElement({}), {}))"
    review.page.evaluate(added.format("'script'", "{ textContent: 'window.caught = 1' }"))
    review.page.evaluate(added.format("'img'", "{ src: 'https://example.org/x.png' }"))
    review.page.wait_for_timeout(300)
    assert review.page.evaluate("() => window.caught") is None
    refused, review.wrong = review.wrong, []
    assert len([line for line in refused if "Content Security Policy" in line]) == 2


def test_filters_and_search(review):
    counts = {name: review.text(f"#count-{name}") for name in ("all", "empty", "aside", "changed", "out", "dropped")}
    assert counts == {"all": "11", "empty": "1", "aside": "1", "changed": "0", "out": "0", "dropped": "4"}
    review.view("empty")
    assert review.cards().count() == 1 and "No caption yet" in review.text(".clip .words")
    review.view("all")
    review.page.locator("#film").select_option("harbour")
    assert review.cards().count() == 4 and review.text("#shown") == "1\u20134 of 4 clips"
    review.page.locator("#film").select_option("")
    turns = rows_of(review.folder / "turns.jsonl")
    level = turns[0]["motion_level"]
    review.page.locator(f"#levels input[value='{level}']").check(force=True)
    clips = [turn for turn in turns if turn["motion_level"] == level]
    assert review.cards().count() == int(review.text(f"#count-level-{level}")) in (len(clips), len(clips) + 1)
    review.page.locator(f"#levels input[value='{level}']").uncheck(force=True)
    name = turns[0]["character"][0]
    review.page.locator("#who").select_option(name)
    assert review.cards().count() == sum(name in (turn["character"] or ()) for turn in turns)
    review.page.locator("#who").select_option("")
    review.page.locator("#search").fill(f"  {turns[0]['film'].upper()}  {turns[0]['motion']}")
    assert review.cards().count() == 1 and turns[0]["motion"] in review.text(".clip .what").lower()
    review.page.locator("#search").fill("no such word")
    assert review.cards().count() == 0
    review.page.locator("#reset").click()
    assert review.cards().count() == 11


# --- correcting -----------------------------------------------------------------------------------------------------


def test_corrections_go_from_the_page_into_the_dataset(review):
    turns = rows_of(review.folder / "turns.jsonl")
    review.edit(0)
    review.fill("motion", "  juggle three lanterns ")
    review.choose("stamina", 1)
    review.page.locator("#field-character").fill("Zo\u00eb")
    review.page.keyboard.press("Enter")
    instruction = review.text("#instruction")
    assert instruction.startswith(
        f"Character: {turns[0]['character'][0]}, Zo\u00eb; Motion: {turns[0]['adverb']} juggle three"
    )
    review.page.locator("#done").click()
    review.cards().nth(1).hover()
    review.page.locator(".toss").nth(1).click()
    review.view("aside")
    review.edit(0)
    for name, text in {"character": "Miko", "motion": "run", "background": "day beach"}.items():
        review.fill(name, text)
    review.fill("adverb", "")
    review.choose("entertainment", 1)
    review.page.locator("#done").click()
    assert review.text("#changes") == "2 changed \u00b7 1 to drop"
    rows = review.export()
    aside = rows_of(review.folder / "set_aside.jsonl")[0]["clip"]
    assert rows[0] == {
        "clip": turns[0]["clip"],
        "motion": "juggle three lanterns",
        "stats": {**turns[0]["stats"], "stamina": 1},
        "character": [*turns[0]["character"], "Zo\u00eb"],
    }
    assert rows[1] == {"clip": turns[1]["clip"], "drop": True} and rows[2]["clip"] == aside
    assert apply_corrections(review.folder, review.file) == 3
    after = {turn.clip: turn for turn in DatasetFolder.open(review.folder).turns}
    assert after[turns[0]["clip"]].motion == "juggle three lanterns" and turns[1]["clip"] not in after
    assert after[aside].captioned and after[aside].adverb == ""
    write_review(review.folder)
    review.open()
    assert review.text("#count-aside") == "0" and review.text("#changes") == "" and review.text("#count-dropped") == "5"
    review.view("dropped")
    for reason in ("dropped in review", "credits"):
        review.page.locator("tr", has_text=reason).get_by_role("button", name="Bring back").click()
    assert review.text("#changes") == "2 to bring back"
    back = [row["clip"] for row in review.export() if row["drop"] is False]
    assert back[0] == turns[1]["clip"] and apply_corrections(review.folder, review.file) == 2
    assert {*back} <= {turn.clip for turn in DatasetFolder.open(review.folder).turns}


def test_words_for_many_clips_are_said_once_and_the_rest_is_proposed(browser, dataset):
    rows = rows_of(dataset / "turns.jsonl")
    write_rows(dataset / "turns.jsonl", *(row | dict.fromkeys(CAPTION_FIELDS) for row in rows))
    write_review(dataset)
    with opened(browser, Review, dataset) as review:
        review.edit(0)
        review.fill("background", "night harbour")
        review.page.locator("#field-character").fill("Lily, Ann and Bo")
        review.page.keyboard.press("Enter")
        for name in ("Ann", "Bo"):
            review.page.locator(f"[aria-label='Take {name} out']").click()
        review.fill("motion", "eat a pear")
        review.fill("motion", "walk")
        level = rows[0]["motion_level"]
        adverb = ("barely", "gently", "steadily", "quickly", "wildly")[level - 1]
        assert review.page.locator("#field-adverb").input_value() == adverb
        review.page.locator("#field-motion").fill("run")
        review.page.locator("#field-adverb").click()
        review.page.keyboard.type("calmly")
        assert review.page.locator("#field-adverb").input_value() == "calmly", "it replaces what was proposed"
        review.fill("motion", "walk")
        review.page.locator("#after").click()
        review.page.keyboard.press("Control+b")
        review.fill("motion", "eat a pear")
        assert "Character: Lily; Motion:" in review.text("#instruction")
        review.page.locator("#done").click()
        for number in (3, 4):
            review.page.locator(".card").nth(number).focus()
            review.page.keyboard.press("m")
        review.edit(1)
        review.page.locator("#spread", has_text="Use for 2 marked clips").click()
        review.page.locator("#spread", has_text="others without words").click()
        review.page.locator("#done").click()
        assert review.text("#count-empty") == review.text("#count-aside").replace("1", "0")
        review.export()
        apply_corrections(dataset, review.file)
    turns = DatasetFolder.open(dataset).turns
    assert all(turn.captioned and turn.character == ("Lily",) for turn in turns) and len(turns) == 11
    assert turns[0].stats == {"social": 0, "entertainment": 0, "stamina": -1}
    assert turns[1].motion == "eat a pear" and turns[1].stats["stamina"] == 1


def test_a_served_page_says_the_one_next_thing_where_it_is_seen(browser, dataset, tmp_path):
    turns = dataset / "turns.jsonl"
    write_rows(turns, *(row | dict.fromkeys(CAPTION_FIELDS) for row in rows_of(turns)))
    page = browser.new_page(viewport={"width": 1280, "height": 500})

    def answer(route):
        path = dataset / unquote(urlsplit(route.request.url).path[1:])
        if path.name == "corrections":
            (tmp_path / path.name).write_text(route.request.post_data_json["corrections"], encoding="utf-8")
            apply_corrections(dataset, tmp_path / path.name)
            route.fulfill(json={"digest": DatasetFolder.open(dataset).digest(captions=True)})
        else:
            route.fulfill(path=write_review(dataset) if path.name == Review.entry else path)

    page.route("http://comfyui.test/**", answer)
    page.goto(f"http://comfyui.test/{Review.entry}")
    review = Review(page, dataset)

    def says(text):
        page.locator("#notice", has_text=text).wait_for()
        page.mouse.wheel(0, 5000)
        page.wait_for_function("() => scrollY > 100")
        assert 0 < page.locator("#notice").bounding_box()["y"] < 400

    says("10 clips have no words yet. Choose a clip")
    page.locator(".mark").nth(3).click()
    says("1 clip is marked. Mark the others that show the same")
    page.locator(".mark").nth(0).click()
    says("2 clips are marked. Open one of them, say who is seen and what happens, and press Use for marked clips.")
    review.edit(0)
    for name, text in {"character": "Lily", "motion": "swim", "background": "day lake"}.items():
        review.fill(name, text)
    page.locator("#spread", has_text="Use for 1 marked clip").click()
    page.locator("#done").click()
    says("8 clips have no words yet. Choose a clip")
    page.locator(".card").nth(0).click()
    page.locator("#spread", has_text="others without words").click()
    page.locator("#done").click()
    says("Every clip has its words. Press Save.")
    page.locator("#export").click()
    says("Every clip has its words. Go back to ComfyUI and press Run (Ctrl Enter)")
    film_with_strip(dataset)
    page.reload()
    review.view("scenes")
    page.get_by_role("button", name="No scene change").first.click()
    says("Scenes were changed. Press Save, then go back to ComfyUI and press Run: it cuts them again")
    page.locator("#export").click()
    says("Scenes were changed. Go back to ComfyUI")
    assert "Save this; the next Run then cuts" in review.text("#scenes")
    page.close()


def film_with_strip(folder):
    """Make the dataset look as if its film "harbour" was cut into five scenes of 2.5 s."""
    scenes = tuple(Scene(2.5 * n, 2.5 * n + 2.5, "cut" if n else "start") for n in range(5))
    film = folder.parent / "harbour.mp4"
    film.write_bytes(b"film")
    add_film(folder, "harbour", film, {}, Survey({"width": 160, "height": 90}, 12.5, scenes))
    strip = StripWriter(strip_folder(folder, "harbour"), 160, 90)
    for number in range(50):
        strip.add(FilmFrame(number / 4, np.full((90, 160, 3), 5 * number, np.uint8)))
    strip.finish()
    write_review(folder)


def test_a_change_of_scene_is_added_and_another_removed_on_the_strip(browser, dataset):
    film_with_strip(dataset)
    with opened(browser, Review, dataset) as review:
        review.view("dropped")
        page = review.page
        shown = page.locator("#dropped .picture")
        assert shown.count() == 3 and "harbour/0000.jpg" in shown.first.get_attribute("style")
        review.view("scenes")
        assert review.text("#count-scenes") == "5" and page.locator(".scene").count() == 5
        strip = page.locator(".scene").nth(1).locator(".strip")
        assert strip.locator(".picture").count() == 10 and strip.locator("button").count() == 9
        strip.locator("button").first.focus()
        for key in ("ArrowRight", "ArrowRight", "Enter"):
            page.keyboard.press(key)
        assert strip.locator("[aria-pressed=true]").count() == 1
        page.get_by_role("button", name="No scene change").nth(2).click()
        assert review.text("#changes") == "2 changes of scene" and overflow(page) == 0
        rows = review.export()
        assert rows == [{"film": "harbour", "scene_change": [3.0, 3.25]}, {"film": "harbour", "no_scene_change": 7.5}]
        review.reopen(lambda: review.text("#changes") == "2 changes of scene")
        assert apply_corrections(dataset, review.file) == 2
        write_review(dataset)
        review.open()
        assert review.text("#changes") == "" and review.text("#count-scenes") == "5"


def test_unexported_changes_survive_and_leaving_asks(review):
    review.page.locator(".card").first.focus()
    review.page.keyboard.press("d")
    review.page.reload()
    assert review.asked == ["beforeunload"]
    assert "1 clip you changed on an earlier visit is still here" in review.text("#notice")
    assert review.text("#changes") == "1 to drop" and review.page.locator(".clip.out").count() == 1
    assert review.export() == [{"clip": rows_of(review.folder / "turns.jsonl")[0]["clip"], "drop": True}]
    review.reopen(lambda: review.text("#changes") == "1 to drop")
    assert review.asked == ["beforeunload"], "what was exported is not asked for"
    rows = rows_of(review.folder / "turns.jsonl")
    write_rows(review.folder / "turns.jsonl", {**rows[0], "motion": "hop"}, *rows[1:])
    write_review(review.folder)
    review.open()
    assert review.text("#changes") == "", "changes of another state of the dataset are not put onto this one"


# --- keys, screen readers, looks ------------------------------------------------------------------------------------


def test_everything_can_be_done_with_keys(review):
    page = review.page
    page.keyboard.press("ArrowRight")
    assert review.focused() == 0
    page.keyboard.press("End")
    assert review.focused() == 10
    page.keyboard.press("Home")
    page.wait_for_function("() => document.querySelector('.clip video').currentTime > 0.1")  # focus plays it
    outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    page.locator("#editor[open]").wait_for()
    assert review.focused() == "field-character"
    page.keyboard.press("Tab")
    assert review.focused() == "field-motion"
    page.keyboard.type("swim")
    page.keyboard.press("PageDown")
    assert page.locator("#editor-place").inner_text().endswith(rows_of(review.folder / "turns.jsonl")[1]["clip"])
    page.keyboard.press("Tab")
    page.keyboard.type("sing")
    page.keyboard.press("Enter")
    review.wait_for_card(1)
    assert page.locator("#editor[open]").count() == 0
    assert review.text("#changes") == "2 changed" and "sing" in page.locator(".what").nth(1).inner_text().lower()
    page.keyboard.press("d")
    assert review.text("#changes") == "1 changed \u00b7 1 to drop" and review.focused() == 1
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    assert review.text("#changes") == "1 changed"
    page.keyboard.press("/")
    assert review.focused() == "search"


def test_text_stands_out_from_its_ground_also_in_a_narrow_window(browser, dataset):
    with opened(browser, Review, dataset, color_scheme="dark", reduced_motion="reduce") as review:
        review.page.wait_for_timeout(300)
        assert faint_texts(review.page, "header, main", ".screen, .unseen") == []
        review.edit(0)
        review.fill("motion", "")
        review.page.wait_for_timeout(300)
        assert faint_texts(review.page, "#editor", ".screen, .unseen") == []
        review.page.set_viewport_size({"width": 390, "height": 800})
        assert overflow(review.page) == 0
