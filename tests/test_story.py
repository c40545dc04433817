import itertools
import json
import os
import shutil
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from animegamer_core.shelf import ShotKey, StateKey, address_of
from animegamer_core.state import CharacterState, GameSession, GameState, StateChange
from animegamer_core.story import Story

WORLD = "f" * 64


class Teller:
    """Plays without models: a state follows from its key, a clip from its shot's key. Counts what is computed."""

    def __init__(self, root, after=0, name="tale"):
        self.story = Story.open(root, name, "test", WORLD)
        self.session = self.story.session(after, 2)
        self.computed = []

    def step(self, instruction, seed=0):
        turns = self.session.turns
        key = StateKey(WORLD, turns[-1].address if turns else None, instruction, 2, "paper", "float32")
        address = address_of(key)
        state = self.story.find_state(address)
        if state is None:
            state = predicted(address)
            self.story.put_state(key, state)
            self.computed.append(address)
        shot = ShotKey(WORLD, address, seed, 2.5, 4, "cosine", "float32")
        if self.story.shots.find(address_of(shot)) is None:
            self.story.shots.put(shot, ".mp4", {}, lambda path: path.write_text(f"clip of {address} {seed}"))
            self.computed.append(address_of(shot))
        session = self.session.step(instruction, state, seed, address)
        self.story.enter(session.turns[-1], address_of(shot))
        self.session = session

    def play(self, instructions):
        for instruction in instructions:
            self.step(instruction)
        return self


def predicted(address):
    """A state that only its address decides."""
    number = int(address[:12], 16)
    change = StateChange(number % 2, number // 2 % 2, 1 if number % 3 else -1)
    return GameState(torch.full((2, 3), float(number % 97)), 1 + number % 5, change, (number % 5, None, 1, -1))


def told(story):
    return [turn.instruction for turn in story.session(len(story.entries), 2).turns]


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_story_gives_back_the_turns_that_it_was_told(tmp_path):
    teller = Teller(tmp_path).play(["one", "two \u96ea", "three"])
    back = Story.open(tmp_path, "tale", "test", WORLD).session(3, 2)
    assert [replace(t, state=replace(t.state, representation=None)) for t in teller.session.turns] == list(back.turns)
    assert back.window == 2 and back.character == teller.session.character


def test_a_turn_that_was_let_go_is_recalled_by_its_address(tmp_path):
    teller = Teller(tmp_path).play(["one", "two"])
    story = Story.open(tmp_path, "tale", "test", WORLD)
    for kept, gone in zip(teller.session.turns, story.session(2, 2).turns, strict=True):
        assert gone.state.representation is None
        assert torch.equal(story.recall(gone).state.representation, kept.state.representation)
        assert story.recall(kept) is kept


def test_what_is_recalled_lets_go_of_its_file(tmp_path):
    """As Windows asks of whoever deletes or replaces it."""
    kept = Teller(tmp_path).play(["one"]).session.turns[0]
    story = Story.open(tmp_path, "tale", "test", WORLD)
    read = story.recall(story.session(1, 1).turns[0]).state.representation
    path = story.states.path(kept.address)
    path.write_bytes(bytes(path.stat().st_size))  # in place, as a view would show
    assert torch.equal(read, kept.state.representation)


def test_the_clips_of_the_line_have_names_for_people(tmp_path):
    Teller(tmp_path).play(["one", "two"])
    story = Story.open(tmp_path, "tale", "test", WORLD)
    assert {number: clip.name for number, clip in story.clips().items()} == {1: "turn-001.mp4", 2: "turn-002.mp4"}
    for entry, clip in zip(story.entries, story.clips().values(), strict=True):
        assert clip.read_text() == f"clip of {entry.state} 0"


def test_a_known_turn_is_never_computed_again(tmp_path):
    assert len(Teller(tmp_path).play(["one", "two"]).computed) == 4
    assert Teller(tmp_path).play(["one", "two"]).computed == []
    assert len(Teller(tmp_path).play(["one", "two", "three"]).computed) == 2
    assert len(Teller(tmp_path).play(["one", "other", "three"]).computed) == 4  # another past is another turn


def test_a_take_with_another_seed_is_another_shot_of_the_same_state(tmp_path):
    teller = Teller(tmp_path).play(["one"])
    other = Teller(tmp_path)
    other.step("one", seed=5)
    assert other.computed == [other.story.entries[0].shot]
    assert other.story.entries[0].state == teller.story.entries[0].state


def test_branching_keeps_the_old_line(tmp_path):
    Teller(tmp_path).play(["one", "two", "three"])
    Teller(tmp_path, after=1).play(["other"])
    story = Story.open(tmp_path, "tale", "test", WORLD)
    assert (story.line, told(story)) == ("line-2", ["one", "other"])
    assert [clip.name for clip in sorted(story.folder.glob("turn-*"))] == ["turn-001.mp4", "turn-002.mp4"]
    again = Teller(tmp_path).play(["one", "two", "three"])
    assert (again.story.line, again.computed) == ("main", [])
    assert len(list((story.folder / "lines").iterdir())) == 2


def test_settling_early_keeps_the_rest_as_another_line(tmp_path):
    teller = Teller(tmp_path).play(["one", "two", "three"])
    teller.story.settle(2)
    story = Story.open(tmp_path, "tale", "test", WORLD)
    assert told(story) == ["one", "two"] and not (story.folder / "turn-003.mp4").exists()
    story.settle(2)
    assert sorted(path.stem for path in (story.folder / "lines").iterdir()) == ["line-2", "main"]
    assert Teller(tmp_path).play(["one", "two", "three"]).computed == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.lists(st.sampled_from("abc"), min_size=1, max_size=4)), max_size=7))
def test_any_order_of_branches_tells_the_right_story_and_computes_nothing_twice(tmp_path_factory, moves):
    root, computed, line = tmp_path_factory.mktemp("story"), [], []
    lines = []
    for start, instructions in moves:
        after = start % (len(line) + 1)
        teller = Teller(root, after).play(instructions)
        teller.story.settle(len(teller.session.turns))
        computed += teller.computed
        line = [*line[:after], *instructions]
        lines.append(line)
        assert told(Story.open(root, "tale", "test", WORLD)) == line
    assert len(computed) == len(set(computed))
    for line in lines:  # whatever was told can be told again without computing
        assert Teller(root).play(line).computed == []


class Crash(BaseException):
    """Stands for a process that ends at once."""


def test_a_crash_at_any_write_loses_at_most_the_turn_in_progress(tmp_path, monkeypatch):
    plain = tmp_path / "plain"
    Teller(plain).play(["one", "two"])
    Teller(plain, after=1).play(["other", "three"])
    survived, whole = 0, False
    while not whole:
        root, left = tmp_path / str(survived), survived
        with monkeypatch.context() as patch:
            _crash_after(patch, left)
            try:
                Teller(root).play(["one", "two"])
                Teller(root, after=1).play(["other", "three"])
                whole = True
            except Crash:
                pass
        teller = Teller(root).play(["one", "two"])
        Teller(root, after=1).play(["other", "three"])
        wanted = files(plain / "tale")
        assert {name: files(root / "tale")[name] for name in wanted} == wanted, f"crash before write {survived}"
        survived += 1
    assert survived > 25 and teller.session.turns


def _crash_after(patch, writes):
    """Let so many moves and links happen, then crash in place of the next."""
    left = [writes]

    def counted(real):
        def call(*args, **kwargs):
            if not left[0]:
                raise Crash
            left[0] -= 1
            return real(*args, **kwargs)

        return call

    for name in ("replace", "link", "fsync"):
        patch.setattr(os, name, counted(getattr(os, name)))


def test_a_line_torn_anywhere_keeps_its_whole_entries(tmp_path):
    Teller(tmp_path / "whole").play(["one", "two \u96ea", "three"])
    path = "tale/lines/main.jsonl"
    text = (tmp_path / "whole" / path).read_bytes()
    for length in range(0, len(text), 7):
        root = tmp_path / str(length)
        shutil.copytree(tmp_path / "whole", root)
        (root / path).write_bytes(text[:length])
        story = Story.open(root, "tale", "test", WORLD)
        assert len(story.entries) == text[:length].count(b"\n")
        Teller(root).play(["one", "two \u96ea", "three"])
        assert (root / path).read_bytes() == text


@pytest.mark.parametrize(
    "index, damage", [(1, "blank"), *itertools.product((1, 3), ("seed", "text", "deep", "return"))]
)
def test_a_damaged_line_is_refused_by_its_number_and_no_turn_is_lost(tmp_path, index, damage):
    Teller(tmp_path).play(["one", "two", "three", "four"])
    path = tmp_path / "tale" / "lines" / "main.jsonl"
    texts = path.read_bytes().splitlines(keepends=True)
    damages = {"seed": texts[index].replace(b'"seed": 0', b'"seed": "0"'), "text": b"\xff\n", "blank": b"\n"}
    damages |= {"deep": b"[" * 100_000 + b"\n", "return": texts[index][:9] + b"\r" + texts[index]}
    whole, texts[index] = path.read_bytes(), damages[damage]
    path.write_bytes(b"".join(texts))
    before = files(tmp_path)
    with pytest.raises(ValueError, match=rf"main\.jsonl:{index + 1}: not a turn.*go on after turn {index}"):
        Teller(tmp_path, after=1)
    assert files(tmp_path) == before
    path.write_bytes(b"".join(texts[:index]))  # as the sentence says
    assert Teller(tmp_path).play(["one", "two", "three", "four"]).computed == [] and path.read_bytes() == whole


def test_blank_lines_that_an_editor_left_at_the_end_are_no_turns(tmp_path):
    Teller(tmp_path).play(["one"])
    path = tmp_path / "tale" / "lines" / "main.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b"\n  \n\n")
    Teller(tmp_path, after=1).play(["two"])
    assert path.read_bytes().startswith(whole) and len(path.read_bytes().split(b"\n")) == 3


@pytest.mark.parametrize(
    "shelf, suffix", [("turns", ".safetensors"), ("turns", ".json"), ("shots", ".mp4"), ("shots", ".json")]
)
@pytest.mark.parametrize("damage", ["gone", "torn", "flipped", "foreign"])
def test_a_damaged_file_is_noticed_and_made_anew(tmp_path, shelf, suffix, damage):
    teller = Teller(tmp_path).play(["one", "two"])
    before = files(tmp_path)
    entry = teller.story.entries[1]
    address, content_suffix = (entry.state, ".safetensors") if shelf == "turns" else (entry.shot, ".mp4")
    path = tmp_path / "tale" / shelf / f"{address}{suffix or content_suffix}"
    content = path.read_bytes()
    path.unlink()
    if damage == "torn":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        path.write_bytes(content[:-9] + bytes(255 - byte for byte in content[-9:]))
    elif damage == "foreign":
        path.write_bytes(json.dumps({"key": {}, "suffix": "/../../x"}).encode())
    again = Teller(tmp_path).play(["one", "two"])
    assert len(again.computed) == 1
    assert files(tmp_path) == before


def test_a_damaged_representation_is_told_in_one_sentence(tmp_path):
    lost = Teller(tmp_path).play(["one", "two"]).story.entries[1].state
    path = tmp_path / "tale" / "turns" / f"{lost}.safetensors"
    path.write_bytes(b"\xff" * path.stat().st_size)
    story = Story.open(tmp_path, "tale", "test", WORLD)
    with pytest.raises(ValueError, match=f"turn {lost[:12]}.*missing or damaged; play the game's file again"):
        story.held(story.session(2, 2))


def test_a_record_under_another_address_is_not_believed(tmp_path):
    teller = Teller(tmp_path).play(["one", "two"])
    first, second = (entry.state for entry in teller.story.entries)
    folder = tmp_path / "tale" / "turns"
    for suffix in (".json", ".safetensors"):
        shutil.copyfile(folder / f"{first}{suffix}", folder / f"{second}{suffix}")
    assert teller.story.find_state(first) is not None
    assert teller.story.find_state(second) is None


def test_a_line_with_a_lost_turn_says_so(tmp_path):
    teller = Teller(tmp_path).play(["one", "two"])
    lost = teller.story.entries[0].state
    (tmp_path / "tale" / "turns" / f"{lost}.json").unlink()
    with pytest.raises(ValueError, match=f"{lost[:12]}.*play the game's file again"):
        Teller(tmp_path, after=2)


@pytest.mark.parametrize("damage", [b"", b"[" * 100_000])
def test_a_lost_first_turn_is_played_anew_unless_nobody_knows_how_its_game_began(tmp_path, damage):
    teller = Teller(tmp_path).play(["one", "two"])
    before, record = files(tmp_path), tmp_path / "tale" / "turns" / f"{teller.story.entries[0].state}.json"
    record.write_bytes(damage)
    assert Teller(tmp_path).play(["one", "two"]).computed == [record.stem]
    assert files(tmp_path) == before
    teller.story.put_opening(GameSession((), 2, CharacterState(stamina=10)))
    record.write_bytes(damage)
    with pytest.raises(ValueError, match=f"{record.stem[:12]}.*missing or damaged"):
        Teller(tmp_path)


def test_another_worlds_story_is_refused_by_name(tmp_path):
    Teller(tmp_path).play(["one"])
    with pytest.raises(ValueError, match="story 'tale' was played in world 'test'.*this is 'qiqi'"):
        Story.open(tmp_path, "tale", "qiqi", "0" * 64)


@pytest.mark.parametrize(
    "index, named",
    [
        ("{", "not the index of a story"),
        ("[]", "not the index of a story"),
        ('{"format": 1}', "not the index of a story"),
        ('{"format": 1, "world": {"name": "test", "fingerprint": "f"}, "line": "../x"}', "not the index of a story"),
        (
            '{"format": 2, "world": {"name": "test", "fingerprint": "f"}, "line": "main"}',
            "format 2, this program reads 1",
        ),
    ],
)
def test_a_foreign_or_newer_index_is_refused(tmp_path, index, named):
    Teller(tmp_path).play(["one"])
    (tmp_path / "tale" / "story.json").write_text(index)
    with pytest.raises(ValueError, match=named):
        Teller(tmp_path)


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "tale").mkdir()
    (tmp_path / "tale" / "turn-001.mp4").write_text("a holiday")
    with pytest.raises(ValueError, match="holds other files"):
        Teller(tmp_path)
    assert files(tmp_path) == {"tale/turn-001.mp4": b"a holiday"}


@given(
    st.integers(-(2**63), 2**64), st.floats(0, 999), st.sampled_from(["seed", "motion", "steps", "guidance", "state"])
)
def test_every_field_of_a_key_is_in_its_address(seed, motion, field):
    key = ShotKey(WORLD, "a" * 64, seed, motion, 4, "cosine", "float32")
    other = {"seed": seed + 1, "motion": motion + 1, "steps": 5, "guidance": "constant", "state": "b" * 64}
    assert address_of(key) == address_of(replace(key))
    assert address_of(key) != address_of(replace(key, **{field: other[field]}))


def test_a_turn_without_a_shot_can_be_told(tmp_path):
    story = Story.open(tmp_path, "tale", "test", WORLD)
    key = StateKey(WORLD, None, "one", 2, "paper", "float32")
    state = predicted(address_of(key))
    session = GameSession().step("one", state, 0, story.put_state(key, state))
    assert story.enter(session.turns[0], None) is None
    assert Story.open(tmp_path, "tale", "test", WORLD).clips() == {}
    assert told(Story.open(tmp_path, "tale", "test", WORLD)) == ["one"]


def test_a_story_has_no_turns_to_come(tmp_path):
    Teller(tmp_path).play(["one"])
    with pytest.raises(ValueError, match="1 turns in its line 'main'; cannot go on after turn 2"):
        Teller(tmp_path, after=2)
