"""A dataset build is killed, or the power fails: the same build goes on, and comes to the same dataset."""

import os
import shutil

import pytest
from kills import kill_often
from made_film import make_film
from power_cut import recorded, sample
from test_dataset_build import PLANS, SETTINGS, contents, script

from animegamer_core.data.assemble import assemble_dataset
from animegamer_core.data.build import cut_films
from animegamer_core.data.films import cutting
from animegamer_core.data.films.film_index import finished_scenes


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    path = tmp_path_factory.mktemp("film") / "one.mp4"
    make_film(path, PLANS["one"])
    return path


@pytest.fixture(scope="module", autouse=True)
def short_spans():
    """Spans so short that a break finds some of them finished."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "SPAN_SECONDS", 0.5)
        yield


def build(film, out, report=None):
    assert cut_films([film], out, SETTINGS, 1, report) == {}
    assemble_dataset(out, SETTINGS, script([film]))


def scenes_done(out):
    return len(finished_scenes(out, "one")) if (out / "films").is_dir() else 0


@pytest.fixture(scope="module")
def built(film, tmp_path_factory):
    """(a whole dataset, what the disk may have held)."""
    out = tmp_path_factory.mktemp("built") / "dataset"
    out.mkdir()
    with recorded(out) as disk:
        build(film, out, lambda what, done, total: disk.note(done) if what == "scenes cut" else None)
    return out, disk


def go_on_after(built, film, moment, seed, out):
    whole, disk = built
    disk.cut(moment, seed, out)
    assert scenes_done(out) >= max(disk.noted(moment), default=0), f"moment {moment}, seed {seed}: a scene was lost"
    build(film, out)
    assert contents(out) == contents(whole), f"moment {moment}, seed {seed}"


def test_a_power_cut_loses_the_scenes_in_progress_only(built, film, tmp_path):
    for moment, seed in sample(built[1], 8):
        go_on_after(built, film, moment, seed, tmp_path / f"{moment}-{seed}")


@pytest.mark.soak
def test_power_cuts_at_every_moment_lose_the_scenes_in_progress_only(built, film, tmp_path):
    for moment, seed in sample(built[1], 200):
        go_on_after(built, film, moment, seed, out := tmp_path / f"{moment}-{seed}")
        shutil.rmtree(out)


def build_with_kills(built, film, tmp_path, kills, seed):
    out = tmp_path / "killed"

    def begin():
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    def check():
        assert contents(out) == contents(built[0])

    kill_often(begin, lambda: build(film, out), lambda: scenes_done(out), check, tmp_path / "log.txt", kills, seed)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_kills_change_nothing(built, film, tmp_path):
    build_with_kills(built, film, tmp_path, 5, seed=0)


@pytest.mark.soak
@pytest.mark.parametrize("run", range(10))
def test_two_hundred_kills_change_nothing(built, film, tmp_path, run):
    build_with_kills(built, film, tmp_path, 20, seed=run + 1)
