"""A ComfyUI that is killed during Play Game Story: the same graph goes on from the last finished turn."""

import random
import time

import pytest
from comfy_server import message, running
from graphs import play
from long_game import long_game
from tiny_world import save_tiny_world

from animegamer_core.files import UNFINISHED
from animegamer_core.story.folder import INDEX
from animegamer_core.story.story import Story

TURNS = 400  # more than a server plays before it is killed


@pytest.fixture
def own_server(tmp_path):
    """A server that may be killed, with a world of random weights. Its videos carry no graph, since that has other
    instructions in each of the compared games.
    """
    with running(tmp_path / "own", "--disable-metadata") as comfy:
        save_tiny_world(comfy.models_dir / "animegamer" / "tiny")
        yield comfy


def play_prompt(story, turns, **choices):
    return play(story, *long_game(TURNS)[:turns], **choices)


def saved(server, story):
    """The turns of a story, without opening it for writing."""
    folder = server.output_dir / "animegamer"
    return Story.read(folder, story).entries if (folder / story / INDEX).is_file() else ()


def kill_while_playing(server, story, moments):
    """Play on, kill the server at a random moment of that work; the number of turns that were finished before."""
    before = len(saved(server, story))
    prompt_id = server.queue(play_prompt(story, TURNS))
    server.wait_until(lambda: len(saved(server, story)) > before, timeout=60)
    time.sleep(moments.random() * 0.6)
    finished = len(saved(server, story))
    assert not server.get(f"/history/{prompt_id}"), "the game ended before it could be killed"
    server.process.kill()
    server.process.wait()
    return finished


def content(server, story):
    """{path: bytes} of a story, without its name, which its contact sheet shows as a picture.

    Unfinished files of a kill are left out: the story removes them an hour later.
    """
    folder = server.output_dir / "animegamer" / story
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "contact-sheet.png"]
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().replace(story.encode(), b"STORY")
        for path in files
        if not path.name.startswith(UNFINISHED)
    }


def play_with_kills(server, kills, seed):
    """Kill so many times, finish the game, and compare it with one that was never broken."""
    moments, length = random.Random(seed), 0
    for _ in range(kills):
        length = kill_while_playing(server, "killed", moments)
        assert len(saved(server, "killed")) >= length, "a kill lost more than the turn in progress"
        server.start()
    turns = len(saved(server, "killed")) + 2
    for story in ("killed", "unbroken"):
        server.run(play_prompt(story, turns, export=True))
    broken, unbroken = content(server, "killed"), content(server, "unbroken")
    assert sorted(broken) == sorted(unbroken)
    assert [name for name in broken if broken[name] != unbroken[name]] == []
    assert message(server.wait(server.queue(play_prompt("killed", turns))), "execution_error") is None


def test_two_kills_of_the_server_change_nothing(own_server):
    play_with_kills(own_server, 2, seed=0)


@pytest.mark.soak
@pytest.mark.parametrize("game", range(10))
def test_two_hundred_kills_of_the_server_change_nothing(own_server, game):
    play_with_kills(own_server, 20, seed=game + 1)
