from dataclasses import replace

import pytest
import torch

from animegamer_core.checkpoint import open_world
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.sampler import Schedule
from animegamer_core.spec import PROFILES, SPECS, ModelSpec
from animegamer_core.toybox.drawing.draw import draw_shot
from animegamer_core.toybox.games import sample_game

TINY = SPECS["tiny"]


@pytest.fixture(scope="module")
def states():
    return torch.randn(2, TINY.state.tokens, TINY.state.width, generator=torch.Generator().manual_seed(0))


def copy_of(decoder, spec=TINY, profile=PROFILES["paper"]):
    copied = ShotDecoder(spec, profile).eval()
    copied.load_state_dict(decoder.state_dict())
    return copied


def test_a_shot_has_the_specs_size_and_is_repeatable(tiny_decoder, states):
    steps = []
    shot = tiny_decoder.shoot(states[0], 2.5, seed=7, on_step=lambda done, total, clean: steps.append((done, total)))
    assert shot.shape == (17, 3, 32, 48) and shot.dtype == torch.float32
    assert steps == [(step, 4) for step in range(1, 5)]
    assert torch.equal(shot, tiny_decoder.shoot(states[0], 2.5, seed=7))
    for other in (
        tiny_decoder.shoot(states[0], 2.5, seed=8),
        tiny_decoder.shoot(states[0], 3.5, seed=7),
        tiny_decoder.shoot(states[1], 2.5, seed=7),
        tiny_decoder.shoot(states[0], 2.5, seed=7, steps=3),
    ):
        assert not torch.equal(shot, other)
    assert tiny_decoder.shoot(states[0], 0.0, seed=7).isfinite().all(), "a motion value of exactly zero is legal"


def test_a_batch_gives_the_same_as_single_shots(tiny_decoder, states):
    together = tiny_decoder.sample(states, torch.tensor([1.0, 9.0]), [3, 4])
    for row in range(2):
        alone = tiny_decoder.sample(states[row : row + 1], torch.tensor([[1.0, 9.0][row]]), [3 + row])
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-5, rtol=1e-4)


def test_guidance_pulls_away_from_the_unconditional(tiny_decoder, states):
    plain = copy_of(tiny_decoder, replace(TINY, decoder=replace(TINY.decoder, guidance_scale=0.0)))
    guided, unguided = (d.sample(states[:1], torch.ones(1), [1], guidance="constant") for d in (tiny_decoder, plain))
    assert not torch.equal(guided, unguided)


@pytest.mark.parametrize("how, named", [({"steps": 0}, "steps is 0"), ({"guidance": ""}, "unknown guidance ''")])
def test_invalid_settings_do_not_become_the_default(tiny_decoder, states, how, named):
    with pytest.raises(ValueError, match=named):
        tiny_decoder.shoot(states[0], 1.0, seed=0, **how)
    with pytest.raises(ValueError, match=named):
        tiny_decoder.denoise(states[:1], torch.ones(1), lambda: torch.randn(1, *TINY.decoder.latent_shape), **how)


def test_a_world_may_guide_motion_too(tiny_decoder, states):
    """Then the unconditional half gets no motion value, and a world that does not keeps its spec as it was written."""
    motion = torch.tensor([2.0, 9.0])
    assert tiny_decoder.guided_motion(motion).tolist() == [2, 9, 2, 9]
    own = tiny_decoder.spec
    spec = replace(own, decoder=replace(own.decoder, guides_motion=True))
    other = ShotDecoder(spec)
    other.load_state_dict(tiny_decoder.state_dict())
    assert other.guided_motion(motion).tolist() == [0, 0, 2, 9]
    shots = [
        decoder.sample(states[:1], motion[1:], [3], steps=2, guidance="constant") for decoder in (tiny_decoder, other)
    ]
    assert not torch.allclose(*shots)
    assert "guides_motion" not in own.to_dict()["decoder"] and ModelSpec.from_dict(own.to_dict()) == own
    assert ModelSpec.from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize("name, released", [("as_run", True), ("reference", True), ("paper", False)])
def test_a_shot_takes_the_timesteps_of_its_profile(name, released, tiny_decoder, states):
    decoder = copy_of(tiny_decoder, profile=PROFILES[name])
    seen = []
    decoder.transformer.register_forward_pre_hook(
        lambda _, given, named: seen.append(int(named["timestep"][0])), with_kwargs=True
    )
    for guidance in (None, "constant"):  # another guidance leaves the profile's timesteps as they are
        seen.clear()
        decoder.sample(states[:1], torch.ones(1), [0], steps=99, guidance=guidance)
        assert seen[77] == 999 * 22 // 99 - released and seen[88] == 999 * 11 // 99 - released
        assert tuple(seen) == Schedule.of(99, released).timesteps == decoder.schedule(99).timesteps
    assert len(decoder.schedule()) == TINY.decoder.steps


def test_skipping_the_unconditional_pass_changes_little(tiny_decoder, states):
    exact = copy_of(tiny_decoder, profile=replace(PROFILES["paper"], skip_guidance_below=0.0))
    skipped, whole = (d.sample(states[:1], torch.ones(1), [1], steps=20) for d in (tiny_decoder, exact))
    assert not torch.equal(skipped, whole)
    assert (skipped - whole).pow(2).mean() < 0.01 * whole.pow(2).mean()


def test_decoding_is_three_latent_frames_and_then_two_and_encoding_their_mean_or_a_sample(tiny_decoder):
    latents = torch.randn(1, *TINY.decoder.latent_shape, generator=torch.Generator().manual_seed(1))
    frames = tiny_decoder.decode_latents(latents)
    head = tiny_decoder.decode_latents(latents[:, :3])
    torch.testing.assert_close(frames[:, :9], head, atol=1e-5, rtol=1e-4)
    assert frames.shape[1] == 17
    mean = tiny_decoder.encode_frames(frames)
    assert mean.shape == latents.shape and torch.equal(mean, tiny_decoder.encode_frames(frames))
    assert not torch.equal(mean, tiny_decoder.encode_frames(frames, torch.Generator().manual_seed(0)))


def test_a_state_of_another_world_is_refused(tiny_decoder):
    with pytest.raises(ValueError, match=r"\(9, 32\) does not fit"):
        tiny_decoder.shoot(torch.zeros(9, 32), 1.0, seed=0)


def test_a_preview_is_the_small_first_frame(tiny_decoder):
    latents = torch.randn(2, *tiny_decoder.spec.decoder.latent_shape, generator=torch.Generator().manual_seed(4))
    picture = tiny_decoder.preview(latents)
    decoder = tiny_decoder.spec.decoder
    assert picture.shape == (1, 3, decoder.height // 2, decoder.width // 2)
    other = torch.cat([latents[:1, :1], torch.randn_like(latents[:1, 1:])], dim=1)
    assert torch.equal(tiny_decoder.preview(other), picture), "it reads the first row's first latent frame only"
    assert not torch.allclose(tiny_decoder.preview(latents.flip(0)), picture)


def test_working_memory_grows_with_the_shot(tiny_decoder):
    toybox = ShotDecoder(SPECS["toybox"])
    assert 0 < tiny_decoder.working_bytes < toybox.working_bytes < 2**30


def test_tiled_decoding_changes_the_picture_slightly():
    """The VAE normalises each tile by itself; 36 dB were measured."""
    decoder = open_world("toybox").load_decoder("cpu", torch.float32)
    clip_FHWC = torch.from_numpy(draw_shot(sample_game(1).scenes[1]))
    frames = (clip_FHWC.float() / 127.5 - 1).permute(0, 3, 1, 2)[None]
    latents = decoder.encode_frames(frames)[:, :1]
    whole = decoder.decode_latents(latents)
    decoder.tiled = True
    tiled = decoder.decode_latents(latents)
    assert tiled.shape == whole.shape and not torch.equal(tiled, whole)
    assert 10 * torch.log10(4 / (tiled - whole).square().mean()) > 33
    assert not decoder.vae.use_tiling, "clips are encoded without tiles"
