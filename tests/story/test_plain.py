"""Plain sentences are read in the words of a world; what it cannot show is named, and nothing known is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from animegamer_core.game.director import LOOKS_BACK
from animegamer_core.game.life import Act, Life, Rules, Words
from animegamer_core.game.plain import NotShown, Reading, read_plainly
from animegamer_core.game.state import GameSession, GameState
from animegamer_core.story.turn import read_typed
from animegamer_core.toybox.world import RULES, WORDS

PAST = ("Character: Miko; Motion: gently dance; Background: night castle.",)
GOES_ON = "Nothing in it can be done here, so the last act goes on: dance."
COUPLE = (*PAST, "Character: Nori, Beni; Motion: softly hug a friend; Background: day street.")


def read(text: str, past=PAST, words=WORDS, unknown=("?",)) -> Reading:
    return read_plainly(text, Life(RULES, words), past, unknown)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Taro skis down the hill by day", "Taro; steadily run; day mountain"),
        ("She quickly swims in the lake", "Miko; quickly swim; night beach"),
        ("Pico goes to school and studies", "Pico; steadily read a book; night classroom"),
        ("Beni is angry and runs off with a red umbrella", "Beni; wildly run with a red umbrella; night castle"),
        ("Nori gives Beni a hug in the morning", "Nori, Beni; gently hug a friend; day castle"),
        ("it's dawn, Taro was sleeping on the sofa", "Taro; gently sleep under a blanket; day bedroom"),
        ("Yuzu takes off running on top of the hill", "Yuzu; steadily run; night mountain"),
        ("Taro can't sleep, so he goes for a dip in the lake", "Taro; steadily swim; night beach"),
        ("Beni waves to Pico, then she reads in the library", "Beni; steadily wave hello; night castle"),
        ("alone now, Rin goes for a bike ride", "Rin; steadily ride a bicycle; night castle"),
        ("Rin's skateboarding on the pavement", "Rin; steadily run; night street"),
        ("Kai takes a quick swim in the hot spring", "Kai; quickly swim; night castle"),
        ("Before dancing, Miko drinks tea in the kitchen", "Miko; gently drink tea; night kitchen"),
        ("back to Luna, on her broomstick", "Luna; steadily fly on a broomstick; night castle"),
        ("Bolt rocks out with his guitar", "Bolt; steadily play the guitar; night castle"),
        ("give her a cat", "Miko; steadily dance with the cat; night castle"),
        ("a white balloon appears", "Miko; steadily dance with a white balloon; night castle"),
    ],
)
def test_a_plain_sentence_becomes_the_published_form(sentence, expected):
    who, motion, place = expected.split("; ")
    assert read(sentence).instruction == f"Character: {who}; Motion: {motion}; Background: {place}."


def test_what_is_left_out_comes_from_the_turns_before(tiny_tokenizer):
    session, restless = GameSession(rules=RULES), Rules(tuple(replace(stat, restful=False) for stat in RULES.stats))
    for who in (*["Miko"] * LOOKS_BACK, "Yuzu"):
        session = session.step(PAST[0].replace("Miko", who), GameState(None, 1, {}))
    assert "Character: Yuzu;" in read_typed(Life(RULES, WORDS), tiny_tokenizer, session, "she vanishes").instruction
    read_in = read_typed(Life(restless, WORDS), tiny_tokenizer, session, "she sleeps").instruction
    assert "Motion: gently sleep" in read_in, "by the rules of the game"
    assert "Character: Beni, Nori;" in read("She throws her arms around him", COUPLE).instruction
    assert "Character: Miko, Taro;" in read("Taro is here. She tells him a joke").instruction
    assert "Character: Yuzu;" in read("with Miko watching, Yuzu dances").instruction
    they = read("they dance", COUPLE)
    assert they.instruction.startswith("Character: Nori; Motion: steadily dance;") and they.unknown == ()
    assert they.sentences == ("Only one can dance here: Nori. Next turn: Beni?",)
    assert read("Everybody dances", COUPLE) == replace(they, typed="Everybody dances")
    assert "kitchen" not in read("Miko runs, but not in the kicthen").instruction
    elsewhere = read("Yuzu is not in the street but on the beach")
    assert elsewhere.instruction.endswith(" beach.") and elsewhere.sentences == (GOES_ON,)
    assert read("they race", COUPLE).instruction.startswith("Character: Nori, Beni; Motion: steadily race a friend;")
    assert ": Nori; Motion: steadily wave hello; Background: day street" in read("he waves", COUPLE).instruction
    assert "Character: Nori, Pico; Motion: gently hug" in read("now with Pico instead of Beni", COUPLE).instruction
    assert "Character: Bolt;" in read("the same with Bolt").instruction
    assert "Character: Beni, Miko;" in read("without Nori now", COUPLE).instruction
    assert "Character: Pico;" in read("back to Pico").instruction
    assert read("again", COUPLE).instruction == COUPLE[1].replace("softly", "gently")
    assert "Character: Nori, Beni;" in read("Nori talks to his friend", COUPLE).instruction
    alone = (*COUPLE, PAST[0], PAST[0].replace("Miko", "Nori"))
    for typed in ("hug the friend from before", "Nori waves to the friend from before", "the friend from before reads"):
        found = read(typed, alone)
        assert "Beni" in found.instruction + "".join(found.sentences) and not found.unknown, typed
    some = {
        "Character: Yuzu.": "Yuzu",
        "Motion: dance; Background: beach.": "steadily dance",
        "Background: beach": "beach",
    }
    for typed, expected in some.items():  # as the page's fields write it
        assert expected in (found := read(typed)).instruction and not found.unknown and not found.notes, typed


def test_what_is_not_shown_is_said():
    reading = read("Elsa eats an apple, then it rains in the garden and she swims", ())
    assert reading.unknown == ("Elsa", "rains") and reading.typed.startswith("Elsa eats")
    nobody = "Nobody whom this world knows is named or was on: Miko is on now."
    assert reading.sentences == ("Shown instead: 'noodles' for 'apple'.", "Left out: 'swims'.", nobody)
    assert read("They dance", past=("A robot and a cat wave hello",)).sentences == (nobody,)
    opened = read("They dance", past=("Taro stands in the castle",))
    assert opened.instruction == "Character: Taro; Motion: steadily dance; Background: day castle." and not opened.notes
    assert read("Leo looks at Kai").sentences[0] == "Shown instead: 'read a book' for 'looks at'."
    friend = ("Shown instead: 'hug a friend' for 'embraces'.", "It takes two to hug a friend: Miko comes, too.")
    assert read("Nori embraces a friend").sentences == friend and not read("Nori embraces a friend").unknown
    both = read("Miko, Taro and Leo wave together")
    assert both.instruction.startswith("Character: Miko; Motion: steadily wave hello;") and both.unknown == ()
    assert both.sentences == ("Only one can wave hello here: Miko. Next turn: Taro / Leo?",)
    denied = read("Nobody dances but Miko waves")
    assert "Motion: steadily wave hello;" in denied.instruction and denied.sentences == ("Left out: 'dances'.",)
    without = read("Miko dances without a red umbrella")
    assert "Motion: steadily dance;" in without.instruction and without.sentences == ("Left out: 'red', 'umbrella'.",)
    for said in map(read, ("Kai says hello", "Kai rides around on his bicycle", "Kai dances holding a red flag")):
        assert said.unknown == said.notes == (), "the act that is shown says these verbs, too"


@pytest.mark.parametrize(
    ("sentence", "expected", "said"),
    [
        ("He eats ramen", "Taro; gently eat noodles", "Nobody who was on can be 'He': Taro is meant."),
        *((text, "Miko; steadily dance", GOES_ON) for text in ("It is snowing", "A cat", "give her a balloon")),
        ("Miko swims with Bolt's umbrella", "Miko; steadily swim with the umbrella", "Left out: 'Bolt'."),
        ("Bolt's umbrella flies away", "Miko; steadily fly on a broomstick with the umbrella", "Left out: 'Bolt'."),
        ("Bolt's swimming with Taro's red umbrella", "Bolt; steadily swim with a red umbrella", "Left out: 'Taro'."),
        ("Miko shakes Bolt's hand", "Miko, Bolt; steadily shake hands with a friend", "hand"),
        ("It takes Luna an hour", "Luna; steadily dance", GOES_ON),
        ("It takes Luna an hour to climb the ladder", "Luna; steadily climb a ladder", "hour"),
        ("Luna rides a red bicycle", "Luna; steadily ride a bicycle", "Left out: 'red'."),
        ("Luna rides a bycicle", "Luna; steadily ride a bicycle", "bycicle"),
        ("Miko mends the bycicle", "Miko; steadily dance", GOES_ON),
        ("hana jumps in the kicthen", "Hana; steadily jump", "Shown instead: 'kitchen' for 'kicthen'."),
        ("Bolt the robot and Yuzu hug", "Bolt, Yuzu; gently hug a friend", "robot"),
        ("Nori, the captain, and Kai race", "Nori, Kai; steadily race a friend", "captain"),
        ("tarro hugs Mikko", "Taro, Miko; gently hug a friend", "Shown instead: 'Miko' for 'Mikko'."),
        ("Rain falls on Rin, and hannah swims", "Hana; steadily swim", "Shown instead: 'Hana' for 'hannah'."),
        ("Miko hugs him", "Miko, Taro; gently hug a friend", "Nobody who was on can be 'him': Taro is meant."),
    ],
)
def test_what_a_sentence_leaves_open_is_said(sentence, expected, said):
    reading, (who, motion) = read(sentence), expected.split("; ")
    assert reading.instruction.startswith(f"Character: {who}; Motion: {motion}")
    assert said in (*reading.unknown, *reading.sentences)


@pytest.mark.parametrize("sentence", ["Leo is sad", "Taro opens the door", "Kai cries", "Momo and her puppy"])
def test_what_the_world_has_no_act_for_never_becomes_the_last_act_unsaid(sentence):
    reading, words = read(sentence), {"is": "sad", "opens": "opens, door", "cries": "cries", "and": "puppy"}
    unknown = words[sentence.split()[1]]
    assert "Motion: steadily dance;" in reading.instruction and ", ".join(reading.unknown) == unknown
    assert reading.sentences == (GOES_ON,)
    quoted = unknown.replace(", ", "', '")
    with pytest.raises(NotShown, match=f"does not know '{quoted}'; say what somebody does"):
        read(sentence, ())


def test_a_place_of_the_world_is_no_time_of_day():
    moon = replace(WORDS, places=("park", "laboratory", "moon"))
    assert "Background: night moon." in read("Miko jumps on the moon", words=moon).instruction
    assert moon.nearest("lab") == ["laboratory"]
    on, under = (read(f"Miko jumps {where} the moon", ()) for where in ("on", "under"))
    assert "Background: day beach." in on.instruction and on.unknown == ("moon",)
    assert "Background: night beach." in under.instruction and under.sentences == (
        "Shown instead: 'night' for 'moon'.",
    )


def test_known_words_in_the_published_form_and_quoted_text_stay_as_they_are():
    known = "Character: she; Motion: swiftly run; Background: in the same place by day."
    assert read(known, unknown=()) == Reading(known)
    assert read('"Miko skis"', unknown=("skis",)) == Reading("Miko skis", unknown=("skis",))
    assert read("Miko skis", words=Words(), unknown=("skis",)) == Reading("Miko skis", unknown=("skis",))
    skis = read(known.replace("run", "ski").replace("same place", "snow"))
    assert skis.instruction == "Character: Miko; Motion: swiftly run; Background: day mountain."


@pytest.mark.parametrize(
    "text",
    ["qwer asdf", "will the market go up if it rains?", "They don't dance", "Miko's taxes", "美子在海边跑步", "..."],
)
def test_a_text_that_shows_nothing_is_refused_with_examples(text):
    with pytest.raises(ValueError, match="read a book|talk to a friend"):
        read(text, past=PAST if "dance" in text else ())


def test_other_worlds_read_the_same_words_in_their_own():
    words = Words(("Rex",), (Act("walk through the wood"), Act("munch an acorn")), ("meadow",), ("day",))
    reading = read_plainly("Rex strolls in the park", Life(RULES, words), (), ("strolls",))
    assert reading.instruction == "Character: Rex; Motion: walk through the wood; Background: day meadow."
