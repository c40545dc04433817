"""How lively the clips of a drawn film are, from what was drawn."""

from __future__ import annotations

import dataclasses

import numpy as np
from film_parts import FilmPlan, parts_of
from film_pictures import film_frames, picture_size
from made_film import FilmTruth

from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.data.films.framing import Crop, fit
from animegamer_core.data.motion import SLOW_FRACTION, motion_value


def true_motion(dataset: DatasetFolder, truth: FilmTruth, plan: FilmPlan) -> list[float]:
    """The motion values of the clips as drawn: no border, no fade, no grain, no codec, and nothing to be found."""
    parts, values = parts_of(plan), []
    for turn in dataset.turns:
        index = truth.scenes.index(truth.scene_at((turn.start + turn.end) / 2))
        part = dataclasses.replace(parts[index], begins="cut", overlap=0, flashes=())
        size = tuple(length // 2 * 2 for length in picture_size(part.border, plan.size))
        clean = dataclasses.replace(plan, size=size, grain=0.0, variable=False)
        pictures = [frame for _, frame in film_frames([dataclasses.replace(part, border="none")], clean)]
        times = turn.start - truth.scenes[index].start + np.arange(17) / 8
        numbers = np.clip(np.floor(times * plan.fps + 0.01).astype(int), 0, len(pictures) - 1)
        clip = np.stack([fit(pictures[number], Crop(), (96, 144)) for number in numbers])
        values.append(motion_value(clip, slow_fraction=SLOW_FRACTION))
    return values
