import math

import numpy
import pytest
import torch
from diffusers import CogVideoXDDIMScheduler
from hypothesis import given
from hypothesis import strategies as st

from animegamer_core.model import sampler
from animegamer_core.model.sampler import Guidance, Schedule, guidance_scale, solve, train_table


@given(st.integers(1, 1000), st.booleans())
def test_any_number_of_steps_falls_from_noise_to_clean(steps, released):
    schedule = Schedule.of(steps, released)
    assert len(schedule) == steps == len(schedule.snapped_sqrt_alphas)
    assert schedule.timesteps[0] == 999 and list(schedule.timesteps) == sorted(set(schedule.timesteps), reverse=True)
    assert schedule.sqrt_alphas[0] == 0 and schedule.sqrt_alphas[-1] == 1 and (schedule.sqrt_alphas.diff() > 0).all()
    assert torch.isin(schedule.snapped_sqrt_alphas, train_table()).all()
    assert (schedule.snapped_sqrt_alphas - schedule.sqrt_alphas[:-1]).abs().max() < 0.001


def test_given_timesteps_are_sampled_with_the_numbers_of_diffusers():
    """Diffusers' DDIM steps by equal distances only, so it gets a table that holds only these timesteps."""
    timesteps, noise = (999, 856, 665, 399), torch.randn(1, 2, 3, 4, 5, generator=torch.Generator().manual_seed(0))

    def velocity(latents, timestep, skip_uncond):
        return torch.sin(latents) * timestep / 500

    theirs = CogVideoXDDIMScheduler(**sampler.STOCK_SCHEDULER)
    theirs.alphas_cumprod = theirs.alphas_cumprod[list(timesteps[::-1])]
    theirs.register_to_config(num_train_timesteps=4)
    theirs.set_timesteps(4)
    expected = noise
    for index, timestep in zip(theirs.timesteps, timesteps, strict=True):
        expected = theirs.step(velocity(expected, timestep, True), int(index), expected).prev_sample
    assert (schedule := Schedule.of(timesteps)).timesteps == timesteps
    ours = solve(velocity, noise, schedule, Guidance("distilled"), pytest.fail, solver="ddim")
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    assert sampler.partial_steps(timesteps, 1) == (timesteps, 0) and sampler.partial_steps(8, 0.3) == (26, 18)
    begun, nearly = (sampler.partial_steps(timesteps, part)[0] for part in (0.6, 0.01))
    assert begun == (599, *(step for step in timesteps if step < 599)) and nearly[0] == 10
    assert sampler.partial_steps((800, 550, 300), 0.9) == ((720, 550, 300), 0), "a part of its own beginning"
    noised = Schedule.of(50, first=30).noised(torch.tensor(2.0), torch.tensor(3.0))
    assert noised == pytest.approx(2 * 0.423072 + 3 * math.sqrt(1 - 0.423072**2), abs=1e-5)


def test_the_released_timesteps_are_those_of_numpy():
    differing = []
    for steps in range(1, 1001):
        even, released = sampler._even_timesteps(steps), sampler._released_timesteps(steps)
        assert released[::-1] == numpy.linspace(999, 0, steps, endpoint=False).astype(int).tolist()
        assert {ours - theirs for ours, theirs in zip(even, released, strict=True)} <= {0, 1}
        assert even == [999 * count // steps for count in range(1, steps + 1)]
        if even != released:
            differing.append(steps)
    assert len(differing) == 34 and differing[0] == 99


def test_cosine_guidance_falls_and_constant_stays():
    schedule = Schedule.of(20)
    cosine = [guidance_scale("cosine", 6.0, step, schedule) for step in range(20)]
    assert cosine[0] == 7 and all(a >= b >= 1 for a, b in zip(cosine, cosine[1:], strict=False))
    assert {guidance_scale("constant", 2.0, step, schedule) for step in range(20)} == {3.0}
    assert sampler.scale_at("cosine", 6.0, torch.tensor([0, 999])).tolist() == [1, 7]


def gaussian_velocity(std, calls=None):
    """The exact velocity for clean data from N(0, std^2), as from a perfect network."""

    def velocity(latents, timestep, skip_uncond):
        sqrt_alpha = train_table()[timestep].item()
        sigma = math.sqrt(1 - sqrt_alpha**2)
        clean = latents * sqrt_alpha * std**2 / (sqrt_alpha**2 * std**2 + sigma**2)
        noise = (latents - sqrt_alpha * clean) / sigma if sigma else torch.zeros_like(latents)
        answer = sqrt_alpha * noise - sigma * clean
        if calls is not None:
            calls.append(skip_uncond)
        return answer if skip_uncond else torch.cat([answer, answer])

    return velocity


@pytest.mark.parametrize("steps", [10, 25, 30, 50])
def test_the_solver_samples_the_distribution_of_the_data(steps):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn((1, 1, 1, 100, 100), generator=generator)
    draw = lambda: torch.randn(noise.shape, generator=generator)  # noqa: E731
    latents = solve(gaussian_velocity(2.0), noise, Schedule.of(steps), Guidance("constant", 0.0), draw)
    assert latents.std().item() == pytest.approx(2.0, rel=0.15) and abs(latents.mean().item()) < 0.1


def test_weak_guidance_is_skipped_and_steps_are_reported():
    calls, seen = [], []
    noise, border = torch.ones(1, 1, 1, 2, 2), guidance_scale("cosine", 6.0, 12, Schedule.of(20))
    given = gaussian_velocity(1.0, calls), noise, Schedule.of(20), Guidance("cosine", 6.0, skip_below=border)
    solve(*given, lambda: torch.zeros_like(noise), lambda done, total, clean: seen.append((done, total, clean.shape)))
    weak = [guidance_scale("cosine", 6.0, step, Schedule.of(20)) < border for step in range(20)]
    assert calls == weak and weak.index(True) == 13 and seen == [(step, 20, noise.shape) for step in range(1, 21)]


@pytest.mark.parametrize("name", ["constant", "cosine", "reference_wave"])
def test_guidance_of_strength_0_needs_one_pass_and_changes_nothing(name):
    calls, noise = [], torch.randn(1, 1, 1, 2, 2)
    shots = [
        solve(gaussian_velocity(1.0, calls), noise, Schedule.of(5), guidance, lambda: torch.zeros_like(noise))
        for guidance in (Guidance(name, 0.0), Guidance("distilled"))
    ]
    assert calls == [True] * 10 and torch.equal(*shots)
