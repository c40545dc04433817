"""Text in pictures: finds lines of text with a detector, and decides which clips are credits or titles.

The detector is PP-OCRv6 small (of PaddleOCR, Apache-2.0), an ONNX file in the package rapidocr. OpenCV runs it; the
package's own code and its other models are not used. H height, W width, C channels.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Sequence
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
SCORE, TALL_SCORE = 0.8, 0.9  # least mean probability of a line; hair, hands and fur rarely reach 0.9
FILLED = 0.85  # least fraction of a tall line's box that it fills: letters do, animals do not
TALL, TALLEST = 0.1, 0.25  # of the picture's height: large letters, and the largest
FLAT = 2.0  # least width of a line, in heights
THIN = 3  # least pixels of a line's height

MOST_TEXT = 0.005  # largest fraction of the picture that text may cover
LOOKED_AT = 4  # frames of a clip that are searched for text
EDGE = 0.25  # of the picture's height, at the top and the bottom: where subtitles are
SUBTITLE_ROWS, SIGN_ROWS = 2, 2  # most rows of a subtitle and of a sign
CENTRED = 0.05  # of the picture's width: largest distance of a title's middle from the picture's


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


def check_installed() -> None:
    """ValueError that says what to install if the detector is missing."""
    _model()


def reading_size(frame_HWC: NDArray[np.uint8], crop: Crop, size: tuple[int, int]) -> tuple[int, int]:
    """The (height, width) at which a frame is searched for text: about the aspect of `size`, not enlarged."""
    inner = frame_HWC.shape[0] - crop.top - crop.bottom
    height = max(1, min(HEIGHT, inner) // MULTIPLE) * MULTIPLE
    return height, max(1, round(height * size[1] / size[0] / MULTIPLE)) * MULTIPLE


def looked_at(frames: int) -> range:
    """Which frames of a clip are searched for text: about four, evenly spaced."""
    step = max(1, frames // LOOKED_AT)
    return range(step // 2, frames, step)


def is_credits(pages: Sequence[NDArray[np.uint8]], most_text: float) -> bool:
    """Whether text covers more than the fraction `most_text` of the picture in most frames of a clip.

    pages: a few frames of the clip, of `reading_size`. Subtitles and signs do not count: see `text_share`.
    """
    others = (len(pages) - 1) // 2  # how many frames may have less text
    without = (page for page in pages if text_share(find_lines(page)) <= most_text)
    return len(list(itertools.islice(without, others + 1))) <= others


def text_share(lines: Sequence[Line]) -> float:
    """The fraction of the picture that is covered by text that looks like credits or a title.

    Subtitles (one or two rows near the upper or lower edge) and signs (one or two rows that are not centred) do not
    count.
    """
    edge = [line for line in lines if not EDGE <= line.middle <= 1 - EDGE]
    if _rows(edge) <= SUBTITLE_ROWS:
        lines = [line for line in lines if EDGE <= line.middle <= 1 - EDGE]
    if _rows(lines) <= SIGN_ROWS and not _is_centred(lines):
        return 0.0
    return sum(line.width * line.height for line in lines)


def _rows(lines: Sequence[Line]) -> int:
    """How many rows the lines form."""
    rows, bottom = 0, -1.0
    for line in sorted(lines, key=lambda line: line.top):
        rows += line.top >= bottom
        bottom = max(bottom, line.top + line.height)
    return rows


def _is_centred(lines: Sequence[Line]) -> bool:
    if not lines:
        return False
    left, right = min(line.left for line in lines), max(line.left + line.width for line in lines)
    return abs((left + right) / 2 - 0.5) <= CENTRED


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
        if score >= (TALL_SCORE if tall else SCORE) and (not tall or area >= FILLED * wide * high):
            found.append(Line(*(float(value) for value in (x / width, y / height, wide / width, high / height))))
    return found


@lru_cache(maxsize=1)
def _detector() -> cv2.dnn.Net:
    """The detector, loaded once per process."""
    import cv2

    return cv2.dnn.readNetFromONNX(str(_model()))


def _model() -> Path:
    """The model's file in the package, which is not imported; ValueError if it is missing."""
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found is not None else None
    model = next((path for place in places or () if (path := Path(place) / MODEL).is_file()), None)
    if model is None:
        raise ValueError(
            f"finding credits needs {MODEL} of the package {PACKAGE}; run `pip install '{PACKAGE}>=3.10,<4'`; on the "
            "command line, --most-text 1 keeps credits"
        )
    return model
