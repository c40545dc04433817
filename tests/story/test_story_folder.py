"""The folders of stories: their names, their locks, and how they are renamed, copied, thrown away and taken back."""

import errno
import os

import pytest
from saved_story import copy_story
from small_disk import resize, small_disk
from test_branches import opened
from test_story import StubPlayer, texts

from animegamer_core.files import locked
from animegamer_core.story.folder import TRASH, duplicate_story, rename_story, restore_story, story_names, trash_story
from animegamer_core.story.story import Story

LONG = "\u5b57" * 79  # 237 bytes, and a file system takes 255


@pytest.fixture
def root(tmp_path):
    copy_story(tmp_path / "game")
    return tmp_path


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# What else lies there


def test_a_players_own_files_stay(tmp_path):
    StubPlayer(tmp_path).play(["one", "two"])
    own = [tmp_path / "tale" / name for name in ("turn-002.jpg", "turn-009.txt", "turn-final.mp4", "part-1.mp4")]
    for path in own:
        path.write_text("mine")
        os.utime(path, (0, 0))
    (tmp_path / "tale" / "turn-1000.mp4").write_text("of a longer branch")
    player = StubPlayer(tmp_path)
    with player.story.lock():
        player.play(["other"])
    assert all(path.read_text() == "mine" for path in own)
    assert [path.name for path in (tmp_path / "tale").glob("turn-*[0-9].mp4")] == ["turn-001.mp4"]


def test_unfinished_files_are_removed_after_a_while(tmp_path):
    StubPlayer(tmp_path).play(["one"])
    fresh, stale = (tmp_path / "tale" / "shots" / name for name in ("part-1-a.mp4", "part-2-b.mp4"))
    for path, minutes in ((fresh, 59), (stale, 61)):
        path.write_text("half")
        os.utime(path, (path.stat().st_mtime - 60 * minutes,) * 2)
    with opened(tmp_path).lock():
        assert fresh.exists() and not stale.exists()


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


# Stories are managed


def test_a_copy_is_a_story_of_its_own_with_its_own_links(root):
    shot, clip = next((root / "game" / "shots").glob("*.mp4")), root / "game" / "turn-009.mp4"
    os.link(shot, clip)
    os.symlink(clip.name, root / "game" / "latest.mp4")
    duplicate_story(root, "game", "copy")
    assert os.readlink(root / "copy" / "latest.mp4") == clip.name
    assert sorted(story_names(root)) == ["copy", "game"] and content(root / "copy") == content(root / "game")
    assert os.path.samefile(root / "copy" / clip.name, root / "copy" / "shots" / shot.name)
    assert not os.path.samefile(root / "copy" / clip.name, clip)
    assert not list((root / TRASH).iterdir()), "nothing is left where it was copied"


def test_a_full_disk_is_named_and_nothing_of_the_copy_is_left(tmp_path):
    size = 250 + sum(path.stat().st_size // 1024 + 4 for path in copy_story(tmp_path / "other").rglob("*"))  # kilobytes
    with small_disk(tmp_path / "disk", size * 3 // 2):
        root = tmp_path / "disk"
        copy_story(root / "game")
        (root / "game" / "films").mkdir()
        (root / "game" / "films" / "film.mp4").write_bytes(bytes(250_000))
        with pytest.raises(OSError, match=r"\d MB free\); .* free some space and duplicate the story again") as full:
            duplicate_story(root, "game", "copy")
        assert full.value.errno == errno.ENOSPC and full.value.filename == str(root / "copy")
        assert story_names(root) == ["game"] and not list((root / TRASH).iterdir())
        (root / TRASH).rmdir()
        resize(root, 3 * size, names=1 + len(list(root.rglob("*"))))
        for act in (lambda: duplicate_story(root, "game", "copy"), lambda: trash_story(root, "game")):
            with pytest.raises(OSError, match=r"MB free\).*; free some space"):
                act()
        assert story_names(root) == ["game"]


@pytest.mark.parametrize("name", ["game", LONG], ids=["short", "long"])
def test_a_deleted_story_comes_back_whole(root, name):
    before = content(root / "game")
    if name != "game":
        rename_story(root, "game", name)
    ticket = trash_story(root, name)
    assert story_names(root) == [] and not (root / name).exists()
    (root / name).mkdir()  # an empty folder is not in the way
    assert restore_story(root, ticket) == name and content(root / name) == before
    assert not list((root / TRASH).iterdir())
    trash_story(root, name)
    with pytest.raises(ValueError, match="no longer in the trash"):
        restore_story(root, ticket)


def test_names_that_are_taken_or_no_names_are_refused(root, monkeypatch):
    ticket = trash_story(root, "game")
    copy_story(root / "game")
    for act in (rename_story, duplicate_story):
        for new, says in (("game", "'game' already"), ("../out", "is not a valid folder name"), (".TRASH", "reserved")):
            with pytest.raises(ValueError, match=says):
                act(root, "game", new)
        with pytest.raises(ValueError, match="no story 'nix'"):
            act(root, "nix", "new")
    with pytest.raises(ValueError, match="'game' already; rename that one, then restore this one"):
        restore_story(root, ticket)

    def late(*given):  # another program moves it before it is locked
        (root / "game").replace(root / "gone")
        return locked(*given)

    monkeypatch.setattr("animegamer_core.story.folder.locked", late)
    with pytest.raises(ValueError, match="no story 'game'"):
        trash_story(root, "game")


def test_a_story_that_is_played_stays(root):
    with Story.read(root, "game").lock():
        for act in (rename_story, duplicate_story, lambda root, name, _: trash_story(root, name)):
            with pytest.raises(ValueError, match="is being played"):
                act(root, "game", "new")
    assert story_names(root) == ["game"] and not (root / TRASH).exists()
