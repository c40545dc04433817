"""What world.json states about the calibration of its motion table, and the table before calibration.

The Toybox recipe fits the motion values that condition the decoder, so that its shots move as their level says (see
evaluate/toybox_recipe/calibrate.py). This flatters a world's motion figures, so world.json states the values before and
after, and evaluations measure with both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..data.motion import LEVELS
from ..game.state import MotionTable
from ..messages import quoted
from ..weights import World

# Keys and values of a world's provenance, which is not part of its fingerprint.
BUILT_BY, BUILDER = "built by", "animegamer_core.toybox.build"
DATA_VALUES, CALIBRATED_VALUES = "motion values of the data", "calibrated motion values"


def values_note(table: MotionTable) -> str:
    """A table's values as text for the provenance; `uncalibrated_table` reads it back."""
    return " ".join(map(repr, table.values))


def uncalibrated_table(world: World) -> MotionTable | None:
    """The world's motion table before calibration, with the medians of its training data.

    This is the world's own table if that was never calibrated, or was replaced by the table of other weights. None for
    a Toybox build that does not state the medians. ValueError if world.json states anything but five numbers.
    """
    own, notes = world.motion_table, world.provenance
    if DATA_VALUES not in notes:
        return None if notes.get(BUILT_BY) == BUILDER else own
    if CALIBRATED_VALUES not in notes or _values(notes, CALIBRATED_VALUES) != own.values:
        return own
    return replace(own, values=_values(notes, DATA_VALUES))


def calibration_remark(own: MotionTable, before: MotionTable | None) -> str | None:
    """A report's remark on a world's motion values; None if they are not calibrated.

    own, before: the world's motion table and its `uncalibrated_table`.
    """
    if own == before:
        return None
    said = "ACC-F and MAE-F are measured with motion values found by inverting the decoder's own measured response"
    if before is None:
        return f"{said}; world.json does not list the medians of the training data, so there are no uncalibrated rows"
    return f"{said}; the rows named uncalibrated are measured with the medians of its training data instead"


def _values(notes: Mapping[str, str], key: str) -> tuple[float, ...]:
    values = tuple(float(word) for word in notes[key].split())
    if len(values) != LEVELS:
        raise ValueError(f"world.json says {key} {quoted(notes[key], 60)}; expected {LEVELS} numbers")
    return values
