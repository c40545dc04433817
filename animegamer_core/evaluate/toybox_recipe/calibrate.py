"""Calibrates a world's motion table: fits the values that condition its decoder, so that shots move as requested.

Shots that are a little softer than the film also move a little less by the same measure. So the decoder's response is
measured on training states and inverted; the edges between levels are not changed. M states, N state tokens, D state
width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...data.workers import parallel_map
from ...game.state import MotionTable, motion_text
from ...media.video import to_uint8
from ...model.decoder import ShotDecoder
from ...model.encoder import ShotEncoder
from ...model.engine import GameEngine
from ...toybox.drawing.draw import draw_shot
from ...toybox.scenes import toybox_motion
from ...toybox.sentences import instruction
from ...toybox.world import Scene
from ...train.training_data import pictures

VALUES = 8  # motion values at which every state is drawn
# The range of these values, relative to those of the lowest and of the highest level. Beyond the values with which the
# decoder was trained, its shots move less again.
REACH = (0.5, 1.5)
BATCH = 32


@dataclass(frozen=True)
class Response:
    """How a decoder's shots move: the median measured motion for each of some ascending motion values (conditions)."""

    conditions: tuple[float, ...]
    measured: tuple[float, ...]

    def to_measure(self, wanted: Sequence[float] | np.ndarray) -> tuple[float, ...]:
        """The motion values at which the measured motion of shots is as wanted.

        The response is made monotone, and interpolated on log scales. Wanted values outside of its range get the value
        at the end of the range, whose upper end is where the response is largest.
        """
        best = int(np.argmax(self.measured)) + 1
        rising = np.maximum.accumulate(np.asarray(self.measured[:best], dtype=float))
        steps = np.log(rising) + np.arange(best) * 1e-9  # np.interp needs strictly rising points
        logs = np.log(np.asarray(self.conditions[:best], dtype=float))
        values = np.interp(np.log(np.asarray(wanted, dtype=float)), steps, logs)
        return tuple(round(math.exp(value), 4) for value in values)

    def calibrated(self, table: MotionTable) -> MotionTable:
        """The table with the motion values at which the median shot moves as `table.values` state."""
        return replace(table, values=self.to_measure(table.values))


def decoder_response(
    table: MotionTable,
    decoder: ShotDecoder,
    states_MND: Tensor,
    on_shot: Callable[[int, int], None] | None = None,
    workers: int | None = None,
) -> Response:
    """Measure the decoder's response over the range of `table.values`, the dataset's medians by level.

    About thirty states are enough; each has a noise seed of its own. workers: processes that measure, None for one per
    core.
    """
    conditions = np.geomspace(table.values[0] * REACH[0], table.values[-1] * REACH[1], VALUES).tolist()
    rows = [(state, value) for state in range(len(states_MND)) for value in conditions]
    measured: list[float] = []
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        seeds = [state for state, _ in part]
        motion = torch.tensor([float(value) for _, value in part])
        latents = decoder.sample(states_MND[seeds], motion, seeds)
        clips = [to_uint8(frames) for frames in decoder.decode_latents(latents)]
        measured += parallel_map(toybox_motion, clips, workers)
        if on_shot is not None:
            on_shot(len(measured), len(rows))
    medians = np.median(np.array(measured).reshape(len(states_MND), VALUES), axis=0)
    return Response(tuple(conditions), tuple(medians.tolist()))


@torch.inference_mode()
def played_states(scenes: Sequence[Scene], table: MotionTable, engine: GameEngine, encoder: ShotEncoder) -> Tensor:
    """(2M, N, D): two representations of each of M scenes, by the encoder, and by the engine from the text alone."""
    states = []
    for scene in scenes:
        clip = draw_shot(scene)
        text = instruction(scene, table.level(toybox_motion(clip)))
        states.append(encoder([motion_text(text)], pictures(torch.from_numpy(clip[:1])))[0].float().cpu())
        states.append(engine.predict((), text).representation)
    return torch.stack(states)
