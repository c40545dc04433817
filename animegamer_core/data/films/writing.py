"""Text in pictures: finds lines of text with a detector, and decides which clips are credits or titles.

The detector is PP-OCRv6 small (of PaddleOCR, Apache-2.0), an ONNX file in the package rapidocr. OpenCV runs it; the
package's own code and its other models are not used. H height, W width, C channels.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .framing import Crop

if TYPE_CHECKING:
    import cv2

DETECTOR = "PP-OCRv6_det_small"  # its name in a dataset's settings
PACKAGE, MODEL = "rapidocr", f"models/{DETECTOR}.onnx"
MULTIPLE, HEIGHT = 32, 384  # pixels: sides must be multiples; the height at which credits of 10 px in 720 are found

INK = 0.3  # least probability at which a pixel counts as text
SCORE, SURE = 0.8, 0.9  # least mean probability of a line; hair, hands, fur and a pair of eyes rarely reach 0.9
FILLED = 0.85  # least fraction of a tall line's box that it fills: letters do, animals do not
TALL, TALLEST = 0.1, 0.25  # of the picture's height: large letters, and the largest
FLAT, SHORT = 2.0, 4.5  # heights: least width of a line, and of one that is wider than a pair of eyes
THIN = 3  # least pixels of a line's height

MOST_TEXT = 0.005  # largest fraction of the picture that text may cover
LOOKED_AT = 4  # frames of a clip that are searched for text
EDGE = 0.25  # of the picture's height, at the top and the bottom: where subtitles are
SUBTITLE_ROWS, SIGN_ROWS = 2, 2  # most rows of a subtitle and of a sign
CENTRED = 0.05  # of the picture's width: largest distance of a title's middle from the picture's
MIDDLE, HEIGHTS = 1 / 3, 40  # of the picture's height: where no subtitles are; number of heights elsewhere
LEAST_CLIPS, LEAST_SUBTITLED, MOST_SIGNS = 3, 0.1, 1 / 3  # clips; fractions of a film's clips


@dataclass(frozen=True)
class Line:
    """A line of text, or several that touch: its box in fractions of the picture."""

    left: float
    top: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.top + self.height / 2

    @property
    def row(self) -> int | None:
        """Its height in the picture, as one of HEIGHTS; None in the middle third."""
        return None if MIDDLE <= self.middle <= 1 - MIDDLE else round(self.middle * HEIGHTS)


Pages = Sequence[Sequence[Line]]  # the lines on a few frames of a clip


def reading_size(frame_HWC: NDArray[np.uint8], crop: Crop, size: tuple[int, int]) -> tuple[int, int]:
    """The (height, width) at which a frame is searched for text: about the aspect of `size`, not enlarged."""
    inner = frame_HWC.shape[0] - crop.top - crop.bottom
    height = max(1, min(HEIGHT, inner) // MULTIPLE) * MULTIPLE
    return height, max(1, round(height * size[1] / size[0] / MULTIPLE)) * MULTIPLE


def looked_at(frames: int) -> range:
    """Which frames of a clip are searched for text: about four, evenly spaced."""
    step = max(1, frames // LOOKED_AT)
    return range(step // 2, frames, step)


def read_text(pages: Sequence[NDArray[np.uint8]]) -> tuple[tuple[Line, ...], ...]:
    """The lines on each of a clip's frames, which have `reading_size`; () if half of the frames or more show none."""
    found: list[tuple[Line, ...]] = []
    for page in pages:
        found.append(tuple(find_lines(page)))
        if 2 * found.count(()) >= len(pages):
            return ()
    return tuple(found)


def credits_and_subtitles(clips: Sequence[Pages], most_text: float) -> Iterator[tuple[bool, list[Line]]]:
    """Of each clip of a film, whether it is credits or a title, and the lines of its subtitles.

    clips: the text of all clips of the film. In credits, text covers more than the fraction `most_text` of the picture
    in most frames. Subtitles do not count. Nor do signs, unless so many clips show some that they are titles: then
    those near the upper or lower edge count too, since subtitles are centred there.
    """
    heights = _subtitle_heights(clips)
    signs = sum(_most(_is_sign(_without_subtitles(page, heights)) for page in clip) for clip in clips)
    are_titles = signs >= max(LEAST_CLIPS, MOST_SIGNS * len(clips))
    for clip in clips:
        pages = (_without_subtitles(page, heights, are_titles) for page in clip)
        full = (_area(page) > most_text and (are_titles or not _is_sign(page)) for page in pages)
        yield _most(full), [line for page in clip for line in page if line.row in heights]


def _subtitle_heights(clips: Sequence[Pages]) -> set[int | None]:
    """The heights (`Line.row`) at which most clips of a film show text, of those with text but none in the middle."""
    outer = [{line.row for page in clip for line in page} for clip in clips if clip]
    outer = [rows for rows in outer if rows and None not in rows]
    count = Counter(near for rows in outer for near in {row + step for row in rows for step in (-1, 0, 1)})
    least = max(LEAST_CLIPS, len(outer) / 2, LEAST_SUBTITLED * len(clips))
    return {row for row, clips_there in count.items() if clips_there >= least}


def _without_subtitles(lines: Sequence[Line], heights: Collection[int | None], are_titles: bool = False) -> list[Line]:
    """The lines at other heights, without one or two rows near the upper or lower edge; are_titles: if centred."""
    lines = [line for line in lines if line.row not in heights]
    outer = [line for line in lines if not EDGE <= line.middle <= 1 - EDGE]
    if len(_rows(outer)) > SUBTITLE_ROWS or (are_titles and _is_sign(outer)):
        return lines
    return [line for line in lines if line not in outer]


def _rows(lines: Sequence[Line]) -> list[list[Line]]:
    """The lines by rows, from the top."""
    rows: list[list[Line]] = []
    bottom = -1.0
    for line in sorted(lines, key=lambda line: line.top):
        if line.top >= bottom:
            rows.append([])
        rows[-1].append(line)
        bottom = max(bottom, line.top + line.height)
    return rows


def _is_sign(lines: Sequence[Line]) -> bool:
    """Whether these are one or two rows of which none is centred, nor are both together."""
    rows = _rows(lines)
    if not 0 < len(rows) <= SIGN_ROWS:
        return False
    sides = [(min(line.left for line in row), max(line.left + line.width for line in row)) for row in (*rows, lines)]
    return all(abs((left + right) / 2 - 0.5) > CENTRED for left, right in sides)


def _area(lines: Sequence[Line]) -> float:
    return sum(line.width * line.height for line in lines)


def _most(frames: Iterable[bool]) -> bool:
    flags = list(frames)
    return sum(flags) > len(flags) // 2


def find_lines(page_HWC: NDArray[np.uint8]) -> list[Line]:
    """The lines of text in an RGB picture whose sides are multiples of 32 pixels."""
    import cv2

    detector = _detector()
    detector.setInput(cv2.dnn.blobFromImage(page_HWC, 1 / 127.5, mean=(127.5, 127.5, 127.5), swapRB=True))
    probability_HW = detector.forward()[0, 0]
    height, width = probability_HW.shape
    _, labels_HW, boxes, _ = cv2.connectedComponentsWithStats((probability_HW > INK).astype(np.uint8))
    found = []
    for label, (x, y, wide, high, area) in enumerate(boxes[1:], 1):
        if high < THIN or wide < FLAT * high or high > TALLEST * height:
            continue
        box = slice(y, y + high), slice(x, x + wide)
        score, tall = probability_HW[box][labels_HW[box] == label].mean(), high > TALL * height
        least = SURE if tall or wide < SHORT * high else SCORE
        if score >= least and (not tall or area >= FILLED * wide * high):
            sides = x / width, y / height, wide / width, high / height
            found.append(Line(*(round(float(side), 4) for side in sides)))
    return found


@lru_cache(maxsize=1)
def _detector() -> cv2.dnn.Net:
    """The detector, loaded once per process."""
    import cv2

    return cv2.dnn.readNetFromONNX(str(detector_file()))


def detector_file() -> Path:
    """The detector's file in the package, which is not imported; ValueError says what to install if it is missing."""
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found is not None else None
    model = next((path for place in places or () if (path := Path(place) / MODEL).is_file()), None)
    if model is None:
        raise ValueError(
            f"finding credits needs {MODEL} of the package {PACKAGE}; run `pip install '{PACKAGE}>=3.10,<4'`; on the "
            "command line, --most-text 1 keeps credits"
        )
    return model
