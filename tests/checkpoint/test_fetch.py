"""Downloading published files from a hub on this machine: asked, resumed, verified, and opened as a world."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import published_files as made
import pytest
import stock_files
import torch
from hub_server import Hub
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from animegamer_core.checkpoint import CheckpointError, open_world
from animegamer_core.checkpoint import fetch as fetching
from animegamer_core.checkpoint import hub as hub_files
from animegamer_core.checkpoint.base_folders import find_base
from animegamer_core.checkpoint.new import new_world

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
ENGINE = "MLLM-Qiqi/pytorch_model.bin"
CLIP_NAME = stock_files.CLIP
GAMER, MISTRAL, VIDEO = "TencentARC/AnimeGamer", "mistralai/Mistral-7B-Instruct-v0.1", "THUDM/CogVideoX-2b"


def below(folder, *, but=()):
    """Every file in a folder, by its path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in but
    }


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The three repositories, with a whole tiny world inside."""
    src = tmp_path_factory.mktemp("released")
    mistral = made.write_mistral(src / "Mistral-7B-Instruct-v0.1")
    originals = made.make_originals(mistral)
    made.write_all(src, originals)
    save_file({"model.norm.weight": torch.zeros(16)}, mistral / "model.safetensors")
    vae = {name: value.contiguous() for name, value in originals.decoder.vae.state_dict().items()}
    (src / "video" / "vae").mkdir(parents=True)
    save_file(vae, src / "video" / "vae" / "diffusion_pytorch_model.safetensors")
    gamer = {path: data for path, data in below(src).items() if path.startswith(("MLLM-", "VDM_Decoder-"))}
    others = {"README.md": b"about", "MLLM-Sosuke/pytorch_model.bin": b"x", "VDM_Decoder-Qiqi/1/optimizer.pt": b"y"}
    return {GAMER: {**gamer, **others}, MISTRAL: below(mistral), VIDEO: below(src / "video")}


@pytest.fixture
def hub(released):
    with Hub() as hub:
        hub.repositories = {repo: dict(files) for repo, files in released.items()}
        yield hub


@pytest.fixture
def large(hub):
    """Two pieces and a half in place of the engine."""
    content = torch.randint(0, 255, (20 * MIB,), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    hub.repositories[GAMER][ENGINE] = content.numpy().tobytes()
    return hub


def command(hub, out, *words, base=False):
    outside = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "NO_PROXY": "*", "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **outside}
    environment.pop("HF_TOKEN", None)
    call = [sys.executable, "-m", "animegamer_core", "fetch", "--base" if base else "qiqi", "--out", str(out), *words]
    return {"args": call, "env": environment, "cwd": ROOT, "text": True}


def fetch(hub, out, *words, answer="", base=False):
    return subprocess.run(**command(hub, out, *words, base=base), input=answer, capture_output=True)


def one_sentence(done):
    lines = [line for line in done.stderr.splitlines() if line.startswith("fetch: ")]
    assert done.returncode == 2 and len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    return lines[0]


def test_what_is_fetched_is_a_world_to_play(hub, released, tmp_path):
    done = fetch(hub, tmp_path / "d", "--yes")
    assert done.returncode == 0, done.stderr
    found = below(tmp_path / "d", but=(".fetch.lock",))
    expected = {path: data for path, data in released[GAMER].items() if "-Qiqi/" in path and "optimizer" not in path}
    expected |= {f"Mistral-7B-Instruct-v0.1/{path}": data for path, data in released[MISTRAL].items()}
    expected |= {f"CogVideoX-2b/{path}": data for path, data in released[VIDEO].items()}
    assert found == expected
    for told in (GAMER, MISTRAL, VIDEO, "test-1.0", "European Union", "To download"):
        assert told in done.stdout
    world = open_world(tmp_path / "d")
    assert world.spec.name == "qiqi" and not world.missing(("engine", "decoder", "vae", "encoder"))
    again = fetch(hub, tmp_path / "d")
    assert again.returncode == 0 and "To download: 0.0 MB" in again.stdout, "nothing to ask about"


@pytest.fixture(scope="module")
def base_repositories(tmp_path_factory):
    """The three repositories of the free base models, with files beside that nobody needs."""
    src = stock_files.write_base(tmp_path_factory.mktemp("base"))
    video, mistral, clip = (
        below(src / name) for name in (VIDEO.partition("/")[2], MISTRAL.partition("/")[2], CLIP_NAME)
    )
    beside = {"README.md": b"about", "consolidated.safetensors": b"x", "pytorch_model-00001-of-00002.bin": b"y"}
    return {VIDEO: {**video, "README.md": b"about"}, MISTRAL: {**mistral, **beside}, fetching.CLIP: {**clip, **beside}}


def test_base_models_are_fetched_and_become_a_world(hub, base_repositories, tmp_path):
    hub.repositories = {repo: dict(files) for repo, files in base_repositories.items()}
    assert fetch(hub, tmp_path / "d", base=True).returncode == 1 and hub.ranges == [], "nothing unasked"
    done = fetch(hub, tmp_path / "d", "--yes", base=True)
    assert done.returncode == 0, done.stderr
    found = set(below(tmp_path / "d", but=(".fetch.lock",)))
    unneeded = ("README.md", "consolidated.safetensors", "pytorch_model-00001-of-00002.bin", "generation_config.json")
    assert found == {
        f"{repo.partition('/')[2]}/{path}"
        for repo, files in base_repositories.items()
        for path in files
        if path not in unneeded
    }
    for said in (VIDEO, MISTRAL, fetching.CLIP, "test-1.0", "Apache-2.0", "To download"):
        assert said in done.stdout
    assert "European Union" not in done.stdout
    assert f"new --spec release --cogvideox {tmp_path / 'd' / 'CogVideoX-2b'} --mistral" in done.stdout
    assert f"--clip {tmp_path / 'd' / CLIP_NAME} --out worlds/mine" in done.stdout
    assert not new_world(find_base(tmp_path / "d"), tmp_path / "w").missing()
    again = fetch(hub, tmp_path / "d", base=True)
    assert again.returncode == 0 and "To download: 0.0 MB" in again.stdout


def test_a_base_model_that_was_damaged_or_cut_is_fetched_again(hub, base_repositories, tmp_path):
    hub.repositories = {repo: dict(files) for repo, files in base_repositories.items()}
    path = "transformer/diffusion_pytorch_model.safetensors"
    right = hub.repositories[VIDEO][path]
    hub.wrong = {path: bytes([right[0] ^ 1]) + right[1:]}
    assert "the download is not what the hub lists" in one_sentence(fetch(hub, tmp_path / "d", "--yes", base=True))
    hub.wrong, hub.ranges, hub.cut_once = {}, [], {path}
    assert fetch(hub, tmp_path / "d", "--yes", base=True).returncode == 0
    assert (tmp_path / "d" / "CogVideoX-2b" / path).read_bytes() == right


def test_a_text_encoder_that_is_there_already_is_not_fetched_twice(hub, base_repositories, tmp_path):
    hub.repositories = {repo: dict(files) for repo, files in base_repositories.items()}
    (tmp_path / "d" / "t5-v1_1-xxl").mkdir(parents=True)
    hub.repositories[VIDEO]["tokenizer/spiece.model"] = b"pieces"
    done = fetch(hub, tmp_path / "d", "--yes", base=True)
    assert done.returncode == 0 and f"--t5 {tmp_path / 'd' / 't5-v1_1-xxl'}" in done.stdout
    assert not (tmp_path / "d" / "CogVideoX-2b" / "text_encoder").exists()
    assert (tmp_path / "d" / "t5-v1_1-xxl" / "model.safetensors").is_file()


def test_base_repositories_that_lack_what_is_needed(hub, base_repositories, tmp_path):
    files = {path: data for path, data in base_repositories[VIDEO].items() if not path.startswith("transformer/")}
    hub.repositories = {**base_repositories, VIDEO: files}
    assert f"{VIDEO}: has no file for CogVideoX-2b" in one_sentence(fetch(hub, tmp_path / "d", "--yes", base=True))


def test_a_world_or_the_base_models_are_asked_for(hub, tmp_path):
    for words in ([], ["qiqi", "--base"]):
        call = command(hub, tmp_path / "d")
        call["args"] = [*call["args"][:4], *words]
        done = subprocess.run(**call, capture_output=True)
        assert "give either the name of a world (qiqi, sosuke) or --base" in one_sentence(done)


def test_nothing_is_downloaded_unasked(hub, tmp_path):
    for answer in ("", "n\n", "perhaps\n"):
        done = fetch(hub, tmp_path / "d", answer=answer)
        assert done.returncode == 1 and "Nothing was downloaded" in done.stdout
    assert hub.ranges == [] and not (tmp_path / "d").exists()
    assert fetch(hub, tmp_path / "d", answer="y\n").returncode == 0 and hub.ranges


def test_a_killed_download_goes_on_where_it_was(large, tmp_path):
    large.stall_at = (ENGINE, 8 * MIB)
    running = subprocess.Popen(
        **command(large, tmp_path / "d", "--yes"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert large.stalled.wait(60)
    assert "another fetch is running here" in one_sentence(fetch(large, tmp_path / "d", "--yes"))
    running.kill()
    running.communicate()
    assert not (tmp_path / "d" / ENGINE).exists(), "only whole files have their name"
    large.stall_at, large.ranges = None, []
    done = fetch(large, tmp_path / "d", "--yes")
    assert done.returncode == 0 and "to go" in done.stdout, done.stderr
    asked = [(first, last) for path, first, last in large.ranges if path == ENGINE]
    assert asked == [(8 * MIB, 16 * MIB - 1), (16 * MIB, 20 * MIB - 1)]
    assert (tmp_path / "d" / ENGINE).read_bytes() == large.repositories[GAMER][ENGINE]
    assert not list((tmp_path / "d").rglob("*.part"))


def test_what_another_fetch_brought_meanwhile_is_kept(large, tmp_path):
    waiting = subprocess.Popen(
        **command(large, tmp_path / "d"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    said = ""
    while "[y/N]" not in said:
        said += (letter := waiting.stdout.read(1))
        assert letter, waiting.stderr.read()
    assert fetch(large, tmp_path / "d", "--yes").returncode == 0
    large.ranges = []
    assert "All files are there" in waiting.communicate("y\n")[0] and large.ranges == []


def test_a_file_with_a_longer_name_keeps_what_has_arrived(tmp_path):
    half = hub_files.HubFile(GAMER, "main", "a", tmp_path / "model.safetensors.index.json", 9, "1" * 64)
    half.part.write_bytes(b"half")
    empty = hub_files.HubFile(GAMER, "main", "b", tmp_path / "model.safetensors", 0, hashlib.sha256(b"").hexdigest())
    hub_files.download(empty, lambda *_: None)
    assert half.part.read_bytes() == b"half" and empty.local.exists()


def test_what_is_left_of_another_revision_is_not_gone_on_with(large, tmp_path):
    old = tmp_path / "d" / f"{ENGINE}.01234567.part"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old" * MIB)
    assert fetch(large, tmp_path / "d", "--yes").returncode == 0
    assert (tmp_path / "d" / ENGINE).read_bytes() == large.repositories[GAMER][ENGINE] and not old.exists()


def test_a_connection_that_breaks_is_taken_up_again(large, tmp_path):
    large.cut_once = {ENGINE}
    assert fetch(large, tmp_path / "d", "--yes").returncode == 0
    assert (tmp_path / "d" / ENGINE).read_bytes() == large.repositories[GAMER][ENGINE]


@pytest.mark.parametrize("path", [ENGINE, "VDM_Decoder-Qiqi/latest"])
def test_wrong_content_never_gets_a_name(hub, tmp_path, path):
    right = hub.repositories[GAMER][path]
    hub.wrong = {path: bytes([right[0] ^ 1]) + right[1:]}
    assert f"{path}: the download is not what the hub lists" in one_sentence(fetch(hub, tmp_path / "d", "--yes"))
    assert not (tmp_path / "d" / path).exists() and not list((tmp_path / "d").rglob("*.part"))
    hub.wrong = {}
    assert fetch(hub, tmp_path / "d", "--yes").returncode == 0
    assert (tmp_path / "d" / path).read_bytes() == right


def test_a_file_that_was_damaged_later_is_fetched_again(hub, tmp_path):
    fetch(hub, tmp_path / "d", "--yes")
    damaged = tmp_path / "d" / ENGINE
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    hub.ranges = []
    assert fetch(hub, tmp_path / "d", "--yes").returncode == 0
    assert damaged.read_bytes() == content and {path for path, _, _ in hub.ranges} == {ENGINE}


def test_a_gated_repository_is_one_sentence(hub, tmp_path):
    hub.gated = {MISTRAL}
    said = one_sentence(fetch(hub, tmp_path / "d", "--yes"))
    assert f"{MISTRAL}: its owner asks for consent first; accept the licence at {hub.url}/{MISTRAL}" in said
    assert "`hf auth login`" in said
    assert hub.ranges == [], "known before anything is downloaded"


def test_what_the_hub_does_not_have(hub, tmp_path):
    del hub.repositories[GAMER][ENGINE]
    assert "has no MLLM-qiqi/; it holds sosuke" in one_sentence(fetch(hub, tmp_path / "d", "--yes"))
    del hub.repositories[GAMER]
    assert f"{GAMER}: no such repository" in one_sentence(fetch(hub, tmp_path / "d", "--yes"))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(
        [
            ENGINE,
            "VDM_Decoder-Qiqi/1/mp_rank_00_model_states.pt",
            "vae/config.json",
            "tokenizer/a.json",
            "text_encoder/model.safetensors",
        ]
    ),
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


def test_a_disk_without_room(tmp_path):
    big = hub_files.HubFile(GAMER, "main", ENGINE, tmp_path / "d" / ENGINE, 1 << 60, "0" * 64)
    with pytest.raises(CheckpointError, match="to download and .* free; choose another disk"):
        fetching._check_room(fetching.FetchPlan("qiqi", tmp_path / "d", (big,), (big,), {}))


def test_without_a_connection(hub, tmp_path):
    hub.url = "http://127.0.0.1:9"
    assert "no answer" in one_sentence(fetch(hub, tmp_path / "d", "--yes"))
    offline = command(hub, tmp_path / "d", "--yes")
    offline["env"]["HF_HUB_OFFLINE"] = "1"
    said = one_sentence(subprocess.run(**offline, input="", capture_output=True))
    assert "HF_HUB_OFFLINE forbids" in said and "again" not in said, "which would not help"


def test_an_embedded_world_needs_no_download():
    call = [sys.executable, "-m", "animegamer_core", "fetch", "toybox"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "comes with this program" in done.stderr
