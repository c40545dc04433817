import json
import os
import shutil
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from animegamer_core.game.state import GameSession, GameState
from animegamer_core.story.story import Story
from animegamer_core.story.turn import ShotKey, StateKey, address_of

WORLD = "f" * 64


class StubPlayer:
    """Plays without models: states and clips follow from their keys. `computed` lists what was not known."""

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
            self.story.shots.put(shot, {}, lambda path: path.write_text(f"clip of {address} {seed}"))
            self.computed.append(address_of(shot))
        session = self.session.step(instruction, state, seed, address)
        self.story.add_turn(session.turns[-1], address_of(shot))
        self.session = session

    def play(self, instructions):
        for instruction in instructions:
            self.step(instruction)
        return self


def predicted(address):
    """A state that depends on its address only."""
    number = int(address[:12], 16)
    change = {"social": number % 2, "entertainment": number // 2 % 2, "stamina": 1 if number % 3 else -1}
    return GameState(torch.full((2, 3), float(number % 97)), 1 + number % 5, change, (number % 5, None, 1, -1))


def texts(story):
    return [turn.instruction for turn in story.session(len(story.entries), 2).turns]


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_story_reads_back_its_turns(tmp_path):
    player = StubPlayer(tmp_path).play(["one", "two \u96ea", "three"])
    story = Story.open(tmp_path, "tale", "test", WORLD)
    back = story.session(3, 9)  # each turn keeps its own window
    assert back.window == 9 and back.character == player.session.character
    for kept, gone in zip(player.session.turns, back.turns, strict=True):
        assert gone == replace(kept, state=replace(kept.state, representation=None))
        assert torch.equal(story.load_turn(gone).state.representation, kept.state.representation)
        assert story.load_turn(kept) is kept
    version, again = story.version(), StubPlayer(tmp_path).play(["one"])
    assert story.version() == version, "what is there is not written again"
    index = tmp_path / "tale" / "story.json"
    index.write_bytes(index.read_bytes())
    assert story.version() != version, "pages see that somebody wrote, also what is as long as before"
    shutil.rmtree(tmp_path / "tale")
    with pytest.raises(ValueError, match="was removed while its story was open"):
        again.step("two")
    long = StubPlayer(tmp_path, name="long").play(map(str, range(30)))
    wide = long.story.load_session(long.story.session(30, 25))
    assert [turn.number for turn in wide.turns if turn.state.representation is not None] == [*range(6, 31)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.lists(st.sampled_from("abc"), min_size=1, max_size=4)), max_size=7))
def test_any_order_of_branches_tells_the_right_story_and_computes_nothing_twice(tmp_path_factory, moves):
    root, computed, line = tmp_path_factory.mktemp("story"), [], []
    lines = []
    for start, instructions in moves:
        after = start % (len(line) + 1)
        player = StubPlayer(root, after).play(instructions)
        player.story.end_branch(len(player.session.turns))
        computed += player.computed
        line = [*line[:after], *instructions]
        lines.append(line)
        assert texts(Story.open(root, "tale", "test", WORLD)) == line
    assert len(computed) == len(set(computed))
    for line in lines:  # any game can be played again without computing
        assert StubPlayer(root).play(line).computed == []


class Crash(BaseException):
    """Stands for a process that ends at once."""


def test_a_crash_at_any_write_loses_at_most_the_turn_in_progress(tmp_path, monkeypatch):
    plain = tmp_path / "plain"
    StubPlayer(plain).play(["one", "two"])
    StubPlayer(plain, after=1).play(["other", "three"])
    survived, whole = 0, False
    while not whole:
        root, left = tmp_path / str(survived), survived
        with monkeypatch.context() as patch:
            _crash_after(patch, left)
            try:
                StubPlayer(root).play(["one", "two"])
                StubPlayer(root, after=1).play(["other", "three"])
                whole = True
            except Crash:
                pass
        player = StubPlayer(root).play(["one", "two"])
        StubPlayer(root, after=1).play(["other", "three"])
        wanted = files(plain / "tale")
        assert {name: files(root / "tale")[name] for name in wanted} == wanted, f"crash before write {survived}"
        survived += 1
    assert survived > 25 and player.session.turns


def _crash_after(patch, writes):
    """Crash in place of the write after so many."""
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


@pytest.mark.parametrize(
    "store, suffix", [("turns", ".safetensors"), ("turns", ".json"), ("shots", ".mp4"), ("shots", ".json")]
)
@pytest.mark.parametrize("damage", ["gone", "torn", "longer", "flipped", "foreign"])
def test_a_damaged_file_is_noticed_and_restored(tmp_path, store, suffix, damage):
    player = StubPlayer(tmp_path).play(["one", "two"])
    before = files(tmp_path)
    entry = player.story.entries[1]
    address, content_suffix = (entry.state, ".safetensors") if store == "turns" else (entry.shot, ".mp4")
    path = tmp_path / "tale" / store / f"{address}{suffix or content_suffix}"
    content = path.read_bytes()
    path.unlink()
    if damage == "torn":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "longer":
        path.write_bytes(content + b"}")
    elif damage == "flipped":
        path.write_bytes(content[:-9] + bytes(255 - byte for byte in content[-9:]))
    elif damage == "foreign":
        path.write_bytes(json.dumps({"key": {}}).encode())
    known = {"turns": player.story.states, "shots": player.story.shots}[store]
    assert (known.record(address) is not None) == (damage == "flipped" and suffix != ".json"), "only hashing shows it"
    assert len(StubPlayer(tmp_path).play(["one", "two"]).computed) == 1 and files(tmp_path) == before


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda _: b"[" * 100_000, lambda record: record.replace(b'"one"', b'"two"')]
)
def test_a_lost_first_turn_is_played_again_unless_its_opening_is_unknown(tmp_path, damage):
    player = StubPlayer(tmp_path).play(["one", "two"])
    before, record = files(tmp_path), tmp_path / "tale" / "turns" / f"{player.story.entries[0].state}.json"
    record.write_bytes(damage(record.read_bytes()))
    assert StubPlayer(tmp_path).play(["one", "two"]).computed == [record.stem] and files(tmp_path) == before
    player.story.put_opening(GameSession((), 2, {"stamina": 10}))
    record.write_bytes(damage(record.read_bytes()))
    with pytest.raises(ValueError, match=f"{record.stem[:12]}.*missing or damaged"):
        StubPlayer(tmp_path)


def test_a_foreign_or_newer_index_is_refused(tmp_path):
    StubPlayer(tmp_path).play(["one"])
    index = tmp_path / "tale" / "story.json"
    whole, foreign = json.loads(index.read_text()), "field branch: .*not the index of a story"
    for change, sentence in (({"branch": "../x"}, foreign), ({"format": 2}, "format 2, this program reads 1")):
        index.write_text(json.dumps(whole | change))
        with pytest.raises(ValueError, match=sentence):
            StubPlayer(tmp_path)


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "tale").mkdir()
    (tmp_path / "tale" / "turn-001.mp4").write_text("a holiday")
    with pytest.raises(ValueError, match="holds other files"):
        StubPlayer(tmp_path)
    assert files(tmp_path) == {"tale/turn-001.mp4": b"a holiday"}


KEY_FIELDS = ["seed", "motion", "steps", "guidance", "state", "latent", "denoise"]


@given(st.integers(-(2**63), 2**64), st.floats(0, 999), st.sampled_from(KEY_FIELDS))
def test_every_field_of_a_key_is_in_its_address(seed, motion, field):
    key = ShotKey(WORLD, "a" * 64, seed, motion, 4, "cosine", "float32")
    other = {"seed": seed + 1, "motion": motion + 1, "steps": 5, "guidance": "constant", "state": "b" * 64}
    other |= {"latent": "c" * 64, "denoise": 0.5}
    assert address_of(key) == address_of(replace(key)) == address_of(replace(key, latent="", denoise=1.0))
    assert address_of(key) != address_of(replace(key, **{field: other[field]}))
    assert address_of(replace(key, seed=0, motion=1.0))[:9] == "744647888", "as in stories that were saved before"
