"""What world.json states about the calibration of its motion table, and the table before calibration.

The Toybox recipe fits the motion values that condition the decoder, so that its shots move as their level says (see
evaluate/toybox_recipe/calibrate.py). This flatters a world's motion figures, so world.json states the values before and
after, and evaluations measure with both.
"""

from __future__ import annotations

from dataclasses import replace

from ..game.state import MotionTable
from ..weights import World

# Keys of a world's provenance, which is not part of its fingerprint.
DATA_VALUES, CALIBRATED_VALUES = "motion values of the data", "calibrated motion values"


def values_note(table: MotionTable) -> str:
    """A table's values as text for the provenance; `uncalibrated_table` reads it back."""
    return " ".join(map(repr, table.values))


def uncalibrated_table(world: World) -> MotionTable:
    """The world's motion table before calibration, with the medians of its training data.

    This is the world's own table if that was never calibrated, or was replaced by the table of other weights.
    """
    own, notes = world.motion_table, world.provenance
    if DATA_VALUES not in notes or notes.get(CALIBRATED_VALUES) != values_note(own):
        return own
    return replace(own, values=tuple(map(float, notes[DATA_VALUES].split())))


def calibration_remark(world: World) -> tuple[str, ...]:
    """A report's remark on a world's calibrated motion values; empty if they are not calibrated."""
    if uncalibrated_table(world) == world.motion_table:
        return ()
    return (
        "ACC-F and MAE-F are measured with motion values found by inverting the decoder's own measured response; the "
        "rows named uncalibrated are measured with the medians of its training data instead",
    )
