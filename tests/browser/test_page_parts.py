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
  const { translator } = await import("/js/words.mjs");
  addStyle();
  const server = new FakeServer();
  let tab = null;
  const session = new PlaySession(server.port, memoryStore(), (now, event) => tab?.show(now, event));
  tab = createPlayTab(session, translator("en"), { address: (path) => path, handOver: () => {} });
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


def test_a_story_that_cannot_be_stays_on_the_first_page_with_one_sentence(tab):
    assert tab.locator(".ag-new option").all_inner_texts() == ["toybox", "qiqi (not installed)"]
    for story, world, why in (("bad/name?", "toybox", "cannot be"), ("b", "qiqi", "not installed")):
        tab.fill(".ag-new input", story)
        tab.select_option(".ag-new select", world)
        tab.click(".ag-new .ag-main")
        tab.wait_for_function("(why) => document.querySelector('.ag-start .ag-alert').innerText.includes(why)", arg=why)
        assert tab.locator(".ag-game:visible").count() == 0
        assert tab.input_value(".ag-new input") == story, "what was typed stays"
    begin(tab, "b")
    assert tab.locator(".ag-alert:visible").count() == 0
