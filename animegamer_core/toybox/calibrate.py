"""The world's own motion table: the values that condition its decoder, so that its shots move as their level says.

A decoder that draws a little softer than the film also moves a little less by the same measure. Its response is
measured on training states and inverted; the borders between levels stay those of the dataset. Figures of motion
flatter such a world, so world.json states the values before and after, and evaluations measure with both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..checkpoint import World
from ..data.motion import LEVELS, motion_value
from ..data.workers import spread
from ..decoder import ShotDecoder
from ..encoder import ShotEncoder
from ..engine import GameEngine
from ..state import MotionTable, motion_text
from ..train.material import pictures
from ..video import to_uint8
from .draw import draw_shot
from .world import Scene, instruction

TOLD = 8  # motion values that every state is drawn at
# They run from the lowest level's value times the first to the highest's times the second, which is where training
# ends: told more than it ever saw, the decoder moves less again.
REACH = (0.5, 1.5)
BATCH = 32
# Of a world's provenance, which is no part of its fingerprint.
BUILT_BY, BUILDER = "built by", "animegamer_core.toybox.build"
DATA_VALUES, CALIBRATED_VALUES = "motion values of the data", "calibrated motion values"

OnShot = Callable[[int, int], None]


@dataclass(frozen=True)
class Response:
    """How a decoder's shots move. measured: the median motion of shots that were told each of the rising values."""

    told: tuple[float, ...]
    measured: tuple[float, ...]

    def to_measure(self, wanted: Sequence[float]) -> tuple[float, ...]:
        """What the decoder has to be told for its shots to measure as wanted."""
        return inverted(self.told, self.measured, wanted)


def decoder_response(
    table: MotionTable,
    decoder: ShotDecoder,
    states_MND: Tensor,
    on_shot: OnShot | None = None,
    workers: int | None = None,
) -> Response:
    """The response over the range of `table.values`, the dataset's own medians by level.

    The more states, the steadier the result; some thirty serve. workers: processes that measure, None for one a core.
    """
    told = np.geomspace(table.values[0] * REACH[0], table.values[-1] * REACH[1], TOLD)
    measured = np.median(response(decoder, states_MND, told, on_shot, workers), axis=0)
    return Response(tuple(told.tolist()), tuple(measured.tolist()))


def calibrated_table(
    table: MotionTable,
    decoder: ShotDecoder,
    states_MND: Tensor,
    on_shot: OnShot | None = None,
    workers: int | None = None,
) -> MotionTable:
    """The table with values that make the median shot of these states measure what `table.values` say."""
    found = decoder_response(table, decoder, states_MND, on_shot, workers)
    return replace(table, values=found.to_measure(table.values))


def values_note(table: MotionTable) -> str:
    """A table's values as provenance keeps them; `uncalibrated_table` reads them back."""
    return " ".join(map(repr, table.values))


def uncalibrated_table(world: World) -> MotionTable | None:
    """The world's motion table with the medians of its training data, as it was before calibration.

    Its own table where that was never calibrated, or where other weights brought another; None for a Toybox build that
    does not state the medians. ValueError where world.json states no five numbers.
    """
    own, notes = world.motion_table, world.provenance
    if DATA_VALUES not in notes:
        return None if notes.get(BUILT_BY) == BUILDER else own
    if CALIBRATED_VALUES not in notes or _values(notes, CALIBRATED_VALUES) != own.values:
        return own
    return replace(own, values=_values(notes, DATA_VALUES))


def calibration_remark(own: MotionTable, before: MotionTable | None) -> str | None:
    """What a report has to say of a world's motion values; None where no calibration made them.

    before: its `uncalibrated_table`.
    """
    if own == before:
        return None
    said = "ACC-F and MAE-F are measured with motion values found by inverting the decoder's own measured response"
    if before is None:
        return f"{said}; world.json does not state the medians of the training data, so there are none without"
    return f"{said}; without that calibration it is conditioned on the medians of its training data (rows uncalibrated)"


def _values(notes: Mapping[str, str], key: str) -> tuple[float, ...]:
    try:
        values = tuple(float(word) for word in notes[key].split())
    except (ValueError, AttributeError):
        values = ()
    if len(values) != LEVELS or not all(map(math.isfinite, values)):
        raise ValueError(f"world.json says {key} {ascii(notes[key])[:60]}; expected {LEVELS} numbers between spaces")
    return values


@torch.inference_mode()
def played_states(scenes: Sequence[Scene], table: MotionTable, engine: GameEngine, encoder: ShotEncoder) -> Tensor:
    """(2M, N, D): each scene as the encoder represents it, and as the engine predicts it from its text alone."""
    states = []
    for scene in scenes:
        clip = draw_shot(scene)
        text = instruction(scene, table.level(motion_value(clip)))
        states.append(encoder([motion_text(text)], pictures(torch.from_numpy(clip[:1])))[0].float().cpu())
        states.append(engine.predict((), text).representation)
    return torch.stack(states)


def response(
    decoder: ShotDecoder,
    states_MND: Tensor,
    told: Sequence[float],
    on_shot: OnShot | None = None,
    workers: int | None = None,
) -> NDArray[np.float64]:
    """(M, values): the measured motion of each state's shot at each told value, one noise seed a state."""
    rows = [(state, value) for state in range(len(states_MND)) for value in told]
    measured: list[float] = []
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        states = torch.stack([states_MND[state] for state, _ in part])
        motion = torch.tensor([float(value) for _, value in part])
        latents = decoder.sample(states, motion, [state for state, _ in part])
        measured += spread(motion_value, [to_uint8(frames) for frames in decoder.decode_latents(latents)], workers)
        if on_shot is not None:
            on_shot(len(measured), len(rows))
    return np.array(measured).reshape(len(states_MND), len(told))


def inverted(told: Sequence[float], measured: Sequence[float], wanted: Sequence[float]) -> tuple[float, ...]:
    """The told values at which a response, made monotone and read between its points on log scales, is as wanted.

    What lies beyond the response's ends takes the end; the upper one is where the response is greatest.
    """
    best = int(np.argmax(measured)) + 1
    rising = np.maximum.accumulate(np.asarray(measured[:best], dtype=float))
    steps = np.log(rising) + np.arange(best) * 1e-9  # np.interp needs strictly rising points
    values = np.interp(np.log(np.asarray(wanted, dtype=float)), steps, np.log(np.asarray(told[:best], dtype=float)))
    return tuple(round(math.exp(value), 4) for value in values)
