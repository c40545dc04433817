"""The Play tab and the cards alone in a real Chromium, on the stand-in server of tests/js. No ComfyUI is needed."""

import mimetypes
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ORIGIN = "http://parts.test"
UNDO = "[aria-label='Undo the last turn']"
OPEN = """async (store) => {
  const { FakeServer, memoryStore } = await import("/tests/js/fake_server.mjs");
  const { PlaySession } = await import("/js/session.mjs");
  const { createPlayTab } = await import("/js/play_tab.mjs");
  const { addStyle } = await import("/js/style.mjs");
  const { Autoplay } = await import("/js/autoplay.mjs");
  const { Ahead } = await import("/js/ahead.mjs");
  const { translator } = await import("/js/translations.mjs");
  addStyle();
  const server = new FakeServer();
  let tab = null;
  const session = new PlaySession(server.port, memoryStore(), (now, event) => tab?.show(now, event));
  const page = { address: (path) => path, openAsGraph: () => {}, autoplay: new Autoplay(session) };
  const off = { wanted: () => ({ mode: "off", turns: 1, seconds: 30 }), visible: () => true, now: () => 0 };
  page.ahead = new Ahead(session, server.port, off, memoryStore());
  Object.assign(page, { clipsMove: true, moveClips: () => {}, tell: () => {}, trash: null });
  tab = createPlayTab(session, translator("en"), page);
  document.body.replaceChildren(tab.element);
  await session.start();
  Object.assign(globalThis, { server, session, tab });
}"""


@pytest.fixture(scope="module")
def page(browser):
    """A page that has the repository's files, and nothing else, at ORIGIN."""

    def answer(route):
        path = ROOT / route.request.url.removeprefix(f"{ORIGIN}/").split("?")[0]
        if path.suffix != ".mjs":
            return route.fulfill(body="<!doctype html><title>parts</title>", content_type="text/html")
        return route.fulfill(body=path.read_text("utf-8"), content_type=mimetypes.types_map[".js"])

    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.route(f"{ORIGIN}/**", answer)
    page.set_default_timeout(10_000)
    page.goto(f"{ORIGIN}/")
    yield page
    page.close()


@pytest.fixture
def tab(page):
    """A new Play tab, at its list of stories."""
    page.evaluate(OPEN)
    return page


def begin(page, story="a", world="toybox"):
    page.fill(".ag-new input", story)
    page.select_option(".ag-new select", world)
    page.click(".ag-new .ag-main")
    page.wait_for_selector(".ag-game:visible")


def play(page, words):
    """One turn, from the words in the field to the card."""
    page.fill(".ag-text", words)
    page.press(".ag-text", "Enter")
    page.evaluate("() => server.run(session)")


POINTED_AT = """async () => {
  const { clipButton, createClips } = await import("/js/clips.mjs");
  const clips = createClips((path) => path);
  const at = { key: "main/1", number: 1, turn: { clip: { filename: "a.mp4" }, instruction: "one" } };
  const button = clipButton(clips, "strip", at, { words: "one", still: true, badge: 1 });
  document.body.replaceChildren(button);
  let started = 0;
  button.querySelector("video").play = async () => { started += 1; };
  button.focus();
  button.dispatchEvent(new PointerEvent("pointerenter"));
  return started;
}"""


@pytest.mark.parametrize(("wanted", "started"), [("no-preference", 2), ("reduce", 0)])
def test_a_clip_that_is_pointed_at_moves_unless_the_player_wants_none_to(page, wanted, started):
    page.emulate_media(reduced_motion=wanted)
    assert page.evaluate(POINTED_AT) == started
    page.emulate_media(reduced_motion="no-preference")


def test_a_tab_that_is_closed_lets_go_of_its_clips_and_of_the_preview(tab):
    begin(tab)
    tab.evaluate("""() => {
      const real = URL.revokeObjectURL;
      globalThis.revoked = [];
      URL.revokeObjectURL = (address) => { revoked.push(address); real.call(URL, address); };
    }""")
    tab.fill(".ag-text", "one")
    tab.press(".ag-text", "Enter")
    tab.wait_for_function("() => session.jobs.length")
    shown = tab.evaluate("""() => {
      session.began({ prompt_id: session.jobs[0].id });
      tab.preview(new Blob(["x"]));
      return document.querySelector(".ag-preview").src;
    }""")
    assert shown.startswith("blob:")
    tab.evaluate("() => server.run(session)")
    clip = {"filename": "turn-1.mp4", "subfolder": "a", "type": "output"}
    tab.evaluate("(clip) => { session.here.turn.clip = clip; session.goTo(session.here); }", clip)
    assert tab.locator("video[src]").count() >= 1
    tab.evaluate("() => tab.destroy()")
    assert tab.locator("video[src]").count() == 0
    assert shown in tab.evaluate("() => revoked")


def test_what_was_typed_stands_below_the_instruction_that_it_was_read_as(tab):
    typed, read = "ミコは<b>海</b>で走る", "Character: Miko; Motion: run; Background: day beach."
    tab.evaluate("(readAs) => void (server.readAs = readAs)", {typed: read})
    begin(tab)
    play(tab, typed)
    tab.wait_for_selector(".ag-typed:visible")
    assert tab.locator(".ag-stage .ag-words span").all_inner_texts() == ["Miko", "run", "day beach"]
    assert tab.locator(".ag-typed").inner_text() == f"Typed: {typed}" == tab.locator(".ag-typed").get_attribute("title")
    assert tab.locator(".ag-typed *").count() == 0, "it is text, not markup"
    play(tab, read)
    tab.wait_for_selector(".ag-typed", state="hidden")
    assert tab.locator(".ag-stage .ag-number").inner_text() == "2"


def test_a_story_that_cannot_be_stays_on_the_first_page_with_one_sentence(tab):
    assert tab.locator(".ag-new option").all_inner_texts() == ["toybox", "qiqi (not installed)"]
    for story, world, why in (("bad/name?", "toybox", "not a valid"), ("b", "qiqi", "not installed")):
        tab.fill(".ag-new input", story)
        tab.select_option(".ag-new select", world)
        tab.click(".ag-new .ag-main")
        tab.wait_for_function("(why) => document.querySelector('.ag-start .ag-alert').innerText.includes(why)", arg=why)
        assert tab.locator(".ag-game:visible").count() == 0
        assert tab.input_value(".ag-new input") == story, "what was typed stays"
    begin(tab, "b")
    assert tab.locator(".ag-alert:visible").count() == 0


def test_words_and_fields_of_one_story_are_not_in_the_next(tab):
    begin(tab)
    tab.fill(".ag-text", "Character: Miko; Motion: gently run; Background: day beach.")
    tab.evaluate("() => session.goTo(session.here)")
    assert tab.input_value(".ag-text"), "the same story keeps them"
    tab.click(".ag-top button >> nth=0")
    begin(tab, "b")
    assert tab.input_value(".ag-text") == ""
    assert tab.input_value(".ag-field-character input") == ""


@pytest.mark.parametrize("place", [".ag-text", ".ag-field-character input"])
def test_the_answer_to_empty_words_goes_as_soon_as_something_is_written(tab, place):
    begin(tab)
    tab.click(".ag-fold summary >> nth=0")
    tab.press(".ag-text", "Enter")
    assert tab.locator(".ag-form .ag-alert:visible").count() == 1
    tab.fill(place, "Miko")
    assert tab.locator(".ag-form .ag-alert:visible").count() == 0


def test_one_fold_is_open_at_a_time(tab):
    begin(tab)
    tab.click(".ag-fold summary >> nth=0")
    tab.click(".ag-fold summary >> nth=1")
    assert tab.locator(".ag-fold[open]").count() == 1
    assert tab.locator(".ag-fold[open] [name=steps]").count() == 1


def test_stopped_is_said_where_it_can_be_seen_until_the_next_turn(tab):
    begin(tab)
    tab.fill(".ag-text", "one")
    tab.press(".ag-text", "Enter")
    tab.click(".ag-stop-button")
    message = tab.locator(".ag-message:visible")
    message.wait_for()
    assert "has not changed" in message.inner_text()
    tab.press(".ag-text", "Enter")
    message.wait_for(state="hidden")


def test_an_example_at_the_beginning_writes_the_instruction(tab):
    begin(tab)
    tab.click(".ag-examples button")
    assert tab.input_value(".ag-text") == "Character: Miko; Motion: gently run; Background: day beach."
    assert tab.input_value(".ag-field-character input") == "Miko"
    tab.press(".ag-text", "Enter")
    tab.evaluate("() => server.run(session)")
    tab.wait_for_selector(".ag-stage .ag-number:visible")
    assert tab.locator(".ag-examples:visible").count() == 0


def test_undo_gives_the_words_back_unless_others_are_written(tab):
    begin(tab)
    for words in ("one", "two"):
        play(tab, words)
        tab.wait_for_function("() => !document.querySelector('.ag-text').value")
    tab.click(UNDO)
    assert tab.input_value(".ag-text") == "two"
    tab.click(UNDO)
    assert tab.input_value(".ag-text") == "two", "nobody's words are overwritten"


def test_takes_are_counted_while_they_are_drawn(tab):
    begin(tab)
    tab.fill(".ag-text", "one")
    tab.press(".ag-text", "Shift+Enter")
    tab.wait_for_function("() => session.jobs.length === 3")
    assert tab.locator(".ag-status-words").inner_text().startswith("Take 1 of 3")
    tab.evaluate("() => session.interrupted({ prompt_id: session.jobs[0].id })")
    assert tab.locator(".ag-status-words").inner_text().startswith("Take 2 of 3")


def test_settings_come_back_with_the_story(tab):
    begin(tab)
    tab.click(".ag-fold summary >> nth=1")
    tab.fill("input[name=steps]", "4")
    tab.select_option("select[name=motion]", "fast")
    tab.fill("input[name=seed]", "7")
    kept = tab.evaluate("() => session.settings")
    assert kept == {"motion": "fast", "motionValue": 5, "seed": 7, "steps": 4}
    again = tab.evaluate(
        """async (kept) => {
      const { createForm } = await import("/js/play_form.mjs");
      const form = createForm((key) => key, { keep: () => {} });
      form.show({ ...session, progress: {}, settings: kept }, "");
      return form.settings();
    }""",
        kept,
    )
    assert again == kept


@pytest.mark.parametrize("width", [240, 400])
def test_settings_stand_side_by_side_in_line(tab, width):
    tab.set_viewport_size({"width": width, "height": 900})
    begin(tab)
    tab.click(".ag-fold summary >> nth=1")
    seed, steps = (tab.locator(f"input[name={name}]").bounding_box() for name in ("seed", "steps"))
    assert seed["y"] == steps["y"]
    tab.set_viewport_size({"width": 400, "height": 900})


def test_a_story_that_cannot_be_read_says_why_in_the_list(tab):
    tab.evaluate("""async () => {
      const damaged = "main.jsonl:2: not a turn <b>of</b> a story; mend the line";
      server.stories.torn = { name: "torn", world: "", line: "main", lines: { main: [] }, error: damaged };
      server.stories.whole = { name: "whole", world: "toybox", line: "main", lines: { main: [] } };
      await session.close();
    }""")
    rows = tab.locator(".ag-story").all_inner_texts()
    assert any("torn" in row and "not a turn <b>of</b> a story" in row for row in rows)
    assert any("whole" in row and "toybox" in row for row in rows)


PROPOSALS = """() => {
  const words = ["run", "talk to a friend from before", "ride a swing"];
  const say = (motion) => ({ instruction: `Character: Miko; Motion: ${motion}; Background: night forest.` });
  const suggestions = words.map(say);
  const read = session.port.getJson;
  session.port.getJson = (path) => (path.includes("/suggestions") ? Promise.resolve({ suggestions }) : read(path));
  document.body.style.cssText = "margin: 0; height: 100vh";
}"""
OUTSIDE = """(element, around) => {
  const [inner, outer] = [element.getBoundingClientRect(), element.closest(around).getBoundingClientRect()];
  const beside = [inner.left < outer.left - 1, inner.right > outer.right + 1];
  return [...beside, inner.bottom > outer.bottom + 1, inner.bottom > innerHeight];
}"""


def test_at_a_zoom_of_200_percent_the_buttons_and_much_of_the_clip_are_in_view(tab):
    tab.set_viewport_size({"width": 314, "height": 412})  # the sidebar of a page of 1400 x 900
    tab.evaluate(PROPOSALS)
    begin(tab)
    play(tab, "Character: Miko; Motion: dance; Background: night forest.")
    tab.wait_for_selector(".ag-proposal")
    for name in (".ag-form .ag-main", ".ag-form .ag-text", ".ag-autoplay"):
        assert not any(tab.locator(name).evaluate(OUTSIDE, ".ag-game")), name
    assert tab.locator(".ag-scroll").evaluate("(place) => place.clientHeight") > 110
    tab.focus(".ag-text")
    for number in range(6):
        tab.keyboard.press("Tab")
        focused = tab.locator(".ag-proposal button").nth(number)
        assert focused.evaluate("(button) => button === document.activeElement")
        assert not any(focused.evaluate(OUTSIDE, ".ag-proposals")), number
    tab.set_viewport_size({"width": 400, "height": 900})


@pytest.mark.parametrize("letters", [4, 20, 60])
def test_the_world_is_shown_whole_beside_the_storys_name_or_not_at_all(tab, letters):
    begin(tab, "a" * letters)
    parts = (".ag-title-words", ".ag-name", ".ag-chip")
    place, name, world = (tab.locator(f".ag-top {part}").bounding_box() for part in parts)
    end, right = place["y"] + place["height"], place["x"] + place["width"]
    assert place["y"] <= name["y"] < end and name["width"] > 25 and name["x"] + name["width"] <= right + 1
    shown = world["y"] < end
    assert shown == (letters == 4)
    assert tab.locator(".ag-chip").evaluate("(chip) => chip.scrollWidth <= chip.clientWidth + 1")
    assert "toybox" in tab.locator(".ag-name").get_attribute("title")


def test_a_story_of_one_turn_has_one_turn(tab):
    begin(tab)
    play(tab, "one")
    tab.wait_for_selector(".ag-stage .ag-number:visible")
    tab.click(".ag-top button >> nth=0")
    assert "1 turn" in tab.locator(".ag-story .ag-faint").all_inner_texts()[0].splitlines()[0]
    assert "1 turns" not in tab.locator(".ag-stories").inner_text()


def test_the_help_of_the_field_says_how_many_takes_the_key_draws(tab):
    begin(tab)
    tab.evaluate("() => { session.choices.takes = 5; session.notify(); }")
    assert "draw 5 takes" in tab.locator("#ag-form-help").text_content()
    assert tab.locator(".ag-buttons .ag-second:visible").inner_text() == "5 takes"
