"""The verbs' parsers, which are made from their dataclasses."""

import os
import subprocess
import sys

import numpy as np
import pytest

from animegamer_core.__main__ import VERBS, main
from animegamer_core.cli import play, train
from animegamer_core.cli.options import parse, show_picture


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb, capsys):
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    printed = capsys.readouterr().out
    assert left.value.code == 0 and printed.startswith(f"usage: python -m animegamer_core {verb}")
    assert "default: None" not in printed


def test_the_list_of_verbs_loads_neither_torch_nor_a_parser():
    code = "import sys; from animegamer_core.__main__ import main; main(['--help']); print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "False" and all(verb in shown for verb in VERBS)


def test_threads_of_torch_sleep_while_they_wait():
    code = "from animegamer_core.__main__ import main; main(['--help']); import torch"
    shows = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"} | {"OMP_DISPLAY_ENV": "TRUE"}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=shows).stderr
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in shown


def test_a_stage_gets_the_options_that_were_typed_and_no_other():
    words = "joint --dataset d --world w --out o --lr 1e-3 --no-checkpointing --trainable a b --set joint.steps=3"
    given = parse(train.Options, words.split(), "train", "")
    assert given.options == {"lr": 1e-3, "checkpointing": False, "trainable": ("a", "b")}
    assert (given.stage, str(given.out), given.set, given.start) == ("joint", "o", ("joint.steps=3",), ())


def test_adapters_and_motions_may_be_repeated():
    given = parse(play.Play, "game.txt --lora a=0.5 --lora b --motion 1=fast --motion 2=2.5px".split(), "play", "")
    assert (str(given.file), given.lora, given.motion) == ("game.txt", ("a=0.5", "b"), ("1=fast", "2=2.5px"))


@pytest.mark.parametrize(
    ("words", "said"), [("--preset quick", "exact"), ("--seeds 3", "--seed"), ("--seed x", "seed")]
)
def test_what_does_not_fit_ends_with_status_2_and_what_would(words, said, capsys):
    with pytest.raises(SystemExit) as left:
        main(["play", *words.split()])
    assert left.value.code == 2 and said in capsys.readouterr().err


def test_a_preview_is_drawn_on_a_terminal_that_states_no_size(monkeypatch, capsys):
    """As in a container or under `script`: two pixels a character, in 80 x 24 of them."""
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((0, 0)))
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    show_picture(np.zeros((192, 288, 3), np.uint8))
    lines = capsys.readouterr().err.splitlines()[1:]
    assert [line.count("\u2580") for line in lines[:22]] == [66] * 22
