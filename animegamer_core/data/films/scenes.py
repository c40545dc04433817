"""A film's scenes: where its hard cuts and its fades are, found in one pass over the frames.

PySceneDetect's AdaptiveDetector proposes frames at which the picture changes more than around them. A proposal is a
cut if more changes there than motion explains, and if it is no flash. Fades, which no such detector sees, come from the
blank pictures they pass through, or, where one scene melts into the next, from frames that lie between the two.
"""

from __future__ import annotations

import itertools
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .fades import WINDOWS, Join, Melt, blank_fades, heaviest, melting
from .filmfile import MOST_FPS
from .looks import Look, change

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .film import FilmFrame

WIDTH = 160  # of the pictures that PySceneDetect compares; its own scale for films of this kind
AROUND = 9  # frames on either side of a proposal that tell how much motion there is: three drawings on threes
PEAK = 1.1  # how many times its strongest neighbour a cut must be, where that is no flash or cut itself
KNOWN = 1000  # changes that are kept, since neighbouring proposals and windows ask for the same ones
MOST_LOOKS = 500  # kept: the longest window at 300 frames a second; timestamps may lie closer than any film's frames
CLOSE = 5  # frames: two cuts nearer than this are one, with a flash or a tear between


@dataclass(frozen=True)
class Scene:
    """One scene: start and end in seconds, end being the first frame of the next scene.

    begins is "start", "cut" or "fade". fade_in and fade_out: seconds at either end that a fade takes. flashes: (second,
    second of the next) of each frame in it that a flash hits: it belongs to no motion.
    """

    start: float
    end: float
    begins: str
    fade_in: float = 0.0
    fade_out: float = 0.0
    flashes: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class SceneSettings:
    """How scenes are found. The defaults were set on generated films and then measured on others.

    ratio, score: AdaptiveDetector's threshold and least content value for a proposal, low, so that none is missed.
    change: least share of the pictures' contrast that changes at a cut beyond what small shifts explain.
    outstanding: how many times the change of the frames around it a cut is.
    flash_frames: a picture that comes back after at most so many frames was interrupted by a flash.
    returned: the same share, below which the picture after a flash is the one before it.
    fade_seconds: the longest half of a fade through black or white. melt: what makes a cross-fade.
    """

    ratio: float = 1.5
    score: float = 0.05
    change: float = 0.04
    outstanding: float = 1.35
    flash_frames: int = 3
    returned: float = 0.13
    fade_seconds: float = 2.5
    melt: Melt = Melt()


class SceneFinder:
    """Finds the scenes of a film whose frames are added in order; keeps the last few seconds of them, in small."""

    def __init__(self, settings: SceneSettings, fps: float) -> None:
        """fps: frames a second on average. ValueError: a number that cannot be one."""
        from scenedetect.detectors import AdaptiveDetector

        if not 0 < fps < MOST_FPS:
            raise ValueError(f"a film of {fps} frames a second cannot be cut; give its average frame rate")
        self.settings, self.fps = settings, fps
        self._detector = AdaptiveDetector(
            adaptive_threshold=settings.ratio, min_content_val=settings.score, min_scene_len=0
        )
        self._looks: deque[Look] = deque()
        self._proposals: deque[int] = deque()
        self._known: dict[tuple[int, int], float] = {}  # changes by the numbers of the two looks
        self._cuts: list[Join] = []
        self._melts: list[Join] = []
        self._flashed: set[int] = set()
        self._seconds, self._spreads = array("d"), array("f")
        self._blanks: list[str] = []

    def add(self, frame: FilmFrame) -> None:
        """Take the film's next frame. ValueError: it is not later than the one before."""
        from scenedetect import FrameTimecode

        number = len(self._seconds)
        if number and frame.seconds <= self._seconds[-1]:
            raise ValueError(f"a frame at {frame.seconds} s follows one at {self._seconds[-1]} s; add frames in order")
        picture = _reduced(frame.rgb)
        look = Look.of(number, picture)
        self._looks.append(look)
        self._seconds.append(frame.seconds)
        self._spreads.append(look.spread)
        self._blanks.append(look.blank)
        timecode = FrameTimecode(number, fps=self.fps)  # it counts frames; their true seconds are kept here
        self._proposals.extend(found.frame_num for found in self._detector.process_frame(timecode, picture))
        self._melts.extend(melting(self._looks, self._seconds, self.settings.melt, self._unlike))
        self._decide(upto=number - AROUND)
        while len(self._looks) > 3 * AROUND and (
            len(self._looks) > MOST_LOOKS or self._seconds[self._looks[1].number] <= frame.seconds - max(WINDOWS)
        ):
            self._looks.popleft()

    def finish(self, end_seconds: float) -> list[Scene]:
        """The film's scenes in order, the last one ending at `end_seconds`; none where no frame was added."""
        count = len(self._seconds)
        self._decide(upto=count)
        fades = blank_fades(self._blanks, self._spreads, round(self.settings.fade_seconds * self.fps), self._flashed)
        cuts = _merged([cut for cut in self._cuts if not any(cut.meets(fade) for fade in fades)])
        melts = [melt for melt in self._melts if not any(melt.meets(join) for join in (*fades, *cuts))]
        joins = sorted([*fades, *cuts, *heaviest(melts)], key=lambda join: join.number)
        return list(_scenes(joins, sorted(self._flashed), [*self._seconds, end_seconds]))

    def _decide(self, upto: int) -> None:
        """Judge the proposals before frame `upto`, around which enough frames are known."""
        while self._proposals and self._proposals[0] <= upto:
            number = self._proposals.popleft()
            at = number - self._looks[0].number
            found = self._change(at - 1, at) if at > 0 else 0.0
            own = self.settings.change * (self._looks[at - 1].contrast + self._looks[at].contrast)
            # Motion that begins stands out from a calm side too, but not by much: half of `own` must be clear of it.
            if found <= own or not self._stands_out(at, found - own / 2):
                continue
            flash = self._flash(at, found)
            if flash:
                self._flashed.update(self._looks[place].number for place in flash)
            elif self._outdoes_rivals(at, found):
                self._cuts.append(Join(number, "cut", number, number))

    def _outdoes_rivals(self, at: int, found: float) -> bool:
        """Whether no change near by is as great, but for flashes and cuts."""
        near = [] if self._empties(at) else self._changes(at - AROUND, at + AROUND + 1)
        rivals = [(place, value) for place, value in near if value * PEAK > found and place != at]
        return all(self._flash(place, value) or self._stands_out(place, value) for place, value in rivals)

    def _stands_out(self, at: int, found: float) -> bool:
        """Whether a change is well above what moves on the calmer side of it, and above what moves on the other."""
        sides = ((at - AROUND, at), (at + 1, at + AROUND + 1))
        calmer, wilder = sorted(self._motion(*side) for side in sides)
        return found > self.settings.outstanding * calmer and (self._empties(at) or found > PEAK * wilder)

    def _empties(self, at: int) -> bool:
        """Whether a picture gives way to an empty one, or the reverse: what moves on its other side says nothing."""
        return bool(self._looks[at - 1].blank) != bool(self._looks[at].blank)

    def _motion(self, first: int, end: int) -> float:
        """How much moves at these places: the second greatest change, since one may be a cut; flashes left aside."""
        changes = sorted(self._changes(first, end), key=lambda place_value: -place_value[1])
        moves = (value for place, value in changes if not self._flash(place, value))
        return next(itertools.islice(moves, 1, None), 0.0)

    def _changes(self, first: int, end: int) -> list[tuple[int, float]]:
        """(place, change from the look before it) of the places from first up to end that there are."""
        return [(place, self._change(place - 1, place)) for place in range(max(1, first), min(len(self._looks), end))]

    def _change(self, first: int, second: int) -> float:
        return self._unlike(self._looks[first], self._looks[second])

    def _unlike(self, first: Look, second: Look) -> float:
        """Their `change`, computed once."""
        key = first.number, second.number
        if key not in self._known:
            self._known = self._known if len(self._known) < KNOWN else {}
            self._known[key] = change(first, second)
        return self._known[key]

    def _flash(self, at: int, found: float) -> range:
        """The flash that begins or ends with the look at this place, no places where the change there is none.

        The picture before the flash comes back, or the look itself has been there before it.
        """
        around = [value for _, value in self._changes(at - AROUND, at + AROUND + 1) if value < found / 2]
        moving = sorted(around)[-2] if len(around) > 1 else 0.0
        for frames in range(1, self.settings.flash_frames + 1):
            for first, last in ((at - 1, at + frames), (at - 1 - frames, at)):
                if first >= 0 and last < len(self._looks):
                    same = self.settings.returned * (self._looks[first].contrast + self._looks[last].contrast)
                    if self._change(first, last) < min(found / 2, max(same, (frames + 1) * moving)):
                        return range(first + 1, last)
        return range(0)


def _reduced(rgb_HWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The frame as PySceneDetect takes it, blue first and small; large frames come near that size by a quick step."""
    import cv2

    height, width = rgb_HWC.shape[:2]
    small = (WIDTH, max(9, round(height * WIDTH / width)))
    if width > 2 * WIDTH:
        rgb_HWC = cv2.resize(rgb_HWC, (2 * small[0], 2 * small[1]), interpolation=cv2.INTER_LINEAR)
    return np.ascontiguousarray(cv2.resize(rgb_HWC, small, interpolation=cv2.INTER_AREA)[..., ::-1])


def _merged(cuts: Sequence[Join]) -> list[Join]:
    """The cuts, those that follow one closely taken into it: what is between them belongs to neither scene."""
    merged: list[Join] = []
    for cut in cuts:
        if merged and cut.number - merged[-1].ends < CLOSE:
            merged[-1] = replace(merged[-1], ends=cut.number)
        else:
            merged.append(cut)
    return merged


def _scenes(joins: Sequence[Join], flashed: Sequence[int], seconds: Sequence[float]) -> Iterator[Scene]:
    """The scenes between the joins of a film whose frames have these seconds, its end being the last of them."""
    count = len(seconds) - 1
    opening = [replace(join, kind="start") for join in joins if join.number == 0]
    closing = [join for join in joins if join.number == count]
    ends = [
        *(opening or [Join(0, "start", 0, 0)]),
        *(join for join in joins if 0 < join.number < count),
        *(closing or [Join(count, "cut", count, count)]),
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
