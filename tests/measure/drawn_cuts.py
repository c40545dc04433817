"""Measures how well scenes and flashes are found in films drawn like television anime (`tests/support/drawn_film.py`).

    python tests/measure/drawn_cuts.py 5 6 7 8

The thresholds were tuned on seeds 1 to 4. Not collected by pytest. A found change is right within two frames of a
drawn one, each of which counts once; a flash, if all its frames are found.
"""

# ruff: noqa: T201

import argparse
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(Path(__file__).parent)]

from cuts import compared  # noqa: E402
from drawn_film import FPS, HEIGHT, WIDTH, drawn_film  # noqa: E402
from made_film import write_film  # noqa: E402

from animegamer_core.data.films.survey import survey_film  # noqa: E402
from animegamer_core.data.films.transnet import best_device  # noqa: E402


def main() -> None:
    """Print the figures of all films together, by kind of change, flash and, for false ones, what the shot shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="+", type=int)
    drawn, found, false = Counter[str](), Counter[str](), Counter[str]()
    for seed in parser.parse_args().seeds:
        film = drawn_film(seed)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "film.mp4"
            write_film(path, enumerate(film), (HEIGHT, WIDTH), FPS)
            scenes = survey_film(path, device=best_device()).scenes
        starts = [round(scene.start * FPS) for scene in scenes[1:]]
        spans = [(span.first, span.end) for span in film.changes]
        missed, wrong = compared(spans, starts, near=2)
        flashed = {round(start * FPS) for scene in scenes for start, _ in scene.flashes}
        for span in film.changes:
            drawn[span.kind] += 1
            found[span.kind] += span.first not in missed
        for span in film.flashes:
            frames = set(range(span.first, span.end))
            drawn["flash " + span.kind] += 1
            found["flash " + span.kind] += frames <= flashed
            flashed -= set(range(span.first - 1, span.end + 1))
        for name, frame in [
            *(("", at) for at in wrong),
            *(("flash ", at) for at in sorted(flashed - {at + 1 for at in flashed})),
        ]:
            at = sum(first <= frame for first, _ in pairwise([*film.starts, 10**9])) - 1
            false[name + film.shots[at].action] += 1
    for flashes in (False, True):
        of = [
            sum(n for kind, n in count.items() if kind.startswith("flash") == flashes)
            for count in (drawn, found, false)
        ]
        print(f"{'flashes' if flashes else 'changes'}: {of[1]}/{of[0]} found, {of[2]} false")
    print("\n".join(f"{kind}: {found[kind]}/{count}" for kind, count in sorted(drawn.items())))
    print("false, in shots of:", dict(false))


if __name__ == "__main__":
    main()
