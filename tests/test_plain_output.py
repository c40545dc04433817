"""What is printed: nothing acts on the terminal but a progress line, and commands can be copied."""

import io

import pytest

from animegamer_core.messages import PlainOutput, shell_word

SHOWN = {
    "plain\ttext\n": "plain\ttext\n",
    "a\x1b[31mred\x07\n": "a\\x1b[31mred\\x07\n",
    "\u202egpj.exe": "\\u202egpj.exe",
    "\x9b2J": "\\x9b2J",
    "\r 5 of 9": "\r 5 of 9",
    "\r\x1b[K  5 of 9": "\r\x1b[K  5 of 9",
    "5 of 9\r": "5 of 9\r",
    "\r\x1b[K": "\r\x1b[K",
    "a name\r\x1b[Kanother": "a name\\r\\x1b[Kanother",
    "\u5c11\u5973 \u00e9 \U0001f600": "\u5c11\u5973 \u00e9 \U0001f600",
}


@pytest.mark.parametrize("text", SHOWN, ids=ascii)
def test_characters_that_act_on_a_terminal_are_escaped(text):
    stream = io.StringIO()
    assert PlainOutput(stream).write(text) == len(text)
    assert stream.getvalue() == SHOWN[text]


def test_a_command_to_copy_is_quoted_as_its_system_expects():
    assert shell_word(r"C:\ComfyUI\models", windows=True) == r"C:\ComfyUI\models"
    assert shell_word(r"C:\My files\a&b", windows=True) == r'"C:\My files\a&b"'
    assert shell_word("/my files/models", windows=False) == "'/my files/models'"
