"""The Play tab: turns, takes, branches, undo, reload, export, the graph; by mouse and by keys alone."""

import re
import urllib.parse
import wave

import av
import numpy as np
import pytest
from graphs import play
from pages import faint_texts, script
from play_tab import MESSAGE, TAB, TURN

from animegamer_core.media.video import read_clip

SEA = "Character: Miko; Motion: gently wave hello; Background: day beach."
RUN = "Character: Miko; Motion: swiftly run; Background: day beach."
HUG = "Character: Miko, Taro; Motion: softly hug a friend; Background: day street."

PLAYING = "() => [...document.querySelectorAll('.ag-play video')].filter((video) => !video.paused).length"
ANIMATED = "() => document.getAnimations().filter((moves) => moves.effect.target.closest('.ag')).length"


@pytest.fixture(scope="module")
def game(tab):
    """A story of two turns."""
    tab.begin("by the sea")
    tab.page.wait_for_selector(".ag-text:focus")  # the player can write at once
    tab.sketch()
    tab.play(SEA, 1)
    tab.play(RUN, 2)
    return tab


def test_two_turns_are_played_saved_and_shown(game):
    turns = game.saved("by the sea")["branches"][0]["turns"]
    assert [turn["instruction"] for turn in turns] == [SEA, RUN]
    assert game.gauges() == turns[1]["stats"]
    assert game.page.locator(".ag-stage .ag-words span").all_inner_texts() == ["Miko", "swiftly run", "day beach"]
    assert game.page.locator(".ag-line-strip .ag-clip").count() == 2
    assert game.page.locator(".ag-play .ag-course rect").count() == 2
    assert "2" in game.page.locator(".ag-play [aria-live]").text_content(), "screen readers hear of the turn"
    assert game.page.input_value(".ag-text") == ""
    game.page.wait_for_function(script("clip_plays"))
    assert game.page.evaluate(PLAYING) == 1, "no clip plays that is not seen"
    assert urllib.parse.unquote_plus(game.page.locator(".ag-screen video").get_attribute("src")).count("by the sea")
    game.comfy.shot("play-dark")


def test_three_takes_and_continuing_from_the_chosen_one(game):
    page = game.page
    game.tell(HUG, "Shift+Enter")
    page.wait_for_selector(".ag-doing:visible")
    game.wait_for_turn(3)
    takes = page.locator(".ag-takes .ag-clip")
    assert takes.count() == 3
    kept = [take.get_attribute("aria-pressed") for take in takes.all()]
    assert sorted(kept) == ["false", "false", "true"]
    sources = {takes.nth(i).locator("video").get_attribute("src") for i in range(3)}
    assert len(sources) == 3
    game.wait_until_idle()
    other = takes.nth(kept.index("false"))
    chosen = other.locator("video").get_attribute("src")
    other.click()
    page.wait_for_function(
        "(src) => document.querySelector('.ag-screen video')?.getAttribute('src') === src", arg=chosen
    )
    game.wait_until_idle()
    assert other.get_attribute("aria-pressed") == "true"
    game.comfy.shot("play-takes-dark")
    game.play(SEA, 4)
    takes_branch = game.saved("by the sea")["branch"]
    turns = next(branch["turns"] for branch in game.saved("by the sea")["branches"] if branch["name"] == takes_branch)
    assert turns[2]["clip"]["filename"] in chosen


def test_undo_and_another_turn_make_a_branch(game):
    before = game.branches("by the sea")
    game.page.evaluate("document.querySelector('.ag-scroll').scrollTo({ top: 9999 })")
    assert game.page.evaluate("document.querySelector('.ag-scroll').scrollTop") > 0
    for number in (3, 2):
        game.page.click(".ag-top .pi-undo")
        game.wait_for_turn(number)
    game.play(SEA, 3)
    assert game.page.evaluate("document.querySelector('.ag-scroll').scrollTop") == 0, "the clip is in view"
    after = game.branches("by the sea")
    assert [SEA, RUN, SEA] in after.values() and [SEA, RUN, SEA] not in before.values()
    assert set(map(tuple, before.values())) <= set(map(tuple, after.values())), "nothing is lost"


def exported(game):
    """{content type: address} of the files of an export, once it has ended."""
    game.page.evaluate("document.querySelector('.ag-files').replaceChildren()")  # those before
    game.page.locator("dialog.ag-export .ag-main").click()
    game.page.wait_for_function(
        "() => document.querySelector('.ag-stop-button').hidden && document.querySelector('.ag-files a')", timeout=TURN
    )
    found = game.page.locator(".ag-files a")
    game.page.locator(MESSAGE, has_text="Exported").first.wait_for()
    assert found.first.bounding_box()["y"] < game.page.locator(".ag-form").bounding_box()["y"], "in view"
    links = [link.get_attribute("href") for link in found.all()]
    return {game.page.request.get(game.server.url + link).headers["content-type"]: link for link in links}


def turns_shown(game):
    """The turns of the branch that is shown, up to the one on the stage, as the server has them."""
    number = int(game.page.locator(".ag-stage .ag-number").inner_text())
    branches = re.search("branch (.+)$", game.page.locator(".ag-stop[aria-current]").get_attribute("aria-label"))[1]
    (branch, *_) = (branch for branch in game.saved("by the sea")["branches"] if branch["name"] in branches.split(", "))
    return branch["turns"][:number]


def test_export_gives_a_clip_and_a_contact_sheet(game):
    game.page.click(".ag-top .pi-download")
    turns, kinds = turns_shown(game), exported(game)
    assert sorted(kinds) == ["image/png", "video/mp4"]
    assert dropped(game, kinds) == [turn["instruction"] for turn in turns]


def dropped(game, files):
    """The instructions of the graph that the page loads if the film is dropped onto it."""
    assert game.comfy.run_script("drop_file", files["video/mp4"]) == ["LoadAnimeGamer", "PlayGameStory", "SaveVideo"]
    play = "app.graph.nodes.find((node) => node.comfyClass === 'PlayGameStory')"
    return game.page.evaluate(f"() => {play}.widgets.find((each) => each.name === 'instructions').value").split("\n")


def test_export_as_a_film(game, tmp_path):
    page = game.page
    page.click(".ag-top .pi-download")
    dialog = page.locator("dialog.ag-export")
    dialog.locator("select").select_option("film")
    dialog.locator("[name=subtitles]").check()
    song = tmp_path / "song.wav"
    with wave.open(str(song), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(range(256)) * 30)
    dialog.locator("[name=music]").set_input_files(song)
    game.comfy.shot("export-dialog")
    turns, kinds = turns_shown(game), exported(game)
    folder = game.server.output_dir / "animegamer" / "by the sea" / "films"
    (film,) = folder.glob(f"film-*-{len(turns)}.mp4")  # with other turns it has another name
    assert "video/mp4" in kinds and len(kinds) == 2 and film.with_suffix(".srt").exists()
    assert dropped(game, kinds) == [turn["instruction"] for turn in turns]
    with av.open(str(film)) as container:
        assert sorted(stream.type for stream in container.streams) == ["audio", "subtitle", "video"]
        said = [bytes(packet)[2:].decode() for packet in container.demux(subtitles=0) if packet.size > 2]
    assert said == [f"{number}. {in_short(turn['instruction'])}" for number, turn in enumerate(turns, start=1)]
    frames = read_clip(film).frames.astype(int)
    paths = [game.server.output_dir / turn["clip"]["subfolder"] / turn["clip"]["filename"] for turn in turns]
    clips = np.concatenate([read_clip(path).frames for path in paths])
    assert frames.shape == clips.shape and np.abs(frames - clips).mean() < 4


def test_a_tab_opened_again_does_not_tell_of_an_export_again(game):
    page, told = game.page, game.page.locator(MESSAGE, has_text="Exported")
    page.locator(TAB).click()
    page.wait_for_selector(".ag-play", state="detached")
    told.first.wait_for(state="detached")
    game.open()
    page.locator(".ag-files a").first.wait_for()
    page.wait_for_timeout(500)
    assert not told.count()


def in_short(instruction):
    """An instruction without its labels."""
    return " \u00b7 ".join(part.partition(": ")[2] for part in instruction.rstrip(".").split("; "))


def test_a_reload_opens_the_story_again(game):
    page = game.page
    number = int(page.locator(".ag-stage .ag-number").inner_text())
    game.comfy.set("Comfy.ColorPalette", "light")
    game.comfy.open()
    game.open()
    game.wait_for_turn(number)
    game.sketch()
    assert page.locator(".ag-name").inner_text() == "by the sea"
    game.comfy.shot("play-light")
    game.play(RUN, number + 1)


def test_a_narrow_sidebar_cuts_nothing_off_and_all_is_named_and_readable(game):
    place = game.page.locator(".ag-play")
    place.evaluate(script("widen"), 250)
    cut = game.comfy.run_script("cut_off")
    place.evaluate(script("widen"), None)
    assert not cut and game.comfy.run_script("nameless") == []
    for palette in ("light", "dark"):
        game.comfy.set("Comfy.ColorPalette", palette)
        game.page.wait_for_timeout(700)
        assert faint_texts(game.page, ".ag-play", ".ag-unseen, .ag-clip") == []


def test_fields_write_the_instruction_with_the_worlds_own_words(game):
    page = game.page
    game.begin("words of the toybox", "toybox")
    game.sketch(1)
    page.locator(".ag-fold summary").first.click()
    assert page.locator("#ag-list-character option[value=Miko]").count() == 1
    words = {"character": "Taro", "adverb": "gently", "motion": "read a book", "time": "night", "place": "library"}
    for name, word in words.items():
        page.fill(f"input[name={name}]", word)
    assert page.input_value(".ag-text") == "Character: Taro; Motion: gently read a book; Background: night library."
    game.comfy.shot("play-fields-dark")
    page.press("input[name=place]", "Enter")
    game.wait_for_turn(1)
    assert page.locator(".ag-stage .ag-words span").all_inner_texts() == ["Taro", "gently read a book", "night library"]
    page.locator(".ag-fold summary").first.click()


def test_what_is_typed_is_checked_before_the_wait(game):
    page, notes = game.page, game.page.locator(".ag-check-notes:visible")
    game.begin("typed", "toybox")
    page.fill(".ag-text", "Mako kisses Taro in the forest")
    notes.wait_for()
    assert page.locator(".ag-marks u").all_inner_texts() == ["Mako"]
    assert "Read as: Character: Taro, Miko; Motion: gently hug a friend; Background: " in notes.inner_text()
    for said in ("not know 'Mako'.", "Shown instead: 'hug a friend' for 'kisses'."):
        assert said in notes.inner_text()
    game.comfy.shot("play-check-dark")
    notes.get_by_role("button", name="Words").click()
    notes.get_by_role("button", name="Miko").click()
    page.wait_for_function("() => !document.querySelector('.ag-marks u')")
    assert page.input_value(".ag-text") == "Miko kisses Taro in the forest"
    notes.get_by_role("button", name="Use this text").click()
    assert page.input_value(".ag-text").startswith("Character: Miko, Taro; Motion: gently hug a friend;")
    page.fill(".ag-text", "Miko and Taro dance")
    notes.get_by_text("Only one can dance here: Miko. Next turn: Taro?").wait_for()
    assert not page.locator(".ag-marks u").count() and "\u2192" not in notes.inner_text(), "both are known"
    page.fill(".ag-text", "")
    known = page.locator(".ag-word-list")
    for word in ("Miko", "run", "scarf", "red", "quickly", "street", "night"):
        known.get_by_role("button", name=word, exact=True).click()
    clicked = "Character: Miko; Motion: quickly run with a red scarf; Background: night street."
    assert page.input_value(".ag-text") == clicked
    notes.wait_for()
    assert "Training never showed Miko + street, run + street" in notes.inner_text()
    assert "ag-untried" in known.get_by_role("button", name="dance", exact=True).get_attribute("class")
    assert known.locator(".ag-characters").evaluate("picture => picture.naturalWidth") == 1024, "who is who"
    known.locator(".ag-characters").scroll_into_view_if_needed()
    game.comfy.shot("play-words-dark")
    page.locator(".ag-fold .pi-book").click()
    page.fill(".ag-text", "a" * 9000)
    notes.wait_for()
    assert "9000 letters" in notes.inner_text(), "what would be refused is said too"
    page.fill(".ag-text", "")


def test_an_error_is_one_sentence_and_the_text_is_not_lost(game):
    page = game.page
    refusal = {"error": {"message": "The world is asleep."}, "node_errors": {}}
    page.route("**/prompt", lambda route: route.fulfill(status=400, json=refusal))
    game.tell("Miko dances")
    page.wait_for_selector(".ag-form .ag-alert:visible")
    page.unroute("**/prompt")
    assert game.alert() == ["The world is asleep."]
    assert page.input_value(".ag-text") == "Miko dances"
    prompts = len(game.server.get("/history"))
    for words in ("", "# what now"):
        game.tell(words)
        assert len(game.alert()) == 1 and page.input_value(".ag-text") == words, "answered, not sent"
    assert "start with #" in game.alert()[0]
    game.tell("Miko does not dance any more")
    page.locator(".ag-check-notes:visible", has_text="shows nothing like").wait_for()
    assert not page.locator(".ag-main:visible").is_disabled() and len(game.server.get("/history")) == prompts
    page.fill(".ag-text", "")


def test_stop_does_not_change_the_story(game, slow):
    game.begin("a long turn", slow)
    game.sketch(1)
    game.play(SEA, 1)
    game.sketch(1000)
    before = game.branches("a long turn")
    game.tell("Character: Yuzu; Motion: wildly dance; Background: night castle.", "Shift+Enter")
    game.page.wait_for_selector(".ag-preview:visible", timeout=TURN)  # the clip can be seen as it is drawn
    assert game.page.locator(".ag-bar").get_attribute("aria-valuenow")
    game.comfy.shot("play-busy-dark")
    shown = game.page.locator(".ag-stage .ag-words span").all_inner_texts()
    assert shown == ["Yuzu", "wildly dance", "night castle"], "of what is drawn, not of the turn before"
    assert game.page.evaluate(PLAYING) == game.page.evaluate(ANIMATED) == 0, "the drawing has the CPU"
    game.page.locator(".ag-stop-button").click()
    game.wait_until_idle()
    assert game.server.get("/queue")["queue_pending"] == []
    game.sketch()
    assert game.branches("a long turn") == before


WATCH = """(kinds) => {
  const seen = () => [...document.querySelectorAll(kinds)].filter((found) => found.checkVisibility());
  window.messages = [];
  setInterval(() => messages.push(...seen().map((found) => found.innerText)), 50);
}"""


def test_the_takes_of_a_turn_bring_no_messages_of_comfyui(game):
    """Newer pages say "Job completed" of whatever has ended, also of a graph's run, which the tab does not hide."""
    game.begin("without messages")
    game.sketch()
    game.page.evaluate(WATCH, f"{MESSAGE}, [data-testid=queue-notification-banner]")
    game.tell(RUN, "Shift+Enter")
    game.wait_for_turn(1)
    game.wait_until_idle()
    game.page.wait_for_timeout(3000)
    assert game.page.evaluate("() => messages") == []


def test_keys_alone_begin_a_story_and_play_it(game):
    page = game.page
    page.locator(".ag-top button").first.focus()
    page.keyboard.press("Enter")  # all stories
    page.wait_for_selector(".ag-new input:focus")
    page.keyboard.press("Control+A")
    page.keyboard.type("by keys")
    page.keyboard.press("Enter")
    page.wait_for_selector(".ag-text:focus")
    page.keyboard.type("Miko runs")
    page.keyboard.press("Enter")
    game.wait_for_turn(1)
    assert page.evaluate("() => document.activeElement.className") == "ag-text", "focus stays where the player writes"
    outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "focus can be seen"
    reached = set()
    for _ in range(40):
        page.keyboard.press("Shift+Tab")
        reached.add(page.evaluate("() => document.activeElement.className.split(' ')[0]"))
    assert {"ag-icon", "ag-quiet", "ag-stop"} <= reached


def test_the_list_continues_a_saved_story(game):
    page = game.page
    page.locator(".ag-top button").first.click()
    page.wait_for_selector(".ag-story")
    game.comfy.shot("play-stories-dark")
    page.locator(".ag-story", has_text="by the sea").click()
    page.wait_for_selector(".ag-screen video")
    assert page.locator(".ag-name").inner_text() == "by the sea"


def test_the_story_opens_as_a_graph_that_computes_nothing_again(game):
    page = game.page
    states = {turn["shot"] for branch in game.saved("by the sea")["branches"] for turn in branch["turns"]}
    opened = "() => app.extensionManager.workflow.openWorkflows.length"
    before = page.evaluate(opened)
    page.click(".ag-top .pi-share-alt")
    page.wait_for_function("() => app.graph.nodes.some((node) => node.comfyClass === 'PlayGameStory')")
    page.wait_for_selector(".ag-card.ag-in-node .ag-lines")  # the state, before anything ran
    kinds = page.evaluate("() => app.graph.nodes.map((node) => node.comfyClass).sort()")
    assert kinds == ["LoadAnimeGamer", "PlayGameStory", "SaveVideo"]
    assert page.evaluate(opened) == before + 1, "a tab for the graph, and no empty one"
    game.comfy.run_graph()
    assert {turn["shot"] for branch in game.saved("by the sea")["branches"] for turn in branch["turns"]} == states
    game.comfy.shot("handed-over-dark")


@pytest.mark.parametrize(
    ("language", "play", "left_out", "loader"),
    [
        ("zh", "\u6e38\u73a9", "\u7701\u7565\uff1a\u201cswims\u201d", ""),
        (
            "ja",
            "\u30d7\u30ec\u30a4",
            "\u7701\u3044\u305f\u8a00\u8449\uff1a\u300cswims\u300d",
            "AnimeGamer \u3092\u8aad\u307f\u8fbc\u3080",
        ),
    ],
)
def test_page_and_tab_speak_chinese_and_japanese(game, language, play, left_out, loader):
    game.comfy.set("Comfy.Locale", language)
    try:
        game.comfy.open()
        game.open()
        game.page.wait_for_selector(".ag-game:visible")
        assert game.page.locator(".ag-main:visible").inner_text() == play
        assert game.comfy.run_script("cut_off") == [] and game.comfy.run_script("nameless") == []
        node = game.page.evaluate("() => LiteGraph.createNode('LoadAnimeGamer').title")
        assert not loader or node == loader
        game.begin("words of the toybox", "toybox")
        game.page.fill(".ag-text", "Miko dances, then she swims")
        game.page.locator(".ag-check-notes", has_text=left_out).wait_for()
        game.comfy.shot(f"play-{language}")
        game.page.fill(".ag-text", "a storm comes")
        game.page.locator(".ag-check-notes", has_text="storm").wait_for()
        assert "know" not in game.page.locator(".ag-check-notes:visible").inner_text(), "a refusal is translated"
    finally:
        game.comfy.set("Comfy.Locale", "en")


SCARF = "Character: Miko; Motion: gently run with a red scarf; Background: day beach."
ASKED = "Character: Miko; Motion: softly dance with the scarf; Background: day beach."


def test_the_remembered_turns_are_named_and_marked(game):
    """The line under the stats, and rings in the tree."""
    game.server.run(play("the scarf", SCARF, *[RUN] * 5, ASKED, world=game.world))
    game.comfy.open()
    game.open()
    game.page.locator(".ag-top button").first.click()
    game.page.locator(".ag-story", has_text="the scarf").click()
    game.wait_for_turn(7)
    assert game.page.locator(".ag-remembered:visible").inner_text() == "Remembers: Turn 1"
    (marked,) = game.page.locator(".ag-stop.ag-recalled").all()
    assert marked.inner_text() == "1" and marked.get_attribute("aria-label").endswith(", remembered here")
    game.comfy.shot("play-remembered")
    marked.click()
    game.wait_for_turn(1)
    assert game.page.locator(".ag-remembered:visible").count() == game.page.locator(".ag-stop.ag-recalled").count() == 0
