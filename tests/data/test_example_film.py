"""The labels of the film that `make film` builds from (tests/measure/example_film.py)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from animegamer_core.data.captions.models import read_spans

LABELS = Path(__file__).parents[1] / "measure" / "big_buck_bunny"


def test_the_labels_cover_the_film_and_its_characters():
    """Every second of the film's own scenes has one line, and every character of the lines has three pictures."""
    spans = read_spans(LABELS / "big_buck_bunny.captions.jsonl")
    ends, starts = [0.0, *(span.end for span in spans)], [*(span.start for span in spans), 596.458]
    gaps = [(round(end, 1), round(start, 1)) for end, start in zip(ends, starts, strict=True) if end != start]
    assert gaps == [(0.0, 0.6), (299.2, 300.4), (460.9, 462.0), (489.9, 580.9)]  # black, and the credits
    pictures = [json.loads(line) for line in (LABELS / "characters.jsonl").read_text().splitlines()]
    named = Counter(picture["name"] for picture in pictures)
    assert named == {name: 3 for span in spans for name in span.names if name.istitle()}
