"""Nothing that is printed acts on the terminal but a progress line."""

import io
import subprocess
import sys

import pytest

from animegamer_core.cli.plain_output import PlainOutput

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


def test_a_name_from_outside_does_not_reach_the_terminal(tmp_path):
    name = str(tmp_path / "\x1b[31mred\x1b]0;title\x07.txt")
    words = [sys.executable, "-m", "animegamer_core", "play", name]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "red" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout and "\x07" not in done.stderr
