"""Published files opened where they lie: the same world as their conversion, without a copy."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import published_files as made
import pytest
import torch
from test_convert import assert_same, write_text_encoder

from animegamer_core.__main__ import main
from animegamer_core.checkpoint import CheckpointError, open_world, save_part, save_world
from animegamer_core.checkpoint.convert import convert

ROOT = Path(__file__).parents[2]
INSTRUCTION = "Character: Qiqi; Motion: quickly fly; Background: day sky."


def test_it_is_the_world_that_convert_would_make(download, converted_exactly):
    before = {path: path.stat().st_mtime_ns for path in download.rglob("*")}
    here, (converted, _) = open_world(download), converted_exactly
    assert here.spec == converted.spec and here.spec.name == "qiqi"
    assert (here.profile, here.motion_table) == (converted.profile, converted.motion_table)
    assert "European Union" in here.licence and here.folder == download
    assert here.provenance["engine"] == "MLLM-Qiqi/pytorch_model.bin" and here.provenance["vae"] == "3d-vae.pt"
    assert_same(here.load_engine(), converted.load_engine(), 0)
    assert_same(here.load_decoder(), converted.load_decoder(), 0)
    assert_same(here.load_encoder(parts=("encoder",)), converted.load_encoder(parts=("encoder",)), 0)
    ours, theirs = here.load_engine().predict((), INSTRUCTION), converted.load_engine().predict((), INSTRUCTION)
    assert ours.levels == theirs.levels and torch.equal(ours.representation, theirs.representation)
    assert before == {path: path.stat().st_mtime_ns for path in download.rglob("*")}, "nothing is written there"


def test_it_plays(download, tmp_path, capsys):
    (tmp_path / "game.txt").write_text(INSTRUCTION + "\n")
    out = tmp_path / "out"
    call = ["play", str(tmp_path / "game.txt"), "--world", str(download), "--out", str(out), "--steps", "2"]
    assert main(call) == 0
    assert (out / "game" / "story.json").is_file() and "turn 1/1" in capsys.readouterr().out
    assert main(call) == 0
    assert "(known)" in capsys.readouterr().out, "the second run finds the same world"


def test_what_is_there_and_what_is_missing(own_copy):
    world = open_world(own_copy)
    assert [part for part in ("engine", "decoder", "vae", "encoder") if not world.has(part)] == []
    assert [sentence.split()[0] for sentence in world.missing()] == ["text_tower", "image_tower"]
    with pytest.raises(
        CheckpointError, match="text_tower is not complete in .*t5-v1_1-xxl.*fetch qiqi --out .*--towers`"
    ):
        world.load_encoder()
    (own_copy / "3d-vae.pt").unlink()
    assert not world.has("vae"), "a file that went away since"
    without = open_world(own_copy)
    assert not without.has("vae") and without.has("engine") and without.load_engine()
    with pytest.raises(CheckpointError, match="world 'qiqi' cannot load this: vae is not complete"):
        without.load_decoder()


def test_the_fingerprint_is_of_what_is_played(own_copy, download, converted):
    world = open_world(download)
    world.verify()
    first = world.fingerprint
    assert open_world(own_copy).fingerprint == first, "wherever it lies, and whenever it came"
    (own_copy / "MLLM-Qiqi" / "README.md").write_text("about")
    (own_copy / "Mistral-7B-Instruct-v0.1" / "model.safetensors").write_bytes(b"not read: the engine's file is full")
    assert open_world(own_copy).fingerprint == first
    before = open_world(own_copy)
    seen = {first, before.with_profile("as_run").fingerprint}
    for name in ("MLLM-Qiqi/pytorch_model.bin", "3d-vae.pt"):
        content = torch.load(own_copy / name)
        tensors = content.get("state_dict", content)
        key = sorted(tensors)[len(tensors) // 2]
        tensors[key] = tensors[key] + 1
        torch.save(content, own_copy / name)
        with pytest.raises(CheckpointError, match=r"not the file that the world was saved with"):
            before.verify()
        before = open_world(own_copy)
        seen.add(before.fingerprint)
    assert len(seen) == 4
    assert converted.fingerprint not in seen, "16-bit weights play other numbers"


def test_a_name_chooses_among_several(own_copy, tmp_path, monkeypatch):
    deeper = open_world(tmp_path)
    assert deeper.spec.name == "qiqi" and not deeper.missing(("engine", "decoder", "vae")), "one folder deeper"
    for kind in ("MLLM", "VDM_Decoder"):
        shutil.copytree(own_copy / f"{kind}-Qiqi", own_copy / f"{kind}-Sosuke")
    with pytest.raises(CheckpointError, match="MLLM-Qiqi, MLLM-Sosuke; choose one"):
        open_world(own_copy)
    names = {name: open_world(own_copy / name).spec.name for name in ("qiqi", "Sosuke")}
    assert names == {"qiqi": "qiqi", "Sosuke": "sosuke"}
    monkeypatch.chdir(own_copy)
    assert open_world("sosuke").folder == Path(".")
    with pytest.raises(CheckpointError, match="no world here"):
        open_world(own_copy / "ponyo")
    shutil.rmtree(own_copy / "MLLM-Sosuke")
    shutil.rmtree(own_copy / "VDM_Decoder-Qiqi")
    with pytest.raises(CheckpointError, match="MLLM-Qiqi and VDM_Decoder-Sosuke; expected both from one world"):
        open_world(own_copy)


def test_nothing_is_ever_written_there(own_copy, originals):
    before = sorted(own_copy.rglob("*"))
    for write in (
        lambda: save_part(open_world(own_copy), originals.decoder),
        lambda: save_world(own_copy, made.SPEC),
        lambda: convert(own_copy, own_copy),
    ):
        with pytest.raises(CheckpointError, match="holds published files, which are never changed; convert them"):
            write()
    assert sorted(own_copy.rglob("*")) == before


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells which file a page belongs to")
def test_untouched_weights_are_the_file_itself(own_copy, originals):
    """Memory-mapped: a parameter that needs no merging shares the file's pages, so nothing is held twice."""
    tensors, _ = made.engine_tensors(originals.engine, lora=False)
    made.save(own_copy / "MLLM-Qiqi" / "pytorch_model.bin", tensors)
    world = open_world(own_copy)
    engine, again = world.load_engine(), world.load_engine()
    pointers = [{p.untyped_storage().data_ptr() for p in model.parameters()} for model in (engine, again)]
    assert pointers[0] == pointers[1] and len(pointers[0]) >= 1
    parameters = dict(engine.named_parameters())
    mapped = (own_copy / "MLLM-Qiqi" / "pytorch_model.bin").resolve()
    ranges = [
        tuple(int(end, 16) for end in line.split()[0].split("-"))
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(mapped))
    ]
    for name, parameter in parameters.items():
        assert any(low <= parameter.data_ptr() < high for low, high in ranges), name


def test_a_value_too_large_for_16_bits_is_refused(own_copy):
    path = own_copy / "3d-vae.pt"
    content = torch.load(path)
    content["state_dict"]["decoder.conv_out.conv.bias"] += 1e6
    torch.save(content, path)
    world = open_world(own_copy)
    world.load_decoder()
    with pytest.raises(CheckpointError, match="3d-vae.pt: 'decoder.conv_out.conv.bias'.*does not fit torch.float16"):
        world.load_decoder(dtype=torch.float16)


def test_the_text_encoder_is_read_in_place(own_copy, originals):
    write_text_encoder(own_copy, originals)
    encoder = open_world(own_copy).load_encoder(parts=("encoder", "text_tower"))
    assert_same(encoder, originals.encoder)
    assert encoder.tokenizer is not None
    (own_copy / "t5-v1_1-xxl" / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="t5-v1_1-xxl/tokenizer.json: not a complete tokenizer file"):
        open_world(own_copy)


def test_a_damaged_mistral_tokenizer_is_one_sentence(own_copy):
    path = own_copy / "Mistral-7B-Instruct-v0.1" / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(
        ValueError, match="Mistral-7B-Instruct-v0.1/tokenizer.json: not a complete tokenizer file"
    ) as caught:
        open_world(own_copy)
    assert "\n" not in str(caught.value)
    path.write_text(json.dumps({"model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}}))
    with pytest.raises(ValueError, match="expected 32000"):
        open_world(own_copy)


def test_a_damaged_sentencepiece_model_is_one_sentence(own_copy):
    pytest.importorskip("sentencepiece")
    mistral = own_copy / "Mistral-7B-Instruct-v0.1"
    (mistral / "tokenizer.json").unlink()
    for content in (b"", b"\x0a\x0e\x0a\x05", b"<html>Sign in</html>" * 300):
        (mistral / "tokenizer.model").write_bytes(content)
        with pytest.raises(ValueError, match="Mistral-7B-Instruct-v0.1.*; (download it again|use the tok)") as caught:
            open_world(own_copy)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_finding_and_opening_worlds_imports_no_torch(download, converted):
    code = (
        "import sys; from pathlib import Path; from animegamer_core.checkpoint import open_world; "
        "from animegamer_core.checkpoint.downloads import published_worlds; "
        f"world = open_world({str(converted.folder)!r}); world.missing(); world.fingerprint; "
        f"print(published_worlds(Path({str(download)!r})), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "('qiqi',) False"
