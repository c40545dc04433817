"""Captioning a dataset: who is who, what is set aside, what is paid for, and going on after any end."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from captions_world import NAMES, answer, endpoint, expected, make_characters, make_records, seen
from stub_endpoint import CUT_OFF, FOREIGN, GOOD, Answer, StubEndpoint, refusal

from animegamer_core.data.captions.asking import ReplyLog
from animegamer_core.data.captions.pictures import read_references
from animegamer_core.data.captions.run import ANSWERS, caption_clips
from animegamer_core.data.records import SET_ASIDE, SetAside, read_table
from animegamer_core.endpoint import Reply

pytestmark = pytest.mark.usefixtures("endpoint_key")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def world(tmp_path):
    folder = tmp_path / "dataset"
    return folder, make_records(folder, 12), read_references(make_characters(tmp_path / "characters"))


@pytest.fixture
def stub():
    with StubEndpoint(answer) as stub:
        yield stub


def questions(stub) -> Counter:
    return Counter(map(seen, stub.asks))


def wanted(records, matched=True):
    return tuple(expected(record, number, matched) for number, record in enumerate(records))


def test_every_clip_gets_what_its_pictures_show(world, stub):
    folder, records, references = world
    progress = []
    report = caption_clips(folder, records, endpoint(stub.url), references, 3, lambda *done: progress.append(done))
    assert report.records == wanted(records)
    assert {record.character for record in report.records} == {("fox",), *((name,) for name in NAMES)}
    assert (report.captioned, report.kept, report.uncaptioned, report.set_aside) == (12, 0, 0, ())
    assert progress == [(done, 12) for done in range(1, 13)]
    assert questions(stub) == {(step, number): 1 for step in ("matching", "captioning") for number in range(12)}
    assert "requests: 24, tokens 2400 in and " in report.text
    assert not (folder / SET_ASIDE).exists()


def test_a_finished_dataset_costs_nothing_again(world, stub):
    folder, records, references = world
    first = caption_clips(folder, records, endpoint(stub.url), references, 2)
    (folder / records[0].clip).unlink()  # kept replies need no pictures
    again = caption_clips(folder, records, endpoint(stub.url), references)
    assert again.records == first.records and again.captioned == 12
    assert "requests" not in again.text and len(stub.asks) == 24


def test_what_a_reply_depends_on_decides_what_is_asked_again(world, stub, tmp_path):
    folder, records, references = world
    caption_clips(folder, records, endpoint(stub.url), references)
    stub.asks.clear()
    moved = [msgspec.structs.replace(records[0], motion_level=5), *records[1:]]
    report = caption_clips(folder, moved, endpoint(stub.url), references)
    assert questions(stub) == {("captioning", 0): 1} and report.records[0].adverb == "wildly"
    stub.asks.clear()
    caption_clips(folder, records, endpoint(stub.url), references[:2])
    assert {step for step, _ in questions(stub)} == {"matching"} and len(stub.asks) >= 12
    stub.asks.clear()
    caption_clips(folder, records[:1], endpoint(stub.url, model="another"), references)
    assert len(stub.asks) == 2


def test_a_reply_that_is_invalid_is_asked_for_again_with_our_own_words(world, stub):
    folder, records, references = world
    stub.script[:] = [Answer("a girl"), GOOD, FOREIGN, CUT_OFF, GOOD]
    report = caption_clips(folder, records[:1], endpoint(stub.url), references)
    assert report.records == wanted(records)[:1]
    assert [seen(ask)[0] for ask in stub.asks] == ["matching"] * 2 + ["captioning"] * 3
    first, *again = (ask.texts[-1] for ask in stub.asks[2:])
    assert all(text.startswith(first) and "Expected was" in text and "\u5c11" not in text for text in again)
    assert [ask.body["temperature"] > 0 for ask in stub.asks] == [False, True, False, True, True]


def test_a_clip_whose_replies_stay_invalid_is_set_aside_and_never_guessed(world, stub):
    folder, records, references = world
    good = stub.good
    stub.good = lambda ask: "<S>a fox; or not</S>" if seen(ask) == ("captioning", 4) else good(ask)
    report = caption_clips(folder, records, endpoint(stub.url), references, 2)
    assert report.records == tuple(record for n, record in enumerate(wanted(records)) if n != 4)
    (aside,) = report.set_aside
    assert aside.record == records[4] and aside.reply == "<S>a fox; or not</S>"
    assert "3 invalid replies to the captioning question" in aside.reason
    (line,) = map(json.loads, (folder / SET_ASIDE).read_text().splitlines())
    assert list(line) == ["clip", "reason", "reply", "record"] and line["clip"] == records[4].clip
    assert read_table(folder / SET_ASIDE, SetAside) == [aside]
    asked = len(stub.asks)
    again = caption_clips(folder, records, endpoint(stub.url), references)
    assert len(again.set_aside) == 1 and len(stub.asks) == asked  # the invalid replies were paid for too
    stub.good = good
    more = caption_clips(folder, [aside.record], endpoint(stub.url, tries=4), references)
    assert more.records == wanted(records)[4:5] and len(stub.asks) == asked + 1
    assert read_table(folder / SET_ASIDE, SetAside) == [] and (folder / SET_ASIDE).read_text() == ""


def test_what_a_person_filled_in_stays(world, stub):
    folder, records, _ = world
    known = {"social": None, "entertainment": None, "stamina": -1}
    wanted = [msgspec.structs.replace(records[1], character=("Osono",), stats=known), records[2]]
    report = caption_clips(folder, wanted, endpoint(stub.url))
    assert report.records[0] == msgspec.structs.replace(
        expected(records[1], 1, matched=False),
        character=("Osono",),
        stats={"social": 0, "entertainment": 1, "stamina": -1},
    )


def test_a_clip_that_cannot_be_asked_about_is_left_for_the_next_run(world, stub):
    folder, records, _ = world
    (folder / records[3].clip).write_bytes(b"torn")
    stub.script[:] = [GOOD, refusal(400, message="too large")]
    report = caption_clips(folder, records[:5], endpoint(stub.url))
    assert set(report.failures) == {records[1].clip, records[3].clip}
    assert "too large" in report.failures[records[1].clip] and "cannot be read" in report.failures[records[3].clip]
    assert report.records[1] == records[1] and report.uncaptioned == 2 and report.stopped is None
    assert "no answer about 1 clips" in report.text
    assert caption_clips(folder, records[:3], endpoint(stub.url)).records == wanted(records, matched=False)[:3]


def test_a_refused_key_stops_the_run_at_once_and_the_done_part_stays(world, stub):
    folder, records, _ = world
    stub.script[:] = [GOOD, GOOD, *[refusal(401, message="who are you")] * 30]
    report = caption_clips(folder, records, endpoint(stub.url))
    assert "who are you" in report.stopped and report.captioned == 2 and report.uncaptioned == 10
    assert len(stub.asks) <= 4 and "stopped early" in report.text


# -- the log


def test_a_torn_last_line_is_taken_away_and_others_are_found(tmp_path):
    with ReplyLog.open(tmp_path / ANSWERS) as log:
        log.put("k", 1, Reply("one \ud800", "", 3, None), {"clip": "a"})
        log.put("k", 2, Reply("", "cut off"), {"clip": "a"})
    path = tmp_path / ANSWERS
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:37])
    with ReplyLog.open(tmp_path / ANSWERS) as log:
        assert log.get("k", 1) == Reply("one ?", "", 3, None) and log.get("k", 2) == Reply("", "cut off")
        assert log.get("k", 3) is None and log.written == []
        log.put("k", 3, Reply("three"), {})
    assert path.read_bytes().startswith(whole) and len(path.read_bytes().splitlines()) == 3
    path.write_bytes(b"[1]\n" + whole)
    with pytest.raises(ValueError, match=rf"{ANSWERS}:1: .*delete the line"), ReplyLog.open(tmp_path / ANSWERS):
        pass


CHILD = """
import sys
sys.path.insert(0, "tests/support")
from pathlib import Path
from captions_world import endpoint, make_records
from animegamer_core.data.captions.pictures import read_references
from animegamer_core.data.captions.run import caption_clips
url, folder, characters = sys.argv[1:]
records = make_records(Path(folder), 12)
report = caption_clips(folder, records, endpoint(url), read_references(characters), workers=3)
print(report.captioned)
"""


def written_questions(folder) -> set:
    """(step, clip number) of the whole lines of the log."""
    path = folder / ANSWERS
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    values = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return {(line["step"], int(Path(line["clip"]).stem)) for line in values}


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is POSIX")
def test_a_kill_at_any_moment_loses_and_repeats_nothing_that_was_written(world, tmp_path):
    folder, records, references = world
    kept: set = set()
    most, release = 0, threading.Event()

    def held(ask):
        """Answers the first `most` questions alone, so that the run cannot end before it is killed."""
        if ask not in stub.asks[:most]:
            release.wait()
        return answer(ask)

    with StubEndpoint(held) as stub:
        for most in (3, 7):
            stub.asks.clear()
            child = subprocess.Popen([sys.executable, "-c", CHILD, stub.url, folder, tmp_path / "characters"], cwd=ROOT)
            while len(stub.asks) < most + 3:  # then each of its three threads waits, and every reply is written
                assert child.poll() is None, "the run ended before it could be killed"
                time.sleep(0.01)
            child.kill()
            child.wait()
            asked = set(questions(stub))
            assert not asked & kept, "a reply that was written was asked for again"
            assert kept < written_questions(folder), "a reply that was written is gone"
            kept = written_questions(folder)
        release.set()
        stub.asks.clear()
        report = caption_clips(folder, records, endpoint(stub.url), references)
        assert report.records == wanted(records)
        assert set(questions(stub)) == {(s, n) for s in ("matching", "captioning") for n in range(12)} - kept
        assert set(questions(stub).values()) == {1}
