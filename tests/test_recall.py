"""Which earlier turns a game recalls for an instruction."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from animegamer_core.game.recall import Memory, Seen, chosen_memory, named_in
from animegamer_core.game.state import CACHED_TURNS, GameSession, GameState


def text(motion, place="day beach", who="Miko"):
    return f"Character: {who}; Motion: {motion}; Background: {place}."


PLAIN = text("gently run")


def played(texts, window=4, most=2, opening=None):
    """A game of these turns, in which nothing has been recalled."""
    session = GameSession(window=window, memory=Memory("recall", most))
    state = GameState(torch.zeros(2, 3), 3)
    if opening is not None:
        session = session.open_with(opening, state)
    for line in texts:
        session = session.step(line, state)
    return session


def remembered(session, instruction, stored=True):
    return [turn.number for turn in session.past(session.recall(instruction, stored))]


@pytest.mark.parametrize(
    "instruction, things, described",
    [
        (text("softly hug a friend with the scarf"), ["scarf"], {"friend", "beach"}),
        (text("wave hello with a red scarf"), [], {"scarf", "beach"}),
        (text("fly on a broomstick with the cars"), ["car"], {"broomstick", "beach"}),
        (text("puts on her old hat quickly"), ["hat"], {"hat", "beach"}),
        (text("follow the ugly butterfly"), ["butterfly"], {"butterfly", "beach"}),
        (text("dance with a brightly coloured lily"), [], {"lily", "beach"}),
        (text("show the two boxes to three old friends"), ["box"], {"friend", "beach"}),
        ("Miko finds the red car near Taro's town.", ["car", "town"], {"car", "town"}),
        ("", [], set()),
    ],
)
def test_a_text_refers_to_things_and_describes_some(instruction, things, described):
    named = named_in(instruction)
    assert [words[0] for words in named.things] == things
    assert named.described == described <= named.shown


def test_a_thing_recalls_the_turn_that_described_it():
    instructions = [PLAIN, text("dance with a red scarf"), PLAIN, text("swim with the scarf"), *[PLAIN] * 6]
    session = played(instructions)
    assert session.recall(text("read a book with the scarf"), stored=True) == (2,)
    assert remembered(session, text("read a book with the scarf")) == [2, 8, 9, 10]
    assert remembered(session, text("read a book with a blue scarf")) == [7, 8, 9, 10]
    assert remembered(session, PLAIN) == [7, 8, 9, 10]
    session = played([text("run with a red scarf"), *[PLAIN] * 5, text("see a blue car"), *[PLAIN] * 3])
    assert remembered(session, text("swim with the scarf and the car")) == [1, 7, 9, 10], "one recalled removes another"
    session = played([text("run with a red scarf"), *[PLAIN] * CACHED_TURNS])
    assert [session.recall(text("swim with the scarf"), stored) for stored in (True, False)] == [(1,), ()], "in memory"


@pytest.mark.parametrize(
    "first, later, recalled",
    [
        ("dance with a red umbrella", "swim with the red car", ()),
        ("carry a kitchen table", "clean the kitchen", ()),
        ("find an old family", "wave to the family", (1,)),
        ("see a red and blue ball", "kick the ball", (1,)),
        ("meet two old ladies", "wave to the black and white lady", (1,)),
        ("see a red umbrella", "open the red and blue box", ()),
        ("chase a white butterfly", "catch the butterflies", (1,)),
        ("open a heavy box", "carry the boxes", (1,)),
        ("hug a small child", "wave to the children", (1,)),
        ("paint a small house", "leave the houses", (1,)),
        ("wear two red scarves", "wash the scarves, and the two scarves dry", (1,)),
        ("find a wolf", "run while the wolves come", (1,)),
        ("feed a grey cat", "dance while the cat sleeps", (1,)),
        ("feed a grey cat", "dance while the grey dog sleeps", ()),
    ],
)
def test_a_noun_in_any_form_recalls_its_turn_and_an_adjective_none(first, later, recalled):
    assert played([text(first), *[PLAIN] * 6]).recall(text(later), stored=True) == recalled


def test_the_opening_picture_is_recalled_for_what_no_turn_described():
    session = played([text("run with the scarf"), *[PLAIN] * 28], opening=text("run"))
    assert remembered(session, text("dance with the scarf"), stored=False) == [0, 27, 28, 29]
    described = played([text("run with a red scarf"), *[PLAIN] * 8], opening=text("run"))
    assert remembered(described, text("dance with the scarf")) == [1, 7, 8, 9]


def test_a_place_and_a_character_recall_the_turn_that_showed_them_last():
    castle = text("talk to a friend", "night castle", "Miko, Taro")
    session = played([castle, PLAIN, text("run", "day castle"), *[PLAIN] * 6])
    assert remembered(session, text("dance", "night castle", "Taro")) == [1, 3, 8, 9]
    assert remembered(session, text("dance", "night castle", "Nori")) == [3, 7, 8, 9]
    assert remembered(session, "Kick Taro\u2019s ball") == remembered(session, "Kick Taro's ball") == [1, 7, 8, 9]
    assert named_in("The cat meets Taro").scene == ("taro",), "nobody is called The"


def test_things_come_before_the_place_and_the_place_before_characters():
    lines = [text("run with a red car"), text("run", "day castle"), text("run", who="Taro"), *[PLAIN] * 6]
    wanted = text("swim with the car", "night castle", "Taro")
    recalled = {most: played(lines, 4, most).recall(wanted, stored=True) for most in (1, 2, 3)}
    assert recalled == {1: (1,), 2: (1, 2), 3: (1, 2, 3)}
    session = played([*lines[:7], text("see a blue scarf"), PLAIN, PLAIN], 4, 1)
    assert session.recall(text("swim with the scarf and the car"), stored=True) == (1,), "turn 8 stays anyway"


def test_memory_recent_and_narrow_windows_recall_nothing():
    lines = [text("run with a red scarf"), *[PLAIN] * 8]
    asking = text("swim with the scarf")
    assert GameSession(played(lines).turns, 4).recall(asking, stored=True) == ()
    assert [played(lines, window).recall(asking, stored=True) for window in (0, 1, 2)] == [(), (), (1,)]


def test_a_player_asks_for_a_memory_by_its_kind_or_its_number_of_turns():
    assert chosen_memory(None, None) is None
    assert chosen_memory("recent", None) == Memory() and chosen_memory("recall", None) == Memory("recall", 2)
    assert chosen_memory(None, 3) == chosen_memory("recall", 3) == Memory("recall", 3)
    with pytest.raises(ValueError, match="memory recent recalls no turns, but 3 were requested"):
        chosen_memory("recent", 3)


LINES = st.lists(
    st.builds(
        text,
        st.sampled_from(["run", "run with a red scarf", "run with the scarf", "see the blue car", "see the car"]),
        st.sampled_from(["day beach", "night castle", "the old kitchen"]),
        st.sampled_from(["Miko", "Taro", "Miko, Taro"]),
    ),
    max_size=30,
)


@given(LINES, st.integers(0, 8), st.integers(1, 5), st.booleans(), st.booleans())
def test_recalled_turns_fit_the_window_and_the_last_turn_stays(lines, window, most, opened, stored):
    session = played(lines, window, most, PLAIN if opened else None)
    asking = text("run with the scarf", "night castle")
    recalled = session.recall(asking, stored)
    past = session.past(recalled)
    numbers = [turn.number for turn in past]
    assert numbers == sorted(set(numbers)) and len(past) == min(window, len(session.turns))
    assert len(recalled) <= most and numbers[: len(recalled)] == list(recalled)
    assert not recalled or recalled[-1] < numbers[len(recalled)] - 1, "the form of a choice is unique"
    assert not past or past[-1] is session.turns[-1]
    assert stored or all(turn.state.representation is not None for turn in past)


@given(LINES, st.data())
def test_a_game_that_was_rewound_recalls_as_one_that_was_played_anew(lines, data):
    """The index that grows with a game equals the one that is made from its turns."""
    session = played(lines)
    session.recall(PLAIN)
    for number in range(3):
        session = session.step(text(f"run with the car {number}"), GameState(torch.zeros(2, 3), 3))
    assert session._seen == Seen.of((turn.number, turn.instruction) for turn in session.turns)
    back = session.rewind(data.draw(st.integers(0, len(lines))))
    assert back._seen == played(lines[: len(back.turns)])._seen
