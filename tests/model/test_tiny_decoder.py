"""The tiny decoder: its shape in time, TAEHV's layout, and how worlds and presets choose it."""

import queue
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F

from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.tiny_decoder import TinyDecoder
from animegamer_core.runtime.models import PlaySettings
from animegamer_core.runtime.presets import PRESETS, Preset, apply_preset, with_preset
from animegamer_core.runtime.previews import MovingPreview
from animegamer_core.spec import SPECS, ModelSpec
from animegamer_core.weights import CheckpointError, open_world, save_part, save_world
from animegamer_core.weights.storage import note_of
from animegamer_core.weights.weight_files import TAEHV_WIDTHS

TINY = SPECS["tiny"].decoder
SPEC = replace(SPECS["tiny"], decoder=replace(TINY, vae=replace(TINY.vae, tiny=(8, 8, 8), fast=True)))


def plain_taehv(weights, latents_CThw):
    """The (F, 3, H, W) frames of TAEHV's decoder, in 0 to 1, frame by frame: none can see a later one."""

    def conv(x, name):
        weight = weights[f"decoder.{name}.weight"]
        return F.conv2d(x, weight, weights.get(f"decoder.{name}.bias"), padding=weight.shape[-1] // 2)

    frames = [conv(3 * torch.tanh(z[None] / 3), 1).relu() for z in latents_CThw.unbind(1)]
    for first, grows in ((3, 1), (9, 2), (15, 2)):
        for block in range(first, first + 3):
            found = []
            for now, before in zip(frames, [torch.zeros_like(frames[0]), *frames], strict=False):
                inner = conv(torch.cat([now, before], 1), f"{block}.conv.0").relu()
                found.append((now + conv(conv(inner, f"{block}.conv.2").relu(), f"{block}.conv.4")).relu())
            frames = found
        grown = [conv(F.interpolate(x, scale_factor=2), f"{first + 4}.conv").chunk(grows, 1) for x in frames]
        frames = [conv(x, first + 5) for parts in grown for x in parts]
    return torch.cat([conv(x.relu(), 22) for x in frames])[3:]


def test_a_taehv_beside_the_vae_shows_previews_and_draws_with_turbo(tmp_path):
    torch.manual_seed(2)
    vae = replace(TINY.vae, channels=(8, 8, 16, 16), scaling_factor=1.15)
    spec = replace(SPECS["tiny"], decoder=replace(TINY, vae=vae))
    world = save_part(save_world(tmp_path, spec), ShotDecoder(spec))
    weights = TinyDecoder(4, TAEHV_WIDTHS).state_dict()
    names = ("1", "7.conv", "8", "13.conv", "19.conv", "20", "22")
    shapes = [(256, 16), (256, 256), (128, 256), (256, 128), (128, 64), (64, 64), (3, 64)]
    theirs = TinyDecoder(16, TAEHV_WIDTHS).state_dict()
    assert [theirs[f"decoder.{name}.weight"].shape[:2] for name in names] == shapes and len(weights) == 64
    assert weights["decoder.7.conv.weight"].shape[2:] == (1, 1) and weights["decoder.5.conv.4.bias"].shape == (256,)
    path = tmp_path / "vae" / "taecvx.pth"
    torch.save({**weights, "encoder.0.weight": torch.zeros(64, 3, 3, 3)}, path)
    decoder, latents = world.load_decoder(), torch.randn(1, *spec.decoder.latent_shape)
    small = plain_taehv(weights, F.avg_pool2d(latents[0], 2).transpose(0, 1) / 1.15)
    torch.testing.assert_close((decoder.preview(latents) + 1) / 2, small, atol=2e-5, rtol=1e-4)
    assert not hasattr(world.load_decoder(playing=False).vae, "tiny"), "training saves what it loads"
    whole = decoder.decode_latents(latents)
    apply_preset(decoder, replace(PRESETS["turbo"], optimizations=()))
    frames, expected = decoder.decode_latents(latents)[0], plain_taehv(weights, latents[0].transpose(0, 1) / 1.15)
    assert frames.shape == whole[0].shape == (17, 3, 32, 48)
    torch.testing.assert_close((frames + 1) / 2, expected, atol=2e-5, rtol=1e-4)
    assert with_preset(PRESETS["turbo"], PlaySettings(), world).precision_suffix == f"+fast-{note_of(path).sha256[:12]}"
    safetensors.torch.save_file({"decoder.1.weight": torch.zeros(256, 4, 3, 3)}, path.with_suffix(".safetensors"))
    with pytest.raises(CheckpointError, match="63 missing"):
        world.load_decoder()


def test_a_world_decodes_by_it_until_a_preset_says_otherwise(tmp_path):
    torch.manual_seed(1)
    world = save_part(save_world(tmp_path, SPEC), ShotDecoder(SPEC))
    (tmp_path / "vae" / "taecvx.pth").write_bytes(b"of no use to it, nor to a world of smaller latents")
    assert replace(world, spec=SPECS["tiny"]).taehv is None
    decoder, latents = open_world(world.folder).load_decoder(), torch.randn(1, 5, 4, 8, 12)
    assert ModelSpec.from_dict(SPEC.to_dict()) == SPEC and decoder.fast
    quick = decoder.decode_latents(latents)
    assert decoder.preview(latents).shape == (17, 3, 16, 24) and quick.shape == (1, 17, 3, 32, 48)
    decoder.fast = False
    assert not torch.equal(decoder.decode_latents(latents), quick)

    def suffix(preset: Preset) -> str:
        return with_preset(preset, PlaySettings(), world).precision_suffix

    assert "+full" in suffix(PRESETS["exact"]) and "fast" not in suffix(PRESETS["turbo"])


def test_previews_move_in_a_loop_until_they_are_replaced(tiny_decoder):
    shown, latents = queue.Queue(), torch.randn(1, *TINY.latent_shape)
    with MovingPreview(lambda frame: shown.put(int(frame.flat[0])), fps=200) as preview:
        preview.play(np.arange(3, dtype=np.uint8)[:, None, None, None])
        assert [shown.get(timeout=20) for _ in range(5)] == [0, 1, 2, 0, 1]
        preview.play()
        shown.queue.clear()
        for done in (1, 2, 3):  # without a tiny decoder: a still. The second comes too soon, then comes the shot itself
            preview.step(tiny_decoder, done, 3, latents)
    assert shown.qsize() == 1
