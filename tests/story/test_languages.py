"""Chinese and Japanese instructions: each English form of the Toybox has one in both that is read as the same."""

import json
import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_world import save_tiny_world

from animegamer_core.__main__ import main
from animegamer_core.checkpoint import open_world
from animegamer_core.life import Act, Words
from animegamer_core.media import text as drawn_text
from animegamer_core.runtime.models import PlaySettings
from animegamer_core.state import clean_text
from animegamer_core.story import languages
from animegamer_core.story.everyday import EVERYDAY, FILM_CHARACTERS
from animegamer_core.story.film import export_film
from animegamer_core.story.languages import read_instruction
from animegamer_core.story.player import Player, export
from animegamer_core.story.story import Story
from animegamer_core.toybox.editions import EDITIONS
from animegamer_core.toybox.games import sample_game
from animegamer_core.toybox.world import (
    ADVERBS,
    AGAIN,
    BOTH,
    CHARACTERS,
    COLOURS,
    MOTIONS,
    PLACES,
    PROPS,
    SAME_PLACE,
    THE_FRIEND,
    TIMES,
    WORDS,
    instruction,
)

FORM = re.compile(
    r"Character: (?P<who>[^;]+); Motion: (?:(?P<adverb>[a-z]+) )?(?P<motion>.+?)"
    r"(?: with (?:a (?P<colour>[a-z]+)|the) (?P<thing>car|umbrella|scarf))?; "
    r"Background: (?:(?P<same>in the same place) by (?P<again>\w+)|(?P<time>\w+) (?P<place>\w+))\."
)
ZH, JA = 0, 1
LETTERS = {ZH: re.compile(r"[^\u3040-\u30ff]+"), JA: re.compile(r".*[\u3040-\u30ff\u4e00-\u9fff].*")}
TABLES = {
    "character": {**languages.CHARACTERS, **languages.PRONOUNS},
    "motion": {**languages.ACTS, **languages.BACK},
    "adverb": languages.ADVERBS,
    "place": {**languages.PLACES, **languages.SAME_PLACE},
    "time": languages.TIMES,
    "thing": languages.THINGS,
    "colour": languages.LOOKS,
}
JAPANESE_WITHOUT_KANA = "太郎 宗介 浜辺 森 山 城 台所 寝室 図書館 市場 港 草原 丘 居間 庭 昼間 夜 朝 夕方".split()
JAPANESE_WITHOUT_KANA += "車 傘 紫 緑色 二人 彼女 彼".split()


def spelled(kind, phrase, language):
    """The first spelling of a phrase in a language."""
    spellings = TABLES[kind][phrase].split()
    if language == ZH:
        return spellings[0]
    kana = (one for one in spellings if re.search(r"[\u3040-\u30ff]", one) or one in JAPANESE_WITHOUT_KANA)
    return next(kana)


def said(english, language):
    """An instruction of the Toybox in Chinese or Japanese, in the order of words of that language."""
    parts = FORM.fullmatch(english)
    assert parts, english
    who = [spelled("character", name, language) for name in parts["who"].split(", ")]
    motion, adverb = spelled("motion", parts["motion"], language), spelled("adverb", parts["adverb"], language)
    time = spelled("time", parts["time"] or parts["again"], language)
    place = spelled("place", parts["place"] or parts["same"], language)
    thing = spelled("thing", parts["thing"], language) if parts["thing"] else ""
    colour = spelled("colour", parts["colour"], language) if parts["colour"] else ""
    if language == ZH:
        carried = f"带着{colour}{thing}" if thing else ""
        both = "和".join(who)
        return f"{both}{time}在{place}{carried}{adverb}地{motion}。"
    carried = f"{colour}{thing}を持って" if thing else ""
    both = "と".join(who)
    return f"{both}は{time}の{place}で{carried}{adverb}{motion}。"


def labelled(english, language):
    """The same in the published form, with its labels in that language."""
    parts = FORM.fullmatch(english)
    labels = (
        ("角色", "动作", "背景"),
        ("キャラクター", "動き", "背景"),
    )[language]
    who = "、".join(spelled("character", name, language) for name in parts["who"].split(", "))
    thing = spelled("thing", parts["thing"], language) if parts["thing"] else ""
    colour = spelled("colour", parts["colour"], language) if parts["colour"] else ""
    motion = " ".join(
        filter(
            None,
            (
                spelled("adverb", parts["adverb"], language),
                spelled("motion", parts["motion"], language),
                colour,
                thing,
            ),
        )
    )
    time = spelled("time", parts["time"] or parts["again"], language)
    place = spelled("place", parts["place"] or parts["same"], language)
    return "；".join(f"{label}：{text}" for label, text in zip(labels, (who, motion, f"{time} {place}"), strict=True))


def assert_read(english):
    for language in (ZH, JA):
        for text in (said(english, language), labelled(english, language)):
            assert LETTERS[language].search(text)
            assert read_instruction(text, WORDS, "toybox") == english, text


def test_every_phrase_of_the_toybox_is_read_in_each_place():
    """The whole vocabulary: everyone doing everything, everywhere, at both times, in every manner, with everything."""
    adverbs = [adverb for group in ADVERBS.values() for adverb in group]
    who = [*CHARACTERS, *(f"{one}, {other}" for one, other in product(CHARACTERS, CHARACTERS) if one != other)]
    for name, motion in product(who, MOTIONS.values()):
        assert_read(f"Character: {name}; Motion: gently {motion.phrase}; Background: day beach.")
    for adverb, motion, time, place in product(adverbs, MOTIONS.values(), TIMES, PLACES):
        assert_read(f"Character: Miko; Motion: {adverb} {motion.phrase}; Background: {time} {place}.")
    carried = [f"a {colour} {thing}" for colour, thing in product(COLOURS, PROPS)] + [f"the {thing}" for thing in PROPS]
    for thing, motion, place in product(carried, MOTIONS.values(), PLACES):
        assert_read(f"Character: Pico; Motion: softly {motion.phrase} with {thing}; Background: night {place}.")


def test_what_refers_to_earlier_turns_is_read_too():
    for time, motion, who in product(TIMES, MOTIONS.values(), ("she", "he", BOTH)):
        assert_read(f"Character: {who}; Motion: wildly {motion.phrase}; Background: {SAME_PLACE} {time}.")
        assert_read(f"Character: {who}; Motion: calmly {AGAIN} with the scarf; Background: {time} forest.")
    for verb in ("talk to", "hug"):
        assert_read(f"Character: she; Motion: evenly {verb} {THE_FRIEND}; Background: day kitchen.")


@pytest.mark.parametrize("edition", EDITIONS.values(), ids=lambda edition: edition.name)
def test_instructions_of_games_are_read(edition):
    for number in range(40):
        for scene in sample_game(number, edition=edition).scenes:
            assert_read(instruction(scene, 1 + number % 5))


def test_no_two_phrases_of_one_world_share_a_spelling():
    for words in (WORDS, EVERYDAY):
        known = {
            "character": [*words.characters, *languages.PRONOUNS],
            "motion": [*(act.phrase for act in words.acts), *languages.BACK],
            "adverb": [adverb for group in words.adverbs for adverb in group],
            "place": [*words.places, *languages.SAME_PLACE],
            "time": words.times,
            "thing": words.things,
            "colour": words.looks,
        }
        spellings = [one for kind, names in known.items() for name in names for one in TABLES[kind][name].split()]
        assert len(spellings) == len(set(spellings)), sorted(one for one in spellings if spellings.count(one) > 1)


def test_everyday_words_are_in_the_table():
    """Of worlds that state none, such as the published ones: what the table does not read stays as it was typed."""
    for world, names in FILM_CHARACTERS.items():
        for act, place, name, language in product(EVERYDAY.acts, EVERYDAY.places, names, (ZH, JA)):
            who, where, what = (
                spelled(kind, phrase, language)
                for kind, phrase in (("character", name), ("place", place), ("motion", act.phrase))
            )
            text = f"{who}在{where}{what}" if language == ZH else f"{who}は{where}で{what}"
            expected = f"Character: {name}; Motion: {act.phrase}; Background: {place}."
            assert read_instruction(text, None, world) == expected
    typed = "琴琪在花园画画"
    assert read_instruction(typed, None, "qiqi") == typed


@pytest.mark.parametrize(
    "text, says",
    [
        ("美子在海滩弹钢琴", "does not know: 弹钢琴;"),
        ("ミコは月で走る", "does not know: 月"),
        ("美子跑步", "has no place; say who does what, and where"),
        ("在海滩跑步", "has no character"),
        ("美子在海滩", "has no motion"),
        ("美子在海滩跑步跳舞", "names run and dance; give one motion"),
        ("美子在海滩和森林跑步", "names beach and forest; give one place"),
    ],
)
def test_what_is_not_understood_is_named(text, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        read_instruction(text, WORDS, "toybox")


def test_other_instructions_and_other_worlds_are_left_alone():
    english = "Character: Miko; Motion: fax  the quokka; Background: day beach."
    assert read_instruction(english, WORDS, "toybox") == clean_text(english)
    chinese = "美子在海滩弹钢琴"
    own = Words(characters=("Miko",), acts=(Act("play the piano"),), places=("beach",))
    assert read_instruction(chinese, own, "mine") == chinese


@given(
    st.text(
        alphabet="美子海滩跑步跳舞、。；Miko run\u0131\u017f\u212a<>;はで在",
        max_size=40,
    )
)
def test_any_text_is_read_or_refused_in_a_sentence(text):
    try:
        read = read_instruction(text, WORDS, "toybox")
    except ValueError as error:
        assert str(error).startswith("the instruction ")
    else:
        assert read == clean_text(text) or re.fullmatch(r"Character: .+; Motion: .+; Background: .+\.", read)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A tiny world that states the Toybox's words."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_world(folder)
    manifest = json.loads((folder / "world.json").read_text(encoding="utf-8"))
    stated = json.loads((open_world("toybox").folder / "world.json").read_text(encoding="utf-8"))
    (folder / "world.json").write_text(json.dumps({**manifest, "life": stated["life"]}), encoding="utf-8")
    return open_world(folder)


def test_a_story_keeps_what_was_typed_and_what_was_read(world, tmp_path):
    english = "Character: Miko; Motion: gently wave hello; Background: day beach."
    for language, ahead in ((ZH, False), (JA, True)):
        typed = said(english, language)
        story = Story.open(tmp_path, f"story {language}", "tiny", world.fingerprint)
        player = Player(world, story, PlaySettings(steps=1))
        player.play([typed, english], ahead=ahead)
        again = Story.open(tmp_path, f"story {language}", "tiny", world.fingerprint)
        assert [entry.typed for entry in again.entries] == [typed, ""]
        assert [turn.instruction for turn in again.session(2, 4).turns] == [english, english]
    plain = Story.open(tmp_path, "plain", "tiny", world.fingerprint)
    Player(world, plain, PlaySettings(steps=1)).play([english, english])
    assert [entry.state for entry in plain.entries] == [entry.state for entry in again.entries], "the same game"


def test_a_film_and_a_contact_sheet_say_what_was_typed_if_it_can_be_drawn(world, tmp_path, monkeypatch):
    english = "Character: Miko; Motion: gently wave hello; Background: day beach."
    typed = said(english, JA)
    story = Story.open(tmp_path, "tale", "tiny", world.fingerprint)
    Player(world, story, PlaySettings(steps=1)).play([typed, english])
    _, subtitles = export_film(story, tmp_path / "soft.mp4", subtitles=True).files
    words = subtitles.read_text(encoding="utf-8")
    assert f"1. {typed}\n" in words and "2. Miko \u00b7 gently wave hello" in words
    drawn = []
    for can_be_drawn in (True, False):
        monkeypatch.setattr(drawn_text, "is_drawable", lambda _, answer=can_be_drawn: answer)
        turns = story.session(2, 0).turns
        drawn.append([story.as_typed(turn, drawn=True).instruction for turn in turns if turn.number])
        *_, sheet = export(story, story.session(2, 0))
        sheet.rename(tmp_path / f"{can_be_drawn}.png")
    assert drawn == [[typed, english], [english, english]]
    assert (tmp_path / "True.png").read_bytes() != (tmp_path / "False.png").read_bytes()


def test_the_command_line_plays_goes_on_and_names_unknown_words(world, tmp_path, capsys):
    english = "Character: Miko; Motion: gently wave hello; Background: day beach."
    other = "Character: Taro; Motion: quickly run; Background: night forest."
    game, out = tmp_path / "game.txt", tmp_path / "out"
    command = ["play", str(game), "--world", str(world.folder), "--out", str(out), "--steps", "1"]
    game.write_text(said(english, ZH), encoding="utf-8")
    assert main(command) == 0
    assert english in capsys.readouterr().out
    game.write_text(f"{said(english, ZH)}\n{said(other, JA)}\n", encoding="utf-8")
    assert main([*command, "--resume"]) == 0
    printed = capsys.readouterr().out
    assert other in printed and "turn 1" not in printed, "the first line is known to be played"
    game.write_text("美子在海滩弹钢琴", encoding="utf-8")
    assert main([*command, "--name", "new"]) == 2
    assert "does not know: 弹钢琴" in capsys.readouterr().err
    assert not (out / "new").exists()


def test_the_page_about_playing_lists_the_toyboxs_words_and_its_lines_are_read():
    page = (Path(__file__).parents[2] / "docs" / "playing.md").read_text(encoding="utf-8")
    adverbs = [adverb for group in ADVERBS.values() for adverb in group]
    rows = {
        "character": [*CHARACTERS, *languages.PRONOUNS],
        "motion": [*(motion.phrase for motion in MOTIONS.values()), *languages.BACK],
        "adverb": adverbs,
        "place": [*PLACES, *languages.SAME_PLACE],
        "time": TIMES,
        "thing": PROPS,
        "colour": COLOURS,
    }
    for kind, phrases in rows.items():
        for phrase in phrases:
            assert f" {phrase} {spelled(kind, phrase, ZH)} {spelled(kind, phrase, JA)} " in page
    lines = re.findall(r"^(?:美子在|ミコは|角色).+$", page, re.MULTILINE)
    wave = "Character: Miko; Motion: gently wave hello{}; Background: day beach."
    assert [read_instruction(line, WORDS, "toybox") for line in lines] == [
        wave.format(""),
        wave.format(" with a red umbrella"),
        "Character: Miko, Taro; Motion: quickly dance; Background: night forest.",
    ]
