"""Films into datasets, and datasets into training, inside a real ComfyUI."""

import json
import os
import shutil
import urllib.error
from pathlib import Path

import pytest
from captions_world import make_characters
from comfy_server import message, nodes_run
from graphs import saved_file
from PIL import Image
from stub_endpoint import StubEndpoint
from tables import rows_of

from animegamer_core.data.check import check
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.media.video import read_clip

INPUT = Path(__file__).parents[2] / "workflows" / "input"
PATIENCE_S = 400  # a busy machine takes ten times as long
BUILD = {"film": "my-film.mp4", "dataset": "film", "size": "toybox", "captioner": "script", "model_name": ""}
BUILD |= {"url": "http://127.0.0.1:8000/v1", "model_folder": "none", "characters": "none", "held_out": 0.0}
CAPTION = "<S>Fox</S><MD>walk</MD><EV>night hill</EV><MA>slowly</MA><SC>0</SC><ET>1</ET><ST>-1</ST>"


def build(**inputs):
    return {"build": {"class_type": "BuildGameDataset", "inputs": BUILD | inputs}}


def refusal(server, **inputs):
    """The sentence that the node fails with."""
    return server.refusal(build(**inputs), PATIENCE_S)


@pytest.fixture(scope="module")
def films(server):
    """The film of the example in the server's input folder, alone and as a season of one."""
    for folder in (server.input_dir, server.input_dir / "season"):
        folder.mkdir(exist_ok=True)
        for path in INPUT.glob("my-film*"):
            shutil.copy(path, folder)
    return server.input_dir


@pytest.fixture(scope="module")
def datasets(server):
    return server.output_dir / "animegamer" / "datasets"


@pytest.fixture(scope="module")
def built(server, films, datasets):
    """(history entry, dataset) of the film."""
    look = {"class_type": "PreviewImage", "inputs": {"images": ["build", 2]}}
    entry = server.run({**build(), "look": look}, PATIENCE_S)
    return entry, DatasetFolder.open(datasets / "film")


def test_films_and_folders_of_films_are_listed(server, films):
    required = server.get("/object_info/BuildGameDataset")["BuildGameDataset"]["input"]["required"]
    kind, settings = required["film"]
    listed = settings["options"] if kind == "COMBO" else kind
    assert {"my-film.mp4", "season/", "season/my-film.mp4"} <= set(listed)
    assert not [name for name in listed if "captions" in name or "clips" in name]
    assert settings["video_upload"] is True


def test_a_film_becomes_a_dataset_that_a_person_can_check(server, built):
    entry, dataset = built
    assert 10 <= len(dataset.turns) <= 16 and not [item for item in check(dataset.path) if item.serious]
    spans = rows_of(INPUT / "my-film.captions.jsonl")
    whole = 0
    for turn in dataset.turns:
        shared = [min(row["end"], turn.end) - max(row["start"], turn.start) for row in spans]
        span, whole = spans[shared.index(max(shared))], whole + (max(shared) > 1.75)
        assert (list(turn.character), turn.motion) == (span["character"], span["motion"])
    assert whole >= len(dataset.turns) - 1, "one cut, to the same room, looks like a jump of pose"
    clip = read_clip(dataset.path / dataset.turns[0].clip)
    assert clip.frames.shape == (17, 192, 288, 3) and clip.fps == 8
    assert clip.frames[:, :4].mean() > 20, "the black bars are cut off"
    shown = entry["outputs"]["build"]
    assert "whole" in shown["text"][0] and str(dataset.path / "review.html") in shown["text"][0]
    assert "images" not in shown, "the node shows the film; newer pages would take a picture for a film, too"
    with Image.open(saved_file(server, entry, "look")) as stats:
        assert stats.size == (1280, 860) and len(stats.convert("P").getcolors()) > 8


def test_a_dataset_is_built_again_only_after_a_change(server, films, built):
    _, dataset = built
    assert nodes_run(server.run(build(), PATIENCE_S)) == set(), "the same again"
    note = next((dataset.path / "films").glob("*.json"))
    read_at = note.stat().st_mtime_ns
    for name in ("my-film.captions.jsonl", "my-film.mp4"):
        os.utime(films / name)
        assert nodes_run(server.run(build(), PATIENCE_S)) == {"build"}
    assert nodes_run(server.run(build(), PATIENCE_S)) == set()
    assert note.stat().st_mtime_ns == read_at, "the film itself is not read again"


def test_clips_without_words_stop_the_graph_until_a_person_has_named_them_on_the_page(server, films, datasets):
    shutil.copy(films / "my-film.mp4", films / "bare.mp4")
    shutil.copy(films / "my-film.mp4", films / "bare.mp4")  # without the captions beside it
    prompt, made = build(film="bare.mp4", dataset="wordless"), datasets / "wordless"
    prompt["after"] = {"class_type": "PreviewAny", "inputs": {"source": ["build", 0]}}
    entry = server.wait(server.queue(prompt), PATIENCE_S)
    (note,) = entry["outputs"]["build"]["animegamer_notes"]
    assert "have no words yet: press Review the clips" in note and "after" not in entry["outputs"]
    page = "/animegamer/datasets/wordless/"
    assert b"<title>Dataset review" in server.get_bytes(page + "review.html")
    rows = rows_of(made / "turns.jsonl")
    assert server.get_bytes(page + rows[0]["clip"])[4:8] == b"ftyp"
    for path in ("turns.jsonl", "../film/review.html", "none.mp4"):
        with pytest.raises(urllib.error.HTTPError, match="40[04]"):
            server.get_bytes(page + path)
    words = {"character": ["Lily"], "motion": "swim", "background": "day lake", "adverb": "gently"}
    words["stats"] = {"social": 0, "entertainment": 1, "stamina": -1}
    lines = [json.dumps({"clip": row["clip"], **words}) for row in rows]
    status, answer = server.post(page + "corrections", {"corrections": lines[0].replace("Lily", "")})
    assert status == 400 and "nothing has changed" in answer["error"]
    status, answer = server.post(page + "corrections", {"corrections": "\n".join(lines)})
    assert (status, answer["changed"]) == (200, len(rows))
    assert server.run(prompt, PATIENCE_S)["outputs"]["after"]["text"] == [str(made)]
    shown = server.run(build(film="bare.mp4", captioner="none", dataset="wordless"), PATIENCE_S)["outputs"]["build"]
    assert "animegamer_notes" not in shown and f"whole {len(rows)}" in shown["text"][0]


def test_a_deleted_dataset_is_built_again_and_continued_after_an_interrupt(server, films, built):
    _, dataset = built
    turns = (dataset.path / "turns.jsonl").read_bytes()
    shutil.rmtree(dataset.path)
    queued = server.queue(build())
    server.wait_until(lambda: list(dataset.path.glob("films/*.json")), PATIENCE_S)
    server.post("/interrupt", {})
    entry = server.wait(queued, PATIENCE_S)
    assert message(entry, "execution_interrupted") is not None and not (dataset.path / "turns.jsonl").exists()
    note = next(dataset.path.glob("films/*.json"))
    read_at = note.stat().st_mtime_ns
    server.run(build(), PATIENCE_S)
    assert note.stat().st_mtime_ns == read_at, "what was read is not read again"
    assert (dataset.path / "turns.jsonl").read_bytes() == turns


def test_names_never_become_paths(server, films, built):
    for widget, name in (("film", "../output/my-film.mp4"), ("characters", "../characters"), ("captioner", "shell")):
        said = refusal(server, **{widget: name})
        assert said is None or repr(name) in said, said
    assert "is not a valid folder name" in refusal(server, dataset="../film")
    assert "model_folder is 'none'; put its folder into" in refusal(server, captioner="transformers")


def test_films_that_cannot_be_used_are_refused_in_one_sentence(server, films, datasets):
    (films / "broken.mp4").write_bytes(b"no film at all")
    said = refusal(server, film="broken.mp4", dataset="broken", captioner="none")
    assert "broken.mp4" in said
    (films / "broken.mp4").unlink()
    assert "nothing is left after start_time 5000 s" in refusal(server, dataset="broken", start_time=5000.0)


@pytest.mark.parametrize("url", ["http://example.org/v1", "https://127.0.0.1@example.org/v1"])
def test_a_graph_does_not_choose_who_gets_the_key(server, films, url):
    said = refusal(server, captioner="endpoint", url=url, model_name="any", dataset="asked")
    assert "OPENAI_BASE_URL" in said


def test_an_endpoint_captions_what_is_cut(server, films, built, datasets):
    """The server was started with a key."""
    copied = datasets / "captioned"
    shutil.copytree(built[1].path, copied)
    for name in ("turns.jsonl", "games.jsonl", "dataset.json", "adverbs.jsonl"):
        (copied / name).unlink(missing_ok=True)
    with StubEndpoint(lambda ask: CAPTION) as stub:
        asked = {"captioner": "endpoint", "url": stub.url, "model_name": "stub-vl", "dataset": "captioned"}
        entry = server.run(build(**asked), PATIENCE_S)
    dataset = DatasetFolder.open(copied)
    assert {turn.motion for turn in dataset.turns} == {"walk"} and len(dataset.turns) == len(built[1].turns)
    assert {ask.headers["authorization"] for ask in stub.asks} == {"Bearer secret"}
    assert f"requests: {len(dataset.turns)}" in entry["outputs"]["build"]["text"][0]
    assert "secret" not in server.log_text()
    make_characters(server.input_dir / "animegamer" / "characters" / "cast")
    said = refusal(server, **asked, characters="nobody")
    assert said is None or "'nobody'; choose cast" in said
