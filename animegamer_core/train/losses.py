"""The formulas of training, as pure functions of tensors.

B batch, N state tokens, D state width, F frames, H height, W width.
`sqrt_alpha` is s = sqrt(alphas_cumprod) of a timestep: the weight of the clean latent in a noised one.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ..spec import TRAIN_STEPS


def timestep_band(rank: int, processes: int) -> tuple[int, int]:
    """(start, stop) of the timesteps that a process draws from (docs/reference.md, training: uniform sampling).

    There are as many equal bands as the largest number that divides both `processes` and the 1000 timesteps. We count
    each sample of a batch as a process, so that its band does not depend on the number of real processes.
    """
    per_band = next(i for i in range(1, processes + 1) if processes % i == 0 and TRAIN_STEPS % (processes // i) == 0)
    width = TRAIN_STEPS // (processes // per_band)
    band = rank // per_band
    return band * width, (band + 1) * width


def noised(clean: Tensor, noise: Tensor, sqrt_alpha: Tensor) -> Tensor:
    """s x0 + sqrt(1 - s^2) eps."""
    return sqrt_alpha * clean + (1 - sqrt_alpha**2).sqrt() * noise


def clean_of(velocity: Tensor, latents: Tensor, sqrt_alpha: Tensor) -> Tensor:
    """x0 = s x - sqrt(1 - s^2) v: the clean latent that a velocity at a noised one means."""
    return sqrt_alpha * latents - (1 - sqrt_alpha**2).sqrt() * velocity


def noise_of(latents: Tensor, clean: Tensor, sqrt_alpha: Tensor) -> Tensor:
    """eps = (x - s x0) / sqrt(1 - s^2): the noise with which a clean latent becomes these latents."""
    return (latents - sqrt_alpha * clean) / (1 - sqrt_alpha**2).sqrt()


def velocity_target(clean: Tensor, noise: Tensor, sqrt_alpha: Tensor) -> Tensor:
    """v = s eps - sqrt(1 - s^2) x0. Its squared error is the released loss on x0 weighted by 1/(1 - s^2)."""
    return sqrt_alpha * noise - (1 - sqrt_alpha**2).sqrt() * clean


def edge_error(got: Tensor, wanted: Tensor, scales: int = 1) -> Tensor:
    """Mean absolute error of the differences between neighbouring pixels, along height and width (the last two).

    scales: sum over this many sizes, full, half, quarter ...; each picture is the 2 x 2 mean of the one before.
    """
    error, total = (got - wanted).flatten(0, -3), got.new_zeros(())
    for scale in range(scales):
        error = F.avg_pool2d(error, 2) if scale else error  # linear, so the error can be pooled
        total = total + error.diff(dim=-1).abs().mean() + error.diff(dim=-2).abs().mean()
    return total


def motion_error(got_BCFHW: Tensor, wanted_BCFHW: Tensor) -> Tensor:
    """Mean absolute error of the differences between consecutive frames; 0 for clips of one frame."""
    if got_BCFHW.shape[2] == 1:
        return got_BCFHW.new_zeros(())
    return (got_BCFHW - wanted_BCFHW).diff(dim=2).abs().mean()


def moving_weight(clip_BCFHW: Tensor, factor: float, least: float = 0.06, around: int = 3) -> Tensor:
    """(B, 1, F, H, W), or one value if factor is 1: the weight of each pixel, 1 on average.

    Pixels that differ from the frame before by `least` or more, and those up to `around` pixels away, weigh `factor`
    times as much as the rest.
    """
    if factor == 1:
        return clip_BCFHW.new_ones(1, 1, 1, 1, 1)
    moved = (clip_BCFHW.diff(dim=2).abs().amax(1, keepdim=True) > least).float()
    grown = F.max_pool3d(F.pad(moved, (0, 0, 0, 0, 1, 0)), (1, 2 * around + 1, 2 * around + 1), 1, (0, around, around))
    weight = 1 + (factor - 1) * grown
    return weight / weight.mean()


def divergence(mean: Tensor, logvar: Tensor) -> Tensor:
    """Mean KL divergence of a latent's Gaussian from the standard normal distribution, per value."""
    return 0.5 * (mean**2 + logvar.exp() - 1 - logvar).mean()


def contrastive(text_BD: Tensor, image_BD: Tensor, scale: Tensor, captions_B: Tensor) -> Tensor:
    """Symmetric InfoNCE between unit vectors; samples with the same caption number match each other."""
    logits = scale * text_BD @ image_BD.T
    same = (captions_B[:, None] == captions_B[None, :]).float()
    wanted = same / same.sum(1, keepdim=True)
    return (F.cross_entropy(logits, wanted) + F.cross_entropy(logits.T, wanted)) / 2


def cosine_error(got_BND: Tensor, wanted_BND: Tensor) -> Tensor:
    """1 - the mean cosine between corresponding tokens of representations."""
    return 1 - F.cosine_similarity(got_BND.float(), wanted_BND.float(), dim=-1).mean()
