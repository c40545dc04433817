"""A film's scenes: where its cuts, dissolves, wipes and fades are, found in one pass over the frames.

TransNetV2 (`transnet`) gives the probability that a frame ends a shot. It takes many flashes for cuts, and is unsure of
cuts between similar pictures, so pictures are compared too (`pictures`), which also finds wipes. In a fade through
black or white, the picture disappears into blank frames, or appears after them, or both; the network misses some fades
and takes others for two transitions, so they are found by contrast. Frames are given by their number in the film; N
frames, H height, W width, C channels.
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
from .pictures import KEPT, MOSTLY, Pictures
from .transnet import TransNet, reduced

if TYPE_CHECKING:
    import torch

RISE = 1.01  # ratio of a standard deviation to the largest before it, if the picture is still appearing
PLATEAU = 4  # frames without a rise after which half of a fade has ended
SHORTEST = 3  # frames of half a fade; anything quicker is a flash
GRADUAL = 0.6  # largest standard deviation next to a blank frame, as a fraction of the scene's own
LONGEST_CUT = 4  # frames that the network sees a cut in; more are a dissolve or a fade

# The least of TransNetV2's probabilities at which frames count.
CHANGED = 0.4  # that the shot changes
UNSURE, DISSOLVED = 0.3, 0.7  # the same, and that a frame is part of a dissolve, where both count together
HINT = 0.08  # the same, where the picture jumps
SURE = 0.28  # the product of change and part, although some details of the picture stay
PART = 0.5  # that a frame is part of a dissolve or fade
FADE_SECONDS = 2.5  # the longest half of a fade through black or white

DARK, BRIGHT = 20.0, 235.0  # mean grey levels of a black and a white picture
FLAT, PLAIN = 6.0, 30.0  # largest standard deviation and range of a blank picture; letters exceed both

JUMP, STANDS_OUT = 1.5, 2.0  # grey levels, and ratio to the third largest change of the frames around, of a jump
AROUND = 9  # frames on either side that show how much motion there is: three drawings on threes


def spread_and_blank(small_HWC: NDArray[np.uint8]) -> tuple[float, str]:
    """The standard deviation of the picture's middle, where there are no borders or subtitles, and what it shows:
    'black', 'white' or 'flat' (another tone) if it is blank, else ''."""
    height, width = small_HWC.shape[:2]
    middle = small_HWC[height // 4 : -(height // 4), width // 4 : -(width // 4)].mean(axis=-1)
    spread, mean = float(middle.std()), float(middle.mean())
    if spread > FLAT or np.ptp(middle) > PLAIN:
        return spread, ""
    return spread, "black" if mean <= DARK else "white" if mean >= BRIGHT else "flat"


@dataclass(frozen=True)
class Transition:
    """How one scene changes to the next. number: the next scene's first frame.

    kind is "cut" or "fade" (a dissolve or wipe too). The frames from `begins` up to, not including, `ends` mix both.
    """

    number: int
    kind: str
    begins: int
    ends: int

    def meets(self, other: Transition) -> bool:
        """Whether the two overlap or are adjacent."""
        return self.begins - 1 <= other.ends and other.begins <= self.ends + 1


def network_transitions(
    change_N: NDArray[np.float32], part_N: NDArray[np.float32], pictures: Pictures
) -> list[Transition]:
    """Cuts and gradual transitions in order, from the probabilities of TransNet.finish and the pictures' changes."""
    changes = pictures.changes
    parts, found = _runs(part_N >= PART), []
    for first, end in _runs((change_N >= CHANGED) | ((change_N >= UNSURE) & (part_N >= DISSOLVED))):
        near = [part for part in parts if part[0] <= end and first <= part[1]]
        begins, ends = (min(near)[0], max(near)[1]) if near else (first, end)
        number = first + int(change_N[first:end].argmax()) + 1
        if ends - begins > LONGEST_CUT:
            found.append(Transition(number, "fade", min(begins, number - 1), max(ends, number)))
        elif pictures.kept_at(number) <= (MOSTLY if (change_N[first:end] * part_N[first:end]).max() >= SURE else KEPT):
            found.append(Transition(number, "cut", number, number))
    for number in np.flatnonzero(np.asarray(changes) > JUMP).tolist():
        largest = sorted(changes[max(1, number - AROUND) : number + AROUND + 1])[-4:]  # its own, and three around it
        hinted = change_N[max(0, number - 2) : number + 1].max() >= HINT and pictures.kept[number] <= KEPT
        cut = Transition(number, "cut", number, number)
        if hinted and changes[number] > STANDS_OUT * largest[0] and not any(cut.meets(item) for item in found):
            found.append(cut)
    return sorted(found, key=lambda item: item.number)


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

    blanks, stds: of each frame (`spread_and_blank`). longest: frames that either half of a fade may take. flashed:
    frames of flashes; blank frames that are all flashes are a fade only if the picture disappears and appears
    gradually. A film that begins or ends in black has a transition there too, whose number is 0 or the frame count.
    """
    fades, first = [], 0
    for is_picture, run in itertools.groupby(blanks, key=lambda blank: not blank):
        kinds = list(run)
        if not is_picture and set(kinds) & {"black", "white"}:
            flash = all(number in flashed for number in range(first, first + len(kinds)))
            fades += _blank_fade(first, first + len(kinds), stds, longest, flash)
        first += len(kinds)
    return fades


def _blank_fade(first: int, end: int, stds: Sequence[float], longest: int, flash: bool) -> list[Transition]:
    """The fade around the blank frames from `first` on; empty if no side is gradual, or for a flash only one."""
    before = _fade_frames(stds[max(0, first - longest) : first][::-1])
    after = _fade_frames(stds[end : end + longest])
    if (not before and not after) or (flash and not (before and after)):
        return []
    number = 0 if first == 0 else len(stds) if end == len(stds) else end
    if before and after and first < number < len(stds):
        number = (first + end) // 2
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
CLOSE = 5  # frames: two changes nearer than this are one, with a flash or a broken frame between


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
        self._pictures = Pictures()
        self._shape: tuple[int, ...] = ()
        self._reshaped: list[Transition] = []  # a picture of another size belongs to another scene
        self._seconds, self._stds = array("d"), array("f")
        self._blanks: list[str] = []

    def add(self, frame: FilmFrame) -> None:
        """Add the film's next frame, which is later than the one before."""
        self._added += 1
        if (self._added - 1) % self._step:
            return
        if self._shape not in ((), frame.rgb.shape):
            number = len(self._seconds)
            self._reshaped.append(Transition(number, "cut", number, number))
        self._shape = frame.rgb.shape
        small = reduced(frame.rgb)
        self._network.add(small)
        self._pictures.add(small)
        self._seconds.append(frame.seconds)
        std, blank = spread_and_blank(small)
        self._stds.append(std)
        self._blanks.append(blank)

    def finish(self, end_seconds: float) -> list[Scene]:
        """The film's scenes in order, the last one ending at `end_seconds`; empty if no frame was added."""
        change_N, part_N = self._network.finish()
        flashed, longest = self._pictures.flashed, round(FADE_SECONDS * self.fps)
        found = network_transitions(change_N, part_N, self._pictures)
        fades = [fitted(fade, part_N) for fade in blank_fades(self._blanks, self._stds, longest, flashed)]
        wipes = [Transition((first + end) // 2, "fade", first, end) for first, end in self._pictures.wipes]
        fades += [wipe for wipe in wipes if not any(wipe.meets(fade) for fade in fades)]
        others = [
            item
            for item in found
            if not (item.kind == "cut" and {item.number - 1, item.number} & flashed)
            and not any(item.meets(fade) for fade in fades)
        ]
        transitions = _merged(sorted([*fades, *others, *self._reshaped], key=lambda item: item.number))
        return list(_scenes(transitions, sorted(flashed), [*self._seconds, end_seconds]))


def _merged(transitions: Sequence[Transition]) -> list[Transition]:
    """The transitions; those close together are merged, since the frames between them belong to neither scene."""
    merged: list[Transition] = []
    for item in transitions:
        if merged and item.begins - merged[-1].ends < CLOSE:
            last = merged.pop()
            kept = item if last.kind == "cut" and item.kind == "fade" else last
            item = replace(kept, begins=min(last.begins, item.begins), ends=max(last.ends, item.ends))
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
