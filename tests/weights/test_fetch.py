"""Downloading from a hub on this machine: asked, resumed, verified, and converted into a world as it comes."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import stock_files
import torch
from hub_repositories import GAMER, MISTRAL, VIDEO, below, released_repositories
from hub_server import Hub, ask_instead, new_session
from huggingface_hub import constants

from animegamer_core.__main__ import main
from animegamer_core.weights import fetch as fetching
from animegamer_core.weights import open_world
from animegamer_core.weights.convert import new_world
from animegamer_core.weights.downloads import BaseFolders, find_base

ROOT = Path(__file__).parents[2]
ENGINE = "MLLM-Qiqi/pytorch_model.bin"


@pytest.fixture(scope="module")
def released(download, originals):
    """The three repositories, with a whole tiny world inside."""
    return released_repositories(download, originals)


@pytest.fixture
def hub(released, monkeypatch):
    """A hub that this process asks in place of the real one."""
    with Hub() as hub:
        hub.repositories = {repo: dict(files) for repo, files in released.items()}
        ask_instead(monkeypatch, hub.url)
        yield hub
        new_session()


@pytest.fixture
def fetch(monkeypatch, capsys):
    """Runs the command; gives its exit status, what it printed, and its one sentence where it failed."""

    def run(out, *words, answer="", what="qiqi"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        status = main(["fetch", what, "--out", str(out), *words])
        shown = capsys.readouterr()
        return SimpleNamespace(status=status, out=shown.out, error=shown.err)

    return run


def test_a_world_is_converted_as_it_comes(hub, fetch, converted, tmp_path, monkeypatch):
    out, flushed = tmp_path / "qiqi", []
    monkeypatch.setattr(os, "fsync", lambda number: flushed.append(os.readlink(f"/proc/self/fd/{number}")))
    done = fetch(out, "--yes")
    assert any(Path(name).name.startswith(f"{Path(ENGINE).name}.") for name in flushed), "before it gets its name"
    assert done.status == 0, done.error
    for said in (GAMER, MISTRAL, VIDEO, "test-1.0", "European Union", "To download", "The disk needs"):
        assert said in done.out
    world = open_world(out)
    assert world.spec == converted.spec.__class__(**{**vars(converted.spec), "name": "qiqi"})
    assert {path: note.sha256 for path, note in world.files.items() if path.endswith(".safetensors")} == {
        path: note.sha256 for path, note in converted.files.items() if path.endswith(".safetensors")
    }, "the same numbers as from one whole download"
    assert not (out / fetching.DOWNLOADS).exists(), "what was converted is not kept twice"
    assert "model.safetensors" in dict(hub.asked), "Mistral's weights, since so small an engine cannot hold them"
    hub.asked = []
    assert fetch(out).status == 0 and hub.asked == [], "nothing to ask about, and nothing to download"
    next((out / "vae").glob("model*")).unlink()
    assert fetch(out, "--yes").status == 0 and not open_world(out).missing(("engine", "decoder", "vae", "encoder"))
    assert not any(path.startswith("MLLM") for path, _ in hub.asked), "the engine is there"


def test_nothing_is_downloaded_unasked(hub, fetch, tmp_path):
    for answer in ("", "n\n", "perhaps\n"):
        done = fetch(tmp_path / "d", answer=answer)
        assert done.status == 1 and "Nothing was downloaded" in done.out
    assert hub.asked == [] and not (tmp_path / "d").exists()


def test_a_killed_download_goes_on_where_it_was(hub, fetch, tmp_path):
    whole = len(hub.repositories[GAMER][ENGINE])
    hub.stall_at = (ENGINE, whole // 2)
    small = "from huggingface_hub import constants; constants.DOWNLOAD_CHUNK_SIZE = 4096"  # it keeps whole ones only
    words = ["fetch", "qiqi", "--out", str(tmp_path / "d"), "--yes"]
    call = [sys.executable, "-c", f"{small}; from animegamer_core.__main__ import main; main({words})"]
    outside = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT)}
    name = f"{Path(ENGINE).name}.*.part"
    running = subprocess.Popen(call, env={**os.environ, **outside}, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not (parts := [part for part in (tmp_path / "d").rglob(name) if part.stat().st_size]):
            assert time.monotonic() < end and running.poll() is None
            time.sleep(0.05)
        assert "another fetch is running here" in fetch(tmp_path / "d", "--yes").error
    finally:
        running.kill()
        running.wait()
    arrived = parts[0].stat().st_size
    plan = fetching.plan_fetch("qiqi", tmp_path / "d")
    planned = [file for _, files in plan.steps for file in files]
    first, second = (sum(file.bytes for file in files) for _, files in plan.steps)
    assert plan.room == max(2 * first, first + 2 * second), "downloads, and what they become"
    assert [file.remaining for file in planned if file.path == ENGINE] == [whole - arrived]
    hub.stall_at, hub.asked, hub.cut_once = None, [], {ENGINE}
    done = fetch(tmp_path / "d", "--yes")
    assert done.status == 0 and "to go" in done.out
    asked = [first for path, first in hub.asked if path == ENGINE]
    assert asked[0] == arrived and len(asked) == 2 and asked[1] >= arrived, "also after an answer that broke off"
    assert not open_world(tmp_path / "d").missing(("engine", "decoder", "vae"))


def test_wrong_content_never_gets_a_name(hub, fetch, tmp_path, monkeypatch):
    right = hub.repositories[GAMER][ENGINE]
    hub.wrong = {ENGINE: bytes([right[0] ^ 1]) + right[1:]}
    assert f"{ENGINE}: the download does not match the hub's list" in fetch(tmp_path / "d", "--yes").error
    assert not list((tmp_path / "d").rglob("pytorch_model.bin*"))
    hub.wrong = {ENGINE: right + bytes(1 << 20)}
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4096)
    assert "does not match the hub's list" in fetch(tmp_path / "d", "--yes").error
    (part,) = (tmp_path / "d").rglob("pytorch_model.bin*")
    assert part.stat().st_size == 0, "neither kept nor read to its end"
    hub.wrong = {}
    assert fetch(tmp_path / "d", "--yes").status == 0
    longer = fetching.HubFile(GAMER, "main", "x.json", tmp_path / "x.json", 3, "")
    longer.part.write_bytes(bytes(5))
    assert longer.remaining == 0


def test_base_models_are_fetched_and_become_a_world(hub, fetch, tmp_path):
    src = stock_files.write_base(tmp_path / "base")
    names = {repo: repo.partition("/")[2] for repo in (VIDEO, MISTRAL, fetching.CLIP)}
    hub.repositories = {repo: {**below(src / name), "README.md": b"about"} for repo, name in names.items()}
    assert fetch(tmp_path / "d", what="--base").status == 1 and hub.asked == [], "nothing unasked"
    done = fetch(tmp_path / "d", "--yes", what="--base")
    assert done.status == 0 and "Apache-2.0" in done.out and "European Union" not in done.out
    assert not list((tmp_path / "d").rglob("README.md"))
    assert f"new --cogvideox {tmp_path / 'd' / 'CogVideoX-2b'} --mistral" in done.out
    shutil.copy(src / "CogVideoX-2b" / "spec.json", tmp_path / "d" / "CogVideoX-2b")  # they are tiny
    assert not new_world(find_base(tmp_path / "d"), tmp_path / "w").missing()
    assert fetching.missing_pieces(fetching.BASE, tmp_path / "d") == ()
    assert "To download: 0.0 MB" in fetch(tmp_path / "d", what="--base").out
    other = "Mistral-7B-Instruct-v0.3"
    hub.repositories[f"mistralai/{other}"] = hub.repositories[MISTRAL]
    weights = tmp_path / "d" / other / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"cut off")
    assert fetch(tmp_path / "d", "--yes", "--mistral", other, what="--base").status == 0
    assert weights.read_bytes() == hub.repositories[MISTRAL][weights.name]
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()  # a kill may come before a whole file gets its name
    weights.rename(weights.with_name(f"{weights.name}.{digest[:8]}.part"))
    assert fetch(tmp_path / "d", "--yes", "--mistral", other, what="--base").status == 0 and weights.is_file()
    shutil.rmtree(tmp_path / "d" / names[MISTRAL])
    assert fetching.missing_pieces(fetching.BASE, tmp_path / "d") == (), "one Mistral is enough"
    assert BaseFolders(src / "CogVideoX-2b", src, src).checked().t5 == src, "a T5 that is named wins"


def test_what_the_hub_does_not_give_is_one_sentence(hub, fetch, tmp_path, monkeypatch):
    hub.gated = {MISTRAL}
    said = fetch(tmp_path / "d", "--yes").error
    assert f"accept the licence at {hub.url}/{MISTRAL}" in said and "`hf auth login`" in said
    hub.gated = set()
    with monkeypatch.context() as full:
        full.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
        assert "free; choose another disk" in fetch(tmp_path / "d", "--yes").error
    assert "has no file for the game engine of miko" in fetch(tmp_path / "d", "--yes", what="miko").error
    del hub.repositories[GAMER]
    assert f"{GAMER}: no such repository" in fetch(tmp_path / "d", "--yes").error
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "no answer" in fetch(tmp_path / "d", "--yes").error
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    new_session()
    assert "HF_HUB_OFFLINE forbids" in fetch(tmp_path / "d", "--yes").error
    assert hub.asked == [], "all of it is known before anything is downloaded"
    assert "comes with this program" in fetch(tmp_path / "d", what="toybox").error


def test_a_listing_that_leads_out_of_the_folder_is_refused(hub, fetch, tmp_path):
    hub.repositories[GAMER]["MLLM-Qiqi/model/../../../x.bin"] = torch.zeros(4).numpy().tobytes()
    assert "not a file name on every system" in fetch(tmp_path / "d", "--yes").error and hub.asked == []
