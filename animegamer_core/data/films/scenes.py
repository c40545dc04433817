"""A film's scenes: where its cuts, dissolves and fades are, found in one pass over the frames.

TransNetV2 (`transnet`) gives the probability that a frame ends a shot. `jumps` finds flashes, which are not cuts, and
decides where the network is unsure. In a fade through black or white, the picture disappears into blank frames, or
appears after them, or both; the network misses some fades and takes others for two transitions, so they are found by
contrast. Frames are given by their number in the film; N frames.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .film import FilmFrame
from .jumps import JumpFinder, Thumbnail, reduced
from .transnet import TransNet

if TYPE_CHECKING:
    import torch

RISE = 1.01  # ratio of a standard deviation to the largest before it, if the picture is still appearing
PLATEAU = 4  # frames without a rise after which half of a fade has ended
SHORTEST = 3  # frames of half a fade; anything quicker is a flash
EVEN = 0.25  # grey levels: of blank frames that differ by less, the first is the darkest (whitest)
GRADUAL = 0.6  # largest standard deviation next to a blank frame, as a fraction of the scene's own
LONGEST_CUT = 4  # frames that the network sees a cut in; more are a dissolve or a fade


# The least of TransNetV2's probabilities at which frames count.
CHANGED = 0.3  # that the shot changes, for a transition
ALONE = 0.5  # the same, for a cut where the picture does not jump
HINT = 0.06  # the same, for a cut where it jumps
PART = 0.5  # that a frame is part of a dissolve or fade
FADE_SECONDS = 2.5  # the longest half of a fade through black or white


@dataclass(frozen=True)
class Transition:
    """How one scene changes to the next. number: the next scene's first frame.

    kind is "cut" or "fade" (a dissolve too). The frames from `begins` up to, not including, `ends` mix both scenes.
    """

    number: int
    kind: str
    begins: int
    ends: int

    def meets(self, other: Transition) -> bool:
        """Whether the two overlap or are adjacent."""
        return self.begins - 1 <= other.ends and other.begins <= self.ends + 1


def network_transitions(
    change_N: NDArray[np.float32], part_N: NDArray[np.float32], jumps: Sequence[int]
) -> list[Transition]:
    """Cuts and gradual transitions in order.

    change_N, part_N: the probabilities of TransNet.finish. jumps: frames that differ suddenly from the one before, in
    order.
    """
    parts, found = _runs(part_N >= PART), []
    for first, end in _runs(change_N >= CHANGED):
        near = [part for part in parts if part[0] <= end and first <= part[1]]
        begins, ends = (min(near)[0], max(near)[1]) if near else (first, end)
        if ends - begins > LONGEST_CUT:
            number = first + int(change_N[first:end].argmax()) + 1
            found.append(Transition(number, "fade", min(begins, number - 1), max(ends, number)))
            continue
        jump = next((jump for jump in reversed(jumps) if first < jump <= end + 1), None)
        if jump is not None or change_N[first:end].max() >= ALONE:
            number = end if jump is None else jump
            found.append(Transition(number, "cut", number, number))
    for jump in jumps:
        cut = Transition(jump, "cut", jump, jump)
        if change_N[max(0, jump - 2) : jump + 1].max() >= HINT and not any(cut.meets(item) for item in found):
            found.append(cut)
    return sorted(found, key=lambda item: item.number)


def join_fades(transitions: Sequence[Transition], stds: Sequence[float], longest: int) -> list[Transition]:
    """The transitions, with a fade to a dark picture and the fade from it joined into one.

    stds: Thumbnail.std of each frame. longest: the most frames between the two.
    """
    joined: list[Transition] = []
    for item in transitions:
        before = joined[-1] if joined else None
        if before and before.kind == item.kind == "fade" and 0 < item.begins - before.ends <= longest:
            goes = stds[before.ends] <= GRADUAL * stds[max(0, before.begins - 1)]
            comes = stds[item.begins - 1] <= GRADUAL * stds[min(item.ends, len(stds) - 1)]
            if goes and comes:
                number = before.ends + int(np.argmin(stds[before.ends : item.begins]))
                joined[-1] = Transition(number, "fade", before.begins, item.ends)
                continue
        joined.append(item)
    return joined


def fitted(fade: Transition, part_N: NDArray[np.float32]) -> Transition:
    """A fade through black or white, with the extent that the network gives it on each side where it detected it.

    Contrast alone would count a picture that keeps growing brighter as a part of the fade.
    """
    gradual = [run for run in _runs(part_N >= PART) if run[1] - run[0] > LONGEST_CUT]
    near = [(first, end) for first, end in gradual if first < fade.ends and fade.begins < end]
    begins = min((first for first, end in near if first + end < 2 * fade.number), default=fade.begins)
    ends = max((end for first, end in near if first + end >= 2 * fade.number), default=fade.ends)
    return replace(fade, begins=begins, ends=ends)


def _runs(true_N: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(first, end) of each run of true values."""
    edges = np.flatnonzero(np.diff(true_N.astype(np.int8), prepend=0, append=0)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def blank_fades(
    blanks: Sequence[str], stds: Sequence[float], longest: int, flashed: Container[int] = ()
) -> list[Transition]:
    """The fades through black or white of a film, in order.

    blanks, stds: Thumbnail.blank and Thumbnail.std of each frame. longest: frames that either half of a fade may take.
    flashed: frames of flashes; blank frames that are all flashes are a fade only if the picture disappears and appears
    gradually. A film that begins or ends in black has a transition there too, whose number is 0 or the frame count.
    """
    fades, first = [], 0
    for is_picture, run in itertools.groupby(blanks, key=lambda blank: not blank):
        kinds = list(run)
        if not is_picture and set(kinds) & {"black", "white"}:
            flash = all(number in flashed for number in range(first, first + len(kinds)))
            fades += _blank_fade(first, kinds, stds, longest, flash)
        first += len(kinds)
    return fades


def _blank_fade(first: int, kinds: Sequence[str], stds: Sequence[float], longest: int, flash: bool) -> list[Transition]:
    """The fade around the blank frames from `first` on; empty if no side is gradual, or for a flash only one."""
    end = first + len(kinds)
    before = _fade_frames(stds[max(0, first - longest) : first][::-1])
    after = _fade_frames(stds[end : end + longest])
    if (not before and not after) or (flash and not (before and after)):
        return []
    number = 0 if first == 0 else len(stds) if end == len(stds) else end
    if before and after and first < number < len(stds):
        blank = [(std, at) for at, (kind, std) in enumerate(zip(kinds, stds[first:end], strict=True)) if kind != "flat"]
        number = first + next(at for std, at in blank if std <= min(blank)[0] + EVEN)
    elif after and number == end:
        number = first
    return [Transition(number, "fade", first - before, end + after)]


def _fade_frames(stds: Sequence[float]) -> int:
    """How many frames the picture takes to appear, counted from a blank one; 0 if it appears at once."""
    if not stds:
        return 0
    most, at = stds[0], 0
    for index, std in enumerate(stds):
        if std > RISE * most:
            most, at = std, index
        elif index - at >= PLATEAU:
            break
    return at if at >= SHORTEST and stds[0] <= GRADUAL * most else 0


# Of a film with 50 or 60 frames a second every second one is searched: most such films repeat frames of slower ones,
# and next to a repeated frame any movement looks sudden.
SEARCHED_FPS = 30
CLOSE = 5  # frames: two cuts nearer than this are one, with a flash or a broken frame between


@dataclass(frozen=True)
class Crop:
    """Pixels to crop from each side of the displayed frame."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0


@dataclass(frozen=True)
class Scene:
    """One scene: start and end in seconds; end is the time of the next scene's first frame, or the film's end.

    begins: "start" (of the film), "cut" or "fade" (a dissolve too). fade_in, fade_out: seconds that a fade takes at
    either end. flashes: (start, end) in seconds of each frame with a flash, which must not count as motion. crop: its
    borders.
    """

    start: float
    end: float
    begins: str
    fade_in: float = 0.0
    fade_out: float = 0.0
    flashes: tuple[tuple[float, float], ...] = ()
    crop: Crop = Crop()


class SceneFinder:
    """Finds the scenes of a film whose frames are added in order; keeps thumbnails of the last few seconds."""

    def __init__(self, fps: float, device: str | torch.device = "cpu") -> None:
        """fps: the average. device: of TransNetV2. ValueError if its package is not installed."""
        self._step = max(1, round(fps / SEARCHED_FPS))  # one frame of so many is searched
        self._added = 0
        self.fps = fps / self._step
        self._network = TransNet(device)
        self._jumps = JumpFinder()
        self._seconds, self._stds = array("d"), array("f")
        self._blanks: list[str] = []

    def add(self, frame: FilmFrame) -> None:
        """Add the film's next frame, which is later than the one before."""
        self._added += 1
        if (self._added - 1) % self._step:
            return
        number = len(self._seconds)
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
        flashed, longest = self._jumps.flashed, round(FADE_SECONDS * self.fps)
        found = network_transitions(change_N, part_N, self._jumps.jumps)
        fades = [fitted(fade, part_N) for fade in blank_fades(self._blanks, self._stds, longest, flashed)]
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
