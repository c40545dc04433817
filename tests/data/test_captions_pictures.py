"""The pictures that a model is shown, and the references they are made of."""

import numpy as np
import pytest
from PIL import Image

from animegamer_core.data.captions.pictures import SHEET_SIDE, evenly, frame_sheet, read_references, reference_sheet

COLOURS = {"Kiki": (200, 30, 30), "Jiji": (30, 160, 30), "Ursula": (30, 30, 200)}


def picture(path, colour, size=(60, 90), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    picture(tmp_path / "Kiki.png", COLOURS["Kiki"])
    picture(tmp_path / "Jiji" / "front.jpg", COLOURS["Jiji"])
    picture(tmp_path / "Jiji" / "side.png", COLOURS["Jiji"], (300, 50))
    picture(tmp_path / "Ursula.webp", COLOURS["Ursula"])
    (tmp_path / "notes.txt").write_text("not a picture")
    picture(tmp_path / ".hidden.png", (0, 0, 0))
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_the_sheet_shows_every_reference_below_its_number(folder):
    references = read_references(folder)
    assert [(one.name, len(one.pictures)) for one in references] == [("Jiji", 2), ("Kiki", 1), ("Ursula", 1)]
    sheet = reference_sheet(references)
    assert max(sheet.size) <= SHEET_SIDE
    pixels = np.asarray(sheet).astype(int)
    places = {}
    for name, colour in COLOURS.items():
        rows, columns = np.nonzero((abs(pixels - colour) < 12).all(-1))
        assert len(rows) > 5000, name
        places[name] = (rows.min(), rows.max(), columns.min(), columns.max())
    for name in COLOURS:
        top, _, left, right = places[name]
        band = pixels[max(0, top - 50) : top - 3, left:right].min(-1)
        ink = np.argwhere(band < 100)
        assert len(ink) > 20, f"no number above {name}"
    # Jiji, Kiki, Ursula stand in reading order
    order = sorted(places, key=lambda name: (places[name][0] // 100, places[name][2]))
    assert order == ["Jiji", "Kiki", "Ursula"]


def test_frames_stand_in_the_order_of_time():
    frames = np.zeros((17, 30, 48, 3), np.uint8)
    frames[:] = (np.arange(17) * 15)[:, None, None, None]
    for count, columns in ((4, 2), (8, 4)):
        sheet = np.asarray(frame_sheet(frames, count))[..., 0]
        seen = [sheet[15 + 42 * (place // columns), 24 + 60 * (place % columns)] for place in range(count)]
        assert seen == [15 * index for index in evenly(17, count)]
        assert seen[0] == 0 and seen[-1] == 240
