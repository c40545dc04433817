"""A full disk is one sentence with the path and the free space; what is finished stays, the same command goes on."""

import re

import pytest
from small_disk import resize, small_disk
from tiny_world import save_tiny_world

from animegamer_core.__main__ import main
from animegamer_core.story.story import Story

GAME = "".join(
    f"Character: Miko; Motion: run {word}; Background: day beach.\n" for word in ("one", "two", "three", "four")
)
FULL = re.compile(r"play: (/\S+): No space left on device \(\d+\.\d MB free\); finished work is kept; free some space")


def sentence(capsys) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if "play:" in line]
    assert len(lines) == 1, lines
    return lines[0]


def test_a_game_goes_on_once_there_is_room(tmp_path, capsys):
    save_tiny_world(tmp_path / "world")
    (tmp_path / "game.txt").write_text(GAME)
    words = ["play", str(tmp_path / "game.txt"), "--world", str(tmp_path / "world"), "--steps", "1", "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "whole"), "--name", "game"]) == 0
    whole = Story.read(tmp_path / "whole", "game")
    size = sum(path.stat().st_size for path in whole.folder.rglob("*") if path.is_file()) // 1024
    full, played = tmp_path / "full", set()
    with small_disk(full, 4):
        for kilobytes in (4, size // 3, 2 * size // 3, 4 * size + 1000):
            resize(full, kilobytes)
            capsys.readouterr()
            status = main([*words, "--out", str(full), "--name", "game"])
            if kilobytes > size:
                break
            assert status == 2
            assert str(full) in FULL.match(sentence(capsys))[1]
            if (full / "game" / "story.json").exists():
                played.add(len(Story.read(full, "game").entries))
        assert status == 0
        assert len(played) > 1, "turns were kept between one full disk and the next"
        assert [entry.state for entry in Story.read(full, "game").entries] == [entry.state for entry in whole.entries]


@pytest.mark.parametrize("code", [28, 122, 27])
def test_every_writer_says_it_alike(tmp_path, monkeypatch, code):
    from safetensors import SafetensorError

    from animegamer_core.files import replacing

    for error in (
        OSError(code, "full"),
        SafetensorError(f"Error while serializing: I/O error: full (os error {code})"),
    ):
        with pytest.raises(OSError, match=r"MB free\); finished work is kept") as caught, replacing(tmp_path / "a"):
            raise error
        assert (caught.value.errno, caught.value.filename) == (code, str(tmp_path / "a"))
    with pytest.raises(SafetensorError, match="header"), replacing(tmp_path / "a"):
        raise SafetensorError("a wrong header")
    assert not list(tmp_path.iterdir())
