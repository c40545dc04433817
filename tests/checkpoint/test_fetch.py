"""Downloading published files from a hub on this machine: asked, resumed, verified, and opened as a world."""

import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import stock_files
import torch
from hub_repositories import GAMER, MISTRAL, VIDEO, below, released_repositories
from hub_server import Hub, ask_instead, new_session
from huggingface_hub import constants
from hypothesis import given, settings
from hypothesis import strategies as st

from animegamer_core.__main__ import main
from animegamer_core.checkpoint import fetch as fetching
from animegamer_core.checkpoint import hub as hub_files
from animegamer_core.checkpoint import open_world
from animegamer_core.checkpoint.base_folders import find_base
from animegamer_core.checkpoint.new import new_world

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
ENGINE = "MLLM-Qiqi/pytorch_model.bin"
CLIP_NAME = stock_files.CLIP


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
def large(hub):
    """Two pieces and a half in place of the engine."""
    content = torch.randint(0, 255, (20 * MIB,), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    hub.repositories[GAMER][ENGINE] = content.numpy().tobytes()
    return hub


@pytest.fixture
def fetch(monkeypatch, capsys):
    """Runs the command; gives its exit status, what it printed, and its one sentence where it failed."""

    def run(out, *words, answer="", what="qiqi"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer) if isinstance(answer, str) else answer)
        status = main(["fetch", what, "--out", str(out), *words])
        shown = capsys.readouterr()
        sentences = [line for line in shown.err.splitlines() if line.startswith("fetch: ")]
        assert len(sentences) == (status == 2), shown.err
        return SimpleNamespace(status=status, out=shown.out, error="".join(sentences))

    return run


def test_what_is_fetched_is_a_world_to_play(hub, fetch, released, tmp_path):
    done = fetch(tmp_path / "d", "--yes")
    assert done.status == 0
    found = below(tmp_path / "d", but=(".fetch.lock",))
    expected = {path: data for path, data in released[GAMER].items() if "-Qiqi/" in path and "optimizer" not in path}
    expected |= {f"Mistral-7B-Instruct-v0.1/{path}": data for path, data in released[MISTRAL].items()}
    expected |= {f"CogVideoX-2b/{path}": data for path, data in released[VIDEO].items()}
    assert found == expected
    for expected in (GAMER, MISTRAL, VIDEO, "test-1.0", "European Union", "To download"):
        assert expected in done.out
    world = open_world(tmp_path / "d")
    assert world.spec.name == "qiqi" and not world.missing(("engine", "decoder", "vae", "encoder"))
    again = fetch(tmp_path / "d")
    assert again.status == 0 and "To download: 0.0 MB" in again.out, "nothing to ask about"
    damaged = tmp_path / "d" / ENGINE
    damaged.write_bytes(found[ENGINE][:-1] + bytes([found[ENGINE][-1] ^ 1]))
    hub.ranges = []
    assert fetch(tmp_path / "d", "--yes").status == 0
    assert damaged.read_bytes() == found[ENGINE] and {path for path, _, _ in hub.ranges} == {ENGINE}


def test_the_token_of_the_environment_goes_to_the_hub_alone(hub, fetch, tmp_path, monkeypatch):
    assert fetch(tmp_path / "without", "--yes").status == 0 and set(hub.tokens) == {None}
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.tokens.clear()
    with Hub() as elsewhere:
        elsewhere.repositories, hub.files_at = hub.repositories, elsewhere.url
        done = fetch(tmp_path / "with", "--yes")
    assert done.status == 0 and "hf_secret" not in done.out
    assert set(hub.tokens) == {"Bearer hf_secret"} and elsewhere.ranges and set(elsewhere.tokens) == {None}


@pytest.fixture
def base_hub(hub, base_repositories):
    hub.repositories = {repo: dict(files) for repo, files in base_repositories.items()}
    return hub


@pytest.fixture(scope="module")
def base_repositories(tmp_path_factory):
    """The three repositories of the free base models, with files beside that nobody needs."""
    src = stock_files.write_base(tmp_path_factory.mktemp("base"))
    video, mistral, clip = (
        below(src / name) for name in (VIDEO.partition("/")[2], MISTRAL.partition("/")[2], CLIP_NAME)
    )
    beside = {"README.md": b"about", "consolidated.safetensors": b"x", "pytorch_model-00001-of-00002.bin": b"y"}
    return {VIDEO: {**video, "README.md": b"about"}, MISTRAL: {**mistral, **beside}, fetching.CLIP: {**clip, **beside}}


def test_base_models_are_fetched_and_become_a_world(base_hub, fetch, tmp_path):
    assert fetch(tmp_path / "d", what="--base").status == 1 and base_hub.ranges == [], "nothing unasked"
    done = fetch(tmp_path / "d", "--yes", what="--base")
    assert done.status == 0
    found = set(below(tmp_path / "d", but=(".fetch.lock",)))
    unneeded = ("README.md", "consolidated.safetensors", "pytorch_model-00001-of-00002.bin", "generation_config.json")
    assert found == {
        f"{repo.partition('/')[2]}/{path}"
        for repo, files in base_hub.repositories.items()
        for path in files
        if path not in unneeded
    }
    for said in (VIDEO, MISTRAL, fetching.CLIP, "test-1.0", "Apache-2.0", "To download"):
        assert said in done.out
    assert "European Union" not in done.out
    assert f"new --spec release --cogvideox {tmp_path / 'd' / 'CogVideoX-2b'} --mistral" in done.out
    assert f"--clip {tmp_path / 'd' / CLIP_NAME} --out worlds/mine" in done.out
    assert not new_world(find_base(tmp_path / "d"), tmp_path / "w").missing()
    again = fetch(tmp_path / "d", what="--base")
    assert again.status == 0 and "To download: 0.0 MB" in again.out


def test_a_text_encoder_that_is_there_already_is_not_fetched_twice(base_hub, fetch, tmp_path):
    (tmp_path / "d" / "t5-v1_1-xxl").mkdir(parents=True)
    base_hub.repositories[VIDEO]["tokenizer/spiece.model"] = b"pieces"
    done = fetch(tmp_path / "d", "--yes", what="--base")
    assert done.status == 0 and f"--t5 {tmp_path / 'd' / 't5-v1_1-xxl'}" in done.out
    assert not (tmp_path / "d" / "CogVideoX-2b" / "text_encoder").exists()
    assert (tmp_path / "d" / "t5-v1_1-xxl" / "model.safetensors").is_file()


def test_a_world_or_the_base_models_are_asked_for(capsys):
    for words in ([], ["qiqi", "--base"]):
        assert main(["fetch", *words]) == 2
        assert "give either the name of a world (qiqi, sosuke) or --base" in capsys.readouterr().err
    assert main(["fetch", "toybox"]) == 2
    assert "comes with this program" in capsys.readouterr().err


def test_nothing_is_downloaded_unasked(hub, fetch, tmp_path):
    for answer in ("", "n\n", "perhaps\n"):
        done = fetch(tmp_path / "d", answer=answer)
        assert done.status == 1 and "Nothing was downloaded" in done.out
    assert hub.ranges == [] and not (tmp_path / "d").exists()
    assert fetch(tmp_path / "d", answer="y\n").status == 0 and hub.ranges


def test_a_killed_download_goes_on_where_it_was(large, fetch, tmp_path):
    large.stall_at = (ENGINE, 8 * MIB)
    call = [sys.executable, "-m", "animegamer_core", "fetch", "qiqi", "--out", str(tmp_path / "d"), "--yes"]
    outside = {"HF_ENDPOINT": large.url, "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(call, env={**os.environ, **outside}, stdout=subprocess.DEVNULL)
    assert large.stalled.wait(60)
    assert "another fetch is running here" in fetch(tmp_path / "d", "--yes").error
    running.kill()
    running.wait()
    assert not (tmp_path / "d" / ENGINE).exists(), "only whole files have their name"
    large.stall_at, large.ranges, large.cut_once = None, [], {ENGINE}
    done = fetch(tmp_path / "d", "--yes")
    assert done.status == 0 and "to go" in done.out
    asked = [(first, last) for path, first, last in large.ranges if path == ENGINE]
    assert asked == [(8 * MIB, 16 * MIB - 1), (12 * MIB, 20 * MIB - 1)], "what came before it broke off is kept"
    assert (tmp_path / "d" / ENGINE).read_bytes() == large.repositories[GAMER][ENGINE]
    assert not list((tmp_path / "d").rglob("*.part"))


def test_what_another_fetch_brought_meanwhile_is_kept(hub, fetch, tmp_path):
    class Waiting:
        def readline(self):
            assert fetch(tmp_path / "d", "--yes").status == 0
            hub.ranges = []
            return "y\n"

    assert "All files are there" in fetch(tmp_path / "d", answer=Waiting()).out and hub.ranges == []


def test_a_file_with_a_longer_name_keeps_what_has_arrived(tmp_path):
    half = hub_files.HubFile(GAMER, "main", "a", tmp_path / "model.safetensors.index.json", 9, "1" * 64)
    half.part.write_bytes(b"half")
    empty = hub_files.HubFile(GAMER, "main", "b", tmp_path / "model.safetensors", 0, hashlib.sha256(b"").hexdigest())
    hub_files.download(empty, lambda *_: None)
    assert half.part.read_bytes() == b"half" and empty.local.exists()


def test_what_is_left_of_another_revision_is_not_gone_on_with(hub, fetch, tmp_path):
    old = tmp_path / "d" / f"{ENGINE}.01234567.part"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    assert fetch(tmp_path / "d", "--yes").status == 0
    assert (tmp_path / "d" / ENGINE).read_bytes() == hub.repositories[GAMER][ENGINE] and not old.exists()


@pytest.mark.parametrize("path", [ENGINE, "VDM_Decoder-Qiqi/latest"])
def test_wrong_content_never_gets_a_name(hub, fetch, tmp_path, path):
    right = hub.repositories[GAMER][path]
    hub.wrong = {path: bytes([right[0] ^ 1]) + right[1:]}
    assert f"{path}: the download does not match the hub's list" in fetch(tmp_path / "d", "--yes").error
    assert not (tmp_path / "d" / path).exists() and not list((tmp_path / "d").rglob("*.part"))
    hub.wrong = {}
    assert fetch(tmp_path / "d", "--yes").status == 0
    assert (tmp_path / "d" / path).read_bytes() == right


def test_what_the_hub_does_not_give_is_one_sentence(hub, fetch, base_repositories, tmp_path, monkeypatch):
    hub.gated = {MISTRAL}
    said = fetch(tmp_path / "d", "--yes").error
    assert f"{MISTRAL}: its owner asks you to agree first; accept the licence at {hub.url}/{MISTRAL}" in said
    assert "`hf auth login`" in said
    hub.gated = set()
    with monkeypatch.context() as full:
        full.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
        assert "to download and 0.00 GB free; choose another disk" in fetch(tmp_path / "d", "--yes").error
    del hub.repositories[GAMER][ENGINE]
    assert "has no MLLM-qiqi/; it holds sosuke" in fetch(tmp_path / "d", "--yes").error
    del hub.repositories[GAMER]
    assert f"{GAMER}: no such repository" in fetch(tmp_path / "d", "--yes").error
    files = {path: data for path, data in base_repositories[VIDEO].items() if not path.startswith("transformer/")}
    hub.repositories = {**base_repositories, VIDEO: files}
    assert f"{VIDEO}: has no file for CogVideoX-2b" in fetch(tmp_path / "d", "--yes", what="--base").error
    assert hub.ranges == [], "all of it is known before anything is downloaded"


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([ENGINE, "VDM_Decoder-Qiqi/1/mp_rank_00_model_states.pt", "vae/config.json", "tokenizer/a.json"]),
    st.integers(0, 60),
    st.sampled_from(["..", "/", "\\", "../", "/../", "..\\", ":", "x"]),
)
def test_no_listing_leads_out_of_the_folder(path, at, new):
    at %= len(path) + 1
    odd = path[:at] + new + path[at:]
    listing = hub_files.Listing(GAMER, "main", "", {odd: (1, "0" * 64)})
    patterns = {
        **{rf"(?:.*/)?((?i:{kind}-qiqi)/(?:{inside}))": r"\1" for kind, inside in fetching.PAIR.items()},
        **fetching._VAE,
        **fetching._TEXT_ENCODER,
        **fetching._BASE_COGVIDEO,
        **fetching._BASE_TEXT,
    }
    for file in listing.pick(patterns, Path("out")):
        assert file.local.parts[0] == "out" and ".." not in file.local.parts
        assert not {"\\", ":"} & set(str(file.local))


def test_without_a_connection(hub, fetch, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "no answer" in fetch(tmp_path / "d", "--yes").error
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    new_session()
    said = fetch(tmp_path / "d", "--yes").error
    assert "HF_HUB_OFFLINE forbids" in said and "again" not in said, "which would not help"
