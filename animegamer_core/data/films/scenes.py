"""A film's scenes: where its cuts, dissolves and fades are, found in one pass over the frames.

TransNetV2 (`transnet`) gives the probability that a frame ends a shot. `jumps` finds flashes, which are not cuts, and
decides where the network is unsure; `transitions` merges all of it into one list.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .film import FilmFrame
from .film_file import MOST_FPS
from .jumps import JumpFinder, JumpSettings
from .thumbnails import Thumbnail, reduced
from .transitions import Probabilities, Transition, blank_fades, fitted, join_fades, network_transitions
from .transnet import TransNet

if TYPE_CHECKING:
    import torch

# Of a film with 50 or 60 frames a second every second one is searched: most such films repeat frames of slower ones,
# and next to a repeated frame any movement looks sudden.
SEARCHED_FPS = 30
CLOSE = 5  # frames: two cuts nearer than this are one, with a flash or a broken frame between


@dataclass(frozen=True)
class Scene:
    """One scene: start and end in seconds; end is the time of the next scene's first frame, or the film's end.

    begins: "start" (of the film), "cut" or "fade" (a dissolve too). fade_in, fade_out: seconds that a fade takes at
    either end. flashes: (start, end) in seconds of each frame with a flash, which must not count as motion.
    """

    start: float
    end: float
    begins: str
    fade_in: float = 0.0
    fade_out: float = 0.0
    flashes: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class SceneSettings:
    """How scenes are found. fade_seconds: the longest half of a fade through black or white."""

    probabilities: Probabilities = Probabilities()
    jumps: JumpSettings = JumpSettings()
    fade_seconds: float = 2.5


class SceneFinder:
    """Finds the scenes of a film whose frames are added in order; keeps thumbnails of the last few seconds."""

    def __init__(self, settings: SceneSettings, fps: float, device: str | torch.device = "cpu") -> None:
        """fps: the average. device: of TransNetV2. ValueError if fps is impossible or its package is not installed."""
        if not 0 < fps < MOST_FPS:
            raise ValueError(f"a film with {fps} frames per second cannot be cut; give its average frame rate")
        self._step = max(1, round(fps / SEARCHED_FPS))  # one frame of so many is searched
        self._added = 0
        self.settings, self.fps = settings, fps / self._step
        self._network = TransNet(device)
        self._jumps = JumpFinder(settings.jumps)
        self._seconds, self._stds = array("d"), array("f")
        self._blanks: list[str] = []

    def add(self, frame: FilmFrame) -> None:
        """Add the film's next frame. ValueError if it is not later than the one before."""
        self._added += 1
        if (self._added - 1) % self._step:
            return
        number = len(self._seconds)
        if number and frame.seconds <= self._seconds[-1]:
            raise ValueError(f"a frame at {frame.seconds} s follows one at {self._seconds[-1]} s; add frames in order")
        small = reduced(frame.rgb)
        thumbnail = Thumbnail.of(number, small)
        self._network.add(small)
        self._jumps.add(thumbnail)
        self._seconds.append(frame.seconds)
        self._stds.append(thumbnail.std)
        self._blanks.append(thumbnail.blank)

    def finish(self, end_seconds: float) -> list[Scene]:
        """The film's scenes in order, the last one ending at `end_seconds`; empty if no frame was added."""
        self._jumps.finish()
        change_N, part_N = self._network.finish()
        flashed, longest = self._jumps.flashed, round(self.settings.fade_seconds * self.fps)
        limits = self.settings.probabilities
        found = network_transitions(change_N, part_N, self._jumps.jumps, limits)
        fades = [fitted(fade, part_N, limits) for fade in blank_fades(self._blanks, self._stds, longest, flashed)]
        others = [
            item
            for item in found
            if not (item.kind == "cut" and {item.number - 1, item.number} & flashed)
            and not any(item.meets(fade) for fade in fades)
        ]
        transitions = join_fades(_merged(sorted([*fades, *others], key=lambda item: item.number)), self._stds, longest)
        return list(_scenes(transitions, sorted(flashed), [*self._seconds, end_seconds]))


def _merged(transitions: Sequence[Transition]) -> list[Transition]:
    """The transitions; cuts close together are merged, since the frames between them belong to neither scene."""
    merged: list[Transition] = []
    for item in transitions:
        if merged and merged[-1].kind == item.kind == "cut" and item.number - merged[-1].ends < CLOSE:
            merged[-1] = replace(merged[-1], ends=item.number)
        else:
            merged.append(item)
    return merged


def _scenes(transitions: Sequence[Transition], flashed: Sequence[int], seconds: Sequence[float]) -> Iterator[Scene]:
    """Yield the scenes between the transitions. seconds: the time of each frame, then the film's end."""
    count = len(seconds) - 1
    opening = [replace(item, kind="start") for item in transitions if item.number == 0]
    closing = [item for item in transitions if item.number == count]
    ends = [
        *(opening or [Transition(0, "start", 0, 0)]),
        *(item for item in transitions if 0 < item.number < count),
        *(closing or [Transition(count, "cut", count, count)]),
    ]
    for before, after in itertools.pairwise(ends) if count else ():
        inside = [frame for frame in flashed if before.number <= frame < after.number]
        yield Scene(
            start=seconds[before.number],
            end=seconds[after.number],
            begins=before.kind,
            fade_in=seconds[min(before.ends, count)] - seconds[before.number],
            fade_out=seconds[after.number] - seconds[after.begins],
            flashes=tuple((seconds[frame], seconds[frame + 1]) for frame in inside),
        )
