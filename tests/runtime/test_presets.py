"""Presets: what they change in a decoder, and what they save."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from test_optimizations import decoder, shot
from tiny_world import save_tiny_world

from animegamer_core.__main__ import main
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.runtime.optimizations import check_names
from animegamer_core.runtime.presets import (
    PRESETS,
    Preset,
    PresetModels,
    apply_preset,
    check_offloading,
    preset_for_device,
    resolve_sampling,
    tile_if_needed,
)
from animegamer_core.spec import PROFILES, RELEASE, SPECS
from animegamer_core.story.player import PlaySettings
from animegamer_core.story.story import Story

PAPER = PROFILES["paper"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return save_tiny_world(tmp_path_factory.mktemp("world"))


def test_the_presets_are_as_documented():
    assert list(PRESETS) == ["exact", "balanced", "live", "turbo", "low_vram", "low_vram_12", "low_vram_16"]
    for name, row in PRESETS.items():
        assert row.name == name
        check_names(row.optimizations)
    rows = [PRESETS[name] for name in ("exact", "balanced", "live", "low_vram")]
    assert [resolve_sampling(RELEASE, PAPER, preset=row).steps for row in rows] == [50, 24, 12, 50]


def test_a_small_device_decodes_in_tiles_and_the_address_says_so():
    spec, said = SPECS["toybox"], []
    decoder = ShotDecoder(spec)
    needed = sum(tensor.nbytes for tensor in decoder.state_dict().values()) + decoder.working_bytes
    exact = PRESETS["exact"]
    assert tile_if_needed(exact, spec, torch.float32, needed, said.append) is exact and not said
    small = tile_if_needed(exact, spec, torch.float32, needed - 1, said.append)
    assert small.tiled and small.precision_suffix(PAPER) == "+skip0+tiled"
    assert "vae" not in small.optimizations and "tiles" in said[0] and "skipped vae" in said[1]
    apply_preset(decoder, replace(small, optimizations=()))
    assert decoder.tiled
    with torch.device("meta"):
        published = ShotDecoder(RELEASE).bfloat16()
    sizes = [round(getattr(published, f"{which}_bytes") / 1e9, 1) for which in ("working", "tiled", "sampling")]
    assert sizes == [17.5, 4.4, 0.9], "GB: as measured for decoding; both rows of guidance are sampled at once"


def test_a_device_leaves_out_what_it_does_not_support(monkeypatch):
    said = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setenv("CC", "cc")
    row = preset_for_device(PRESETS["exact"], "cpu", said.append)
    assert row.optimizations == ("fused", "layout")
    assert said == ["preset exact: skipped flash3, gelu, blocks, vae: no benefit on cpu"]
    row = preset_for_device(PRESETS["exact"], "cuda:1", said.append)
    assert row.optimizations == ("fused", "layout", "gelu", "blocks", "vae")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert preset_for_device(PRESETS["exact"], "cuda", said.append).optimizations == ("fused", "gelu")
    assert "preset exact: skipped blocks, vae: triton is not installed" in said
    assert "preset exact: skipped layout: it is slower on a GPU unless the VAE is compiled" in said


def test_a_prepared_decoder_draws_the_exact_shot_and_skips_as_the_preset_says():
    calls, plain, ready = [], decoder(), decoder()
    plain.profile = replace(plain.profile, skip_guidance_below=0.0)
    apply_preset(ready, preset_for_device(PRESETS["exact"], "cpu"))
    torch.testing.assert_close(shot(ready), shot(plain), rtol=0, atol=5e-5)
    apply_preset(plain, Preset("bold", skip_guidance_below=99.0))
    plain.transformer.register_forward_hook(lambda module, given, output: calls.append(len(output[0])))
    shot(plain)
    assert calls == [1, 1, 1, 1] and plain.profile.guidance == PAPER.guidance


def test_offloading_refuses_what_does_not_work_with_it(world):
    with pytest.raises(ValueError, match="the device is cpu; choose exact"):
        preset_for_device(PRESETS["low_vram"], "cpu")
    with pytest.raises(ValueError, match="drop --cfg-parallel"):
        PresetModels(world, PlaySettings(cfg_parallel="cuda:1"), PRESETS["low_vram"])
    with pytest.raises(ValueError, match="optimization vae does not work with offloading"):
        check_offloading(replace(PRESETS["low_vram"], optimizations=("vae",)))


class FakeMemoryPlan:
    """Records the models to offload, and leaves them where they are."""

    def __init__(self):
        self.offloaded = []

    def offload(self, model):
        self.offloaded.append((type(model).__name__, next(model.parameters()).dtype))
        return (SimpleNamespace(text=f"budget of {type(model).__name__}"),)


def test_offloaded_models_are_loaded_on_the_host_in_the_stored_type(world, monkeypatch):
    memory_plan = FakeMemoryPlan()
    monkeypatch.setattr("animegamer_core.runtime.presets.memory_plan_of", lambda preset, device: memory_plan)
    row = replace(PRESETS["low_vram"], optimizations=("fused",))
    models = PresetModels(world, PlaySettings(device="cuda"), row)
    assert models.decoder().tiled and hasattr(models.decoder().transformer.transformer_blocks[0].attn1, "to_qkv")
    kind = world.stored_dtype("decoder")
    assert models.engine() and memory_plan.offloaded == [("ShotDecoder", kind), ("GameEngine", kind)]
    assert kind != torch.float32  # which the CPU would have got


def play(world, folder, *words):
    game = folder / "game.txt"
    game.write_text("Character: girl; Motion: quickly run; Background: day forest.\n", encoding="utf-8")
    return main(["play", str(game), "--world", str(world.folder), "--out", str(folder), "--device", "cpu", *words])


def shots_of(folder, world):
    story = Story.open(folder, "game", world.spec.name, world.fingerprint)
    return [json.loads(path.read_text())["key"] for path in sorted(story.shots.folder.glob("*.json"))]


def test_presets_reuse_stored_shots_only_if_they_round(world, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(PRESETS, "balanced", Preset("balanced", optimizations=("fused", "layout")))
    monkeypatch.setitem(PRESETS, "live", Preset("live", 2, "constant", tiled=True))
    assert play(world, tmp_path) == 0
    first = shots_of(tmp_path, world)
    assert play(world, tmp_path, "--preset", "balanced") == 0
    assert shots_of(tmp_path, world) == first and "(known)" in capsys.readouterr().out
    assert play(world, tmp_path, "--preset", "live", "--steps", "3") == 0
    exact, sketch = sorted(shots_of(tmp_path, world), key=lambda key: key["precision"])
    assert (exact["precision"], sketch["precision"]) == ("float32", "float32+tiled")
    assert (sketch["steps"], sketch["guidance"]) == (3, "constant") and exact["state"] == sketch["state"]
