"""The folder of a story: its name, its lock, and what else lies there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_branches import opened
from test_story import StubPlayer, texts

from animegamer_core.files import check_folder_name
from animegamer_core.story import folder as folder_module
from animegamer_core.story.folder import duplicate_story, story_names
from animegamer_core.story.story import Story

ROOT = Path(__file__).parents[2]

# Its name


WRONG = ["", ".", "..", "a/b", "a\\b", "../up", "/root", "C:", "con", "NUL.txt", "com1", "COM\u00b9.txt", "conin$"]
WRONG += ["\ud800", "\U0001f600" * 64, "a.", " a", "a ", "a\nb", "a" * 81, "a?"]


@pytest.mark.parametrize("name", WRONG)
def test_invalid_folder_names_are_refused(name):
    with pytest.raises(ValueError, match="story name"):
        check_folder_name(name)


@given(st.text(max_size=100))
def test_an_accepted_name_stays_in_its_folder(tmp_path_factory, name):
    root = tmp_path_factory.getbasetemp()
    try:
        accepted = check_folder_name(name)
    except ValueError:
        return
    assert (root / accepted).resolve().parent == root.resolve() and accepted == name


# What else lies there


@pytest.mark.parametrize(
    "content", ["[" * 200_000, '{"format": 1, "branch": "main", "world": {"name": "w", "fingerprint": 5}}']
)
def test_a_folder_with_other_files_is_skipped(tmp_path, content):
    StubPlayer(tmp_path).play(["one"])
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "story.json").write_text(content)
    (tmp_path / "odder" / "story.json").mkdir(parents=True)
    assert story_names(tmp_path) == ["tale"]
    with pytest.raises(ValueError, match="not the index of a story"):
        opened(tmp_path, "odd")


def test_a_players_own_files_stay(tmp_path):
    StubPlayer(tmp_path).play(["one", "two"])
    own = [tmp_path / "tale" / name for name in ("turn-002.jpg", "turn-009.txt", "turn-final.mp4")]
    for path in own:
        path.write_text("mine")
    StubPlayer(tmp_path).play(["other"])
    assert all(path.read_text() == "mine" for path in own) and not (tmp_path / "tale" / "turn-002.mp4").exists()


def test_unfinished_files_are_removed_after_a_while(tmp_path):
    StubPlayer(tmp_path).play(["one"])
    fresh, stale = (tmp_path / "tale" / "shots" / name for name in ("part-1-a.mp4", "part-2-b.mp4"))
    for path in (fresh, stale):
        path.write_text("half")
    folder = tmp_path / "tale" / "part-3"
    folder.mkdir()
    for path in (stale, folder):
        os.utime(path, (0, 0))
    story = opened(tmp_path)
    assert stale.exists(), "it may be what the one who plays is writing"
    with story.lock():
        assert fresh.exists() and not stale.exists() and folder.exists()


def test_a_players_films_are_no_unfinished_files(tmp_path):
    StubPlayer(tmp_path).play(["one"])
    names = {"part-1.mp4", "part-two.gif", "part-2b-the sea.webp"}
    for name in names:
        film = tmp_path / "tale" / "films" / name
        film.parent.mkdir(exist_ok=True)
        film.write_text("mine")
        os.utime(film, (0, 0))
    with opened(tmp_path).lock():
        pass
    duplicate_story(tmp_path, "tale", "copy")
    for story in ("tale", "copy"):
        assert {path.name for path in (tmp_path / story / "films").iterdir()} == names


# The lock


def test_one_process_plays_at_a_time_and_others_may_read(tmp_path):
    StubPlayer(tmp_path).play(["one"])
    with opened(tmp_path).lock():
        with pytest.raises(ValueError, match="'tale' is being played elsewhere"):
            opened(tmp_path).lock().__enter__()
        assert texts(Story.read(tmp_path, "tale")) == ["one"]
        with opened(tmp_path, "other").lock():
            pass
    with opened(tmp_path).lock():
        pass
    assert not (tmp_path / "other").exists(), "a story that was not begun leaves no folder"


def test_the_lock_reads_what_others_played_meanwhile(tmp_path):
    story = opened(tmp_path)
    StubPlayer(tmp_path).play(["one", "two"])
    with story.lock():
        assert texts(story) == ["one", "two"]
    other = Story.open(tmp_path, "new", "other", "0" * 64)
    StubPlayer(tmp_path, name="new").play(["one"])
    with pytest.raises(ValueError, match="was played in world 'test'"), other.lock():
        pass


HOLD = """
import sys, time
from animegamer_core.story.story import Story
with Story.open(sys.argv[1], "tale", "test", "f" * 64).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    StubPlayer(tmp_path).play(["one"])
    command, environment = [sys.executable, "-c", HOLD, str(tmp_path)], {**os.environ, "PYTHONPATH": str(ROOT)}
    holder = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match="is being played elsewhere"), opened(tmp_path).lock():
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with opened(tmp_path).lock():
        assert (tmp_path / "tale" / "story.lock").exists()


def test_a_lock_is_never_held_twice_while_an_empty_folder_is_removed(tmp_path, monkeypatch):
    """Somebody takes the lock at the moment when the folder of a story that was not begun is removed."""
    first, second, third = (opened(tmp_path) for _ in range(3))
    remove, others = folder_module._remove_if_empty, []

    def meet(folder, held):
        for story in (second, third):
            lock = story.lock()
            try:
                lock.__enter__()
            except ValueError:
                continue
            others.append(lock)
        remove(folder, held)

    monkeypatch.setattr(folder_module, "_remove_if_empty", meet)
    with first.lock():
        pass
    monkeypatch.undo()
    assert others == [], "the lock is held until nothing is left"
    with third.lock():
        assert (tmp_path / "tale" / "story.lock").exists()


@pytest.mark.skipif(os.name == "nt", reason="a file that is open cannot be removed there")
def test_a_removed_lock_file_is_not_held(tmp_path, monkeypatch):
    from animegamer_core import files

    def taken_away(descriptor, lock=files._lock):
        (tmp_path / "tale" / "story.lock").unlink()
        lock(descriptor)

    monkeypatch.setattr(files, "_lock", taken_away)
    with pytest.raises(ValueError, match="is being played elsewhere"), opened(tmp_path).lock():
        pass
