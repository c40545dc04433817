"""Draws reference pictures of the Toybox's characters; for other worlds, the user gives pictures.

M pictures, H height, W width.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from .drawing.draw import draw_frame
from .world import AMPLITUDES, CHARACTERS, PLACES, Scene

if TYPE_CHECKING:
    from numpy.typing import NDArray

SETTINGS = tuple((place, time) for place in PLACES[::3] for time in ("day", "night"))
REFERENCE_MOTION = "wave"  # standing, facing the viewer, the whole figure in view
REFERENCE_SPLIT = 3  # the lowest bits of these scenes' seeds, which no game's seeds have


def reference_scenes(name: str) -> tuple[Scene, ...]:
    """Eight neutral scenes of a character: alone, waving calmly, nothing in hand, at four places by day and by night.

    The places are the same for every character, so that a place does not identify a character. No game uses these
    seeds. ValueError for an unknown character.
    """
    if name not in CHARACTERS:
        raise ValueError(f"unknown Toybox character {name!r}; choose one of {', '.join(CHARACTERS)}")
    return tuple(
        Scene(
            film=CHARACTERS[name].film,
            character=name,
            partner=None,
            motion=REFERENCE_MOTION,
            place=place,
            time=time,
            prop=None,
            prop_colour=None,
            prop_told=False,
            amplitude=2 * AMPLITUDES[0],
            seed=_seed(name, number),
        )
        for number, (place, time) in enumerate(SETTINGS)
    )


def _seed(name: str, number: int) -> int:
    digest = hashlib.sha256(f"toybox/reference/{name}/{number}".encode()).digest()
    return int.from_bytes(digest[:7], "big") * 4 + REFERENCE_SPLIT


def reference_pictures(name: str) -> NDArray[np.uint8]:
    """Draw the reference pictures, uint8 RGB (8, 192, 288, 3), always the same; ValueError for an unknown character."""
    return np.stack([draw_frame(scene, 0) for scene in reference_scenes(name)])
