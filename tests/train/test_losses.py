"""Losses, learning rates and the order of samples, against values that were worked out in another way."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from animegamer_core.data.records import GameRecord
from animegamer_core.model.sampler import sqrt_alpha_cumprod
from animegamer_core.spec import SPECS
from animegamer_core.train.learners import ContrastiveHeads, DiffusionLearner, rebuilding_losses
from animegamer_core.train.losses import (
    contrastive,
    divergence,
    edge_error,
    motion_error,
    moving_weight,
    timestep_band,
    velocity_target,
)
from animegamer_core.train.muon import RMS, Muon, orthogonal
from animegamer_core.train.sampling import ClipSampler, MicroBatch, WindowSampler
from animegamer_core.train.stages import stage_config


@pytest.mark.parametrize("predicts_clean, least", [(False, 0.0), (True, 0.04)])
def test_velocity_loss_is_the_released_weighted_loss_on_clean_latents(predicts_clean, least):
    numbers = torch.Generator().manual_seed(0)
    clean, noise, velocity = (torch.randn(3, 5, 4, 4, 6, generator=numbers, dtype=torch.float64) for _ in range(3))
    timesteps = torch.tensor([0, 400, 999])
    share = sqrt_alpha_cumprod(timesteps, clean).double()
    latents = share * clean + (1 - share**2).sqrt() * noise
    predicted = share * latents - (1 - share**2).sqrt() * velocity
    weighted = ((predicted - clean) ** 2 / (1 - share**2).clamp(min=least)).mean()
    spec = replace(SPECS["tiny"], decoder=replace(SPECS["tiny"].decoder, predicts_clean=predicts_clean))
    decoder = SimpleNamespace(spec=spec, velocity=lambda *given: velocity.float())
    given = {"clean": clean.float(), "noise": noise.float(), "timesteps": timesteps}
    given |= {"drawn": 0, "states": None, "motion": None}
    ours = DiffusionLearner(stage_config("adapt"), decoder, None)(given)["loss"]
    assert weighted.item() == pytest.approx(ours.item(), rel=1e-4)
    spot = torch.zeros(3, 5, 4, 4, 6)
    spot[:, 2, :, 0, 0] = 2
    weight = moving_weight(spot.transpose(1, 2), 3.0, 1.0, around=1).transpose(1, 2)
    error = weight * (velocity - velocity_target(spot, noise, share)) ** 2
    moving = DiffusionLearner(replace(stage_config("adapt"), moving=3.0), decoder, None)(given | {"clean": spot})
    assert predicts_clean or moving["loss"].item() == pytest.approx(error.mean().item(), rel=1e-4)
    exact = ((velocity - velocity_target(clean, noise, share)) ** 2).mean()
    assert predicts_clean or weighted.item() == pytest.approx(exact.item(), rel=1e-9)


def test_the_losses_of_pictures_by_hand():
    mean, logvar = torch.tensor([0.5, -3.0]), torch.tensor([0.2, -1.0])
    known = torch.distributions.Normal(mean, (logvar / 2).exp())
    prior = torch.distributions.Normal(0.0, 1.0)
    assert divergence(mean, logvar) == pytest.approx(torch.distributions.kl_divergence(known, prior).mean().item())
    columns = torch.tensor([0.0, 1.0, 0.0, 1.0]).expand(1, 3, 2, 4, 4)  # whose 2 x 2 means are all the same
    for lines in (columns, columns.mT):
        assert [edge_error(lines, 0 * lines, scales).item() for scales in (1, 2)] == [1, 1]
    moving = torch.tensor([0.0, 3.0])[:, None, None] * torch.ones(1, 3, 2, 4, 4)
    assert motion_error(moving, 0 * moving) == 3 and motion_error(moving[:, :, :1], moving[:, :, 1:]) == 0
    weighed = rebuilding_losses(moving, 0 * moving, torch.full((1, 1, 1, 1, 1), 4.0), stage_config("vae"))
    assert weighed["mse"].item() == 4 * 4.5 and weighed["l1"].item() == 4 * 1.5
    assert weighed["psnr"] == pytest.approx(-0.51, abs=0.01), "white for black is 0 dB"
    spot = torch.zeros(1, 3, 2, 9, 9)
    spot[..., 1, 4, 4] = -1
    weight = moving_weight(spot, 3.0, around=1)[0, 0]
    assert weight.mean() == pytest.approx(1) and weight[1, 3, 3] == pytest.approx(3 * weight[1, 2, 3].item())


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_muon_by_hand(shape):
    start, *gradients = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    expected, moment, own = start, torch.zeros(shape), torch.nn.Parameter(start.clone())
    muon = Muon([{"params": [own]}], lr=0.1, weight_decay=0.5)
    for gradient in gradients:
        moment, own.grad = 0.95 * moment + 0.05 * gradient, gradient
        update = orthogonal((0.05 * gradient + 0.95 * moment)[None])[0]
        expected = expected * 0.95 - 0.1 * RMS * 6**0.5 * update
        muon.step()
    torch.testing.assert_close(own.data, expected)


@pytest.mark.parametrize(("processes", "bands", "sharing"), [(1, 1, 1), (24, 8, 3), (7, 1, 7)])
def test_timestep_bands(processes, bands, sharing):
    got = [timestep_band(rank, processes) for rank in range(processes)]
    assert len(set(got)) == bands and got[0][0] == 0 and got[-1][1] == 1000
    assert all(got[rank] == got[rank // sharing * sharing] for rank in range(processes))


def test_contrastive_loss_knows_equal_captions():
    unit = torch.eye(3)[[0, 0, 1]]
    same = contrastive(unit, unit, torch.tensor(100.0), torch.tensor([7, 7, 9]))
    different = contrastive(unit, unit, torch.tensor(100.0), torch.tensor([7, 8, 9]))
    pairs = (unit, torch.eye(3)), (torch.eye(3), unit)  # text and image count alike
    crossed = [contrastive(*pair, torch.tensor(100.0), torch.tensor([7, 7, 9])).item() for pair in pairs]
    assert crossed[0] == pytest.approx(crossed[1])
    assert same < 0.7 and different.item() == pytest.approx(same.item(), abs=1e-4)
    assert contrastive(unit, unit.roll(1, 0), torch.tensor(100.0), torch.tensor([7, 7, 9])) > 10
    heads, texts, valid = ContrastiveHeads(3, 3, 2), torch.rand(2, 5, 3), torch.arange(5).expand(2, 5) < 3
    whole, cut = (heads.embed(texts[:, :end], valid[:, :end], texts)[0] for end in (5, 3))
    torch.testing.assert_close(whole, cut)


def test_every_clip_is_read_once_a_round():
    order = ClipSampler(range(10, 17), 3, seed=1)
    read = torch.cat([order.batch(step) for step in range(7)]).tolist()
    assert sorted(read) == sorted([*range(10, 17)] * 3) and read[:7] != read[7:14] != read[14:]
    assert ClipSampler(range(10, 17), 3, seed=1).batch(5).tolist() == read[15:18]
    parts = [MicroBatch(0, rank, 2, index, 3).rows(torch.arange(12)) for rank in range(2) for index in range(3)]
    assert torch.cat(parts).tolist() == [*range(12)], "each process takes successive samples"
    assert torch.cat([ClipSampler(range(10, 17), 3, seed=2).batch(step) for step in range(7)]).tolist() != read


def test_windows_are_successive_turns_of_all_lengths():
    games = [GameRecord("a", (3, 1, 4)), GameRecord("b", (9, 2, 6, 5, 8, 7))]
    order = WindowSampler(games, window=4, batch=16, seed=0)
    batches = [order.batch(step) for step in range(10)]
    assert sorted(batch.shape[1] for batch in batches) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    whole = ["-3-1-4-", "-9-2-6-5-8-7-"]
    for run_ in torch.cat([batch for batch in batches if batch.shape[1] == 3]).tolist():
        assert any(f"-{'-'.join(map(str, run_))}-" in game for game in whole)


def test_windows_may_begin_with_earlier_turns_of_the_same_game():
    clips = (9, 2, 6, 5, 8, 7, 0, 1)
    order = WindowSampler([GameRecord("b", clips)], window=4, batch=64, seed=0, recall=0.5)
    gaps = []
    for run_ in itertools.chain.from_iterable(order.batch(step).tolist() for step in range(10)):
        turns = [clips.index(clip) for clip in run_]
        assert turns == sorted(set(turns)) and turns[-2:] in ([turns[-1] - 1, turns[-1]], [turns[-1]])
        gaps.append(sum(later - turn > 1 for turn, later in itertools.pairwise(turns)))
    assert {0, 1, 2} == set(gaps) and 0.1 < sum(map(bool, gaps)) / len(gaps) < 0.5
