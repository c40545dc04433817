"""Measures what the pipeline says of a real film against what an eye saw in it: how much moves, and who is seen.

    python tests/measure/real_film.py films/bunny

Not collected by pytest. The folder is that of `example_film.py`. How much moves: the rank correlation of the clips'
motion values with the eye's. Who is seen: precision and recall of an image encoder that compares the characters'
reference pictures with frames and parts of them. The encoder is the Toybox's, which never saw a real picture, or a
published CLIP (--towers published --clip DIR).
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import msgspec  # noqa: E402
import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from PIL import Image  # noqa: E402
from torch import Tensor  # noqa: E402

from animegamer_core.data.captions.pictures import MATCHING_FRAMES, Reference, evenly, open_picture, read_references  # noqa: E402
from animegamer_core.data.dataset import DatasetFolder  # noqa: E402
from animegamer_core.data.records import ClipRecord  # noqa: E402
from animegamer_core.evaluate.estimates import rank_correlation  # noqa: E402
from animegamer_core.evaluate.similarity import KINDS, ImageModel, open_scoring_models  # noqa: E402
from animegamer_core.json_files import read_rows  # noqa: E402

MOVEMENT = Path(__file__).parent / "big_buck_bunny" / "big_buck_bunny.movement.jsonl"
PARTS = ((1, 1.0), (3, 0.5), (4, 0.34))  # of a frame: places along each side, and a part's side


class Piece(msgspec.Struct):
    """How much moves from start to end, 1 to 5, by eye."""

    start: float
    end: float
    movement: int


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FILMS", help="the folder of example_film.py")
    parser.add_argument("--towers", choices=KINDS, default="toybox", help="scoring models (default %(default)s)")
    parser.add_argument("--clip", type=Path, metavar="DIR", help="published: folder of a CLIP model")
    parser.add_argument("--dreamsim", type=Path, metavar="DIR", help="published: folder of DreamSim's weights")
    args = parser.parse_args()
    dataset = DatasetFolder.open(args.folder / "dataset")
    pieces = [row.value for row in read_rows(MOVEMENT, Piece)]
    print_movement(dataset.turns, pieces)
    models = open_scoring_models(args.towers, clip=args.clip, dreamsim=args.dreamsim)
    print_matching(dataset, read_references(args.folder / "characters"), models.clip)


def print_movement(turns: Sequence[ClipRecord], pieces: Sequence[Piece]) -> None:
    """Print the rank correlation over all clips, and over those that lie in one piece but for a tenth."""
    found = [(turn.motion_value, *seen(turn, pieces)) for turn in turns]
    for name, least in (("all clips", 0.5), ("clips within one piece", 0.9)):
        chosen = [(value, movement) for value, movement, covered in found if covered >= least]
        correlation = rank_correlation(*zip(*chosen, strict=True))
        print(f"{name}: {len(chosen)}, rank correlation of motion with an eye {correlation:.3f}", flush=True)


def seen(turn: ClipRecord, pieces: Sequence[Piece]) -> tuple[float, float]:
    """(movement by eye, the mean of the pieces that a clip lies in; the greatest part that one piece covers)."""
    covered = [max(0.0, min(turn.end, piece.end) - max(turn.start, piece.start)) for piece in pieces]
    total = sum(covered)
    if not total:
        return 0.0, 0.0
    mean = sum(seconds * piece.movement for seconds, piece in zip(covered, pieces, strict=True)) / total
    return mean, max(covered) / (turn.end - turn.start)


def print_matching(dataset: DatasetFolder, references: Sequence[Reference], model: ImageModel) -> None:
    """Print precision and recall of each character. Each half of the film is judged by a limit set on the other."""
    known = [model.embed_images(pictures_of(reference)) for reference in references]
    scores = np.array([clip_scores(dataset.frames(index), known, model) for index in range(len(dataset.turns))])
    halves = np.arange(len(dataset.turns)) < len(dataset.turns) // 2
    print(f"{'character':<12}{'clips':>6}{'precision':>11}{'recall':>8}{'average precision':>19}{'at random':>11}")
    for number, reference in enumerate(references):
        truth = np.array([reference.name in (turn.character or ()) for turn in dataset.turns])
        given, score = np.zeros_like(truth), scores[:, number]
        for half in (halves, ~halves):
            given[half] = score[half] >= best_limit(score[~half], truth[~half])
        right = (given & truth).sum()
        precision, recall = right / max(1, given.sum()), right / max(1, truth.sum())
        average = average_precision(score, truth)
        print(
            f"{reference.name:<12}{truth.sum():>6}{precision:>11.2f}{recall:>8.2f}{average:>19.2f}{truth.mean():>11.2f}"
        )


def clip_scores(frames_FHWC: NDArray[np.uint8], known: Sequence[Tensor], model: ImageModel) -> list[float]:
    """For each character the greatest cosine of a reference picture (R, E) and a part of a frame."""
    parts = [part for index in evenly(len(frames_FHWC), MATCHING_FRAMES) for part in parts_of(frames_FHWC[index])]
    parts_ME = model.embed_images(np.stack(parts))
    return [float((parts_ME @ pictures_RE.T).max()) for pictures_RE in known]


def parts_of(frame_HWC: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    """The frame and overlapping parts of it, all at the frame's size."""
    height, width = frame_HWC.shape[:2]
    picture, found = Image.fromarray(frame_HWC), []
    for places, side in PARTS:
        steps = np.linspace(0, 1 - side, places)
        boxes = [(x * width, y * height, (x + side) * width, (y + side) * height) for y in steps for x in steps]
        found += [np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC, box)) for box in boxes]
    return found


def pictures_of(reference: Reference) -> NDArray[np.uint8]:
    """The reference pictures of a character, stretched to one size."""
    return np.stack([np.asarray(open_picture(path).resize((144, 96))) for path in reference.pictures])


def best_limit(score: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    """The limit with the best F1; above all scores where there is nothing to find."""
    limits = np.unique(score)
    found = [2 * (truth & (score >= limit)).sum() / (truth.sum() + (score >= limit).sum()) for limit in limits]
    return float(limits[int(np.argmax(found))]) if truth.any() else np.inf


def average_precision(score: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    """The mean precision at each clip that shows the character, by falling score."""
    hits = truth[np.argsort(-score, kind="stable")]
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean()) if hits.any() else 0.0


if __name__ == "__main__":
    main()
