"""Stories are renamed, copied, thrown away and taken back whole, and never while they are played."""

import json
import shutil
from pathlib import Path

import pytest

from animegamer_core.story.index import story_names
from animegamer_core.story.manage import TRASH, duplicate_story, rename_story, restore_story, trash_story
from animegamer_core.story.story import Story

FROZEN = Path(__file__).parents[1] / "frozen" / "stories" / "game"


@pytest.fixture
def root(tmp_path):
    shutil.copytree(FROZEN, tmp_path / "game")
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
    index.write_text(json.dumps(json.loads(index.read_text()) | {"line": "main"}), encoding="utf-8")
    assert not list((root / TRASH).iterdir()), "nothing is left where it was copied"


def test_a_deleted_story_comes_back_whole(root):
    before = content(root / "game")
    ticket = trash_story(root, "game")
    assert story_names(root) == [] and not (root / "game").exists()
    assert restore_story(root, ticket) == "game" and content(root / "game") == before
    with pytest.raises(ValueError, match="no longer in the trash"):
        restore_story(root, ticket)


def test_names_that_are_taken_or_no_names_are_refused(root):
    ticket = trash_story(root, "game")
    shutil.copytree(FROZEN, root / "game")
    for act in (rename_story, duplicate_story):
        with pytest.raises(ValueError, match="'game' already"):
            act(root, "game", "game")
        with pytest.raises(ValueError, match="cannot be a folder's name"):
            act(root, "game", "../out")
        with pytest.raises(ValueError, match="no story 'nix'"):
            act(root, "nix", "new")
    with pytest.raises(ValueError, match="'game' already"):
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
    assert story_names(root) == ["game"]
