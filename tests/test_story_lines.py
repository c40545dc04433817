"""Lines of a story, stories in a folder, openings and the lock."""

import itertools
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_story import WORLD, Teller, files, predicted, told

from animegamer_core.index import story_names
from animegamer_core.lines import Line, LineEntry
from animegamer_core.shelf import ShotKey, StateKey, address_of, opening_address, with_opening_address
from animegamer_core.state import KEPT_TURNS, CharacterState, GameSession, GameState
from animegamer_core.story import Story

ROOT = Path(__file__).parent.parent


def opened(root, name="tale"):
    return Story.open(root, name, "test", WORLD)


def shot_of(story, address, seed=0):
    key = ShotKey(WORLD, address, seed, 2.5, 4, "cosine", "float32")
    story.shots.put(key, ".mp4", {}, lambda path: path.write_text(f"clip of {address} {seed}"))
    return address_of(key)


def states(story):
    return [entry.state for entry in story.entries]


# Stories in a folder


def test_opening_a_story_writes_nothing(tmp_path):
    story = opened(tmp_path)
    assert story.session(0, 2).turns == () and story.clips() == {}
    story.settle(0)
    assert list(tmp_path.iterdir()) == []


def test_a_story_is_read_without_knowing_its_world(tmp_path):
    Teller(tmp_path).play(["one", "two"])
    before = files(tmp_path)
    story = Story.read(tmp_path, "tale")
    assert (story.name, story.world_name, story.fingerprint, told(story)) == ("tale", "test", WORLD, ["one", "two"])
    assert files(tmp_path) == before


@pytest.mark.parametrize("name, named", [("tail", "did you mean 'tale'?"), ("zzzz", "there are 'other', 'tale'")])
def test_a_story_that_is_not_there_lists_those_that_are(tmp_path, name, named):
    Teller(tmp_path).play(["one"])
    Teller(tmp_path, name="other").play(["one"])
    with pytest.raises(ValueError) as error:
        Story.read(tmp_path, name)
    assert named in str(error.value) and not (tmp_path / name).exists()


def test_where_there_is_no_story_none_is_named(tmp_path):
    with pytest.raises(ValueError, match="none was begun there yet"):
        Story.read(tmp_path / "nowhere", "tale")


def test_stories_are_listed_last_played_first_without_other_folders(tmp_path):
    for number, name in enumerate(["first", "second", "third"]):
        Teller(tmp_path, name=name).play(["one"])
        for path in (tmp_path / name).rglob("*"):
            os.utime(path, (number, number))
    (tmp_path / "runs").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "story.json").write_text("{")
    assert story_names(tmp_path) == ["third", "second", "first"]
    (tmp_path / "first" / "lines" / "main.jsonl").touch()
    assert story_names(tmp_path) == ["first", "third", "second"]


def test_a_version_changes_with_every_turn_and_line_and_not_by_reading(tmp_path):
    seen = []
    for after, instructions in ((0, ["one", "two"]), (2, ["three"]), (1, ["other"])):
        Teller(tmp_path, after).play(instructions)
        seen.append(opened(tmp_path).version())
        assert Teller(tmp_path, after).play([]).story.version() == seen[-1]
    assert len(set(seen)) == 3


# Lines


def test_another_line_goes_on_from_one_of_its_turns(tmp_path):
    Teller(tmp_path).play(["one", "two", "three"])
    Teller(tmp_path, after=1).play(["other"])
    story = opened(tmp_path)
    assert story.lines() == ["main", "line-2"] and story.line == "line-2"
    story.use("main")
    assert told(story) == ["one", "two", "three"] and opened(tmp_path).line == "line-2"
    turn = story.session(3, 2).turns[-1]
    story.enter(turn, story.entries[2].shot)
    back = opened(tmp_path)
    assert back.line == "main" and told(back) == ["one", "two", "three"]
    for entry, clip in zip(back.entries, back.clips().values(), strict=True):
        assert clip.read_text() == f"clip of {entry.state} 0"


def test_playing_the_same_games_again_makes_no_further_line(tmp_path):
    lines = []
    for _ in range(3):
        for game in (["one"], ["one", "two"]):
            story = Teller(tmp_path).play(game).story
            story.settle(len(game))
            assert told(opened(tmp_path)) == game
        lines.append(story.lines())
    assert lines == [["main"], *[["main", "line-2"]] * 2]


def test_a_line_that_ends_where_another_turn_branches_off_goes_on_with_it(tmp_path):
    teller = Teller(tmp_path).play(["one", "two", "three"])
    teller.story.settle(1)
    story = opened(tmp_path)
    assert (story.line, told(story)) == ("line-2", ["one"])
    story.use("main")
    undrawn(story, story.session(1, 2), "other")
    assert (story.line, story.lines(), told(story)) == ("line-2", ["main", "line-2"], ["one", "other"])


def test_a_line_of_many_turns_is_read_at_once(tmp_path):
    entry = LineEntry("0" * 64, "1" * 64, 0)
    line = Line(tmp_path / "main.jsonl")
    line.append(entry, {"instruction": "one"})
    line.path.write_bytes(line.path.read_bytes() * 20_000)
    begun = time.process_time()
    assert len(Line(line.path).entries) == 20_000
    assert time.process_time() - begun < 3, "seconds; a tenth on a quiet machine"


def test_a_damaged_line_keeps_nobody_from_branching_off_another(tmp_path):
    Teller(tmp_path).play(["one", "two"])
    Teller(tmp_path, after=1).play(["other"])
    damaged = tmp_path / "tale" / "lines" / "main.jsonl"
    text = damaged.read_text().replace('"seed": 0', '"seed": "0"', 1)
    damaged.write_text(text)
    Teller(tmp_path, after=1).play(["third"])
    assert opened(tmp_path).line == "line-3" and told(opened(tmp_path)) == ["one", "third"]
    assert damaged.read_text() == text


def test_lines_are_listed_in_the_order_in_which_they_began(tmp_path):
    Teller(tmp_path).play(["one"])
    for number in range(11):
        Teller(tmp_path).play([f"other {number}"])
    assert opened(tmp_path).lines() == ["main", *(f"line-{number}" for number in range(2, 13))]


@pytest.mark.parametrize("line", ["line-2", "nope", "../main", "main/../main", ""])
def test_a_line_that_is_not_there_is_refused(tmp_path, line):
    Teller(tmp_path).play(["one"])
    with pytest.raises(ValueError, match="its lines are main"):
        opened(tmp_path).use(line)


def undrawn(story, session, *instructions):
    """The session after these turns, whose states the story has and whose shots it has not."""
    for instruction in instructions:
        parent = session.turns[-1].address if session.turns else None
        key = StateKey(WORLD, parent, instruction, 2, "paper", "float32")
        address = story.put_state(key, predicted(address_of(key)))
        session = session.step(instruction, predicted(address), 0, address)
        story.enter(session.turns[-1], None)
    return session


def test_a_line_that_is_gone_back_to_gets_the_shots_that_it_lacks(tmp_path):
    story = opened(tmp_path)
    first = undrawn(story, GameSession((), 2), "one", "two")
    other = undrawn(story, first.rewind(1), "other")
    assert story.line == "line-2"
    story.use("main")
    shot = shot_of(story, first.turns[0].address)
    story.enter(first.turns[0], shot)
    story.enter(other.turns[1], None)
    assert story.line == "line-2" and [entry.shot for entry in story.entries] == [shot, None]
    back = opened(tmp_path)
    assert back.entries == story.entries and [clip.name for clip in back.clips().values()] == ["turn-001.mp4"]
    assert states(back) == [turn.address for turn in other.turns] and told(back) == ["one", "other"]


def test_a_line_that_was_filled_is_appended_to_where_it_ends(tmp_path):
    turns = [LineEntry(f"{number:064x}", f"{number + 9:064x}", number) for number in range(3)]
    undrawn, drawn = Line(tmp_path / "main.jsonl"), Line(tmp_path / "line-2.jsonl")
    for turn in turns[:2]:
        undrawn.append(replace(turn, shot=None), {})
        drawn.append(turn, {"instruction": "one"})
    undrawn.fill(drawn, 2)
    assert undrawn.entries == turns[:2]
    undrawn.append(turns[2], {})
    assert Line(undrawn.path).entries == undrawn.entries == turns


def test_a_line_goes_a_way_that_it_holds_whole(tmp_path):
    turns = [LineEntry(f"{number:064x}", f"{number + 9:064x}", number) for number in range(3)]
    line = Line(tmp_path / "main.jsonl")
    for turn in turns[:2]:
        line.append(turn, {})
    assert [line.goes(turns[:count]) for count in range(4)] == [True, True, True, False]
    assert line.goes([turns[0], replace(turns[1], shot=None)]), "a turn without a shot is any shot of its state"
    assert not line.goes([turns[0], replace(turns[1], shot="e" * 64)])
    assert not line.goes([turns[0], replace(turns[1], state="e" * 64, shot=None)])


@pytest.mark.parametrize("count, filled", [(1, [True, False, False]), (3, [True, True, False])])
def test_a_line_takes_shots_of_its_own_states_only_and_of_no_later_turn(count, filled, tmp_path):
    turns = [LineEntry(f"{number:064x}", f"{number + 9:064x}", number) for number in range(3)]
    undrawn, drawn = Line(tmp_path / "main.jsonl"), Line(tmp_path / "line-2.jsonl")
    for turn in turns:
        drawn.append(turn, {})
        undrawn.append(replace(turn, shot=None), {})
    undrawn.rewrite(2, LineEntry("f" * 64, None, 2), {})
    undrawn.fill(drawn, count)
    assert [entry.shot is not None for entry in undrawn.entries] == filled
    assert Line(undrawn.path).entries == undrawn.entries


def test_a_shot_fills_the_turn_that_was_kept_without_one(tmp_path):
    story = opened(tmp_path)
    session = undrawn(story, GameSession((), 2), "one", "two", "three")
    shot = shot_of(story, session.turns[1].address)
    assert story.enter(session.turns[1], shot).name == "turn-002.mp4"
    story.enter(session.turns[1], None)
    back = opened(tmp_path)
    assert [entry.shot for entry in back.entries] == [None, shot, None] and back.lines() == ["main"]
    assert states(back) == [turn.address for turn in session.turns] and told(back) == ["one", "two", "three"]


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(4)), st.permutations(range(4)))
def test_turns_may_be_kept_in_any_order(tmp_path_factory, first, second):
    """Each keeps its shot, and enters the states before it, as the nodes of one graph do."""
    teller = Teller(tmp_path_factory.mktemp("played")).play(["one", "two", "three", "four"])
    turns = teller.session.turns
    story = opened(tmp_path_factory.mktemp("kept"))
    for turn in turns:
        parent = turns[turn.number - 2].address if turn.number > 1 else None
        story.put_state(StateKey(WORLD, parent, turn.instruction, 2, "paper", "float32"), turn.state)
    for index in itertools.chain(first, second):
        for turn in turns[:index]:
            story.enter(turn, None)
        story.enter(turns[index], shot_of(story, turns[index].address), keep_later=True)
    assert story.entries == teller.story.entries and story.lines() == ["main"]


def test_another_take_keeps_the_turns_after_it_where_asked(tmp_path):
    teller = Teller(tmp_path).play(["one", "two", "three"])
    story, turn = teller.story, teller.session.turns[1]
    before = list(story.entries)
    story.enter(turn, shot_of(story, turn.address, 7), keep_later=True)
    assert states(story) == [entry.state for entry in before] and story.line == "line-2"
    assert [one == other for one, other in zip(story.entries, before, strict=True)] == [True, False, True]
    assert story.clips()[2].read_text() == f"clip of {turn.address} 7"
    story.enter(turn, before[1].shot, keep_later=True)
    assert story.line == "main" and story.entries == before
    story.enter(turn, shot_of(story, turn.address, 8))
    assert len(story.entries) == 2 and story.lines() == ["main", "line-2", "line-3"]


def test_a_turn_of_another_state_does_not_land_before_turns_that_followed_another_one(tmp_path):
    """The later turns were predicted from the state that it replaces, so they stay in their own branch."""
    teller = Teller(tmp_path).play(["one", "two", "three"])
    story, before = teller.story, list(teller.story.entries)
    other = Teller(tmp_path / "elsewhere").play(["one", "other"])
    turn = other.session.turns[1]
    story.put_state(StateKey(WORLD, before[0].state, "other", 2, "paper", "float32"), turn.state)
    shot = shot_of(story, turn.address)
    for _ in range(2):  # the second time it finds its branch
        story.use("main")
        story.enter(turn, shot, keep_later=True)
        assert (story.line, story.lines()) == ("line-2", ["main", "line-2"])
        assert states(story) == [before[0].state, turn.address] and told(story) == ["one", "other"]
    story.use("main")
    assert story.entries == before and told(story) == ["one", "two", "three"]


# How a game begins


def picture(value=1.0):
    return GameState.of_picture(torch.full((2, 3), value))


def begun(story, session, instruction="one"):
    session = story.put_opening(session)
    key = StateKey(WORLD, opening_address(WORLD, session), instruction, session.window, "paper", "float32")
    address = address_of(key)
    story.put_state(key, predicted(address))
    session = session.step(instruction, predicted(address), 0, address)
    story.enter(session.turns[-1], None)
    return session


def test_an_opening_comes_back_with_its_picture_and_gauges(tmp_path):
    opening = GameSession((), 2, CharacterState(10, 20, 95)).open_with("Miko waves", picture())
    session = begun(opened(tmp_path), opening)
    story = opened(tmp_path)
    back = story.held(story.session(1, 2))
    assert back.opening == CharacterState(10, 20, 95) and back.character == session.character
    assert [turn.number for turn in back.turns] == [0, 1] and back.turns[0].instruction == "Miko waves"
    assert torch.equal(back.turns[0].state.representation, picture().representation)
    assert story.session(0, 2).turns[0].number == 0 and len(story.entries) == 1


def test_gauges_alone_are_an_opening(tmp_path):
    begun(opened(tmp_path), GameSession((), 2, CharacterState(10, 20, 95)))
    back = opened(tmp_path).session(1, 2)
    assert back.opening == CharacterState(10, 20, 95) and back.turns[0].number == 1


def test_every_part_of_an_opening_is_in_its_address():
    plain = GameSession()
    openings = [plain.open_with("waves", picture()), plain.open_with("runs", picture())]
    openings += [plain.open_with("waves", picture(2.0)), GameSession(opening=CharacterState(51, 50, 50))]
    openings += [openings[-1].open_with("waves", picture())]
    addresses = [opening_address(WORLD, session) for session in openings]
    assert len(set(addresses)) == 5 and None not in addresses and opening_address(WORLD, plain) is None
    assert opening_address("0" * 64, openings[0]) != addresses[0]
    assert opening_address("0" * 64, with_opening_address(WORLD, openings[0])) != addresses[0], "rewound, another world"
    assert opening_address(WORLD, replace(openings[0], window=9)) == addresses[0]


def test_games_of_different_openings_are_lines_of_one_story(tmp_path):
    first, second = (GameSession((), 2).open_with("waves", picture(value)) for value in (1.0, 2.0))
    begun(opened(tmp_path), first)
    begun(opened(tmp_path), second)
    story = opened(tmp_path)
    assert story.lines() == ["main", "line-2"]
    assert story.session(1, 2).turns[0].address == opening_address(WORLD, second)
    story.use("main")
    assert story.session(1, 2).turns[0].address == opening_address(WORLD, first)


def test_a_session_holds_the_representations_of_its_last_turns(tmp_path):
    teller = Teller(tmp_path).play([str(number) for number in range(KEPT_TURNS + 3)])
    story = teller.story
    for window in (2, KEPT_TURNS + 2):
        session = story.held(story.session(KEPT_TURNS + 3, window))
        held = [turn.number for turn in session.turns if turn.state.representation is not None]
        assert held == list(range(KEPT_TURNS + 4 - max(KEPT_TURNS, window), KEPT_TURNS + 4))


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_line_whose_file_went_while_it_was_open_is_not_written_with_a_hole(spoil, tmp_path):
    line = Line(tmp_path / "lines" / "main.jsonl")
    line.append(LineEntry("a" * 64, None, 1), {})
    spoil(line.path)
    with pytest.raises(ValueError, match="removed or cut short while its story was open"):
        line.append(LineEntry("b" * 64, None, 2), {})
    assert not line.path.exists() or not line.path.read_bytes()
