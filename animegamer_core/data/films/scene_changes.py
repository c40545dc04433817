"""A person's corrections of where a film's scenes change: a change that is added or removed.

Lines of corrections.jsonl about a film:

    {film, scene_change: [before, after]}    a scene begins between these times; clips leave out the time between them
    {film, no_scene_change: second}          the scene that begins at this time continues the scene before it
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .framing import Crop
from .survey import FilmScene

ADDED, REMOVED = "scene_change", "no_scene_change"
LONGEST = 5.0  # seconds from before to after
_SAME = 0.002  # seconds: times are written in milliseconds


@dataclass(frozen=True)
class SceneChange:
    """A correction. before, after: seconds around an added change; both are the time of a removed one."""

    film: str
    before: float
    after: float
    is_removed: bool = False

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> SceneChange:
        """The correction in a line of corrections.jsonl; ValueError if it is invalid."""
        film, keys = row.get("film"), sorted(row.keys() - {"film"})
        if not isinstance(film, str) or keys not in ([ADDED], [REMOVED]):
            raise ValueError(f"expected film and {ADDED} or {REMOVED}, and nothing else in the line")
        value = row[keys[0]]
        if keys == [REMOVED]:
            if not _is_second(value):
                raise ValueError(f"{REMOVED} is {value!r}; expected the time in seconds at which a scene starts")
            return cls(film, float(value), float(value), is_removed=True)
        if not isinstance(value, list) or len(value) != 2 or not all(map(_is_second, value)):
            raise ValueError(f"{ADDED} is {value!r}; expected two times in seconds: [before it, after it]")
        if not 0 < value[1] - value[0] <= LONGEST:
            raise ValueError(
                f"{ADDED} is {value!r}; expected the earlier time first, and at most {LONGEST:g} s between them"
            )
        return cls(film, float(value[0]), float(value[1]))

    def apply(self, scenes: Sequence[FilmScene]) -> list[FilmScene]:
        """The corrected scenes; unchanged if the correction was applied before. ValueError if no scene matches."""
        return _without(scenes, self.before) if self.is_removed else _with(scenes, self.before, self.after)


def _is_second(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _with(scenes: Sequence[FilmScene], before: float, after: float) -> list[FilmScene]:
    """The scenes, with the one that contains both times split there."""
    if any(before < item.scene.start <= after + _SAME for item in scenes):
        return list(scenes)  # a scene begins there already
    for at, item in enumerate(scenes):
        if item.scene.start <= before and after < item.scene.end:
            return [*scenes[:at], *_divided(item, before, after), *scenes[at + 1 :]]
    raise ValueError(f"no scene of the film contains both {before:g} s and {after:g} s")


def _divided(item: FilmScene, before: float, after: float) -> tuple[FilmScene, FilmScene]:
    scene = item.scene
    earlier = tuple(flash for flash in scene.flashes if flash[0] < after)
    later = scene.flashes[len(earlier) :]
    first = dataclasses.replace(scene, end=after, fade_out=after - before, flashes=earlier)
    second = dataclasses.replace(scene, start=after, begins="cut", fade_in=0.0, flashes=later)
    return FilmScene(first, item.crop), FilmScene(second, item.crop)


def _without(scenes: Sequence[FilmScene], second: float) -> list[FilmScene]:
    """The scenes, with the one that begins at `second` joined to the one before it."""
    at = next((at for at, item in enumerate(scenes) if abs(item.scene.start - second) <= _SAME), None)
    if at == 0 or not scenes or not scenes[0].scene.start < second < scenes[-1].scene.end:
        raise ValueError(f"no scene change at {second:g} s can be removed: the film starts or ends there")
    if at is None:
        return list(scenes)  # removed already
    first, then = scenes[at - 1], scenes[at]
    flashes = first.scene.flashes + then.scene.flashes
    joined = dataclasses.replace(first.scene, end=then.scene.end, fade_out=then.scene.fade_out, flashes=flashes)
    sides = zip(dataclasses.astuple(first.crop), dataclasses.astuple(then.crop), strict=True)
    return [*scenes[: at - 1], FilmScene(joined, Crop(*map(max, sides))), *scenes[at + 1 :]]
