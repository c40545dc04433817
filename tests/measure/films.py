"""Measures the film pipeline on generated films: cuts, crops, levels, what is wrongly dropped, and throughput per core.

    OMP_NUM_THREADS=1 python tests/measure/films.py --seeds 31 32 33 --size 360 640 --scenes 14

Not collected by pytest. Prints a row for each film and one for all of them together.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import numpy as np  # noqa: E402
from film_parts import BORDERS, FilmPlan  # noqa: E402
from film_truth import true_motion  # noqa: E402
from made_film import FilmTruth, make_film  # noqa: E402

from animegamer_core.data.build import BuildSettings  # noqa: E402
from animegamer_core.data.dataset import DatasetFolder  # noqa: E402
from animegamer_core.data.films.cutting import (  # noqa: E402
    ClipShape,
    Cut,
    Duplicates,  # noqa: E402
    cut_span,
    spans_of,
)
from animegamer_core.data.films.survey import Survey, survey_film  # noqa: E402
from animegamer_core.data.motion import level_edges, level_of  # noqa: E402
from animegamer_core.data.records import ClipRecord  # noqa: E402
from animegamer_core.evaluate.estimates import rank_correlation  # noqa: E402

Row = Counter  # counts and sums, so that the rows of films add up


def main() -> None:
    """Measure every film and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[31, 32, 33, 34])
    parser.add_argument("--size", type=int, nargs=2, default=[360, 640], help="height and width")
    parser.add_argument("--scenes", type=int, default=14)
    parser.add_argument("--clip", type=int, nargs=2, default=[96, 144], help="height and width of clips")
    args = parser.parse_args()
    rows = []
    for seed in args.seeds:
        plan = plan_of(seed, tuple(args.size), args.scenes)
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measured(Path(folder), plan, ClipShape(*args.clip)))
        print(summary(f"seed {seed}, {plan.size[0]} lines", rows[-1]), flush=True)
    print(summary(f"all {len(rows)} films", sum(rows, Row())))


def plan_of(seed: int, size: tuple[int, int], scenes: int) -> FilmPlan:
    """A film with some of everything; which borders it has and whether its rate varies goes by the seed."""
    kinds = [name for name in BORDERS if name != "none"]
    return FilmPlan(
        seed=seed,
        scenes=scenes,
        size=size,
        seconds=(2.4, 5.0),
        borders=(kinds[seed % 3], "none", kinds[(seed + 1) % 3])[: 1 + scenes // 4],
        fades=scenes // 7,
        cross_fades=scenes // 10,
        flashes=scenes // 4,
        stills=scenes // 10,
        repeats=scenes // 8,
        credits=True,
        dark_opening=seed % 2 == 0,
        variable=seed % 2 == 1,
        sound=True,
    )


def measured(folder: Path, plan: FilmPlan, shape: ClipShape) -> Row:
    """What became of one film. Times are of the processor, of this one process."""
    truth, film = make_film(folder / "film.mp4", plan), folder / "film.mp4"
    begun = time.process_time()
    survey = survey_film(film, BuildSettings(shape=shape).scenes, threads=1)
    first = time.process_time() - begun
    settings, begun = BuildSettings(shape=shape), time.process_time()
    cuts = []
    for span in spans_of(film, "film", survey, frozenset()):
        _, scenes = cut_span(span, folder, shape, settings.flow)
        cuts += [(number, cut) for number, scene in enumerate(scenes, span.first) for cut in scene]
    second = time.process_time() - begun
    duplicates, kept, row = Duplicates(), [], Row(films=1, frames=truth.frames, first=first, second=second)
    row["written"] = sum(cut.dropped is None for _, cut in cuts)
    for number, cut in cuts:
        reason = cut.dropped or duplicates.add(cut.signature, cut.clip, str(number))
        row += judged(cut, reason, truth)
        kept += [] if reason else [cut]
    return row + transitions(survey, truth, plan) + crops(survey, truth) + levels(kept, truth, plan, folder)


def judged(cut: Cut, reason: str | None, truth: FilmTruth) -> Row:
    """Whether a segment was rightly kept or dropped: what is drawn as a scene or in the dark is to be kept."""
    scene = truth.scene_at((cut.start + cut.end) / 2)
    wanted = scene.kind in ("scene", "dark") and scene.repeats is None
    crossed = any(cut.start + 1.01 / truth.fps < join.seconds < cut.end - 0.01 for join in truth.cuts)
    kind = "repeat" if scene.repeats is not None else scene.kind
    row = Row(segments=1, wanted=wanted, unwanted=not wanted, crossed=crossed and reason is None)
    row["wrongly dropped"] = bool(wanted and reason)
    row["wrongly kept"] = bool(not wanted and not reason)
    if bool(wanted) == bool(reason):
        print(f"  {cut.start:.2f} s is {kind}: {reason or 'kept'}", file=sys.stderr)
    return row


def transitions(survey: Survey, truth: FilmTruth, plan: FilmPlan) -> Row:
    """Hard cuts that were found within a frame, and found transitions that are one."""
    frame = 1.01 / plan.fps
    found = [item.scene.start for item in survey.scenes[1:]]
    hard = [cut for cut in truth.cuts if cut.kind == "cut"]
    soft = [cut for cut in truth.cuts if cut.kind != "cut"]
    true = sum(any(cut.start - frame <= own <= cut.end + frame for cut in truth.cuts) for own in found)
    hit = sum(any(abs(cut.seconds - own) <= frame for own in found) for cut in hard)
    met = sum(any(cut.start - frame <= own <= cut.end + frame for own in found) for cut in soft)
    return Row(
        {"hard": len(hard), "hard found": hit, "soft": len(soft), "soft found": met, "found": len(found), "true": true}
    )


def crops(survey: Survey, truth: FilmTruth) -> Row:
    """Scenes by whether their crop is exact to two pixels."""
    row = Row()
    for item in survey.scenes:
        true = truth.scene_at((item.scene.start + item.scene.end) / 2).crop
        if true is not None:
            error = int(np.abs(np.subtract(dataclasses.astuple(item.crop), true)).max())
            row += Row({"crops": 1, "crops right": error <= 2})
    return row


def levels(kept: list[Cut], truth: FilmTruth, plan: FilmPlan, folder: Path) -> Row:
    """Rank correlation of motion values, and of levels, with the motion that was drawn."""
    turns = [ClipRecord(film="film", start=cut.start, end=cut.end, clip=cut.clip) for cut in kept]
    true = true_motion(DatasetFolder(folder, tuple(turns), ()), truth, plan)
    values = [cut.value for cut in kept]
    own, drawn = ([level_of(value, level_edges(row)) for value in row] for row in (values, true))
    return Row({"clips": len(kept), "values": rank_correlation(values, true), "levels": rank_correlation(own, drawn)})


def summary(name: str, row: Row) -> str:
    """The figures of a film, or of several."""
    return (
        f"{name}: hard cuts recall {row['hard found']}/{row['hard']}, fades {row['soft found']}/{row['soft']}, "
        f"precision {row['true']}/{row['found']}; crops {row['crops right']}/{row['crops']}; clips {row['clips']}, "
        f"across a cut {row['crossed']}, wrongly dropped {row['wrongly dropped']}/{row['wanted']}, "
        f"wrongly kept {row['wrongly kept']}/{row['unwanted']}; rank correlation of values "
        f"{row['values'] / row['films']:.3f}, of levels {row['levels'] / row['films']:.3f}; "
        f"pass 1 {row['frames'] / row['first']:.0f} frames/s, "
        f"pass 2 {row['written'] / row['second']:.2f} clips/s, of one core"
    )


if __name__ == "__main__":
    main()
