"""How models are found, loaded, shared, interrupted and let go, inside ComfyUI's own process."""

import json
import subprocess

import pytest
from comfy_server import ROOT, SKIPPED, find_comfyui


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """What inside.py found."""
    if find_comfyui() is None:
        pytest.skip(SKIPPED)
    comfy, python = find_comfyui()
    command = [python, ROOT / "tests" / "comfyui" / "inside.py", comfy, ROOT, tmp_path_factory.mktemp("inside")]
    done = subprocess.run(command, cwd=comfy, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_models_live_as_long_as_a_value_that_uses_them(inside):
    assert inside["lives"] == {"before": 0, "shared": True, "again": True, "other": True, "left": False}


def test_models_are_placed_whole_before_every_use(inside):
    placing = inside["placing"]
    assert placing["before"] is None and placing["kind"] == "ModelPatcher" and placing["same"]
    assert placing["loaded"] == [True, False, False, True], "loaded, partly unloaded, at work as it is, whole again"


def test_a_small_device_decodes_in_tiles(inside):
    tiles = inside["tiles"]
    assert tiles["tiled"] == [False, True] and not tiles["same"]
    assert tiles["drawn"] == ["+skip0", "+skip0+tiled"], "another shot beyond rounding has an address of its own"
    assert tiles["off"] < 4 * 10**-2.5, "25 dB of a range of 2: the same picture but for its seams"


def test_a_missing_package_is_named(inside):
    assert "pip install opencv-python-headless`" in inside["packages"]["cv2"]
    assert "needs the Python package diffusers" in inside["packages"]["diffusers"]


@pytest.mark.parametrize("work", ["text", "sampling", "decoding", "encoding"])
def test_an_interrupt_stops_within_one_pass(inside, work):
    assert inside["interrupt"][work] == 0, "layers that began after the user asked to stop"


def test_lora_files_change_only_their_model(inside):
    found = inside["stage_files"]
    assert found["listed"] == ["none", "mine/brighter.safetensors"]
    assert found["moved"] == [1.0, 0.5], "by their strength"
    assert found["loaded once"], "another strength loads no world again"
    assert found["decoder is the same"]
    assert found["fingerprints"] == 4, "plain, whole, half, and the file written anew"


def test_lora_files_of_comfyuis_own_folder_change_the_decoder(inside):
    found = inside["usual_loras"]
    assert found["listed"] == ["loras/anime/line.safetensors", "loras/of 5B.safetensors"]
    assert found["moved"] and found["version"]
    assert "3072" in found["errors"]["of 5B"] and "nor in ComfyUI's folder loras" in found["errors"]["outside"]


def test_worlds_of_all_model_folders_are_listed(inside):
    worlds = inside["worlds"]
    assert worlds["names"] == ["toybox", "qiqi", "sosuke", "mine", "theirs"]
    assert worlds["mine"] == "toybox"


def test_errors_say_what_is_missing(inside):
    errors = inside["worlds"]["errors"]
    assert "Mistral-7B-Instruct-v0.1" in errors["qiqi"] and "https://huggingface.co/TencentARC" in errors["qiqi"]
    assert "engine is not complete" in errors["theirs"] and "theirs/engine" in errors["theirs"]
    for name in ("no world", "../animegamer/mine", "mine/", ""):
        assert errors[name].startswith(f"world {name!r} is not in "), "a name is never a path"


def test_each_preset_has_its_own_decoder(inside):
    found = inside["presets"]
    assert found["shared"] == [True, True, False] and found["one engine"]
    assert found["fused"]
    assert 0 < found["off"] < 1e-3, "another way to compute the same shot"
    assert found["messages"] == ["AnimeGamer: preset exact: skipped flash3, gelu, blocks, vae: no benefit on cpu"]
    assert found["steps"] == {"world": [16, 7], "exact": [16, 7], "balanced": [16, 7], "live": [12, 7]}
