"""A film's scenes: where its hard cuts and its fades are, found in one pass over the frames.

PySceneDetect's AdaptiveDetector proposes frames where the picture changes more than around them. A proposal is a cut if
it changes more than motion explains, and if it is not a flash. `transitions` finds fades and dissolves, which the
detector misses.
"""

from __future__ import annotations

import itertools
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .film import FilmFrame
from .film_file import MOST_FPS
from .thumbnails import Thumbnail, change
from .transitions import WINDOWS, Dissolve, Transition, blank_fades, find_dissolves, strongest

WIDTH = 160  # of the pictures that PySceneDetect compares; about its own scale
AROUND = 9  # frames on either side of a proposal that show how much motion there is: three drawings on threes
PEAK = 1.1  # least ratio of a cut to its strongest neighbour, unless that is a flash or a cut too
KNOWN = 1000  # changes that are cached, since neighbouring proposals and windows use the same ones
MOST_THUMBNAILS = 500  # the longest window at 300 frames a second; damaged timestamps may be closer
CLOSE = 5  # frames: two cuts nearer than this are one, with a flash or a tear between


@dataclass(frozen=True)
class Scene:
    """One scene: start and end in seconds; end is the first frame of the next scene.

    begins is "start", "cut" or "fade". fade_in and fade_out: seconds at either end that a fade takes. flashes: (its
    second, that of the next frame) of each frame with a flash, which must not count as motion.
    """

    start: float
    end: float
    begins: str
    fade_in: float = 0.0
    fade_out: float = 0.0
    flashes: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class SceneSettings:
    """How scenes are found. The defaults were set on generated films and then checked on others.

    ratio, score: AdaptiveDetector's threshold and least content value for a proposal, low enough to miss none.
    change: least change at a cut beyond small motion, as a fraction of the pictures' contrast.
    outstanding: least ratio of a cut to the changes around it.
    flash_frames: most frames of a flash, after which the picture before it comes back.
    returned: most change, in the units of `change`, between the pictures before and after a flash.
    fade_seconds: the longest half of a fade through black or white. dissolve: thresholds of dissolves.
    """

    ratio: float = 1.5
    score: float = 0.05
    change: float = 0.04
    outstanding: float = 1.35
    flash_frames: int = 3
    returned: float = 0.13
    fade_seconds: float = 2.5
    dissolve: Dissolve = Dissolve()


class SceneFinder:
    """Finds the scenes of a film whose frames are added in order; keeps thumbnails of the last few seconds."""

    def __init__(self, settings: SceneSettings, fps: float) -> None:
        """fps: frames a second on average; ValueError for an impossible number."""
        from scenedetect.detectors import AdaptiveDetector

        if not 0 < fps < MOST_FPS:
            raise ValueError(f"a film of {fps} frames a second cannot be cut; give its average frame rate")
        self.settings, self.fps = settings, fps
        self._detector = AdaptiveDetector(
            adaptive_threshold=settings.ratio, min_content_val=settings.score, min_scene_len=0
        )
        self._thumbnails: deque[Thumbnail] = deque()
        self._proposals: deque[int] = deque()
        self._cached_change = lru_cache(maxsize=KNOWN)(change)
        self._cuts: list[Transition] = []
        self._dissolves: list[Transition] = []
        self._flashed: set[int] = set()
        self._seconds, self._stds = array("d"), array("f")
        self._blanks: list[str] = []

    def add(self, frame: FilmFrame) -> None:
        """Add the film's next frame. ValueError: it is not later than the one before."""
        from scenedetect import FrameTimecode

        number = len(self._seconds)
        if number and frame.seconds <= self._seconds[-1]:
            raise ValueError(f"a frame at {frame.seconds} s follows one at {self._seconds[-1]} s; add frames in order")
        picture = _reduced(frame.rgb)
        thumbnail = Thumbnail.of(number, picture)
        self._thumbnails.append(thumbnail)
        self._seconds.append(frame.seconds)
        self._stds.append(thumbnail.std)
        self._blanks.append(thumbnail.blank)
        timecode = FrameTimecode(number, fps=self.fps)  # by frame number; self._seconds has the true times
        self._proposals.extend(found.frame_num for found in self._detector.process_frame(timecode, picture))
        self._dissolves.extend(
            find_dissolves(self._thumbnails, self._seconds, self.settings.dissolve, self._cached_change)
        )
        self._decide(upto=number - AROUND)
        while len(self._thumbnails) > 3 * AROUND and (
            len(self._thumbnails) > MOST_THUMBNAILS
            or self._seconds[self._thumbnails[1].number] <= frame.seconds - max(WINDOWS)
        ):
            self._thumbnails.popleft()

    def finish(self, end_seconds: float) -> list[Scene]:
        """The film's scenes in order, the last one ending at `end_seconds`; none without frames."""
        count = len(self._seconds)
        self._decide(upto=count)
        fades = blank_fades(self._blanks, self._stds, round(self.settings.fade_seconds * self.fps), self._flashed)
        cuts = _merged([cut for cut in self._cuts if not any(cut.meets(fade) for fade in fades)])
        dissolves = [
            dissolve for dissolve in self._dissolves if not any(dissolve.meets(item) for item in (*fades, *cuts))
        ]
        transitions = sorted([*fades, *cuts, *strongest(dissolves)], key=lambda item: item.number)
        return list(_scenes(transitions, sorted(self._flashed), [*self._seconds, end_seconds]))

    def _decide(self, upto: int) -> None:
        """Accept or reject the proposals up to frame `upto`, around which enough frames are known."""
        while self._proposals and self._proposals[0] <= upto:
            number = self._proposals.popleft()
            at = number - self._thumbnails[0].number
            found = self._change(at - 1, at) if at > 0 else 0.0
            own = self.settings.change * (self._thumbnails[at - 1].contrast + self._thumbnails[at].contrast)
            # Motion that begins stands out from the calm side too, but not by much: `own / 2` must remain.
            if found <= own or not self._stands_out(at, found - own / 2):
                continue
            flash = self._flash(at, found)
            if flash:
                self._flashed.update(self._thumbnails[place].number for place in flash)
            elif self._outdoes_rivals(at, found):
                self._cuts.append(Transition(number, "cut", number, number))

    def _outdoes_rivals(self, at: int, found: float) -> bool:
        """Whether no change nearby is as large, except flashes and cuts."""
        near = [] if self._empties(at) else self._changes(at - AROUND, at + AROUND + 1)
        rivals = [(place, value) for place, value in near if value * PEAK > found and place != at]
        return all(self._flash(place, value) or self._stands_out(place, value) for place, value in rivals)

    def _stands_out(self, at: int, found: float) -> bool:
        """Whether a change is well above the motion on its calmer side, and above that on the other side."""
        sides = ((at - AROUND, at), (at + 1, at + AROUND + 1))
        calmer, wilder = sorted(self._motion(*side) for side in sides)
        return found > self.settings.outstanding * calmer and (self._empties(at) or found > PEAK * wilder)

    def _empties(self, at: int) -> bool:
        """Whether a picture gives way to a blank one, or the reverse, so that motion on one side says nothing."""
        return bool(self._thumbnails[at - 1].blank) != bool(self._thumbnails[at].blank)

    def _motion(self, first: int, end: int) -> float:
        """The motion at these places: the second largest change, since one may be a cut, without flashes."""
        changes = sorted(self._changes(first, end), key=lambda place_value: -place_value[1])
        moves = (value for place, value in changes if not self._flash(place, value))
        return next(itertools.islice(moves, 1, None), 0.0)

    def _changes(self, first: int, end: int) -> list[tuple[int, float]]:
        """(place, change from the thumbnail before it) of the existing places from first up to end."""
        return [
            (place, self._change(place - 1, place)) for place in range(max(1, first), min(len(self._thumbnails), end))
        ]

    def _change(self, first: int, second: int) -> float:
        return self._cached_change(self._thumbnails[first], self._thumbnails[second])

    def _flash(self, at: int, found: float) -> range:
        """The places of the flash that begins or ends at this place; empty if there is none.

        Either the picture before the flash comes back after it, or this one was there before it.
        """
        around = [value for _, value in self._changes(at - AROUND, at + AROUND + 1) if value < found / 2]
        moving = sorted(around)[-2] if len(around) > 1 else 0.0
        for frames in range(1, self.settings.flash_frames + 1):
            for first, last in ((at - 1, at + frames), (at - 1 - frames, at)):
                if first >= 0 and last < len(self._thumbnails):
                    same = self.settings.returned * (self._thumbnails[first].contrast + self._thumbnails[last].contrast)
                    if self._change(first, last) < min(found / 2, max(same, (frames + 1) * moving)):
                        return range(first + 1, last)
        return range(0)


def _reduced(rgb_HWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The frame as PySceneDetect takes it, BGR and small; large frames are first reduced by a quick method."""
    import cv2

    height, width = rgb_HWC.shape[:2]
    small = (WIDTH, max(9, round(height * WIDTH / width)))
    if width > 2 * WIDTH:
        rgb_HWC = cv2.resize(rgb_HWC, (2 * small[0], 2 * small[1]), interpolation=cv2.INTER_LINEAR)
    return np.ascontiguousarray(cv2.resize(rgb_HWC, small, interpolation=cv2.INTER_AREA)[..., ::-1])


def _merged(cuts: Sequence[Transition]) -> list[Transition]:
    """The cuts; those close together become one, since the frames between them belong to neither scene."""
    merged: list[Transition] = []
    for cut in cuts:
        if merged and cut.number - merged[-1].ends < CLOSE:
            merged[-1] = replace(merged[-1], ends=cut.number)
        else:
            merged.append(cut)
    return merged


def _scenes(transitions: Sequence[Transition], flashed: Sequence[int], seconds: Sequence[float]) -> Iterator[Scene]:
    """The scenes between the transitions. seconds: of each frame, and of the film's end."""
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
