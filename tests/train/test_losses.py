"""Losses against values that were worked out in another way."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from animegamer_core.train.losses import divergence, edge_error, motion_error


def test_divergence_is_the_one_of_two_gaussians():
    torch.manual_seed(0)
    mean, logvar = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    wanted = kl_divergence(Normal(mean, (logvar / 2).exp()), Normal(0.0, 1.0)).mean()
    torch.testing.assert_close(divergence(mean, logvar), wanted)
    assert divergence(torch.zeros(5), torch.zeros(5)) == 0


def test_edge_error_sees_what_a_shift_in_brightness_does_not_change():
    wanted = torch.zeros(1, 1, 1, 4, 4)
    got = wanted.clone()
    got[..., 2:] = 1.0  # one edge along each of 4 rows, between the 3 pairs of its pixels
    assert edge_error(got, wanted) == pytest.approx(4 / 12)
    assert edge_error(got + 0.5, wanted) == edge_error(got, wanted) and edge_error(wanted + 1, wanted) == 0


def test_motion_error_sees_what_moves_alone():
    wanted = torch.zeros(1, 1, 3, 2, 2)
    got = wanted.clone()
    got[:, :, 2] = 1.0
    assert motion_error(got, wanted) == 0.5 and motion_error(wanted + 1, wanted) == 0
    assert motion_error(got[:, :, 2:], wanted[:, :, 2:]) == 0, "one frame does not move"
