"""Files that a kill or a full disk cannot tear."""

import os
import sys

import numpy as np
import pytest
from small_disk import short_files

from animegamer_core.files import append_line, write_text
from animegamer_core.media.video import write_clip
from animegamer_core.messages import shell_word


def test_on_a_full_disk_a_file_does_not_change_and_a_line_after_a_torn_one_stands_alone(tmp_path):
    path = tmp_path / "lines.jsonl"
    append_line(path, "one\n")
    with short_files(10), pytest.raises(OSError, match="File too large|No space left") as raised:
        append_line(path, "a line of some length\n")
    assert raised.value.filename == str(path) and path.read_bytes() == b"one\n"
    append_line(path, "zw\u00f6lf\nthree\n")
    assert path.read_bytes() == "one\nzw\u00f6lf\nthree\n".encode()
    path.write_bytes(b"one\ntw")
    append_line(path, "three\n")
    assert path.read_bytes() == b"one\ntw\nthree\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the names of open files")
def test_content_and_then_names_are_flushed_to_disk(tmp_path, monkeypatch):
    flushed, folder = [], tmp_path / "new" / "folder"
    monkeypatch.setattr(os, "fsync", lambda number: flushed.append(os.readlink(f"/proc/self/fd/{number}")))
    write_text(folder / "text", "one")
    append_line(folder / "lines.jsonl", "one\n")
    append_line(folder / "lines.jsonl", "two\n")
    part, lines = str(folder / f"part-{os.getpid()}-text"), str(folder / "lines.jsonl")
    assert flushed == [*map(str, (folder.parent, tmp_path)), part, str(folder), lines, str(folder), lines]


@pytest.mark.skipif(os.name == "nt", reason="Windows knows no such modes")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_file_has_the_mode_of_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_clip(tmp_path / "clip.mp4", np.zeros((2, 8, 8, 3), np.uint8), 8)
    finally:
        os.umask(before)
    assert (tmp_path / "clip.mp4").stat().st_mode & 0o777 == mode
    assert os.listdir(tmp_path) == ["clip.mp4"]


def test_a_command_to_copy_is_quoted_as_its_system_expects():
    assert shell_word(r"C:\ComfyUI\models", windows=True) == r"C:\ComfyUI\models"
    assert shell_word(r"C:\My files\a&b", windows=True) == r'"C:\My files\a&b"'
    assert shell_word("/my files/models", windows=False) == "'/my files/models'"
