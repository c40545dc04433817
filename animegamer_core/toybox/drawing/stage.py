"""What every motion shares: the beat that it moves to, its characters, and the ground.

The first frame alone shows the pose; `Beat` moves everything around that pose, scaled by the shot's strength, so that
the smallest motion is still legible and the largest stays in the picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .figures import HIP_HEIGHT
from .pen import RGB, Pen

GROUND = 90.0  # feet, in frame pixels
HIP = GROUND - HIP_HEIGHT


@dataclass(frozen=True)
class Beat:
    """Where a shot is in time (turn: 0..1 over the shot) and how strongly it moves (0..1)."""

    turn: float
    strength: float

    def wave(self, size: float, cycles: float, shift: float = 0.0) -> float:
        """Return a sine of time that is `size` high at full strength."""
        return size * self.strength * math.sin(2 * math.pi * (cycles * self.turn + shift))

    def step(self, size: float, cycles: float) -> float:
        """Return 0 at the first frame, rising to `size` at full strength and back, `cycles` times."""
        return size * self.strength * (1 - math.cos(2 * math.pi * cycles * self.turn)) / 2


@dataclass(frozen=True)
class Characters:
    """The main character, the second one if the motion has one, and the colour of a worn scarf."""

    main: str
    partner: str | None
    scarf: RGB | None


def shadow(pen: Pen, x: float, wide: float = 19.0) -> None:
    """Lay a figure's shadow on the ground at x."""
    pen.shade(x, GROUND + 1.0, wide, 3.4, 80)
