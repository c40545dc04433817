"""Pictures for the vision model: the numbered sheet of reference characters, and sheets of a clip's frames.

F frames, H height, W width, C channels.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from .replies import why_unfit

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
# Pillow goes by content, not by name, and for some formats it starts other programs: for PostScript, Ghostscript.
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MATCHING_FRAMES, CAPTIONING_FRAMES = 4, 8  # supplement, section 2
MOST_REFERENCES = 30  # more would be too small to tell apart on one sheet
MOST_PICTURES = 3  # of one character, side by side
SHEET_SIDE = 1344  # px; three tiles of 448, the size in which InternVL looks at pictures
_CELL, _BAND, _GAP = 400, 56, 12  # px: a reference picture, the band with its number, the space between
_MAY_MOVE = ("GIF", "PNG", "WEBP")  # not MPO, a photograph with a second picture in the same file
_PAPER, _INK = "#ffffff", "#000000"


@dataclass(frozen=True)
class Reference:
    """A character to find in clips: its name in instructions, and pictures of it."""

    name: str
    pictures: tuple[Path, ...]


def read_references(folder: str | Path, most: int = MOST_PICTURES) -> list[Reference]:
    """The references of a folder, `<name>.png` or `<name>/*.png` (or .jpg, .webp, .bmp), in the order of their names.

    most: pictures of a character, by file name. ValueError: no such folder, no picture, a name that does not fit in an
    instruction, a name twice, too many.
    """
    folder, found = Path(folder), {}
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give one with a picture or a folder of pictures per character")
    for path in sorted(folder.iterdir()):
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        if pictures := tuple(file for file in files if is_picture(file))[:most]:
            name = unicodedata.normalize("NFC", path.name if path.is_dir() else path.stem)
            problem = why_unfit(name) or ("has a comma, which separates names" if "," in name else None)
            if problem:
                raise ValueError(f"{path}: the name {name!r} {problem}; rename the file")
            if name.lower() in found:
                raise ValueError(f"{path} and another picture are both named {name!r}; put both in one folder")
            found[name.lower()] = Reference(name, pictures)
    if not 1 <= len(found) <= MOST_REFERENCES:
        raise ValueError(
            f"{folder} has {len(found)} characters; expected 1 to {MOST_REFERENCES}, as <name>.png or <name>/*.png"
        )
    return list(found.values())


def is_picture(path: Path) -> bool:
    """Whether a file counts as a picture, by its name; hidden ones do not."""
    return path.is_file() and path.suffix.lower() in PICTURE_SUFFIXES and not path.name.startswith(".")


@dataclass(frozen=True)
class KnownCharacters:
    """The known characters of a film, as a model sees them. sheet: None if there are none. digest: of names, pictures
    and their order."""

    references: tuple[Reference, ...]
    sheet: Image.Image | None
    digest: str

    @classmethod
    def of(cls, references: Sequence[Reference]) -> KnownCharacters:
        """Read the pictures; ValueError names a file that is not one."""
        parts = hashlib.sha256()
        for reference in references:
            parts.update(f"{reference.name}\0{len(reference.pictures)}\0".encode())
            for path in reference.pictures:
                parts.update(hashlib.sha256(path.read_bytes()).digest())
        sheet = reference_sheet(references) if references else None
        return cls(tuple(references), sheet, parts.hexdigest()[:16])


def reference_sheet(references: Sequence[Reference]) -> Image.Image:
    """The references in a grid, each below a band with its index (from 1), without names; sides up to SHEET_SIDE px."""
    cells = [_cell(reference) for reference in references]
    columns = math.ceil(len(cells) ** 0.5)
    across, down = max(cell.width for cell in cells) + _GAP, _BAND + _CELL + _GAP
    sheet = Image.new("RGB", (columns * across + _GAP, -(-len(cells) // columns) * down + _GAP), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(_BAND)
    for place, cell in enumerate(cells):
        x, y = _GAP + place % columns * across, _GAP + place // columns * down
        draw.text((x + cell.width / 2, y + _BAND / 2), str(place + 1), fill=_INK, font=font, anchor="mm")
        draw.rectangle((x - 2, y + _BAND - 2, x + cell.width + 1, y + _BAND + _CELL + 1), outline=_INK, width=2)
        sheet.paste(cell, (x, y + _BAND))
    sheet.thumbnail((SHEET_SIDE, SHEET_SIDE))
    return sheet


def _cell(reference: Reference) -> Image.Image:
    """A character's pictures side by side, each _CELL px high and at most twice as wide."""
    pictures = []
    for picture in map(open_picture, reference.pictures):
        width = min(2 * _CELL, max(_CELL // 4, round(picture.width * _CELL / picture.height)))
        pictures.append(np.asarray(ImageOps.pad(picture, (width, _CELL), Image.Resampling.LANCZOS, color=_PAPER)))
    return Image.fromarray(np.concatenate(pictures, axis=1))


def open_picture(path: Path) -> Image.Image:
    """A picture in RGB, on white and upright; ValueError for any other file."""
    if not path.is_file():  # reading from a pipe would wait for ever
        raise ValueError(f"{path}: there is no such file; name a picture")
    try:
        with Image.open(path, formats=_FORMATS) as file:
            moves = file.format in _MAY_MOVE and getattr(file, "is_animated", False)
            upright = ImageOps.exif_transpose(file).convert("RGBA")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path}: not a readable picture ({type(error).__name__}); save it as PNG") from error
    if moves:
        raise ValueError(f"{path}: is animated; save it as .mp4, or one of its frames as PNG")
    flat = Image.new("RGBA", upright.size, _PAPER)
    flat.alpha_composite(upright)
    return flat.convert("RGB")


def frame_sheet(frames_FHWC: NDArray[np.uint8], count: int) -> Image.Image:
    """`count` evenly chosen frames, the first and the last among them, in two rows in the order of time.

    frames_FHWC: uint8 RGB (F, H, W, 3). The sheet is at most SHEET_SIDE px on its longer side.
    """
    chosen = [frames_FHWC[index] for index in evenly(len(frames_FHWC), count)]
    half = -(-count // 2)
    return tiled([chosen[:half], chosen[half:]], frames_FHWC.shape[1], SHEET_SIDE)


def tiled(rows: Sequence[Sequence[NDArray[np.uint8]]], height: int, longest: int) -> Image.Image:
    """Rows of pictures on white, each `height` px high with its own aspect; no side is longer than `longest` px."""
    tiles = [[Image.fromarray(picture) for picture in row] for row in rows]
    widths = [[max(1, round(tile.width * height / tile.height)) for tile in row] for row in tiles]
    size = (max(sum(row) + _GAP * (len(row) - 1) for row in widths), len(rows) * (height + _GAP) - _GAP)
    sheet = Image.new("RGB", size, _PAPER)
    for number, row in enumerate(tiles):
        x = 0
        for tile, width in zip(row, widths[number], strict=True):
            sheet.paste(tile.resize((width, height), Image.Resampling.LANCZOS), (x, number * (height + _GAP)))
            x += width + _GAP
    sheet.thumbnail((longest, longest))
    return sheet


def evenly(length: int, count: int) -> list[int]:
    """`count` indices from 0 to length - 1 with both ends; they repeat if there are fewer frames."""
    return np.linspace(0, length - 1, count).round().astype(int).tolist()
