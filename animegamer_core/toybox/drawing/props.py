"""Draws the six props of props.txt, in the colour that a game chose."""

from __future__ import annotations

from .pen import RGB, Pen
from .pictures import paint, picture

# what turns around (x, y), and from which angle; the car's body bobs instead
HINGES = {
    "umbrella": (0, 0, 0),
    "scarf": (-7, 1, 0),
    "balloon": (0, 0, 0),
    "kite": (0, 0, 12),
    "ball": (0, -9.5, 0),
}


def draw_prop(pen: Pen, prop: str, colour: RGB, moved: float) -> None:
    """Draw a prop that stands on the ground at (0, 0): a scarf lies round a neck there, a kite flies there.

    moved: how far it sways, flutters or rolls, in degrees; of the car how far its body sinks.
    """
    x, y, angle = HINGES.get(prop, (0, moved, -moved))
    paint({"": pen, "moved": pen.at(x, y, angle + moved)}, picture("props", prop), {"colour": colour})
