"""Text in pictures: what counts as credits or a title over any ground, and what does not."""

import sys

import numpy as np
import pytest
from lettered import GROUNDS, KINDS, lettered

from animegamer_core.data.films.framing import Crop, fit
from animegamer_core.data.films.writing import (
    MOST_TEXT,
    Line,
    credits_and_subtitles,
    detector_file,
    find_lines,
    read_text,
)

SMALL = (192, 352)  # height and width: a quarter of the time


def row(middle: float, left: float = 0.3, width: float = 0.4) -> Line:
    return Line(left, middle - 0.02, width, 0.04)


def credits_of(*clips, most_text: float = MOST_TEXT) -> list[bool]:
    return [is_credits for is_credits, _ in credits_and_subtitles(clips, most_text)]


@pytest.mark.parametrize("ground", GROUNDS)
def test_credits_and_titles_are_found_over_any_ground_and_subtitles_and_signs_stay(ground):
    texts = [read_text([fit(picture, Crop(), SMALL) for picture in lettered(ground, name, 0)]) for name in KINDS]
    assert credits_of(*texts) == [kind.unwanted for kind in KINDS.values()]


def test_a_line_is_where_its_letters_are():
    before, after = lettered("moving", "none", 1)[0], lettered("moving", "title", 1)[0]
    rows, columns = np.nonzero((before != after).any(axis=-1))
    (line,) = find_lines(fit(after, Crop(), SMALL))
    found = (line.left, line.top, line.left + line.width, line.top + line.height)
    drawn = (columns.min() / 640, rows.min() / 360, columns.max() / 640, rows.max() / 360)
    assert np.abs(np.subtract(found, drawn)).max() < 0.03
    assert find_lines(fit(before, Crop(), SMALL)) == []


def test_a_clip_is_credits_if_more_than_half_of_its_frames_are():
    clear, full = (fit(lettered("plain", kind, 0)[0], Crop(), SMALL) for kind in ("none", "card"))
    assert credits_of(read_text([full, clear, full, full])) == [True]
    assert read_text([full, clear, full, clear]) == ()
    assert credits_of(read_text([full] * 4), most_text=0.9) == [False]


def test_one_or_two_rows_are_no_credits_at_an_edge_or_beside_the_middle():
    columns = [row(y, left, 0.2) for y in (0.4, 0.5, 0.6) for left in (0.1, 0.4)]
    below = [row(0.8), row(0.86), row(0.92)]
    for lines in ([row(0.5)], [row(0.4), row(0.5)], [row(0.4), row(0.6, 0.05)], below, columns):
        assert credits_of([lines] * 4) == [True]
    for lines in ([row(0.5, 0.1)], [row(0.85), row(0.92)], [row(0.1)], [], [*columns[:2], row(0.9)]):
        assert credits_of([lines] * 4) == [False]


def test_rows_at_one_height_through_a_film_are_subtitles_and_many_texts_beside_the_middle_are_titles():
    title, clear = [[row(0.5)]] * 4, ()
    for lines in ([row(0.74), row(0.83), row(0.92)], [row(0.05), row(0.13), row(0.92)]):
        film = [[lines] * 4] * 3 + [title, [[row(0.4), *lines]] * 4, clear]
        assert credits_of(*film) == [False] * 3 + [True, True, False]
        assert [len(found) for _, found in credits_and_subtitles(film, MOST_TEXT)] == [12, 12, 12, 0, 12, 0]
    lyrics = [[[row(0.3 + 0.1 * number, 0.1)]] * 4 for number in range(4)]
    assert credits_of(*lyrics, *[clear] * 4) == [True] * 4 + [False] * 4
    edges = [[[row(height, 0.1)]] * 4 for height in (0.1, 0.9)]  # those too, but centred ones are subtitles there
    assert credits_of(*lyrics, *edges, [[row(0.9)]] * 4, *[clear] * 3) == [True] * 6 + [False] * 4
    assert not any(credits_of(*lyrics, *edges, *[clear] * 12)), "signs"


def test_a_missing_detector_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(ValueError, match="rapidocr; run `pip install 'rapidocr>=3.10,<4'`"):
        detector_file()
