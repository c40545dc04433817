"""A strip of small pictures of a film, four per second, for a person who checks where its scenes change.

films/<film>/0000.jpg    the first minute: 12 rows of 20 pictures; unused places are black
films/<film>/0001.jpg    the second minute, and so on
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from ...files import make_folder, replacing
from .film import AT, FilmFrame

STEP = 0.25  # seconds from one picture to the next
WIDTH, LOWEST, HIGHEST = 96, 24, 170  # pixels of a picture: its width, and the limits of its height
COLUMNS, ROWS = 20, 12
_QUALITY = 70  # of JPEG; a minute of 96 x 54 then takes about 250 KB


def picture_height(width: int, height: int) -> int:
    """The height in pixels of a strip's pictures, for a film of this size."""
    return min(HIGHEST, max(LOWEST, round(WIDTH * height / width)))


class StripWriter:
    """Writes the strip of a film whose frames are added in order, and replaces an older one. Memory holds a minute."""

    def __init__(self, folder: Path, width: int, height: int) -> None:
        """folder: of the strip. width, height: of the film in pixels. OSError if the folder cannot be written."""
        self._folder, self._height = folder, picture_height(width, height)
        make_folder(folder)
        for sheet in folder.glob("*.jpg"):
            sheet.unlink()
        self._sheet = Image.new("RGB", (COLUMNS * WIDTH, ROWS * self._height))
        self._count = 0

    def add(self, frame: FilmFrame) -> None:
        """Add the film's next frame; it fills each quarter of a second up to it that has no picture yet."""
        picture = None
        while frame.seconds >= self._count * STEP - AT:
            picture = picture or self._small(frame.rgb)
            row, column = divmod(self._count % (COLUMNS * ROWS), COLUMNS)
            self._sheet.paste(picture, (column * WIDTH, row * self._height))
            self._count += 1
            if self._count % (COLUMNS * ROWS) == 0:
                self._save()

    def finish(self) -> None:
        """Write the last pictures."""
        if self._count % (COLUMNS * ROWS):
            self._save()

    def _small(self, rgb_HWC: np.ndarray) -> Image.Image:
        return Image.fromarray(rgb_HWC).resize((WIDTH, self._height), Image.Resampling.BOX, reducing_gap=2.0)

    def _save(self) -> None:
        number = (self._count - 1) // (COLUMNS * ROWS)
        with replacing(self._folder / f"{number:04d}.jpg") as part:
            self._sheet.save(part, "JPEG", quality=_QUALITY)
        self._sheet.paste((0, 0, 0), (0, 0, *self._sheet.size))
