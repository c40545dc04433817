"""Stories in a folder, their branches, and openings."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_story import WORLD, StubPlayer, predicted, texts

from animegamer_core.game.life import STATS, Rules
from animegamer_core.game.state import GameSession, GameState, OpeningClip
from animegamer_core.media.video import write_clip
from animegamer_core.story.film import export_film
from animegamer_core.story.folder import story_names
from animegamer_core.story.story import Story
from animegamer_core.story.turn import ShotKey, StateKey, address_of, opening_address, with_opening_address


def opened(root, name="tale"):
    return Story.open(root, name, "test", WORLD)


def shot_of(story, address, seed=0):
    key = ShotKey(WORLD, address, seed, 2.5, 4, "cosine", "float32")
    story.shots.put(key, {}, lambda path: path.write_text(f"clip of {address} {seed}"))
    return address_of(key)


def states(story):
    return [entry.state for entry in story.entries]


# Stories in a folder


def test_a_missing_story_lists_the_existing_ones(tmp_path):
    with pytest.raises(ValueError, match="there are no stories yet"):
        Story.read(tmp_path / "nowhere", "tale")
    for name in ("tale", "other"):
        StubPlayer(tmp_path, name=name).play(["one"])
    for name, named in (("tail", "did you mean 'tale'"), ("zzzz", "there are 'other', 'tale'")):
        with pytest.raises(ValueError, match=named):
            Story.read(tmp_path, name)
        assert not (tmp_path / name).exists()


def test_stories_are_listed_last_played_first_without_other_folders(tmp_path):
    for number, name in enumerate(["first", "second", "third"]):
        StubPlayer(tmp_path, name=name).play(["one"])
        for path in (tmp_path / name).rglob("*"):
            os.utime(path, (number, number))
    (tmp_path / "runs" / "story.json").mkdir(parents=True)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "story.json").write_text("{")
    assert story_names(tmp_path) == ["third", "second", "first"]
    (tmp_path / "first" / "story.json").touch()
    assert story_names(tmp_path) == ["first", "third", "second"]


# Branches


def undrawn(story, session, *instructions, **said):
    """The session after these turns, with their states but no shots in the story."""
    for instruction in instructions:
        parent = session.turns[-1].address if session.turns else None
        key = StateKey(WORLD, parent, instruction, 2, "paper", "float32")
        address = story.put_state(key, predicted(address_of(key)))
        session = session.step(instruction, predicted(address), 0, address)
        story.add_turn(session.turns[-1], None, **said)
    return session


def test_a_branch_gets_missing_shots_when_it_becomes_current_again(tmp_path):
    story = opened(tmp_path)
    first = undrawn(story, GameSession((), 2), "one", "two")
    other = undrawn(story, first.rewind(1), "other")
    assert story.branch == "branch-2"
    story.use("main")
    shot = shot_of(story, first.turns[0].address, 7)
    story.add_turn(replace(first.turns[0], seed=7), shot)
    story.add_turn(first.turns[1], shot_of(story, first.turns[1].address))
    story.add_turn(other.turns[1], None)
    assert story.branch == "branch-2" and [(own.shot, own.seed) for own in story.entries] == [(shot, 7), (None, 0)]
    back = opened(tmp_path)
    assert back.entries == story.entries and [clip.name for clip in back.folder.glob("turn-*")] == ["turn-001.mp4"]
    assert states(back) == [turn.address for turn in other.turns] and texts(back) == ["one", "other"]
    (back.shots.folder / f"{shot}.json").unlink()
    back.end_branch(2)
    assert back.clips()[1].is_file(), "the clip of a lost shot stays"


def test_another_take_keeps_later_turns_if_asked(tmp_path):
    player = StubPlayer(tmp_path).play(["one", "two", "three"])
    story, turn = player.story, player.session.turns[1]
    before = list(story.entries)
    story.add_turn(turn, shot_of(story, turn.address, 7), keep_later=True, proposed_by="another")
    assert story.entries[1].proposed_by == "", "a turn keeps who proposed it"
    assert states(story) == [entry.state for entry in before] and story.branch == "branch-2"
    assert [one == other for one, other in zip(story.entries, before, strict=True)] == [True, False, True]
    assert story.clips()[2].read_text() == f"clip of {turn.address} 7"
    story.add_turn(turn, before[1].shot, keep_later=True)
    assert story.branch == "main" and story.entries == before
    story.add_turn(turn, shot_of(story, turn.address, 8))
    assert len(story.entries) == 2 and story.branches() == ["main", "branch-2", "branch-3"]
    story.use("main")
    undrawn(story, player.session.rewind(1), "other", keep_later=True)
    assert len(story.entries) == 2, "what follows another state is not of this game"


# How a game begins


def picture(value=1.0):
    return GameState.of_picture(torch.full((2, 3), value))


def begun(story, session, instruction="one"):
    session = story.put_opening(session)
    key = StateKey(WORLD, opening_address(WORLD, session), instruction, session.window, "paper", "float32")
    address = address_of(key)
    story.put_state(key, predicted(address))
    session = session.step(instruction, predicted(address), 0, address)
    story.add_turn(session.turns[-1], None)
    return session


def test_an_opening_is_read_back_with_its_picture_and_stats(tmp_path):
    stats = {"stamina": 10, "social": 20, "entertainment": 95}
    session = begun(opened(tmp_path), GameSession((), 2, stats).open_with("Miko waves", picture()))
    story = opened(tmp_path)
    back = story.load_session(story.session(1, 2))
    assert back.opening == stats and back.character == session.character
    assert [turn.number for turn in back.turns] == [0, 1] and back.turns[0].instruction == "Miko waves"
    assert torch.equal(back.turns[0].state.representation, picture().representation)
    assert story.session(0, 2).turns[0].number == 0 and len(story.entries) == 1 and story.opening_clip(back) is None
    path = story.openings.path(back.turns[0].address)
    path.write_bytes(bytes(path.stat().st_size))
    story.put_opening(back)
    assert torch.equal(story.read_representation(path.stem), picture().representation), "a damaged one is written anew"
    begun(opened(tmp_path, "plain"), GameSession((), 2, stats))
    plain = opened(tmp_path, "plain").session(1, 2)
    assert plain.opening == stats and plain.turns[0].number == 1


def test_every_part_of_an_opening_is_in_its_address():
    plain = GameSession()
    openings = [plain.open_with("waves", picture()), plain.open_with("runs", picture())]
    rested = GameSession(opening={"stamina": 51, "social": 50, "entertainment": 50})
    openings += [plain.open_with("waves", picture(2.0)), rested, rested.open_with("waves", picture())]
    addresses = [opening_address(WORLD, session) for session in openings]
    assert len(set(addresses)) == 5 and None not in addresses and opening_address(WORLD, plain) is None
    assert opening_address("0" * 64, openings[0]) != addresses[0]
    assert opening_address("0" * 64, with_opening_address(WORLD, openings[0])) != addresses[0], "rewound, another world"
    assert opening_address(WORLD, replace(openings[0], window=9)) == addresses[0]
    assert opening_address(WORLD, replace(plain, rules=Rules(STATS[:2]))) is None, "its world's usual stats"


def test_what_was_written_into_a_record_stays_text(tmp_path):
    text = "one\r\n\n7\n00:00:00,000 --> 00:00:09,000\n\x1b[31m{\\an8}<b>\x00two\u2028\u202ethree"
    story, frames = opened(tmp_path), np.zeros((17, 16, 24, 3), np.uint8)
    opening = GameSession((), 2).open_with(text, picture(), OpeningClip(frames, 8.0))
    turn = begun(story, opening, text).turns[-1]
    key = ShotKey(WORLD, turn.address, 0, 2.5, 4, "cosine", "float32")
    story.add_turn(turn, story.shots.put(key, {}, lambda path: write_clip(path, frames, 8)))
    story = Story.read(tmp_path, "tale")
    assert all(turn.instruction.isprintable() and "<" not in turn.instruction for turn in story.session(1, 2).turns)
    _, subtitles = export_film(story, tmp_path / "film.mp4", subtitles=True, opening=True).files
    lines = subtitles.read_text("utf-8").split("\n")
    assert [line for line in lines if line.isdecimal()] == ["1", "2"], "no caption was put in"
    assert all(line.isprintable() and not set("{}<>") & set(line.replace("-->", "")) for line in lines)
    for fps, clip, difference in ((12.0, frames, "at 12;"), (8.0, frames[:, :8], r"starts with \(24, 8\)")):
        story.put_opening(GameSession((), 2).open_with(text, picture(), OpeningClip(clip, fps)))
        with pytest.raises(ValueError, match=rf"\(24, 16\) pixels at 8 frames per second, .*{difference}"):
            export_film(story, tmp_path / "film.mp4", opening=True)


def test_a_story_that_was_removed_is_not_written_with_a_hole(tmp_path):
    player = StubPlayer(tmp_path).play(["one"])
    (tmp_path / "tale" / "story.json").unlink()
    with pytest.raises(ValueError, match="removed while its story was open"):
        player.step("two")
    assert not (tmp_path / "tale" / "story.json").exists()
