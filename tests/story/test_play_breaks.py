"""A game is killed: finished turns are kept, and the same command completes the game."""

import os
import shutil

import pytest
from kills import kill_often
from test_play import GAME, content

from animegamer_core.__main__ import main
from animegamer_core.story.folder import INDEX
from animegamer_core.story.story import Story


def turns_done(out):
    return len(Story.read(out, "game").entries) if (out / "game" / INDEX).exists() else 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.soak)])
def test_kills_change_nothing(world, tmp_path, kills):
    game, out = tmp_path / "game.txt", tmp_path / "out"
    game.write_text("\n".join(GAME[:3]))

    def play(folder):
        assert main(["play", str(game), "--world", str(world.folder), "--out", str(folder), "--steps", "2"]) == 0

    play(tmp_path / "whole")
    whole = content(tmp_path / "whole")

    def check():
        assert content(out) == whole

    begin = lambda: shutil.rmtree(out, ignore_errors=True)  # noqa: E731
    kill_often(begin, lambda: play(out), lambda: turns_done(out), check, tmp_path / "log.txt", kills, seed=0)
