"""The published files become a world: every layout, every dtype, and every kind of wrong file."""

import os
import shutil
import threading
from pathlib import Path

import published_files as made
import pytest
import torch
from safetensors.torch import save_file

from animegamer_core.__main__ import main
from animegamer_core.game.state import MotionTable
from animegamer_core.train.stages import StageConfig
from animegamer_core.weights import CheckpointError, open_world, save_world
from animegamer_core.weights.adapter_files import save_adapter
from animegamer_core.weights.adapters import with_adapters
from animegamer_core.weights.convert import convert
from animegamer_core.weights.downloads import file_signature
from animegamer_core.weights.weight_files import PickleSource

ENGINE_ONLY, DECODER_ONLY, VAE_ONLY = ("engine",), ("decoder",), ("vae",)


@pytest.fixture
def src(tmp_path, mistral):
    """A download folder that holds Mistral's config and tokenizer."""
    shutil.copytree(mistral, tmp_path / "src" / mistral.name)
    made.state_sizes(tmp_path / "src")
    return tmp_path / "src"


@pytest.fixture
def copied(converted, tmp_path):
    """The folder of a world that an earlier run made."""
    shutil.copytree(converted.folder, tmp_path / "w")
    return tmp_path / "w"


def assert_same(ours, original, tolerance=2e-6):
    expected = original.state_dict()
    for name, value in ours.state_dict().items():
        if value.device.type != "meta":
            difference = (value.float() - expected[name].float()).abs().max()
            assert difference <= tolerance, f"{name} differs by {difference}"


def test_a_whole_download_becomes_a_world(converted_exactly, originals):
    world, seen = converted_exactly
    assert world.spec.name == "qiqi"
    assert (world.profile.name, world.motion_table.name) == ("reference", "released")
    assert (world.spec.state, world.spec.engine) == (made.SPEC.state, made.SPEC.engine)
    assert world.spec.decoder == made.SPEC.decoder
    assert_same(world.load_engine(), originals.engine)
    assert_same(world.load_decoder(), originals.decoder)
    assert_same(world.load_encoder(parts=("encoder",)), originals.encoder)
    assert "European Union" in world.licence
    done = [step[0] for step in seen]
    assert done == sorted(done) and done[-1] == seen[-1][1] > 0
    assert [sentence.split()[0] for sentence in world.missing()] == ["text_tower", "image_tower"]


def test_released_precision_stores_16_bits(converted):
    weights = sum(p.numel() for p in converted.load_engine().parameters())
    (note,) = (note for path, note in converted.files.items() if path.startswith("engine/model"))
    assert weights * 2 < note.bytes < weights * 2 + 20_000


@pytest.mark.parametrize("form", [{"base_layer": ""}, {"lora": False}])
def test_forms_of_a_full_engine_file(src, originals, tmp_path, form):
    tensors, path = made.engine_tensors(originals.engine, **form)[0], src / "MLLM-Qiqi" / "pytorch_model.bin"
    made.save(path, tensors, _use_new_zipfile_serialization="lora" in form)  # else as before torch 1.6
    convert(src, tmp_path / "w", parts=ENGINE_ONLY)  # in 16 bits, which is not what the next run asks for
    assert_same(convert(src, tmp_path / "w", precision="keep", parts=ENGINE_ONLY).load_engine(), originals.engine)


def test_a_trainable_only_engine_takes_its_base_from_mistral(src, originals, tmp_path):
    tensors, base = made.engine_tensors(originals.engine, trainable_only=True)
    made.save(src / "MLLM-Qiqi" / "pytorch_model.bin", tensors)
    with pytest.raises(CheckpointError, match="Mistral-7B-Instruct-v0.1, since .* holds only what was trained"):
        convert(src, tmp_path / "w", parts=ENGINE_ONLY)
    base = {**base, "model.embed_tokens.weight": torch.zeros(32000, 16), "model.norm.weight": torch.zeros(16)}
    save_file(base, src / "Mistral-7B-Instruct-v0.1" / "model.safetensors")
    assert_same(convert(src, tmp_path / "w", precision="keep", parts=ENGINE_ONLY).load_engine(), originals.engine)


@pytest.mark.parametrize(("lora", "beside", "latest"), [(True, False, "release"), (False, True, "80000")])
def test_forms_of_a_decoder_file(src, originals, tmp_path, lora, beside, latest):
    tensors = made.decoder_tensors(originals.decoder, originals.encoder, lora=lora)
    made.write_decoder(src, tensors, latest, beside)
    world = convert(src, tmp_path / "w", precision="keep", parts=DECODER_ONLY)
    assert_same(world.load_decoder(parts=DECODER_ONLY), originals.decoder)
    row = world.load_encoder(parts=("encoder",)).unconditional()
    assert torch.equal(row, world.load_decoder(parts=DECODER_ONLY).unconditional_ND)


def test_other_models_inside_the_decoder_file_are_used_or_left(src, originals, tmp_path):
    tensors = made.decoder_tensors(originals.decoder, originals.encoder)
    tensors |= made.vae_tensors(originals.decoder.vae, "first_stage_model.")
    tensors["conditioner.embedders.0.transformer.shared.weight"] = torch.zeros(2, 2)
    made.write_decoder(src, tensors)
    world = convert(src, tmp_path / "w", precision="keep", parts=("decoder", "vae"))
    assert_same(world.load_decoder(), originals.decoder)


def write_text_encoder(folder, src, originals):
    """A T5 folder, of which only the encoder is read."""
    tower = originals.encoder.text_tower
    folder.mkdir(parents=True)
    text = {name: value.contiguous() for name, value in tower.state_dict().items() if "embed_tokens" not in name}
    save_file({**text, "decoder.block.0.x": torch.zeros(1)}, folder / "model.safetensors")
    shutil.copy(src / "Mistral-7B-Instruct-v0.1" / "tokenizer.json", folder)


@pytest.mark.parametrize("t5", ["t5-v1_1-xxl", "CogVideoX-2b/text_encoder"])
def test_text_and_image_encoders_are_converted_if_present(t5, own_copy, originals, tmp_path):
    write_text_encoder(own_copy / t5, own_copy, originals)
    clip = made.image_tower_tensors(originals.encoder.image_tower)  # of its file, only the image encoder is read
    folder = own_copy / "CLIP-ViT-B-16-laion2B-s34B-b88K"
    made.save(folder / "open_clip_pytorch_model.bin", {**clip, "logit_scale": torch.zeros(1)})
    world = convert(own_copy, tmp_path / "w", precision="keep")
    assert not world.missing()
    assert_same(world.load_encoder(), originals.encoder)


def test_a_second_run_only_redoes_what_changed(download, converted, copied):
    times = {path: (copied / path).stat().st_mtime_ns for path in converted.files}
    trained = {"trained_window": 3, "motion_table": MotionTable("own", (0, 1, 2, 3, 4), (1, 2, 3, 4))}
    save_world(copied, converted.spec, profile="paper", provenance=converted.provenance, **trained)
    again = convert(download, copied)  # as a stage left it that trained the engine
    assert again.files == converted.files and again.profile.name == "paper"
    assert {name: getattr(again, name) for name in trained} == trained
    assert times == {path: (copied / path).stat().st_mtime_ns for path in converted.files}
    (broken,) = (copied / "vae").glob("model*")
    content = bytearray(broken.read_bytes())
    content[-1] ^= 1
    broken.write_bytes(content)
    mended = convert(download, copied)
    mended.verify()
    assert mended.files == converted.files
    redone = {path for path in converted.files if (copied / path).stat().st_mtime_ns != times[path]}
    assert redone == {path for path in converted.files if path.startswith("vae/")}


def test_a_file_beside_the_weights_decides_too(own_copy, tmp_path):
    before = convert(own_copy, tmp_path / "w", parts=ENGINE_ONLY).fingerprint
    (own_copy / "MLLM-Qiqi" / "adapter_config.json").write_text('{"lora_alpha": 99}')
    assert convert(own_copy, tmp_path / "w", parts=ENGINE_ONLY).fingerprint != before


def test_a_published_world_gets_its_own_lora_back_after_an_adapter(converted_exactly, tmp_path):
    world, name, file = converted_exactly[0], "transformer.transformer_blocks.0.attn1.to_q.weight", tmp_path / "x.sft"
    decoder = world.load_decoder(dtype=torch.float32)
    before = decoder.get_parameter(name).clone()
    assert not before.equal(world.source("decoder").tensor(name)), "with the LoRA in it"
    save_adapter(file, "joint", StageConfig(trainable=("x",)), {f"decoder.{name}": torch.zeros_like(before)}, {})
    with_adapters(world, ((str(file), 1.0),)).refit("decoder", decoder)
    assert not decoder.get_parameter(name).any()
    world.refit("decoder", decoder)
    torch.testing.assert_close(decoder.get_parameter(name), before)


def test_an_interrupted_run_goes_on_and_no_other_writes_meanwhile(download, tmp_path):
    def stop(done, total, what):
        if what.startswith("decoder: transformer.norm_out"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(download, tmp_path / "w", stop)
    assert not list((tmp_path / "w").rglob("part-*"))
    seen = set()

    def again(done, total, what):
        if not seen:
            with pytest.raises(ValueError, match="w: another conversion or training .*; wait for it"):
                convert(download, tmp_path / "w")
        seen.add(what.split(":")[0])

    world = convert(download, tmp_path / "w", again)
    assert not world.missing(("engine", "decoder", "vae", "encoder"))
    assert "vae" not in seen and "decoder" in seen, "the part that was finished is not written again"
    world.verify()


def test_a_change_at_either_end_of_a_large_file_is_noticed(tmp_path):
    signatures = set()
    for ends in ((b"a", b"a"), (b"b", b"a"), (b"a", b"b")):
        (tmp_path / "file").write_bytes(bytes(3 << 20).join(ends))
        signatures.add(file_signature(tmp_path / "file").sha256)
    assert len(signatures) == 3


def test_several_worlds_are_chosen_by_name(own_copy, copied):
    for kind in ("MLLM", "VDM_Decoder"):
        shutil.copytree(own_copy / f"{kind}-Qiqi", own_copy / f"{kind}-Sosuke")
    with pytest.raises(CheckpointError, match="MLLM-Qiqi, MLLM-Sosuke"):
        convert(own_copy, copied)
    with pytest.raises(CheckpointError, match="world 'qiqi' with other sizes or for another film"):
        convert(own_copy, copied, name="Sosuke")
    open_world(copied).verify()
    for leftover in ("MLLM-Qiqi", "VDM_Decoder-Sosuke"):
        shutil.rmtree(own_copy / leftover)
    with pytest.raises(CheckpointError, match="holds MLLM-Sosuke and VDM_Decoder-Qiqi"):
        convert(own_copy, copied)


def test_the_command_converts(download, tmp_path, capsys, monkeypatch):
    assert main(["convert", str(download), "--out", str(tmp_path / "w")]) == 0
    shown = capsys.readouterr()
    assert "100%" in shown.err and "'qiqi'" in shown.out and "European Union" in shown.out
    assert main(["convert", str(tmp_path / "nothing"), "--out", str(tmp_path / "w")]) == 2
    assert "no such folder" in capsys.readouterr().err
    monkeypatch.setattr("animegamer_core.weights.storage.free_bytes", lambda _: 1000)
    with pytest.raises(CheckpointError, match=r"0\.\d\d GB to write and 0\.00 GB free"):
        convert(download, tmp_path / "other")


# ---- files that must be refused, each with one sentence


def refuse(src, out, match, parts=DECODER_ONLY):
    with pytest.raises(CheckpointError, match=match) as caught:
        convert(src, out, parts=parts)
    assert "\n" not in str(caught.value)
    assert not (out / "world.json").exists(), "nothing is written before all of it fits"


@pytest.fixture
def decoder_file(src, originals):
    return made.write_decoder(src, made.decoder_tensors(originals.decoder, originals.encoder))


def change(path, inside="module", **changes):
    """Rewrite a torch file with some entries changed; None removes one."""
    content = torch.load(path, weights_only=False)
    tensors = content[inside] if inside else content
    for key, value in changes.items():
        key = next((name for name in tensors if name.endswith(key.replace("__", "."))), key)
        tensors.pop(key, None)
        if value is not None:
            tensors[key] = value
    torch.save(content, path)


class Malicious:
    """What a hostile pickle does: runs a command as soon as it is opened."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (os.system, (f"echo run > {self.marker}",))


def test_a_malicious_pickle_never_runs(src, decoder_file, tmp_path):
    marker = tmp_path / "marker"
    change(decoder_file, None, extra=Malicious(marker))
    refuse(src, tmp_path / "w", "mp_rank_00_model_states.pt: torch cannot load it safely .*download again")
    assert not marker.exists()
    torch.load(decoder_file, weights_only=False)
    assert marker.exists(), "the file was harmless: the test proves nothing"


def test_a_file_that_is_read_meanwhile_takes_no_kinds_of_numbers_away(decoder_file, monkeypatch):
    load, others = torch.load, []

    def slow(*given, **named):
        if not others:
            others.append(threading.Thread(target=PickleSource, args=(decoder_file, "module")))
            others[0].start()
            others[0].join(0.5)  # it has to wait
        return load(*given, **named)

    monkeypatch.setattr(torch, "load", slow)
    PickleSource(decoder_file, "module")
    others[0].join()


def test_truncated_files_and_files_of_another_kind(src, decoder_file, tmp_path):
    whole = decoder_file.read_bytes()
    for content in (whole[:-9], whole[: len(whole) // 2], b"<!DOCTYPE html><html>Sign in to download</html>" * 50):
        decoder_file.write_bytes(content)
        refuse(src, tmp_path / "w", "mp_rank_00_model_states.pt: torch cannot load it")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"time_embed__0__weight": None}, "time_embedding.linear_1.weight"),
        ({"1__attention__dense__matrix_A__0": None}, "has only one of lora_A and lora_B; expected both"),
        ({"time_embed__0__bias": "a string"}, "something else than tensors under 'module'; expected"),
        ({"new_layer": torch.zeros(2)}, "1 unknown tensor.s.: new_layer; expected the published names only"),
        ({"final_layer__linear__weight": torch.zeros(3, 32)}, "proj_out.weight' has shape .3, 32., .*expects .16, 32."),
        ({"pos_embed__pos_embedding": torch.full((1, 256, 32), -2.0)}, "its table of positions"),
        ({"pos_embed__pos_embedding": torch.full((1, 256, 32), torch.nan)}, "its table of positions"),
    ],
)
def test_a_decoder_file_that_does_not_fit(src, decoder_file, tmp_path, changes, match):
    change(decoder_file, **changes)
    refuse(src, tmp_path / "w", match)


def test_a_number_that_is_none_in_a_lora_is_named(src, decoder_file, tmp_path):
    change(decoder_file, **{"1__attention__dense__matrix_B__0": torch.full((32, 4), torch.nan)})
    with pytest.raises(CheckpointError, match="matrix_B.0' holds NaN or infinity"):
        convert(src, tmp_path / "w", parts=DECODER_ONLY)


def test_a_wrong_latest_and_absent_files_are_named(src, decoder_file, tmp_path):
    latest = src / "VDM_Decoder-Qiqi" / "latest"
    for stated, says in (("\ufeff9\n", "no such file, though latest says '9'"), ("../../etc", "expected a number or")):
        latest.write_text(stated, "utf-8")
        refuse(src, tmp_path / "w", says)
    latest.unlink()
    refuse(src, tmp_path / "w", "latest: no such file")
    shutil.rmtree(latest.parent)
    refuse(src, tmp_path / "w", "no files for the decoder; expected VDM_Decoder-")
    refuse(src, tmp_path / "w", "no files for the engine; expected MLLM-", ENGINE_ONLY)


@pytest.mark.parametrize(
    ("file", "content", "match"),
    [
        ("Mistral-7B-Instruct-v0.1/config.json", '{"rope_theta": 1e6}', "rope_theta is 1e\\+06; expected 10000"),
        ("MLLM-Qiqi/adapter_config.json", '{"lora_alpha": "much"}', "lora_alpha is 'much'; expected a number"),
        ("MLLM-Qiqi/adapter_config.json", '{"lora_alpha": true}', "lora_alpha is 'True'; expected a number"),
        ("MLLM-Qiqi/spec.json", '{"name": "x", "engine": {"heads": 0}}', "field engine.heads"),
    ],
)
def test_a_broken_configuration_beside_the_weights(own_copy, tmp_path, file, content, match):
    (own_copy / file).write_text(content)
    refuse(own_copy, tmp_path / "w", f"{file}: .*{match}", ENGINE_ONLY)


def test_what_a_clone_without_lfs_leaves_is_named(own_copy, tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 29000000000\n"
    (own_copy / "MLLM-Qiqi" / "pytorch_model.bin").write_text(pointer)
    refuse(own_copy, tmp_path / "w", "pytorch_model.bin: this is a Git LFS pointer", ENGINE_ONLY)
