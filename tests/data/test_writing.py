"""Text in pictures: what counts as credits or a title over any ground, and what does not."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from animegamer_core.data.films.framing import Crop, fit
from animegamer_core.data.films.writing import (
    MOST_TEXT,
    Line,
    check_installed,
    find_lines,
    is_credits,
    text_share,
)

pytest.importorskip("cv2")
from lettered import GROUNDS, KINDS, lettered  # noqa: E402

SMALL = (192, 352)  # height and width: a quarter of the time


def row(middle: float, left: float = 0.3, width: float = 0.4) -> Line:
    return Line(left, middle - 0.02, width, 0.04)


@pytest.mark.parametrize("ground", GROUNDS)
def test_credits_and_titles_are_found_over_any_ground_and_subtitles_and_signs_stay(ground):
    pytest.importorskip("rapidocr", reason="the text detector is a file of rapidocr, of the extra data")
    for name, kind in KINDS.items():
        pages = [fit(picture, Crop(), SMALL) for picture in lettered(ground, name, 0)]
        assert is_credits(pages, MOST_TEXT) == kind.unwanted, name


def test_a_line_is_where_its_letters_are():
    pytest.importorskip("rapidocr", reason="the text detector is a file of rapidocr, of the extra data")
    before, after = lettered("moving", "none", 1)[0], lettered("moving", "title", 1)[0]
    rows, columns = np.nonzero((before != after).any(axis=-1))
    (line,) = find_lines(fit(after, Crop(), SMALL))
    found = (line.left, line.top, line.left + line.width, line.top + line.height)
    drawn = (columns.min() / 640, rows.min() / 360, columns.max() / 640, rows.max() / 360)
    assert np.abs(np.subtract(found, drawn)).max() < 0.03
    assert find_lines(fit(before, Crop(), SMALL)) == []


def test_a_clip_is_credits_if_more_than_half_of_its_frames_are():
    pytest.importorskip("rapidocr", reason="the text detector is a file of rapidocr, of the extra data")
    clear, full = (fit(lettered("plain", kind, 0)[0], Crop(), SMALL) for kind in ("none", "card"))
    assert is_credits([full, clear, full, full], MOST_TEXT)
    assert not is_credits([full, clear, full, clear], MOST_TEXT)
    assert not is_credits([full] * 4, 0.9)


def test_one_or_two_rows_count_in_the_middle_alone_and_three_anywhere():
    assert text_share([row(0.5)]) == pytest.approx(0.016)
    assert text_share([row(0.4), row(0.5)]) == pytest.approx(0.032)
    assert text_share([row(0.5, left=0.1)]) == 0, "a sign"
    assert text_share([row(0.85), row(0.92)]) == text_share([row(0.1)]) == text_share([]) == 0, "subtitles"
    assert text_share([row(0.8), row(0.86), row(0.92)]) == pytest.approx(0.048), "a roll that begins"
    columns = [row(y, left, 0.2) for y in (0.4, 0.5, 0.6) for left in (0.1, 0.4)]
    assert text_share(columns) == pytest.approx(6 * 0.008)
    assert text_share([*columns[:2], row(0.9)]) == 0, "a sign over a subtitle: two rows of cells are no third one"


def test_a_missing_detector_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(ValueError, match="rapidocr; run `pip install 'rapidocr>=3.10,<4'`"):
        check_installed()
