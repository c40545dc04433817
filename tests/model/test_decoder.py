from dataclasses import replace
from unittest import mock

import pytest
import torch

from animegamer_core.game.state import GameState, Turn
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.latents import shot_clip, start_latent
from animegamer_core.model.sampler import Schedule, train_table
from animegamer_core.spec import PROFILES, SPECS, ModelSpec
from animegamer_core.story.turn import ShotKey, draw_turn
from animegamer_core.toybox.drawing.draw import draw_shot
from animegamer_core.toybox.games import sample_game
from animegamer_core.weights import open_world

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
    for state, motion, seed, count in ((0, 2.5, 8, 4), (0, 3.5, 7, 4), (1, 2.5, 7, 4), (0, 2.5, 7, 3)):
        assert not torch.equal(shot, tiny_decoder.shoot(states[state], motion, seed=seed, steps=count))
    assert not torch.equal(shot, tiny_decoder.shoot(states[0], 2.5, seed=7, solver="ddim"))
    assert tiny_decoder.shoot(states[0], 0.0, seed=7).isfinite().all(), "a motion value of exactly zero is legal"
    taught = copy_of(tiny_decoder, replace(TINY, decoder=replace(TINY.decoder, steps=(999, 400))))
    assert torch.equal(*(taught.shoot(states[0], 2.5, seed=7, solver=own) for own in (None, "ddim")))


def test_a_batch_gives_the_same_as_single_shots(tiny_decoder, states):
    together = tiny_decoder.sample(states, torch.tensor([1.0, 9.0]), [3, 4])
    for row in range(2):
        alone = tiny_decoder.sample(states[row : row + 1], torch.tensor([[1.0, 9.0][row]]), [3 + row])
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("steps", [0, 1001])
def test_invalid_settings_do_not_become_the_default(tiny_decoder, states, steps):
    with pytest.raises(ValueError, match=f"steps is {steps}"):
        tiny_decoder.shoot(states[0], 1.0, seed=0, steps=steps)


def test_a_transformer_may_predict_the_clean_latent(tiny_decoder, states):
    """Then the last step gives its output, and the velocity is the one of that clean latent."""
    spec = replace(TINY, decoder=replace(TINY.decoder, predicts_clean=True))
    own = tiny_decoder.spec
    assert "predicts_clean" not in own.to_dict()["decoder"] and ModelSpec.from_dict(own.to_dict()) == own
    assert ModelSpec.from_dict(spec.to_dict()) == spec
    other, motion = copy_of(tiny_decoder, spec), torch.tensor([2.0])
    noise = torch.randn(1, *spec.decoder.latent_shape, generator=torch.Generator().manual_seed(3))
    output = other.transformer(noise, states[:1], torch.tensor([999]), ofs=motion, return_dict=False)[0]
    assert torch.allclose(other.sample(states[:1], motion, [3], steps=1, guidance="distilled"), output, atol=1e-5)
    clean = noise.roll(1, 2)
    with mock.patch.object(other.transformer, "forward", return_value=(clean,)):
        velocity = other.velocity(0.6 * clean + 0.8 * noise, at := torch.tensor([300]), states[:1], motion)
        drawn = other.sample(states[:1], motion, [3], steps=4, guidance="distilled")
    assert torch.allclose(drawn, clean, atol=1e-5), "no noise is left in it"
    scale = train_table()[at]
    assert torch.allclose(scale * (0.6 * clean + 0.8 * noise) - (1 - scale**2).sqrt() * velocity, clean, atol=1e-5)


def test_convolutions_refine_what_the_transformer_predicts(states):
    """Not at first; once trained, each latent by those near it and in the frames beside it."""
    spec = replace(TINY, decoder=replace(TINY.decoder, refiner=8, frames=17))
    assert ModelSpec.from_dict(spec.to_dict()) == spec and "refiner" not in TINY.to_dict()["decoder"]
    decoder = ShotDecoder(spec).eval()
    transformer = decoder.transformer
    refiner, channels = transformer.refiner, spec.decoder.vae.latent_channels
    noise = torch.randn(2, *spec.decoder.latent_shape, generator=torch.Generator().manual_seed(0))
    given = {"encoder_hidden_states": states[:2], "timestep": torch.tensor([999, 10]), "ofs": torch.ones(2)}
    plain = super(type(transformer), transformer).forward(noise, **given, return_dict=False)[0]
    assert plain.shape[2] == 3 * channels
    assert torch.equal(transformer(noise, **given, return_dict=False)[0], plain[:, :, :channels])

    with torch.no_grad():
        refiner.write.weight.normal_(generator=torch.Generator().manual_seed(1))
    assert not torch.equal(transformer(noise, **given)[0], plain[:, :, :channels])
    for widths, frames in ((2, 5), (1, 3)):  # five frames through four blocks; without those after it, three
        for block in refiner.blocks:
            block.around.weight.data[8 * widths :] = 0
        near = plain.detach().requires_grad_()
        refiner(noise, near)[0, 2, 0, 2, 3].backward()
        read = near.grad.abs().sum(dim=(2, 3, 4)) > 0
        assert read[0].tolist() == [at < frames for at in range(5)] and not read[1].any(), "no other row's"


@pytest.mark.parametrize("name, released", [("as_run", True), ("reference", True), ("paper", False)])
def test_a_shot_takes_the_timesteps_of_its_profile(name, released, tiny_decoder, states):
    decoder = copy_of(tiny_decoder, profile=PROFILES[name])
    seen = []

    def note(_, given, named):
        seen.append(int(named["timestep"][0]))
        *without, conditioned = named["encoder_hidden_states"]
        assert named["ofs"].tolist() == [1.0] * len(named["timestep"]), "without guidance's condition, the same motion"
        assert torch.equal(conditioned, states[0])
        assert all(torch.equal(read, decoder.unconditional_ND) for read in without)

    decoder.transformer.register_forward_pre_hook(note, with_kwargs=True)
    for guidance in (None, "constant"):  # another guidance leaves the profile's timesteps as they are
        seen.clear()
        decoder.sample(states[:1], torch.ones(1), [0], steps=99, guidance=guidance)
        assert seen[77] == 999 * 22 // 99 - released and seen[88] == 999 * 11 // 99 - released
        assert tuple(seen) == Schedule.of(99, released).timesteps


def test_decoding_is_three_latent_frames_and_then_two_and_encoding_their_mean(tiny_decoder):
    latents = torch.randn(1, *TINY.decoder.latent_shape, generator=torch.Generator().manual_seed(1))
    frames = tiny_decoder.decode_latents(latents)
    torch.testing.assert_close(frames[:, :9], tiny_decoder.decode_latents(latents[:, :3]), atol=1e-5, rtol=1e-4)
    assert frames.shape[1] == 17
    mean = tiny_decoder.encode_frames(frames)
    at_once = tiny_decoder.vae.encoder(frames.transpose(1, 2))[0].chunk(2, dim=1)[0].transpose(1, 2)
    torch.testing.assert_close(mean, at_once * tiny_decoder.vae.config.scaling_factor)


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


def test_a_shot_in_bfloat16_looks_like_one_in_float32():
    """43 dB; with oneDNN's own convolution of patches, 17 dB on a CPU with AMX."""
    world = open_world("toybox")
    state = world.load_engine("cpu", torch.float32).predict((), "Miko gently waves hello on the beach by day.")
    shots = [
        world.load_decoder("cpu", dtype).shoot(state.representation, 1.5, seed=0)
        for dtype in (torch.float32, torch.bfloat16)
    ]
    assert 10 * torch.log10(4 / (shots[0] - shots[1]).square().mean()) > 35


def test_tiled_decoding_changes_the_picture_slightly():
    """The VAE normalises each tile by itself; 36 dB were measured."""
    decoder = open_world("toybox").load_decoder("cpu", torch.float32)
    decoder.fast = False
    clip_FHWC = torch.from_numpy(draw_shot(sample_game(1).scenes[1]))
    frames = (clip_FHWC.float() / 127.5 - 1).permute(0, 3, 1, 2)[None]
    latents = decoder.encode_frames(frames)[:, :1]
    whole = decoder.decode_latents(latents)
    decoder.tiled = True
    tiled = decoder.decode_latents(latents)
    assert tiled.shape == whole.shape and not torch.equal(tiled, whole)
    assert 10 * torch.log10(4 / (tiled - whole).square().mean()) > 33
    assert not decoder.vae.use_tiling, "clips are encoded without tiles"
    assert (decoder.vae.tile_sample_min_height, decoder.vae.tile_sample_min_width) == (96, 120), "3 x 3 of 192 x 288"


def start_of(latent, denoise):
    return start_latent(latent, denoise, TINY.decoder)


def test_a_shots_latent_decodes_to_the_shot_and_may_begin_another_one(tiny_decoder, states):
    turn = Turn(1, "run", 7, GameState(states[0], 3), {})
    key = ShotKey("", "", 7, 2.5, 4, "cosine", "float32")
    latent = draw_turn(tiny_decoder, turn, key)
    frames, channels, height, width = TINY.decoder.latent_shape
    assert latent.shape == (1, channels, frames, height, width) and latent.dtype == torch.float32
    assert torch.equal(tiny_decoder.decode_vae(latent.clone())[0], tiny_decoder.shoot(states[0], 2.5, seed=7))
    other = torch.randn(latent.shape, generator=torch.Generator().manual_seed(5))

    def drawn(denoise, begin=other, **changes):
        steps, start = [], start_of(begin, denoise)
        digest = "" if start is None else start.digest
        begun = replace(key, latent=digest, denoise=denoise, **changes)
        found = draw_turn(tiny_decoder, turn, begun, lambda *step: steps.append(step[:2]), start)
        assert denoise == 0 or steps[-1][0] == steps[-1][1] == len(steps)
        return found, len(steps)

    kept, steps = drawn(0.0)
    assert torch.equal(kept, other) and steps == 0, "denoise 0 keeps the latent"
    assert start_of(other, 0.95) is not None and start_of(other, 1) is None, "only denoise 1 keeps nothing"
    new, steps = drawn(1.0)
    assert torch.equal(new, latent) and steps == 4, "denoise 1 is the shot without a latent"
    parts = [drawn(denoise) for denoise in (0.1, 0.5, 0.9)]
    assert [steps for _, steps in parts] == [4, 4, 4], "as in KSampler, all steps are made"
    assert torch.equal(drawn(0.5)[0], parts[1][0]) and not torch.equal(drawn(0.5, latent)[0], parts[1][0])
    assert drawn(0.0004, steps=20)[1] == 1, "a schedule has 1000 steps at most"


def test_an_encoded_clip_is_a_latent_of_the_same_shape(tiny_decoder, states):
    generator = torch.Generator().manual_seed(1)
    clip = torch.rand(20, 3, 32, 48, generator=generator) * 2 - 1
    whole = shot_clip(clip, TINY.decoder)
    assert torch.equal(whole, clip[:17]) and torch.equal(shot_clip(whole, TINY.decoder), whole), "nothing is resized"
    latent = tiny_decoder.encode_vae(whole[None])
    frames, channels, height, width = TINY.decoder.latent_shape
    assert latent.shape == (1, channels, frames, height, width)
    scaled = copy_of(tiny_decoder)
    scaled.vae.register_to_config(scaling_factor=0.7)
    clean = scaled.encode_frames(whole[None])
    torch.testing.assert_close(clean, 0.7 * latent.permute(0, 2, 1, 3, 4))
    torch.testing.assert_close(scaled.to_vae(clean), latent)
    motion, begins = torch.tensor([2.0]), ((scaled, latent), (tiny_decoder, 0.7 * latent))
    begun = [one.sample(states[:1], motion, [7], steps=4, start=start_of(begin, 0.5)) for one, begin in begins]
    torch.testing.assert_close(*begun)
    held = shot_clip(torch.rand(1, 3, 20, 18).round() * 2 - 1, TINY.decoder)
    assert held.shape == (17, 3, 32, 48) and torch.equal(held[0], held[16]) and held.abs().max() <= 1
    grain = torch.rand(1, 3, 128, 192).round() * 2 - 1
    assert shot_clip(grain, TINY.decoder).std() < 0.5, "what is too fine for a shot becomes its mean"
    with pytest.raises(ValueError, match="the clip has 16 frames; give one picture, or at least the 17"):
        shot_clip(clip[:16], TINY.decoder)


def test_a_latent_of_another_model_is_refused():
    picture, endless = torch.zeros(1, 4, 64, 64), torch.zeros(1, 4, 5, 8, 12)
    endless[0, 0, 4, 7, 11] = torch.inf
    for latent, named in ((picture, r"has shape \(1, 4, 64, 64\)"), (endless, "not finite"), (None, "shape NoneType")):
        with pytest.raises(ValueError, match=named):
            start_of(latent, 0.5)
    with pytest.raises(ValueError, match="denoise is -0.1"):
        start_of(torch.zeros(1), -0.1)
