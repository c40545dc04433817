"""`dataset build` as people meet it: broken films, full disks, Ctrl-C, pipes; each in a sentence, with all kept."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import av
import pytest
from film_parts import FilmPlan
from made_film import make_film
from stub_endpoint import StubEndpoint, refusal

from animegamer_core.__main__ import main
from animegamer_core.cli import dataset as dataset_cli
from animegamer_core.cli.options import parse
from animegamer_core.data.build import BuildSettings
from animegamer_core.data.films.cutting import ClipShape

pytest.importorskip("resource")

SETTINGS = BuildSettings(shape=ClipShape(32, 48))
PLAN = FilmPlan(seed=3, scenes=6, size=(96, 144), fps=12.0, short=0.0, seconds=(2.2, 4.4), grain=1.0)
# The command in a process of its own, in spans so short that what ends it finds some of them finished.
COMMAND = """
import os, sys, time
from animegamer_core.data import build
from animegamer_core.data.films import cutting
cutting.SPAN_SECONDS = 0.5
if "WAITS" in os.environ:
    def add_and_wait(*given, add=build.add_scenes):
        add(*given)
        time.sleep(60)
    build.add_scenes = add_and_wait
from animegamer_core.__main__ import main
if __name__ == "__main__":
    sys.exit(main(["dataset", *sys.argv[1:]]))
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.fixture(scope="module")
def film(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("films") / "film.mp4"
    make_film(path, PLAN)
    return path


@pytest.fixture(scope="module")
def whole(film, tmp_path_factory) -> Path:
    """The dataset of the film, built without trouble."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert main(build(film, out)) == 0
    return out


def build(film: Path, out: Path, *options: str) -> list[str]:
    return ["dataset", "build", str(film), "--out", str(out), "--spec", "tiny", "--workers", "1", *options]


def spawn(film: Path, out: Path, *options: str, **how) -> subprocess.Popen:
    command = [sys.executable, "-c", COMMAND, *build(film, out, *options)[1:]]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how}
    return subprocess.Popen(command, **{"env": ENVIRONMENT, **how})


def tables(out: Path) -> dict[str, bytes]:
    files = [*out.glob("*.jsonl"), *out.glob("dataset.json"), *out.rglob("*.mp4"), *(out / "films").glob("*.json*")]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


def one_sentence(words: str) -> str:
    """The line on standard error, which is all that is there but for lines of progress."""
    lines = [line for line in words.splitlines() if line and not line.startswith("  ")]
    assert len(lines) == 1 and "Traceback" not in words, words
    return lines[0]


@pytest.fixture
def again(whole, tmp_path) -> Path:
    """A copy of the dataset."""
    return Path(shutil.copytree(whole, tmp_path / "my out"))


def test_a_build_reports_what_it_did_and_what_comes_next(film, again, capsys):
    assert main(build(film, again)) == 0
    assert "7 clips without a caption only train stage vae" in capsys.readouterr().out
    assert main(build(film, again, "--captioner", "script")) == 0
    printed, progress = capsys.readouterr()
    assert "1 film, 7 clips" in printed and "captions: 7 new" in printed and "review.html" in printed
    assert f"train all --dataset '{again}' --world WORLD --spec tiny --out RUN" in printed
    assert progress.splitlines()[-1] == "  clips captioned: 7 of 7"
    assert (again / "review.html").is_file() and (again / "stats.png").is_file()
    assert main(["dataset", "check", str(again)]) == 0


def test_clips_without_an_answer_end_in_status_1_and_in_what_to_do(film, again, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with StubEndpoint(lambda asked: "a girl") as stub:
        words = build(film, again, "--captioner", "endpoint", "--url", stub.url, "--model", "m", "--retries", "0")
        stub.script[:] = [refusal(402, message="no credits")] * 9
        assert main(words) == 1
        *_, last = capsys.readouterr().out.splitlines()
        assert last == "7 clips got no answer, see above why; then run the same command again"
        stub.script.clear()
        assert main(words) == 1
        *_, first, last = capsys.readouterr().out.splitlines()
        assert first.startswith("7 clips got no valid answer, see ") and "set_aside.jsonl" in first
        assert last.startswith("more --tries or another --model, or train without these clips: ")


def test_what_cannot_be_read_or_written_ends_in_one_sentence(tmp_path, capsys):
    film = tmp_path / "text.mkv"
    film.write_text("no film at all\n" * 50)
    for out, said in ((tmp_path / "out", ".*(it is not a film|is a text)"), (film, f"dataset: {film}")):
        assert main(build(film, out)) == 2
        assert re.match(said, one_sentence(capsys.readouterr().err))


def test_a_film_that_breaks_off_becomes_a_dataset_as_far_as_it_goes(film, tmp_path, capsys):
    cut = tmp_path / "film.mkv"
    with av.open(str(film)) as read, av.open(str(cut), "w") as written:
        source = read.streams.video[0]
        track = written.add_stream_from_template(source)
        for packet in read.demux(source):
            if packet.dts is not None:
                packet.stream = track
                written.mux(packet)
    data = cut.read_bytes()
    cut.write_bytes(data[: len(data) * 4 // 5])
    for _ in range(2):
        assert main(build(cut, tmp_path / "out")) == 1
        printed, words = capsys.readouterr()
        assert "film.mkv: ends at" in one_sentence(words) and "1 film, 6 clips" in printed
    info = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert "ends at" in info["provenance"]["films"]["film"]["broken"]
    assert main(["dataset", "check", str(tmp_path / "out")]) == 0


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal")
def test_ctrl_c_ends_with_a_sentence_and_the_same_command_continues(film, whole, tmp_path):
    out = tmp_path / "out"
    how = {"env": {**ENVIRONMENT, "WAITS": "after its first scenes"}, "start_new_session": True}  # a terminal tells all
    how["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    process = spawn(film, out, "--workers", "2", **how)
    while process.poll() is None and not (out / "films" / "film.jsonl").exists():
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    printed, words = process.communicate(timeout=60)
    assert process.returncode == 130 and printed == ""
    assert "stopped; finished work is kept" in one_sentence(words)
    assert main(build(film, out)) == 0
    assert tables(out) == tables(whole)


def options(*words: str):
    return parse(dataset_cli.Options, ["build", "--out", "out", *words], "dataset", "")


def test_options_of_captioners_reach_them(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    words = (
        "--captioner endpoint --url http://localhost:1/v1 --model m --tries 5 --timeout 7 --retries 2 --max-tokens 99"
    )
    captioner = options(*words.split())._captioner([], SETTINGS)
    asked = captioner.model.settings
    assert (asked.timeout, asked.retries, asked.max_tokens, captioner.tries) == (7, 2, 99, 5)
    for words, said in (
        ("--captioner none --url http://localhost", "captioner 'none' has no option 'url'"),
        ("--captioner endpoint --captioner-device cpu", "captioner 'endpoint' has no option 'device'"),
        ("--captioner transformers --model nowhere --captioner-dtype bfloat16", "nowhere has no config.json"),
    ):
        with pytest.raises(ValueError, match=said):
            options(*words.split())._captioner([], SETTINGS)
