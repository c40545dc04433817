"""Pictures with text on them, drawn: credits and titles over plain, textured and moving grounds, subtitles and signs.

A clip is FRAMES pictures of two seconds, (FRAMES, height, width, 3) in RGB.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from animegamer_core.toybox.drawing.draw import draw_frame
from animegamer_core.toybox.games import sample_game

FRAMES, HEIGHT, WIDTH = 4, 360, 640
Clip = NDArray[np.uint8]
Row = tuple[str, float, float]  # text, and its middle in fractions of the width and the height
DUTIES = ("Directed by", "Story", "Key animation", "Music", "Backgrounds", "Colour design", "Editing", "Sound")
SYLLABLES = ("mi", "ko", "ta", "ro", "yu", "zu", "no", "ri", "be", "ni", "pi", "sa", "ha", "ne")


def plain(seed: int) -> Clip:
    """One colour, dark or bright."""
    colour = np.random.default_rng(seed).integers(0, 256, 3, dtype=np.uint8)
    return np.broadcast_to(colour, (FRAMES, HEIGHT, WIDTH, 3)).copy()


def textured(seed: int, moved: int = 0) -> Clip:
    """Blots of all sizes, as of paint or cloth; moved: pixels to the left a frame."""
    rng, width = np.random.default_rng(seed), WIDTH + moved * (FRAMES - 1)
    blots = [rng.normal(0, 22, (cells, 2 * cells, 3)).astype(np.float32) for cells in (3, 9, 40, 160)]
    sheet = sum(cv2.resize(blot, (width, HEIGHT), interpolation=cv2.INTER_CUBIC) for blot in blots)
    sheet = np.clip(sheet + rng.integers(50, 200, 3), 0, 255).astype(np.uint8)
    return np.stack([sheet[:, moved * frame :][:, :WIDTH] for frame in range(FRAMES)])


def moving(seed: int) -> Clip:
    """A texture that moves."""
    return textured(seed, moved=14)


def animated(seed: int) -> Clip:
    """A scene of the Toybox."""
    scene = sample_game(10**8 + seed, turns=1).scenes[0]
    frames = [draw_frame(scene, 4 * frame) for frame in range(FRAMES)]
    return np.stack([cv2.resize(frame, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC) for frame in frames])


GROUNDS: dict[str, Callable[[int], Clip]] = {item.__name__: item for item in (plain, textured, moving, animated)}


def _name(rng: random.Random) -> str:
    return " ".join("".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))).capitalize() for _ in range(2))


def card(rng: random.Random, frame: int) -> list[Row]:
    """Rows in the middle that stand still."""
    rows = rng.randint(4, 7)
    return [(f"{rng.choice(DUTIES)}   {_name(rng)}", 0.5, 0.5 + 0.08 * (row - (rows - 1) / 2)) for row in range(rows)]


def roll(rng: random.Random, frame: int) -> list[Row]:
    """Two columns that come up."""
    cells = [(0.08 * row - 0.3 - 0.05 * frame, rng.choice(DUTIES), _name(rng)) for row in range(24)]
    return [half for y, duty, name in cells for half in ((duty, 0.35, y), (name, 0.64, y))]


def title(rng: random.Random, frame: int) -> list[Row]:
    """A film's name."""
    return [(_name(rng), 0.5, rng.uniform(0.35, 0.6))]


def subtitle(rng: random.Random, frame: int) -> list[Row]:
    """What somebody says, in one row or two."""
    return [(f"{_name(rng)}, {_name(rng)}!", 0.5, 0.93 - 0.08 * row) for row in range(rng.randint(1, 2))]


def sign(rng: random.Random, frame: int) -> list[Row]:
    """A word at the side, which moves as the camera does."""
    return [(_name(rng).split()[0], rng.choice((0.25, 0.75)) + 0.01 * frame, rng.uniform(0.3, 0.6))]


class Kind(NamedTuple):
    """Text of one kind. height: of its letters, in pixels. unwanted: whether clips of it are to be left out."""

    rows: Callable[[random.Random, int], list[Row]]
    height: int
    unwanted: bool


KINDS = {
    "card": Kind(card, 18, True),
    "roll": Kind(roll, 14, True),
    "title": Kind(title, 44, True),
    "subtitle": Kind(subtitle, 18, False),
    "sign": Kind(sign, 28, False),
    "none": Kind(lambda rng, frame: [], 18, False),
}


def lettered(ground: str, kind: str, seed: int) -> Clip:
    """A clip of this ground with text of this kind, which has a dark edge unless the ground is dark."""
    clip = GROUNDS[ground](seed)
    edge = clip.mean() > 90
    for frame, picture in enumerate(clip):
        picture[:] = write(picture, KINDS[kind].rows(random.Random(seed), frame), KINDS[kind].height, edge)
    return clip


def write(picture_HWC: NDArray[np.uint8], rows: list[Row], height: int, edge: bool) -> NDArray[np.uint8]:
    """The picture with these rows in white letters of this height in pixels. edge: around each letter."""
    image = Image.fromarray(picture_HWC)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(height)
    for text, x, y in rows:
        place = x * image.width, y * image.height
        draw.text(place, text, (245, 245, 240), font, "mm", stroke_width=int(edge), stroke_fill=(20, 20, 30))
    return np.asarray(image)
