"""The Play tab and the cards alone in a real Chromium, on the stand-in server of tests/js. No ComfyUI is needed."""

import mimetypes
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ORIGIN = "http://parts.test"
OPEN = """async (store) => {
  const { FakeServer, memoryStore } = await import("/tests/js/fake_server.mjs");
  const { PlaySession } = await import("/js/session.mjs");
  const { createPlayTab } = await import("/js/play_tab.mjs");
  const { addStyle } = await import("/js/style.mjs");
  const { Autoplay } = await import("/js/autoplay.mjs");
  const { translator } = await import("/js/translations.mjs");
  addStyle();
  const server = new FakeServer();
  let tab = null;
  const session = new PlaySession(server.port, memoryStore(), (now, event) => tab?.show(now, event));
  const page = { address: (path) => path, openAsGraph: () => {}, autoplay: new Autoplay(session) };
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


def test_a_story_that_cannot_be_stays_on_the_first_page_with_one_sentence(tab):
    assert tab.locator(".ag-new option").all_inner_texts() == ["toybox", "qiqi (not installed)"]
    tab.fill(".ag-new input", "bad/name?")
    tab.click(".ag-new .ag-main")
    tab.locator(".ag-start .ag-alert:visible", has_text="not a valid").wait_for()
    assert tab.locator(".ag-game:visible").count() == 0
    assert tab.input_value(".ag-new input") == "bad/name?", "what was typed stays"
    begin(tab, "b")
    assert tab.locator(".ag-alert:visible").count() == 0


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


def test_a_story_that_cannot_be_read_says_why_in_the_list(tab):
    tab.evaluate("""async () => {
      const damaged = "main.jsonl:2: not a turn <b>of</b> a story; mend the line";
      server.stories.torn = { name: "torn", world: "", branch: "main", branches: { main: [] }, error: damaged };
      server.stories.whole = { name: "whole", world: "toybox", branch: "main", branches: { main: [] } };
      await session.close();
    }""")
    rows = tab.locator(".ag-story").all_inner_texts()
    assert any("torn" in row and "not a turn <b>of</b> a story" in row for row in rows)
    assert any("whole" in row and "toybox" in row for row in rows)
