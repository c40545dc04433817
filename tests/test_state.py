from dataclasses import FrozenInstanceError
from unicodedata import is_normalized

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from animegamer_core.game.life import PUBLISHED_RULES
from animegamer_core.game.state import (
    MOTION_TABLES,
    GameSession,
    GameState,
    Instruction,
    MotionScope,
    MotionTable,
    clean_text,
    scope_name,
)


def state(motion=3, social=1, entertainment=0, stamina=-1):
    return GameState(torch.zeros(8, 32), motion, {"social": social, "entertainment": entertainment, "stamina": stamina})


def played(turns, window=4):
    session = GameSession(window=window)
    for number in range(turns):
        session = session.step(f"turn {number + 1}", state(), seed=number)
    return session


def test_motion_scopes_have_names_and_numbers():
    for text, scope in (("fast", 4), ("WILD", 5), ("1", 1), (2, 2), (" brisk ", 3)):
        assert MotionScope.parse(text) == scope
    for text in ("", "0", "6", "fastest", "3.0"):
        with pytest.raises(ValueError, match="choose still"):
            MotionScope.parse(text)
    words = ["unread", "still", "gentle", "brisk", "fast", "wild", "unread"]
    assert [scope_name(motion) for motion in range(7)] == words


def test_levels_of_a_measured_table():
    assert MOTION_TABLES["released"].value(0) == MOTION_TABLES["released"].value(-3) == 40
    own = MotionTable("own", (0.5, 1.5, 2.5, 3.5, 4.5), (1.0, 2.0, 3.0, 4.0))
    assert [own.level(value) for value in (0.9, 2.0, 2.1, 9.0)] == [1, 2, 3, 5]
    with pytest.raises(ValueError, match="no measured edges"):
        MOTION_TABLES["released"].level(3.0)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.sampled_from((-1, 1))), max_size=60))
def test_stats_change_in_fives_and_stay_in_range(changes):
    values = PUBLISHED_RULES.start
    for units in changes:
        following = PUBLISHED_RULES.after(values, dict(zip(PUBLISHED_RULES.names, units, strict=True)))
        assert all(0 <= value <= 100 and abs(value - values[name]) in (0, 5) for name, value in following.items())
        values = following
    with pytest.raises(ValueError, match="social is 101"):
        GameSession(opening={"social": 101})


@given(turns=st.integers(0, 30), window=st.integers(0, 25))
def test_the_window_is_the_last_k_turns_with_their_representations(turns, window):
    past = played(turns, window).past()
    assert [turn.number for turn in past] == list(range(max(1, turns - window + 1), turns + 1))
    assert all(turn.state.representation is not None for turn in past)


def test_rewinding_leaves_two_futures():
    session = played(4)
    other = session.rewind(2).step("another way", state(stamina=1))
    assert [turn.instruction for turn in other.turns] == ["turn 1", "turn 2", "another way"]
    assert len(session.turns) == 4
    assert other.character["stamina"] == 45 and session.character["stamina"] == 30
    with pytest.raises(FrozenInstanceError):
        session.window = 9
    for number in (-1, 5):
        with pytest.raises(ValueError, match="turns 1 to 4"):
            session.rewind(number)


@given(st.text())
@example("cafe\u0301")
def test_cleaned_text_is_one_plain_line(text):
    cleaned = clean_text(text)
    assert "<" not in cleaned and ">" not in cleaned
    assert cleaned == " ".join(cleaned.split()) == clean_text(cleaned)
    assert cleaned.isprintable() and is_normalized("NFC", cleaned)


def test_a_composed_instruction_needs_all_parts():
    whole = Instruction(("Pazu",), "talk", "street")
    assert whole.checked() is whole
    for broken, word in (
        (Instruction((), "talk", "street"), "character"),
        (Instruction(("Pazu",), " ", "street"), "motion"),
        (Instruction(("Pazu",), "talk", ""), "place"),
        (Instruction(("Pazu",), "talk; Background: moon", "street"), "motion"),
    ):
        with pytest.raises(ValueError, match=f"the {word} is"):
            broken.checked()
