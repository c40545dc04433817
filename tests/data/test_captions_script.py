"""Captions by rule: spans that a person wrote down, and the drawn film's own."""

import pytest
from tables import write_rows

from animegamer_core.data.captions.models import read_spans
from animegamer_core.data.captions.run import caption_clips, open_captioner
from animegamer_core.data.records import SET_ASIDE, ClipRecord, SetAside, read_table

SPAN = {"start": 0.0, "end": 10.0, "character": ["Kiki", "Jiji"], "motion": "fly on a broom"}
SPAN |= {"background": "night harbour town", "stats": {"social": 1, "entertainment": 0, "stamina": -1}}
SPAN["adverbs"] = {"1": "barely", "2": "slowly", "3": "calmly", "4": "quickly", "5": "wildly"}
SECOND = {**SPAN, "start": 10.0, "end": 20.0, "character": "Tombo、Kiki & Jiji, and Ursula", "adverb": "gladly"}
del SECOND["adverbs"]
NAMES = ("Tombo", "Kiki", "Jiji", "Ursula")


def sidecar(folder, *spans):
    return write_rows(folder / "tale.captions.jsonl", *spans)


def record(start: float, level: int = 3, film: str = "tale") -> ClipRecord:
    clip = f"clips/{film}/{round(start * 100):05d}.mp4"
    return ClipRecord(film=film, start=start, end=start + 2, clip=clip, motion_value=1.0, motion_level=level)


def run(folder, records, spans=(SPAN, SECOND), **kwargs):
    captioner = open_captioner("script", sidecars={"tale": sidecar(folder, *spans)})
    return caption_clips(folder, records, captioner, **kwargs)


def test_a_clip_is_captioned_by_the_span_that_it_lies_in(tmp_path):
    report = run(tmp_path, [record(2.0, 1), record(8.0, 5), record(12.0)], workers=3)
    first, second, third = report.records
    assert first.character == ("Kiki", "Jiji") and first.adverb == "barely" and second.adverb == "wildly"
    assert first.background == "night harbour town" and first.stats == SPAN["stats"]
    listed = read_spans(sidecar(tmp_path, {**SPAN, "character": ["Tombo, Kiki", "Jiji and Ursula", "Tom & Jerry"]}))
    assert listed[0].names == (*NAMES, "Tom & Jerry")
    assert third.character == NAMES and third.adverb == "gladly" and third.captioned
    assert report.captioned == 3 and "requests" not in report.text


def test_the_span_that_covers_at_least_half_of_a_clip_counts_and_the_first_of_two_halves(tmp_path):
    report = run(tmp_path, [record(8.9), record(9.0), record(9.1), record(19.0), record(19.1), record(0.0, film="x")])
    names = {clip.start: clip.character for clip in report.records}
    assert names == {8.9: ("Kiki", "Jiji"), 9.0: ("Kiki", "Jiji"), 9.1: NAMES, 19.0: NAMES}
    reasons = {
        item.record.film + str(item.record.start): item.reason for item in read_table(tmp_path / SET_ASIDE, SetAside)
    }
    assert set(reasons) == {"tale19.1", "x0.0"} and "no span of 'tale' covers half of 19.10" in reasons["tale19.1"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"start": "soon"}, "field start: expected a number, got a text"),
        ({"character": ["a; b"]}, "character 'a; b' has ';'"),
        ({"character": [""]}, "character '' is empty"),
        ({"adverb": "well"}, "either adverb"),
        ({"adverbs": {"1": "x"}}, "adverbs has 1; expected a word for 1, 2, 3, 4, 5"),
        ({"stats": {**SPAN["stats"], "social": 2}}, "social is 2; expected 0 or 1"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path, change, sentence):
    with pytest.raises(ValueError, match=rf"tale.captions.jsonl:2: .*{sentence}"):
        read_spans(sidecar(tmp_path, SPAN, {**SPAN, **change}))


def test_a_missing_sidecar_is_named(tmp_path):
    with pytest.raises(ValueError, match="captions.jsonl is missing; captioner `script` needs"):
        open_captioner("script", sidecars={"tale": tmp_path / "tale.captions.jsonl"})
