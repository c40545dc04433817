"""A game is killed, or the power fails: finished turns are kept, and the same command completes the game."""

import contextlib
import io
import os
import shutil

import pytest
from kills import kill_often
from power_cut import recorded, sample

from animegamer_core.__main__ import main
from animegamer_core.files import PART
from animegamer_core.story.folder import INDEX
from animegamer_core.story.story import Story

GAME = (
    "Character: Miko; Motion: gently run; Background: day beach.",
    "Character: Miko, Taro; Motion: wildly dance; Background: night forest.",
    "Character: Yuzu; Motion: softly sleep; Background: night street.",
)


class Report(io.StringIO):
    """Standard output that tells a disk each line."""

    def __init__(self, disk):
        super().__init__()
        self.disk = disk

    def write(self, text):
        if ".mp4 (" in text:
            self.disk.note(text)
        return super().write(text)


def play(world, game, out, disk=None):
    arguments = ["play", str(game), "--world", str(world.folder), "--out", str(out), "--steps", "2"]
    with contextlib.redirect_stdout(Report(disk) if disk else io.StringIO()):
        assert main(arguments) == 0


def content(out):
    """Everything that a finished story holds; unfinished files are removed an hour later."""
    files = (path for path in out.rglob("*") if path.is_file() and not path.name.startswith(PART))
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def played(world, tmp_path_factory):
    """(what the disk may hold, the game's file, the content of the finished story)."""
    folder = tmp_path_factory.mktemp("played")
    (folder / "game.txt").write_text("\n".join(GAME))
    (folder / "out").mkdir()
    with recorded(folder / "out") as disk:
        play(world, folder / "game.txt", folder / "out", disk)
    assert len(disk.notes) >= len(GAME)
    return disk, folder / "game.txt", content(folder / "out")


def turns_done(out):
    return len(Story.read(out, "game").entries) if (out / "game" / INDEX).exists() else 0


def go_on_after(played, world, moment, seed, out):
    disk, game, whole = played
    disk.cut(moment, seed, out)
    turns = [line for line in disk.noted(moment) if "turn-" in line]
    assert turns_done(out) >= len(turns), f"moment {moment}, seed {seed}: a finished turn was lost"
    play(world, game, out)
    assert content(out) == whole, f"moment {moment}, seed {seed}"


def test_a_power_cut_loses_the_turn_in_progress_only(played, world, tmp_path):
    for moment, seed in sample(played[0], 10):
        go_on_after(played, world, moment, seed, tmp_path / f"{moment}-{seed}")


@pytest.mark.soak
def test_power_cuts_at_every_moment_lose_the_turn_in_progress_only(played, world, tmp_path):
    for moment, seed in sample(played[0], 400):
        go_on_after(played, world, moment, seed, tmp_path / f"{moment}-{seed}")


def play_with_kills(played, world, tmp_path, kills, seed):
    out = tmp_path / "killed"

    def begin():
        shutil.rmtree(out, ignore_errors=True)

    def check():
        assert content(out) == played[2]

    def work():
        play(world, played[1], out)

    kill_often(begin, work, lambda: turns_done(out), check, tmp_path / "log.txt", kills, seed)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_kills_change_nothing(played, world, tmp_path):
    play_with_kills(played, world, tmp_path, 5, seed=0)


@pytest.mark.soak
@pytest.mark.parametrize("game", range(10))
def test_two_hundred_kills_change_nothing(played, world, tmp_path, game):
    play_with_kills(played, world, tmp_path, 20, seed=game + 1)
