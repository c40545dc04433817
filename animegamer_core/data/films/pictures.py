"""Compares a film's small pictures, (27, 48, 3): sudden changes, flashes and wipes.

Anime is drawn on twos and threes, so from one drawing to the next a figure may change as much as at a cut. But behind
it the background stays, while a cut or a flash changes all of the picture: `kept` tells them apart. H height, W width,
C channels.
"""

from __future__ import annotations

import itertools
from array import array
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.float32]  # (H, W, C), grey levels

FLASH_FRAMES = 3  # most frames of a flash, after which the picture before it comes back
FLASH = 12.0  # grey levels by which a flash changes the picture; something small that passes changes it less
RETURNED = 4.0  # least ratio of that to the difference between the pictures before and after, if little was kept

REACH = 2  # pixels of 48 x 27 by which motion may move a patch: 36 pixels at 480 px height
PATCH = 5  # side of the patches that move as one
_MEAN = np.full((1, 3), 1 / 3)  # of the channels

LARGE = 5.0  # grey levels of a change of which the kept details are counted
DETAIL, SAME = 5.0, 2.0  # grey levels by which a detail differs from what is around it, at most from itself later
SHAKEN = (4, 8)  # pixels down and across by which the camera may move all details at once
BLACK = 8.0  # brightest grey level of borders
DARKENED = 0.3  # of the picture: where so much turns black or appears from it, nothing counts as kept
FEW_DETAILS = 100  # of 960 pixels: a picture with fewer counts as if it had these
BACK = 5  # frames from before to after a quick drawing that fills the picture
KEPT = 0.06  # fraction of the details above which two pictures show the same place
MOSTLY = 0.15  # the same, where the network is sure of a cut

WIPES = (8, 11, 15, 20, 27, 38)  # frames in which a wipe is looked for
NEW = 8.0, 0.6  # a wipe changes this fraction of the picture by as many grey levels
MIXED = 0.06  # least fraction of either picture in a frame of a wipe
UNEXPLAINED = 0.12, 0.35  # most of the change that the frames of a wipe share with neither picture: on average, in one
LARGEST_STEP = 0.35  # of the picture that a wipe changes from one frame to the next
AT_ONCE = 8, 0.55  # a wipe changes a place by this fraction in one such part of the frames; light that turns, by less


class Pictures:
    """Measures the pictures that are added in order; keeps the last few.

    changes: how much each differs from the one before. kept: the fraction of details that stayed; 0 after a small
    change. flashed: numbers of the frames of flashes.
    """

    def __init__(self) -> None:
        self.changes, self.kept, self.flashed = array("f"), array("f"), set[int]()
        self._wipes: list[tuple[float, int, int]] = []  # (unexplained, first, end)
        self._last: deque[Picture] = deque(maxlen=WIPES[-1] + 1)

    def add(self, small_HWC: NDArray[np.uint8]) -> None:
        """Add the next frame."""
        self._last.append(small_HWC.astype(np.float32))
        *earlier, after = self._last
        number = len(self.changes)
        self.changes.append(float(change_map(earlier[-1], after).mean()) if earlier else 0.0)
        self.kept.append(kept(earlier[-1], after) if self.changes[-1] > LARGE else 0.0)
        begun = number - BACK + 1  # a smear or a flash hides the place for a few frames
        if begun > 0 and self.changes[begun] > LARGE and self.kept[begun] <= KEPT:
            back = kept(earlier[-BACK], after)
            self.kept[begun:] = array("f", (max(back, one) for one in self.kept[begun:]))
        for frames in range(1, min(FLASH_FRAMES, len(earlier) - 1) + 1):
            if _is_flash(earlier[-frames - 1], earlier[-frames:], after):
                self.flashed.update(range(number - frames, number))
        for frames in WIPES if number % 2 else ():
            wipe = _wipe(list(self._last)[-frames - 1 :]) if number >= frames else None
            if wipe is not None:
                unexplained, first, end = wipe[0], *(number - frames + at for at in wipe[1:])
                if self._wipes and first <= self._wipes[-1][2]:
                    self._wipes[-1] = min(self._wipes[-1], (unexplained, first, end))
                else:
                    self._wipes.append((unexplained, first, end))

    @property
    def wipes(self) -> list[tuple[int, int]]:
        """(first, end) of the frames of each wipe."""
        return [(first, end) for _, first, end in self._wipes]

    def kept_at(self, number: int) -> float:
        """The fraction of details that stayed where the picture changes most, within a frame of this one."""
        near = range(max(0, number - 1), min(len(self.changes), number + 2))
        return self.kept[max(near, key=self.changes.__getitem__)]


def change_map(first_HWC: Picture, second_HWC: Picture) -> NDArray[np.float32]:
    """The difference (H, W) of two pictures in grey levels, where each patch may have moved by up to REACH pixels.

    It is small if only the camera or figures move from one frame to the next, and large for another picture.
    """
    import cv2

    height, width = first_HWC.shape[:2]
    padded = cv2.copyMakeBorder(first_HWC, REACH, REACH, REACH, REACH, cv2.BORDER_REPLICATE)
    least = np.full((height, width), np.inf, np.float32)
    for down, right in itertools.product(range(2 * REACH + 1), repeat=2):
        differing = cv2.absdiff(second_HWC, padded[down : down + height, right : right + width])
        least = cv2.min(least, cv2.blur(cv2.transform(differing, _MEAN), (PATCH, PATCH)))
    return least


def kept(first_HWC: Picture, second_HWC: Picture) -> float:
    """The fraction of the two pictures' details that both show, at one shift of the camera.

    Details next to black are borders; the lowest quarter, where subtitles are, does not count.
    """
    import cv2

    (down_most, right_most), height, width = SHAKEN, len(first_HWC) * 3 // 4, first_HWC.shape[1]
    grey, later = (cv2.transform(picture[:height], _MEAN) for picture in (first_HWC, second_HWC))
    if abs(np.mean(grey <= BLACK) - np.mean(later <= BLACK)) > DARKENED:
        return 0.0
    grey = cv2.copyMakeBorder(grey, down_most, down_most, right_most, right_most, cv2.BORDER_REPLICATE)
    detail, later_detail = (
        (cv2.absdiff(one, cv2.blur(one, (5, 5))) > DETAIL) & (cv2.erode(one, np.ones((5, 5))) > BLACK)
        for one in (grey, later)
    )
    most = 0.0
    for down, right in itertools.product(range(2 * down_most + 1), range(2 * right_most + 1)):
        part = np.s_[down : down + height, right : right + width]
        details = detail[part] | later_detail
        same = cv2.blur(cv2.absdiff(grey[part], later), (3, 3)) < SAME
        most = max(most, int(np.count_nonzero(same & details)) / max(FEW_DETAILS, int(np.count_nonzero(details))))
    return most


def _is_flash(before: Picture, between: Sequence[Picture], after: Picture) -> bool:
    """Whether the pictures between two others are a flash: they keep nothing of a place that comes back."""
    if min(float(np.abs(before - one).mean()) for one in between) <= FLASH:
        return False  # quick, and rarely less than the change
    least = min(float(change_map(before, one).mean()) for one in between)
    if least <= FLASH or any(kept(before, one) > KEPT / 2 for one in between):
        return False
    return least > RETURNED * float(change_map(before, after).mean()) or kept(before, after) > KEPT


def _wipe(pictures: Sequence[Picture]) -> tuple[float, int, int] | None:
    """(unexplained change, first, end) of the frames with a part of the first picture next to one of the last.

    None if some show something else.
    """
    import cv2

    before, middle, after = (cv2.blur(pictures[at], (3, 3)) for at in (0, len(pictures) // 2, -1))
    whole, old, new = (
        cv2.transform(cv2.absdiff(one, other), _MEAN)
        for one, other in ((before, after), (before, middle), (middle, after))
    )
    explained = np.minimum(old, new).mean() < 2.5 * UNEXPLAINED[0] * whole.mean()
    if not explained or (whole > NEW[0]).mean() < NEW[1] or not 0.2 < (new < old).mean() < 0.8:
        return None  # quick, and rarely stricter than what follows
    later = pictures[(len(pictures) - 1) // AT_ONCE[0] :]
    steps = np.max([np.abs(one - other).mean(axis=-1) for one, other in zip(pictures, later, strict=False)], axis=0)
    where = whole > NEW[0]
    if np.median(steps[where] / whole[where]) < AT_ONCE[1]:
        return None
    changed = change_map(pictures[0], pictures[-1])
    shares, where, unexplained = [], changed > NEW[0], []
    for at in sorted(range(1, len(pictures) - 1), key=lambda at: abs(2 * at - len(pictures))):  # the middle fails most
        old, new = change_map(pictures[0], pictures[at]), change_map(pictures[at], pictures[-1])
        unexplained.append(float(np.minimum(old, new).mean() / changed.mean()))
        if unexplained[-1] > UNEXPLAINED[1]:
            return None
        shares.append((at, float((new < old)[where].mean())))
    steps = [0.0, *(share for _, share in sorted(shares)), 1.0]
    inside = [at for at, share in enumerate(steps) if MIXED < share < 1 - MIXED]
    rises = np.diff(steps)
    if len(inside) < 4 or rises.max() > LARGEST_STEP or rises.min() < -0.1 or np.mean(unexplained) > UNEXPLAINED[0]:
        return None
    return None if kept(pictures[0], pictures[-1]) > KEPT else (max(unexplained), inside[0], inside[-1] + 1)
