"""The world's own motion table: what its decoder has to be told, so that its shots move as their level says.

A decoder that draws a little softer than the film also moves a little less by the same measure. Its response is
measured on training states and turned round; the borders between levels stay those of the dataset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.motion import motion_value
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
