"""What the words of an instruction leave open, chosen by the scene's seed: one take of the shot."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..world import Scene
from .films import LEFT, RIGHT, WRITTEN
from .pen import WIDE

CENTRE = (72.0, 56.0)  # what stays in its place when the camera zooms, in frame pixels
# A first picture shows how far poses and cameras are in their first eighth, in which none of them turns round. So it
# tells where everything goes; if it did not, a decoder would have to guess, and its quick shots would melt.
LATEST = 0.12
Spot = tuple[float, float, float]  # x, y, scale


@dataclass(frozen=True)
class Take:
    """What differs between two shots of the same scene.

    phase: of pose and camera, 0..1 of the shot. start: where in the place the camera begins. clouds: where they are.
    sides: names of small things beside the figures, and where they are.
    """

    phase: float
    start: float
    zoom: float
    clouds: tuple[Spot, ...]
    sides: tuple[tuple[str, Spot], ...]


def take_of(scene: Scene, reach: float, pan: bool) -> Take:
    """Return the take that the scene's seed chooses. reach: how far the camera goes, to the right if it is a pan."""
    rng = random.Random(f"take:{scene.seed}")
    start = rng.uniform(LEFT + 1 + (0 if pan else reach), min(60, RIGHT - WIDE - 1 - reach))
    things = rng.sample(WRITTEN.sides["indoors" if WRITTEN.places[scene.place].indoors else "outdoors"], 2)
    spots = rng.sample((12, 26, 118, 132), rng.choice((1, 2)))
    return Take(
        phase=rng.uniform(0, LATEST),
        start=start,
        zoom=rng.uniform(1, 1.12),
        clouds=tuple((x + rng.uniform(-36, 36), rng.uniform(4, 30), rng.uniform(0.7, 1.3)) for x in (8, 92, 170, 214)),
        sides=tuple((name, (start + x, rng.uniform(83, 91), 1.1)) for name, x in zip(things, spots, strict=False)),
    )
