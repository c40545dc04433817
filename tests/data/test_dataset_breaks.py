"""A dataset build is killed: the same build goes on, and comes to the same dataset."""

import os
import shutil

import pytest
from kills import kill_often
from made_film import make_film
from test_dataset_build import PLANS, SETTINGS, contents, script

from animegamer_core.data.assemble import assemble_dataset
from animegamer_core.data.build import cut_films
from animegamer_core.data.films import cutting
from animegamer_core.data.films.film_index import finished_scenes


def build(film, out):
    assert cut_films([film], out, SETTINGS, 1) == {}
    assemble_dataset(out, SETTINGS, script([film]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_kills_lose_the_scenes_in_progress_only(tmp_path, monkeypatch, kills):
    monkeypatch.setattr(cutting, "SPAN_SECONDS", 0.5)  # so short that a kill finds some of them finished
    film, whole, out = tmp_path / "one.mp4", tmp_path / "whole", tmp_path / "killed"
    make_film(film, PLANS["one"])
    build(film, whole)

    def begin():
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    def finished():
        return len(finished_scenes(out, "one")) if (out / "films").is_dir() else 0

    def check():
        assert contents(out) == contents(whole)

    kill_often(begin, lambda: build(film, out), finished, check, tmp_path / "log.txt", kills, seed=0)
