"""Nothing that is printed acts on the terminal but a progress line."""

import io
import subprocess
import sys

import pytest

from animegamer_core.messages import PlainOutput

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


@pytest.mark.parametrize(
    "words",
    [
        ("animegamer_core", "play", "NAME.txt"),
        ("animegamer_core.toybox.benchmark", "NAME.txt/games.txt"),
        ("animegamer_core.toybox.build", "--work", "NAME.txt/work"),
    ],
    ids=lambda words: words[0],
)
def test_a_name_from_outside_does_not_reach_the_terminal(words, tmp_path):
    """Every program here, with a name that is refused: there is a file where it wants a folder."""
    name = tmp_path / "\x1b[31mred\x1b]0;title\x07.txt"
    if "play" not in words:
        name.write_text("a file")
    given = [word.replace("NAME.txt", str(name)) for word in words]
    done = subprocess.run([sys.executable, "-m", *given], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and "red" in done.stderr, done.stderr
    assert "\x1b" not in done.stderr + done.stdout and "\x07" not in done.stderr
