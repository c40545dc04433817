"""Turns Toybox scenes into class labels and true clips; draws and measures in several processes.

M clips, F frames, H height, W width, C channels. Imports no torch, so that worker processes start quickly.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..data.motion import motion_value
from ..data.workers import parallel_map
from .drawing.draw import draw_frame, draw_shot
from .world import AMPLITUDES, CHARACTERS, COLOURS, FRAMES, HEIGHT, MOTIONS, PLACES, PROPS, TIMES, WIDTH, Scene

if TYPE_CHECKING:
    from numpy.typing import NDArray

NONE = "none"
HEADS: dict[str, tuple[str, ...]] = {
    "character": tuple(CHARACTERS),
    "partner": (NONE, *CHARACTERS),
    "place": tuple(PLACES),
    "time": TIMES,
    "motion": tuple(MOTIONS),
    "colour": (NONE, *COLOURS),
}
OWN_SPLIT = 3  # the lowest bits of the seeds of scenes made here, which no game's seeds have
REFERENCE_SETTINGS = tuple((place, time) for place in tuple(PLACES)[::2] for time in ("day", "night"))
REFERENCE_MOTION = "wave"  # standing, facing the viewer, the whole figure in view
VISIBLE = 12  # of 255: the least difference that counts as a figure's
PROP_FRACTION = 0.7  # fraction of probe scenes with a prop

OnClip = Callable[[int, int], None]  # (clips done, clips in all)
Labels = dict[str, "NDArray[np.int64]"]  # head -> (M,) index of the class in HEADS


def labels_of(scenes: Sequence[Scene]) -> Labels:
    """The true class numbers (M,) of every head for these scenes."""
    return {head: np.array([HEADS[head].index(_truth(scene, head)) for scene in scenes]) for head in HEADS}


def _truth(scene: Scene, head: str) -> str:
    return getattr(scene, "prop_colour" if head == "colour" else head) or NONE


def probe_scene(seed: int) -> Scene:
    """A scene to train probes on: half of them show two characters, everything else is chosen uniformly.

    This includes pairs that are kept out of the world's training, which probes that never saw them could not judge
    fairly. No game has the scene's seed.
    """
    rng = random.Random(f"toybox/probe/{seed}")
    character, together = rng.choice(tuple(CHARACTERS)), rng.random() < 0.5
    motion = rng.choice([name for name, row in MOTIONS.items() if row.partner == together])
    others = [name for name in CHARACTERS if name != character]
    prop = rng.choice(PROPS) if rng.random() < PROP_FRACTION else None
    low, high = AMPLITUDES
    return Scene(
        character=character,
        partner=rng.choice(others) if MOTIONS[motion].partner else None,
        motion=motion,
        place=rng.choice(tuple(PLACES)),
        time=rng.choice(TIMES),
        prop=prop,
        prop_colour=rng.choice(tuple(COLOURS)) if prop else None,
        amplitude=low * (high / low) ** rng.random(),
        seed=rng.getrandbits(56) * 4 + OWN_SPLIT,
    )


def draw_labelled(seeds: Iterable[int], workers: int | None = None) -> tuple[NDArray[np.uint8], Labels]:
    """True clips (M, 17, 192, 288, 3) of the probe scenes with these seeds, and their labels."""
    scenes = [probe_scene(seed) for seed in seeds]
    return draw_clips(scenes, workers), labels_of(scenes)


def figure_boxes(scene: Scene) -> NDArray[np.int64]:
    """(F, 4) left, top, right, bottom of what a motion draws in each frame: the figures, and what they sit on or hold.

    A prop beside them does not count.
    """
    alone = scene if scene.prop == "scarf" else replace(scene, prop=None, prop_colour=None)
    boxes = []
    for index in range(FRAMES):
        drawn, empty = draw_frame(alone, index).astype(int), draw_frame(alone, index, empty=True)
        rows, columns = (np.flatnonzero((abs(drawn - empty).max(2) > VISIBLE).any(axis)) for axis in (1, 0))
        boxes.append((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
    return np.array(boxes)


def draw_clips(scenes: Sequence[Scene], workers: int | None = None, on_clip: OnClip | None = None) -> NDArray[np.uint8]:
    """The scenes' true clips, uint8 RGB (M, 17, 192, 288, 3). workers: processes, None for one per core."""
    clips = np.empty((len(scenes), FRAMES, HEIGHT, WIDTH, 3), np.uint8)
    return _filled(clips, parallel_map(draw_shot, scenes, workers), on_clip)


def measure_clips(
    clips_MFHWC: NDArray[np.uint8], workers: int | None = None, on_clip: OnClip | None = None
) -> NDArray[np.float64]:
    """The measured motion value of each clip (M,), px per frame at 480 px height."""
    values = np.empty(len(clips_MFHWC), np.float64)
    return _filled(values, parallel_map(motion_value, list(clips_MFHWC), workers), on_clip)


def _filled(rows: NDArray, results: Iterable[object], on_clip: OnClip | None) -> NDArray:
    """Fill the rows of an array with the results, and report each one to `on_clip`."""
    for index, result in enumerate(results):
        rows[index] = result
        if on_clip is not None:
            on_clip(index + 1, len(rows))
    return rows


def reference_scenes(name: str) -> tuple[Scene, ...]:
    """Twelve neutral scenes of a character: alone, waving calmly, nothing in hand, at six places by day and by night.

    The places are the same for every character, so that a place does not identify a character. No game uses these
    seeds. ValueError for an unknown character.
    """
    if name not in CHARACTERS:
        raise ValueError(f"unknown Toybox character {name!r}; choose one of {', '.join(CHARACTERS)}")
    return tuple(
        Scene(
            character=name,
            motion=REFERENCE_MOTION,
            place=place,
            time=time,
            amplitude=2 * AMPLITUDES[0],
            seed=_seed(name, number),
        )
        for number, (place, time) in enumerate(REFERENCE_SETTINGS)
    )


def _seed(name: str, number: int) -> int:
    digest = hashlib.sha256(f"toybox/reference/{name}/{number}".encode()).digest()
    return int.from_bytes(digest[:7], "big") * 4 + OWN_SPLIT


def reference_pictures(name: str) -> NDArray[np.uint8]:
    """Draw the reference pictures, uint8 RGB (12, 192, 288, 3), always the same; ValueError for unknown characters."""
    return np.stack([draw_frame(scene, 0) for scene in reference_scenes(name)])
