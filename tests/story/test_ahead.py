"""Turns drawn ahead: the same bytes as without, nothing in the story, a bounded cache, kills and damaged files."""

import os
import random
import shutil
import time
from dataclasses import replace

import pytest
from kills import forked

from animegamer_core.checkpoint import World
from animegamer_core.runtime.models import LoadedModels, PlaySettings
from animegamer_core.story import ahead_store
from animegamer_core.story.ahead import Ahead, Piece
from animegamer_core.story.ahead_store import LARGEST_AHEAD, OLDEST_AHEAD, AheadStore, ahead_bytes, prune_ahead
from animegamer_core.story.director import SUGGESTIONS, Director
from animegamer_core.story.index import AHEAD, story_names
from animegamer_core.story.manage import trash_story
from animegamer_core.story.player import Player
from animegamer_core.story.story import Story
from animegamer_core.toybox.world import WORDS

FIRST = "Character: Miko; Motion: gently wave hello with a red scarf; Background: day beach."


@pytest.fixture(scope="module")
def models(world):
    """The tiny world's models, loaded once."""
    return LoadedModels(world, PlaySettings())


@pytest.fixture
def game(world, models, tmp_path):
    """A game of one turn, with a store for what is drawn ahead."""
    player = opened(world, models, tmp_path)
    player.step(FIRST)
    return player


def opened(world, models, root, after=0, name="game", seed=0, say=lambda line: None, store=True):
    story = Story.open(root, name, world.spec.name, world.fingerprint)
    ahead = AheadStore(root, world.fingerprint, say) if store else None
    return Player(world, story, PlaySettings(seed=seed, steps=2, window=4), after, models, ahead=ahead)


def ahead_of(player, turns=1):
    director = Director(WORDS, 0)
    return Ahead(player, player.ahead, director, turns), [one.instruction for one in director(player.session, 3)]


def draw_all(player, turns=1):
    """Draw all that may come next; the offered instructions and the pieces in their order."""
    ahead, offered = ahead_of(player, turns)
    drawn = []
    while (piece := ahead.next_piece(offered)) is not None:
        ahead.draw(piece)
        drawn.append(piece)
    return offered, drawn


def content(folder, *left_out):
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name not in left_out}


def forbid_models(monkeypatch, models):
    def load(*_):
        raise AssertionError("a model was used for a turn that was drawn ahead")

    monkeypatch.setattr(models, "engine", load)
    monkeypatch.setattr(models, "decoder", load)


def test_states_come_first_then_shots_then_the_turns_after_the_likeliest(game):
    offered, drawn = draw_all(game, turns=3)
    assert len(set(offered)) == SUGGESTIONS == 3
    alone = [Piece((text,), draw) for draw in (False, True) for text in offered]
    assert drawn[:6] == alone
    second, third = drawn[6].instructions, drawn[8].instructions
    assert second[0] == offered[0] and third[:2] == second and (len(second), len(third)) == (2, 3)
    assert drawn[6:] == [Piece(path, draw) for path in (second, third) for draw in (False, True)]


@pytest.mark.parametrize("chosen", range(3))
def test_a_turn_drawn_ahead_is_the_same_to_the_byte(world, models, game, tmp_path, monkeypatch, chosen):
    offered, _ = draw_all(game, turns=2)
    plain = opened(world, models, tmp_path / "plain", store=False)
    plain.play([FIRST, offered[chosen]])
    forbid_models(monkeypatch, models)
    played = game.step(offered[chosen])
    assert (played.predicted, played.drawn, played.ahead) == (False, False, True)
    assert content(tmp_path / "game") == content(tmp_path / "plain" / "game")


def test_the_turn_after_the_likeliest_plays_at_once_too(game, models, monkeypatch):
    draw_all(game, turns=2)
    forbid_models(monkeypatch, models)
    for _ in range(2):
        _, offered = ahead_of(game)
        assert game.step(offered[0]).ahead


def test_a_first_turn_is_drawn_ahead_of_a_story_that_does_not_exist_yet(world, models, tmp_path, monkeypatch):
    player = opened(world, models, tmp_path)
    offered, _ = draw_all(player)
    assert not (tmp_path / "game").exists()
    forbid_models(monkeypatch, models)
    assert player.step(offered[2]).ahead and player.session.next_number == 2


def test_nothing_of_it_appears_in_a_story(game, tmp_path):
    before = content(tmp_path / "game")
    offered, _ = draw_all(game, turns=2)
    assert content(tmp_path / "game") == before and game.session.next_number == 2
    assert story_names(tmp_path) == ["game"]
    store = game.ahead
    game.step(offered[1])
    assert len(list(game.story.states.folder.glob("*.json"))) == 2
    known = [turn.predicted for turn in ahead_of(game)[0].look(offered)]
    assert known == [False] * 3, "they were ahead of turn 1"
    addresses = {entry.shot for entry in game.story.entries}
    assert not addresses & {path.stem for path in store.shots.folder.glob("*.json")}, "nothing is kept twice"


def test_what_is_known_is_listed_and_never_drawn_again(game):
    ahead, offered = ahead_of(game)
    assert [turn.predicted for turn in ahead.look(offered)] == [False] * 3
    ahead.draw(ahead.next_piece(offered))
    assert [turn.predicted for turn in ahead.look(offered)] == [True, False, False]
    draw_all(game)
    turns = ahead.look(offered)
    assert all(turn.clip.stat().st_size for turn in turns) and len({turn.shot for turn in turns}) == 3
    assert ahead.next_piece(offered) is None and ahead.next_piece(["", "   "]) is None
    game.step(offered[0])
    game.rewind(1)
    assert ahead.look(offered)[0].clip.parent == game.story.shots.folder, "a turn that the story has"


def test_other_settings_draw_another_shot_of_the_same_state(world, models, game, tmp_path):
    offered, _ = draw_all(game)
    other = opened(world, models, tmp_path, after=1, seed=5)
    played = other.step(offered[0])
    assert (played.predicted, played.drawn, played.ahead) == (False, True, False)


def test_a_stop_within_a_shot_keeps_nothing_of_it(game):
    ahead, offered = ahead_of(game)
    for _ in offered:
        ahead.draw(ahead.next_piece(offered))

    def stop(done, steps, _):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        ahead.draw(ahead.next_piece(offered), stop)
    assert not list(game.ahead.folder.glob("shots/*"))
    assert game.step(offered[0]).drawn


def test_too_many_turns_ahead_are_refused(game):
    with pytest.raises(ValueError, match="turns ahead is 4; expected 1 to 3"):
        Ahead(game, game.ahead, turns=4)


@pytest.mark.parametrize("kind", ["turns/*.safetensors", "turns/*.json", "shots/*.mp4", "shots/*.json"])
@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_a_damaged_file_is_noted_and_drawn_again(world, models, game, tmp_path, kind, harm):
    offered, _ = draw_all(game)
    paths = list(game.ahead.folder.glob(kind))
    for path in paths:
        data = path.read_bytes()
        path.unlink() if harm == "gone" else path.write_bytes(data[:-9] if harm == "cut" else data[:-9] + b"123456789")
    notes = []
    again = opened(world, models, tmp_path, after=1, say=notes.append)
    played = again.step(offered[0])
    of_state = "turns" in kind
    assert (played.predicted, played.drawn, played.ahead) == (of_state, not of_state, of_state)
    lost = harm == "gone" and kind.endswith("json")  # an unfinished file has no record yet
    assert lost or (len(notes) == 1 and "was damaged and is drawn again" in notes[0])
    plain = opened(world, models, tmp_path / "plain", store=False)
    plain.play([FIRST, offered[0]])
    assert content(tmp_path / "game") == content(tmp_path / "plain" / "game")
    draw_all(again)


def test_the_oldest_is_deleted_first_and_nothing_is_kept_too_long(game, tmp_path, monkeypatch):
    draw_all(game)
    shots = sorted(game.ahead.shots.folder.glob("*.mp4"))
    whole = ahead_bytes(tmp_path)
    assert 0 < whole < LARGEST_AHEAD
    old = shots[0].stem
    for path in game.ahead.shots.folder.glob(f"{old}.*"):
        os.utime(path, (time.time() - 100,) * 2)
    prune_ahead(tmp_path, largest=whole - 1)
    assert not game.ahead.has_shot(old) and all(game.ahead.has_shot(path.stem) for path in shots[1:])
    later = time.time() + OLDEST_AHEAD + 60
    monkeypatch.setattr(ahead_store.time, "time", lambda: later)
    game.ahead.prune()
    assert ahead_bytes(tmp_path) == 0 and not (tmp_path / AHEAD).exists(), "no empty folders either"
    assert game.story.entries and story_names(tmp_path) == ["game"]


def test_a_deleted_story_takes_it_along(world, models, game, tmp_path):
    draw_all(game)
    trash_story(tmp_path, "game")
    assert not (tmp_path / AHEAD).exists()


def test_no_story_may_have_its_name(world, tmp_path):
    with pytest.raises(ValueError, match=r"'.ahead' is reserved for the folder of turns that are drawn ahead"):
        Story.open(tmp_path, AHEAD, world.spec.name, world.fingerprint)


def test_a_disk_without_hard_links_copies(game, monkeypatch, tmp_path):
    offered, _ = draw_all(game)
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
    assert game.step(offered[0]).ahead


def test_what_another_program_deletes_meanwhile_is_drawn(game, monkeypatch):
    offered, _ = draw_all(game)
    find = type(game.ahead.shots).find

    def deleted(store, address):
        found = find(store, address)
        if found and AHEAD in str(store.folder):
            shutil.rmtree(game.ahead.folder)
        return found

    monkeypatch.setattr(type(game.ahead.shots), "find", deleted)
    played = game.step(offered[0])
    assert played.clip.is_file() and not played.ahead


def test_kills_while_drawing_ahead_lose_only_what_is_in_progress(world, models, game, tmp_path):
    before, rng = content(tmp_path / "game"), random.Random(1)
    offered, _ = draw_all(game)
    wanted = content(game.ahead.folder)
    begun = time.monotonic()
    shutil.rmtree(tmp_path / AHEAD)
    forked(lambda: draw_all(game), tmp_path / "log")
    whole = time.monotonic() - begun
    assert content(game.ahead.folder) == wanted, "the same bytes each time"
    kills = 0
    for _ in range(30):
        if kills == 6:
            break
        shutil.rmtree(tmp_path / AHEAD, ignore_errors=True)
        kills += forked(lambda: draw_all(game), tmp_path / "log", rng.uniform(0, whole))
        notes = []
        again = opened(world, models, tmp_path, after=1, say=notes.append)
        assert content(tmp_path / "game") == before
        done = [piece for piece in content(game.ahead.folder) if not piece.split("/")[-1].startswith("part-")]
        assert all(content(game.ahead.folder)[name] == wanted[name] for name in done)
        draw_all(again)
        finished = {name: data for name, data in content(game.ahead.folder).items() if "part-" not in name}
        assert (finished, notes) == (wanted, []), "it goes on where it was, and nothing was damaged"
    assert kills == 6


def test_a_kill_while_a_turn_is_taken_loses_nothing(world, models, game, tmp_path):
    offered, _ = draw_all(game)
    shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-saved")
    saved, rng = tmp_path.parent / f"{tmp_path.name}-saved", random.Random(2)
    plain = opened(world, models, tmp_path / "plain", store=False)
    plain.play([FIRST, offered[0]])
    wanted = content(tmp_path / "plain" / "game")
    for _ in range(8):
        root = tmp_path / "killed"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(saved, root)
        player = opened(world, models, root, after=1)
        forked(lambda player=player: player.step(offered[0]), tmp_path / "log", rng.uniform(0, 0.03))
        opened(world, models, root, after=1).step(offered[0])
        story = {name: data for name, data in content(root / "game").items() if "part-" not in name}
        assert story == wanted
    shutil.rmtree(saved)


def test_a_replay_of_the_whole_game_uses_no_model(world, models, game, tmp_path, monkeypatch):
    offered, _ = draw_all(game)
    game.step(offered[0])
    monkeypatch.setattr(World, "load_engine", lambda *_: pytest.fail("an engine was loaded"))
    again = opened(world, LoadedModels(world, PlaySettings()), tmp_path)
    again.play([FIRST, offered[0]])
    assert again.session.turns[-1].address == game.session.turns[-1].address


def test_an_instruction_in_chinese_is_drawn_ahead_as_it_is_read_and_an_unreadable_one_is_left_out(game):
    game.world = replace(game.world, life=replace(game.world.life, words=WORDS))
    ahead, _ = ahead_of(game)
    offered, english = ["美子在海滩跑步", "美子在海滩弹钢琴"], "Character: Miko; Motion: run; Background: beach."
    while (piece := ahead.next_piece(offered)) is not None:
        assert piece.instructions == (english,)
        ahead.draw(piece)
    first, second = ahead.look(offered)
    assert first.clip is not None and first.instruction == offered[0]
    assert not second.predicted and second.clip is None
    assert game.step(offered[0]).ahead
