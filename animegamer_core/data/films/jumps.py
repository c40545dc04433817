"""Jumps: frames whose picture differs from the one before by more than motion explains. Each is a cut, a flash, or a
quick thing that passes.

TransNetV2 takes many flashes for cuts, and misses some cuts between similar pictures; jumps correct both.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from functools import lru_cache

from .thumbnails import Thumbnail, change, changed_part, difference

AROUND = 9  # frames on either side of a jump that show how much motion there is: three drawings on threes
PEAK = 1.1  # least ratio of a jump to the motion on its wilder side
NEAR, RATIO = 2, 1.5  # frames on either side, and least ratio of a jump to their mean difference: a quick first test
CACHED = 1000  # changes that are cached, since neighbouring jumps look at the same ones


@dataclass(frozen=True)
class JumpSettings:
    """Thresholds of jumps.

    change: least change beyond small motion, as a fraction of the pictures' contrast. outstanding: least ratio to the
    changes around it. flash_frames: most frames of a flash, after which the picture before it comes back. returned:
    most change, in the units of `change`, between the pictures before and after a flash. flashing: least part of the
    picture that a flash changes; where less changes, something quick passed.
    """

    change: float = 0.04
    outstanding: float = 1.35
    flash_frames: int = 3
    returned: float = 0.13
    flashing: float = 0.3


class JumpFinder:
    """Finds the jumps among thumbnails that are added in order; keeps about the last second of them.

    jumps: numbers of the frames after which the picture before does not come back, in order. flashed: numbers of the
    frames of flashes. Quick things that pass are in neither.
    """

    def __init__(self, settings: JumpSettings) -> None:
        self.settings = settings
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
        own, found = self.settings.change * (before.contrast + after.contrast), self._change(before, after)
        # The start of a motion stands out from the calm side too, but not by much: `own / 2` must remain.
        if found <= own or not self._stands_out(at, found - own / 2):
            return
        flash = self._flash(at, found)
        if not flash:
            self.jumps.append(after.number)
        elif changed_part(before, after) >= self.settings.flashing:
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
        return found > self.settings.outstanding * calmer and (empties or found > PEAK * wilder)

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
        for frames in range(1, self.settings.flash_frames + 1):
            for first, last in ((at - 1, at + frames), (at - 1 - frames, at)):
                if first < 0 or last >= len(self._thumbnails):
                    continue
                before, after = self._thumbnails[first], self._thumbnails[last]
                same = self.settings.returned * (before.contrast + after.contrast)
                if self._change(before, after) < min(found / 2, max(same, (frames + 1) * moving)):
                    return range(first + 1, last)
        return range(0)
