"""Texts within messages."""

from pathlib import Path

from animegamer_core.messages import shell_word


def test_a_command_to_copy_is_quoted_as_its_system_expects():
    assert shell_word(r"C:\ComfyUI\models", windows=True) == r"C:\ComfyUI\models"
    assert shell_word(r"C:\My files\models", windows=True) == r'"C:\My files\models"'
    assert shell_word(r"C:\a&b", windows=True) == r'"C:\a&b"'
    assert shell_word(Path("/my files/models"), windows=False) == "'/my files/models'"
