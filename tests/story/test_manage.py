"""Stories are renamed, copied, thrown away and taken back whole, and never while they are played."""

import contextlib
import errno
import json
import os
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from saved_story import copy_story
from small_disk import resize, small_disk

from animegamer_core.story.folder import (
    LOCK,
    TRASH,
    duplicate_story,
    exclusive_access,
    rename_story,
    restore_story,
    story_names,
    trash_story,
)
from animegamer_core.story.story import Story

LONG = "\u5b57" * 79  # 237 bytes, and a file system takes 255


@pytest.fixture
def root(tmp_path):
    copy_story(tmp_path / "game")
    return tmp_path


def content(folder):
    """All files of a story but its lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "story.lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_renamed_story_is_the_same_story(root):
    before = content(root / "game")
    rename_story(root, "game", "by the sea")
    assert story_names(root) == ["by the sea"] and content(root / "by the sea") == before
    assert Story.read(root, "by the sea").entries


def test_a_copy_is_a_story_of_its_own(root):
    duplicate_story(root, "game", "copy")
    assert sorted(story_names(root)) == ["copy", "game"] and content(root / "copy") == content(root / "game")
    index = root / "copy" / "story.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"branch": "main"}), encoding="utf-8")
    assert not list((root / TRASH).iterdir()), "nothing is left where it was copied"


def test_a_copy_keeps_hard_links(root):
    shot, clip = next((root / "game" / "shots").glob("*.mp4")), root / "game" / "turn-009.mp4"
    os.link(shot, clip)
    duplicate_story(root, "game", "copy")
    assert os.path.samefile(root / "copy" / clip.name, root / "copy" / "shots" / shot.name)
    assert not os.path.samefile(root / "copy" / clip.name, clip)


def test_a_full_disk_is_named_and_nothing_of_the_copy_is_left(tmp_path):
    with small_disk(tmp_path / "disk", 750):
        root = tmp_path / "disk"
        copy_story(root / "game")
        (root / "game" / "films").mkdir()
        (root / "game" / "films" / "film.mp4").write_bytes(bytes(250_000))
        with pytest.raises(
            OSError, match=r"\(0\.\d MB free\); .* free some space and duplicate the story again"
        ) as full:
            duplicate_story(root, "game", "copy")
        assert full.value.errno == errno.ENOSPC and full.value.filename == str(root / "copy")
        assert story_names(root) == ["game"] and not list((root / TRASH).iterdir())
        (root / TRASH).rmdir()
        resize(root, 1300, names=1 + len(list(root.rglob("*"))))
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
    assert restore_story(root, ticket) == name and content(root / name) == before
    assert not list((root / TRASH).iterdir())
    with pytest.raises(ValueError, match="no longer in the trash"):
        restore_story(root, ticket)


def test_names_that_are_taken_or_no_names_are_refused(root):
    ticket = trash_story(root, "game")
    copy_story(root / "game")
    for act in (rename_story, duplicate_story):
        with pytest.raises(ValueError, match="'game' already"):
            act(root, "game", "game")
        with pytest.raises(ValueError, match="is not a valid folder name"):
            act(root, "game", "../out")
        with pytest.raises(ValueError, match="folder of deleted stories"):
            act(root, "game", TRASH)
        with pytest.raises(ValueError, match="no story 'nix'"):
            act(root, "nix", "new")
    with pytest.raises(ValueError, match="'game' already; rename that one, then restore this one"):
        restore_story(root, ticket)
    for wrong in ("../game", "1 ../../game", f"{ticket}/..", ""):
        with pytest.raises(ValueError, match="no longer in the trash"):
            restore_story(root, wrong)


def test_a_story_that_is_played_stays(root):
    with Story.read(root, "game").lock():
        for act in (lambda: rename_story(root, "game", "new"), lambda: trash_story(root, "game")):
            with pytest.raises(ValueError, match="is being played"):
                act()
        with pytest.raises(ValueError, match="is being played"):
            duplicate_story(root, "game", "new")
    assert story_names(root) == ["game"] and not list((root / TRASH).iterdir())


def test_who_begins_a_story_of_the_old_name_keeps_its_lock(root, monkeypatch):
    """Somebody begins a story of the name that another has just given up."""
    begun = exclusive_access(root / "game", "busy")

    def rename(folder, target):
        monkeypatch.undo()
        os.rename(folder, target)
        begun.__enter__()

    monkeypatch.setattr(os, "rename", rename)
    rename_story(root, "game", "moved")
    assert (root / "game" / LOCK).exists()
    with pytest.raises(ValueError, match="busy"), exclusive_access(root / "game", "busy"):
        pass
    begun.__exit__(None, None, None)
    assert not (root / "game").exists() and story_names(root) == ["moved"]


# Hostile folders, and several who manage stories at once


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
@pytest.mark.parametrize("target", ["..", "/dev/zero"])
def test_a_copy_follows_no_link(root, target):
    (root / "game" / "turns" / "link").symlink_to(target)
    with pytest.raises(ValueError, match="is a link, so it is not copied"):
        duplicate_story(root, "game", "copy")
    assert story_names(root) == ["game"] and list((root / TRASH).iterdir()) == []


def test_an_empty_folder_is_not_in_the_way(root):
    ticket = trash_story(root, "game")
    (root / "game").mkdir()
    assert restore_story(root, ticket) == "game" and Story.read(root, "game").entries


def test_many_at_once_lose_no_story_and_leave_nothing(root):
    """Each answer is done or a sentence; at the end every folder is a story, and each can be taken back."""
    for number in range(3):
        duplicate_story(root, "game", f"game {number}")
    before, tickets, wrong = content(root / "game"), [], []

    def do(rng, one, other):
        match rng.randrange(4):
            case 0:
                rename_story(root, one, other)
            case 1:
                tickets.append(trash_story(root, one))
            case 2:
                restore_story(root, rng.choice(tickets or [""]))
            case 3:
                story_names(root)

    def manage(seed):
        rng = random.Random(seed)
        for _ in range(150):
            try:
                do(rng, *(f"game {rng.randrange(4)}" for _ in range(2)))
            except ValueError as error:
                wrong.extend([str(error)] * (len(str(error)) < 20))
            except OSError as error:
                wrong.append(repr(error))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(manage, range(4)))
    assert wrong == []
    folders = sorted(path.name for path in root.iterdir() if path.name != TRASH)
    assert folders == sorted(story_names(root)), "a folder is left that is no story"
    for name in folders:
        rename_story(root, name, f"kept {name}")
    for ticket in tickets:
        with contextlib.suppress(ValueError):  # taken back before
            name = restore_story(root, ticket)
            rename_story(root, name, f"back {ticket}")
    names = story_names(root)
    assert len(names) == 4 and all(content(root / name) == before for name in names)
