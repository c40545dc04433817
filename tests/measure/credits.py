"""Measures which clips of real films are taken for credits or titles, against labels.

    OMP_NUM_THREADS=1 python tests/measure/credits.py big_buck_bunny=FILM.mp4 trailer=TRAILER.mp4 --surveys DIR

Give each film the name of its labels in tests/data/credits, which say where the film comes from. Not collected by
pytest. A clip that a label covers for at least three quarters should be left out; one that labels cover for at most a
quarter is the film's own and should stay. The film's own clips are also read with subtitles drawn into them.
"""

# ruff: noqa: T201

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import cv2  # noqa: E402
import numpy as np  # noqa: E402
from lettered import subtitle, write  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from animegamer_core.data.films import writing  # noqa: E402
from animegamer_core.data.films.cutting import segments_of  # noqa: E402
from animegamer_core.data.films.film import frames_at, read_frames  # noqa: E402
from animegamer_core.data.films.film_index import add_film, film_name, read_film_index  # noqa: E402
from animegamer_core.data.films.framing import fit  # noqa: E402
from animegamer_core.data.films.survey import Survey, survey_film  # noqa: E402
from animegamer_core.data.films.transnet import best_device  # noqa: E402

LABELS = ROOT / "tests" / "data" / "credits"
SIZE, FRAMES = (480, 720), 17  # of a clip: height and width, frames
Pages = list[NDArray[np.uint8]]


def main() -> None:
    """Print the figures of each film."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("films", nargs="+", metavar="NAME=FILM", help="a file of tests/data/credits, and its film")
    parser.add_argument("--surveys", type=Path, required=True, metavar="DIR", help="keeps the films' scenes")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    for given in args.films:
        name, _, film = given.partition("=")
        print_film(name, Path(film), args.surveys)


def print_film(name: str, film: Path, surveys: Path) -> None:
    """Print what was taken for credits of a film, against its labels."""
    spans = labels_of(LABELS / f"{name}.txt")
    found: dict[str, list[float]] = {"unwanted": [], "kept": [], "own": [], "lost": [], "between": [], "subtitled": []}
    texts = [
        (start, writing.read_text(pages), writing.read_text(subtitled(pages, round(start))))
        for start, pages in clips_of(film, survey_of(film, surveys))
    ]
    found_in = (writing.credits_and_subtitles([row[at] for row in texts], writing.MOST_TEXT) for at in (1, 2))
    for (start, *_), (left_out, _), (lost, _) in zip(texts, *found_in, strict=True):
        covered = sum(max(0.0, min(start + 2, end) - max(start, begin)) for begin, end in spans) / 2
        kind = "unwanted" if covered >= 0.75 else "own" if covered <= 0.25 else "between"
        found[kind].append(start)
        if kind == "own":
            found["lost"] += [start] if left_out else []
            found["subtitled"] += [start] if lost else []
        elif kind == "unwanted" and not left_out:
            found["kept"].append(start)
    print(
        f"{name}: of {len(found['unwanted'])} clips of credits or titles {listed(found['kept'])} stay; of "
        f"{len(found['own'])} own clips {listed(found['lost'])} are lost, and with subtitles "
        f"{listed(found['subtitled'])}; partly titles: {listed(found['between'])}",
        flush=True,
    )


def labels_of(path: Path) -> list[tuple[float, float]]:
    """(begin, end) of each labelled span."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(float(line.split()[0]), float(line.split()[1])) for line in lines if not line.startswith("#")]


def survey_of(film: Path, surveys: Path) -> Survey:
    """The film's scenes, found now or before."""
    name = film_name(film.stem)
    if name not in read_film_index(surveys):
        add_film(surveys, name, film, {}, survey_film(film, device=best_device()))
    return read_film_index(surveys)[name].survey


def clips_of(film: Path, survey: Survey) -> Iterator[tuple[float, Pages]]:
    """The start of each clip, and its frames that are looked at."""
    clips = [(scene.crop, segment) for scene in survey.scenes for segment in segments_of(scene)]
    times = [segment.times[index] for _, segment in clips for index in writing.looked_at(FRAMES)]
    pictures = frames_at(read_frames(film), times)
    for crop, segment in clips:
        shown = (next(pictures) for _ in writing.looked_at(FRAMES))
        yield segment.start, [fit(picture, crop, writing.reading_size(picture, crop, SIZE)) for picture in shown]


def subtitled(pages: Pages, seed: int) -> Pages:
    """The frames with a subtitle of one row or two."""
    return [write(page, subtitle(random.Random(seed), 0), page.shape[0] // 20, edge=True) for page in pages]


def listed(starts: list[float]) -> str:
    return f"{len(starts)} ({', '.join(f'{start:.2f}' for start in starts)})" if starts else "none"


if __name__ == "__main__":
    main()
