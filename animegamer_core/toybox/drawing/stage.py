"""What all motions share: the beat, the characters, and the ground.

A motion draws a pose that is recognisable by itself. `Beat` moves everything around that pose, scaled by the shot's
strength, so that the weakest motion can still be recognised and the strongest stays in the picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .figures import FOREARM, HIP_HEIGHT, TORSO
from .pen import RGB, Pen, Point

GROUND = 90.0  # feet, in frame pixels
HIP = GROUND - HIP_HEIGHT


@dataclass(frozen=True)
class Beat:
    """A moment of a shot. turn: the time, 0..1 over the shot. strength: how strongly the shot moves, 0..1."""

    turn: float
    strength: float

    def wave(self, size: float, cycles: float, shift: float = 0.0) -> float:
        """Return a sine of time with `cycles` per shot; its amplitude is `size` at full strength. shift: in cycles."""
        return size * self.strength * math.sin(2 * math.pi * (cycles * self.turn + shift))

    def step(self, size: float, cycles: float) -> float:
        """Return 0 at time 0, rising to `size` (at full strength) and back, `cycles` times per shot."""
        return size * self.strength * (1 - math.cos(2 * math.pi * cycles * self.turn)) / 2


@dataclass(frozen=True)
class Characters:
    """The main character, the second one if the motion needs one, and the colour of the main character's scarf."""

    main: str
    partner: str | None
    scarf: RGB | None


def shadow(pen: Pen, x: float, wide: float = 19.0) -> None:
    """Draw a figure's shadow on the ground at x. wide: its radius in pixels."""
    pen.shade(x, GROUND + 1.0, wide, 3.4, 80)


def limb(x: float, y: float, length: float, bend: float) -> Point:
    """Return the angles of an arm or a leg (upper, lower) that ends at (x, y) from its joint, or points there.

    length: of each half. bend: 1 for an elbow on the right of that line, seen along it, -1 for the left.
    """
    along = math.degrees(math.atan2(x, y))
    half = bend * math.degrees(math.acos(min(1.0, math.hypot(x, y) / (2 * length))))
    return along + half, along - half


def arm(side: int, x: float, y: float, bend: float = 0.0) -> Point:
    """Return the angles of the left (-1) or right (1) arm whose hand is at (x, y) from the hips, as the body leans."""
    return limb(x - side * 7.5, y + TORSO - 4, FOREARM, bend or side)
