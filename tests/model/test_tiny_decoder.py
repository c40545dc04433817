"""The tiny decoder: its shape in time, TAEHV's layout, and how worlds and presets choose it."""

from dataclasses import replace

import pytest
import torch

from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.tiny_decoder import TinyDecoder
from animegamer_core.runtime.models import PlaySettings
from animegamer_core.runtime.presets import PRESETS, Preset, with_preset
from animegamer_core.spec import SPECS, ModelSpec
from animegamer_core.weights import open_world, save_part, save_world

TINY = SPECS["tiny"].decoder
SPEC = replace(SPECS["tiny"], decoder=replace(TINY, vae=replace(TINY.vae, tiny=(8, 8, 8), fast=True)))


def test_17_frames_come_from_5_latent_frames_and_none_sees_a_later_one():
    torch.manual_seed(0)
    net, latents = TinyDecoder(4, (8, 8, 8)), torch.randn(2, 4, 5, 4, 6)
    frames = net(latents)
    assert frames.shape == (2, 17, 3, 16, 24)
    latents[:, :, 3] += 1  # of frames 9 to 12
    changed = (net(latents) - frames).abs().amax((0, 2, 3, 4)) > 0
    assert changed.tolist() == [False] * 9 + [True] * 8
    net.decoder = torch.nn.Sequential(torch.nn.Identity())
    assert net(99 * latents).max() == 2 * 3 - 1, "TAEHV bends latents to 3"


def test_tensors_are_named_and_shaped_like_taehvs():
    shapes = {name: tuple(value.shape) for name, value in TinyDecoder(16, (256, 128, 64, 64)).state_dict().items()}
    known = {
        "decoder.1.weight": (256, 16, 3, 3),
        "decoder.5.conv.4.bias": (256,),
        "decoder.7.conv.weight": (256, 256, 1, 1),
        "decoder.8.weight": (128, 256, 3, 3),
        "decoder.13.conv.weight": (256, 128, 1, 1),
        "decoder.19.conv.weight": (128, 64, 1, 1),
        "decoder.20.weight": (64, 64, 3, 3),
        "decoder.22.weight": (3, 64, 3, 3),
    }
    assert known.items() <= shapes.items() and len(shapes) == 64


def test_a_world_decodes_by_it_until_a_preset_says_otherwise(tmp_path):
    torch.manual_seed(1)
    world = save_part(save_world(tmp_path, SPEC), ShotDecoder(SPEC))
    decoder, latents = open_world(world.folder).load_decoder(), torch.randn(1, 5, 4, 8, 12)
    assert ModelSpec.from_dict(SPEC.to_dict()) == SPEC and decoder.fast
    quick = decoder.decode_latents(latents)
    assert torch.equal(quick[0], decoder.preview(latents)) and quick.shape == (1, 17, 3, 32, 48)
    decoder.fast = False
    assert not torch.equal(decoder.decode_latents(latents), quick)

    def suffix(preset: Preset) -> str:
        return with_preset(preset, PlaySettings(), world).precision_suffix

    assert "+full" in suffix(PRESETS["exact"]) and "fast" not in suffix(PRESETS["turbo"])


def test_widths_must_fit_the_vaes_levels():
    with pytest.raises(ValueError, match="3 levels"):
        replace(TINY.vae, tiny=(8, 8))
    with pytest.raises(ValueError, match="not fast"):
        replace(TINY.vae, fast=True)
