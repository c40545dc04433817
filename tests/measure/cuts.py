"""Measures how well scenes are found on real films, against the labels of tests/data/cuts, and how quickly.

    python tests/measure/cuts.py big_buck_bunny=FILM.mp4 trailer=TRAILER.mp4 transnet_test=test.mp4

Give each film the name of its labels, which say where the film comes from. Not collected by pytest. A found
transition is right if it is within 0.6 s of a labelled one, each of which counts once.
"""

# ruff: noqa: T201

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

from animegamer_core.data.films.survey import survey_film  # noqa: E402
from animegamer_core.data.films.transnet import best_device  # noqa: E402

LABELS = ROOT / "tests" / "data" / "cuts"
NEAR = 0.6  # seconds


def main() -> None:
    """Survey each film and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("films", nargs="+", metavar="NAME=FILM", help="a file of tests/data/cuts, and its film")
    parser.add_argument("--device", default=best_device(), help="of TransNetV2 (default %(default)s)")
    args = parser.parse_args()
    for given in args.films:
        name, _, film = given.partition("=")
        spans, body = labels_of(LABELS / f"{name}.txt")
        begun, used = time.perf_counter(), time.process_time()
        survey = survey_film(Path(film), device=args.device)
        wall, used = time.perf_counter() - begun, time.process_time() - used
        found = [scene.start for scene in survey.scenes[1:] if scene.start < body]
        missed, wrong = compared(spans, found)
        right, frames, load = len(spans) - len(missed), survey.seconds * survey.facts["fps"], os.getloadavg()[0]
        print(
            f"{name}: recall {right}/{len(spans)} = {right / len(spans):.3f}, precision {right}/{len(found)} = "
            f"{right / len(found):.3f}; missed at {seconds(missed)}; wrong at {seconds(wrong)}; {args.device}: "
            f"{frames / wall:.0f} frames/s, {frames / used:.0f} a second of processor time, load {load:.1f}",
            flush=True,
        )


def labels_of(path: Path) -> tuple[list[tuple[float, float]], float]:
    """((begin, end) of each labelled transition, second at which the labelled part of the film ends)."""
    lines = path.read_text(encoding="utf-8").splitlines()
    body = next(float(line.split()[2]) for line in lines if line.startswith("# body "))
    pairs = [line.split() for line in lines if not line.startswith("#")]
    return [(float(begin), float(end)) for begin, end in pairs], body


def compared(
    spans: list[tuple[float, float]], found: list[float], near: float = NEAR
) -> tuple[list[float], list[float]]:
    """(labelled transitions that were missed, found ones that are none); nearest pairs are matched first."""
    pairs = sorted(
        (max(begin - at, at - end, 0.0), abs(at - (begin + end) / 2), span, number)
        for span, (begin, end) in enumerate(spans)
        for number, at in enumerate(found)
    )
    spans_left, found_left = set(range(len(spans))), set(range(len(found)))
    for far, _, span, number in pairs:
        if far <= near and span in spans_left and number in found_left:
            spans_left.remove(span)
            found_left.remove(number)
    return [spans[span][0] for span in sorted(spans_left)], [found[number] for number in sorted(found_left)]


def seconds(times: list[float]) -> str:
    """Times as text."""
    return ", ".join(f"{time:.2f}" for time in times) or "none"


if __name__ == "__main__":
    main()
