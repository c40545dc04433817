"""A dataset build is killed, or the power fails: the same build goes on, and comes to the same dataset."""

import shutil

import pytest
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
