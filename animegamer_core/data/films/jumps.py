"""Jumps: frames whose picture differs from the one before by more than motion explains. Each is a cut, a flash, or a
quick thing that passes.

TransNetV2 takes many flashes for cuts, and misses some cuts between similar pictures; jumps correct both. Frames are
compared as thumbnails of 48 x 27 pixels, which are what TransNetV2 reads. H height, W width, C channels.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

SIZE = (48, 27)  # of a thumbnail, (W, H)
REACH = 2  # pixels of a thumbnail by which motion may move a patch: 36 pixels at 480 px height
PATCH = 5  # side of the patches that move as one
DARK, BRIGHT = 20.0, 235.0  # mean grey levels of a black and a white picture
FLAT, PLAIN = 6.0, 30.0  # largest standard deviation and range of a blank picture; letters exceed both
_MEAN = np.full((1, 3), 1 / 3)  # of the channels


def reduced(picture_HWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A frame (H, W, C) of any size as (27, 48, C)."""
    import cv2

    return cv2.resize(picture_HWC, SIZE, interpolation=cv2.INTER_AREA)


@dataclass(frozen=True, eq=False)  # hashed by identity, so that the change between two can be cached
class Thumbnail:
    """A frame's number in the film and its reduced picture (27, 48, C), 0..255."""

    number: int
    small_HWC: NDArray[np.float32]

    @classmethod
    def of(cls, number: int, picture_HWC: NDArray[np.uint8]) -> Thumbnail:
        """The thumbnail of a frame (H, W, C) of any size."""
        return cls(number, reduced(picture_HWC).astype(np.float32))

    @cached_property
    def contrast(self) -> float:
        """Local contrast: the mean distance of pixels from their neighbourhood, in grey levels."""
        import cv2

        return float(np.abs(self.small_HWC - cv2.blur(self.small_HWC, (9, 9))).mean())

    @cached_property
    def std(self) -> float:
        """The standard deviation of the picture's middle, where there are no borders or subtitles."""
        return float(self._middle().std())

    @cached_property
    def blank(self) -> str:
        """'black', 'white' or 'flat' (another tone) if the middle of the picture is blank, else ''."""
        middle = self._middle()
        if self.std > FLAT or np.ptp(middle) > PLAIN:
            return ""
        mean = float(middle.mean())
        return "black" if mean <= DARK else "white" if mean >= BRIGHT else "flat"

    def _middle(self) -> NDArray[np.float32]:
        height, width = self.small_HWC.shape[:2]
        return self.small_HWC[height // 4 : -(height // 4), width // 4 : -(width // 4)].mean(axis=-1)


def difference(first: Thumbnail, second: Thumbnail) -> float:
    """The mean difference of two thumbnails in grey levels; quick, and rarely less than their `change`."""
    return float(np.abs(first.small_HWC - second.small_HWC).mean())


def change(first: Thumbnail, second: Thumbnail) -> float:
    """The mean difference of two thumbnails in grey levels, where each patch may have moved by up to REACH pixels.

    It is small if only the camera or figures move from one frame to the next, and large for another picture.
    """
    return float(_changes(first, second).mean())


def changed_part(first: Thumbnail, second: Thumbnail) -> float:
    """The fraction of the picture where two thumbnails differ by at least half of their `change`.

    It is small if one quick thing appears or disappears, and large if the whole picture changes.
    """
    changes_HW = _changes(first, second)
    return float((changes_HW >= changes_HW.mean() / 2).mean())


def _changes(first: Thumbnail, second: Thumbnail) -> NDArray[np.float32]:
    """Each pixel's difference (H, W) in grey levels after the best motion of its patch."""
    import cv2

    height, width = first.small_HWC.shape[:2]
    padded = cv2.copyMakeBorder(first.small_HWC, REACH, REACH, REACH, REACH, cv2.BORDER_REPLICATE)
    least: NDArray[np.float32] | None = None
    for down in range(2 * REACH + 1):
        for right in range(2 * REACH + 1):
            shifted = padded[down : down + height, right : right + width]
            difference = cv2.blur(cv2.transform(cv2.absdiff(second.small_HWC, shifted), _MEAN), (PATCH, PATCH))
            least = difference if least is None else cv2.min(least, difference)
    assert least is not None
    return least


AROUND = 9  # frames on either side of a jump that show how much motion there is: three drawings on threes
PEAK = 1.1  # least ratio of a jump to the motion on its wilder side
NEAR, RATIO = 2, 1.5  # frames on either side, and least ratio of a jump to their mean difference: a quick first test
CACHED = 1000  # changes that are cached, since neighbouring jumps look at the same ones


CHANGE = 0.04  # least change of a jump beyond small motion, as a fraction of the pictures' contrast
OUTSTANDING = 1.35  # least ratio of a jump to the changes around it
FLASH_FRAMES = 3  # most frames of a flash, after which the picture before it comes back
RETURNED = 0.13  # most change, in the units of CHANGE, between the pictures before and after a flash
FLASHING = 0.3  # least part of the picture that a flash changes; where less changes, something quick passed


class JumpFinder:
    """Finds the jumps among thumbnails that are added in order; keeps about the last second of them.

    jumps: numbers of the frames after which the picture before does not come back, in order. flashed: numbers of the
    frames of flashes. Quick things that pass are in neither.
    """

    def __init__(self) -> None:
        self.jumps: list[int] = []
        self.flashed: set[int] = set()
        self._thumbnails: deque[Thumbnail] = deque(maxlen=3 * AROUND + 1)
        self._differences: deque[float] = deque(maxlen=3 * AROUND + 1)  # of each thumbnail from the one before
        self._change = lru_cache(maxsize=CACHED)(change)

    def add(self, thumbnail: Thumbnail) -> None:
        """Add the next thumbnail; decides whether the one AROUND frames before it is a jump."""
        self._differences.append(difference(self._thumbnails[-1], thumbnail) if self._thumbnails else 0.0)
        self._thumbnails.append(thumbnail)
        if len(self._thumbnails) > AROUND:
            self._decide(len(self._thumbnails) - 1 - AROUND)

    def finish(self) -> None:
        """Decide which of the last frames are jumps; call this after the last frame."""
        count = len(self._thumbnails)
        for at in range(max(0, count - AROUND), count):
            self._decide(at)

    def _decide(self, at: int) -> None:
        """Add the frame at this index of the thumbnails to the jumps or the flashes if it is one."""
        if not self._differs(at):
            return
        before, after = self._thumbnails[at - 1], self._thumbnails[at]
        own, found = CHANGE * (before.contrast + after.contrast), self._change(before, after)
        # The start of a motion stands out from the calm side too, but not by much: `own / 2` must remain.
        if found <= own or not self._stands_out(at, found - own / 2):
            return
        flash = self._flash(at, found)
        if not flash:
            self.jumps.append(after.number)
        elif changed_part(before, after) >= FLASHING:
            self.flashed.update(self._thumbnails[place].number for place in flash)

    def _differs(self, at: int) -> bool:
        """Whether a frame differs from the one before by much more than its neighbours do."""
        near = [*range(max(1, at - NEAR), at), *range(at + 1, min(at + NEAR + 1, len(self._differences)))]
        return at > 0 and self._differences[at] * len(near) > RATIO * sum(self._differences[place] for place in near)

    def _stands_out(self, at: int, found: float) -> bool:
        """Whether a change is well above the motion on its calmer side, and above that on the other side."""
        calmer, wilder = sorted((self._motion(at - AROUND, at), self._motion(at + 1, at + AROUND + 1)))
        # If a picture changes to a blank one, or the reverse, motion on one side means nothing.
        empties = bool(self._thumbnails[at - 1].blank) != bool(self._thumbnails[at].blank)
        return found > OUTSTANDING * calmer and (empties or found > PEAK * wilder)

    def _motion(self, first: int, end: int) -> float:
        """The motion at these indices: the second largest change without flashes, since the largest may be a cut."""
        changes = sorted(self._changes(first, end), key=lambda place_value: -place_value[1])
        moves = (value for place, value in changes if not self._flash(place, value))
        return next(itertools.islice(moves, 1, None), 0.0)

    def _changes(self, first: int, end: int) -> list[tuple[int, float]]:
        """(index, change from the thumbnail before it) of the existing indices from first up to end."""
        places = range(max(1, first), min(len(self._thumbnails), end))
        return [(place, self._change(self._thumbnails[place - 1], self._thumbnails[place])) for place in places]

    def _flash(self, at: int, found: float) -> range:
        """The indices of the flash that begins or ends at this index; empty if there is none.

        A flash begins here if the picture before it comes back soon, and ends here if this picture was there shortly
        before.
        """
        around = [value for _, value in self._changes(at - AROUND, at + AROUND + 1) if value < found / 2]
        moving = sorted(around)[-2] if len(around) > 1 else 0.0
        for frames in range(1, FLASH_FRAMES + 1):
            for first, last in ((at - 1, at + frames), (at - 1 - frames, at)):
                if first < 0 or last >= len(self._thumbnails):
                    continue
                before, after = self._thumbnails[first], self._thumbnails[last]
                same = RETURNED * (before.contrast + after.contrast)
                if self._change(before, after) < min(found / 2, max(same, (frames + 1) * moving)):
                    return range(first + 1, last)
        return range(0)
