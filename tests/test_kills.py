"""The kills that other tests rely on: none of the work that they let end is begun anew before it was compared."""

import os
import time

import pytest
from kills import kill_often


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_every_end_is_compared_before_the_work_is_begun_anew(tmp_path):
    done, begun, compared = tmp_path / "done", [], []

    def begin():
        done.write_text("")
        begun.append(len(begun) + 1)

    def work():
        for _ in range(len(done.read_text()), 12):
            time.sleep(0.02)
            with done.open("a") as file:
                file.write("x")

    def check():
        assert done.read_text() == "x" * 12
        compared.append(begun[-1])

    kill_often(begin, work, lambda: len(done.read_text()), check, tmp_path / "log.txt", kills=90, seed=0)
    assert compared == begun and len(begun) > 3
