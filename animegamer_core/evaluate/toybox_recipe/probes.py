"""Trains the probes, checks them on held-out true clips, and trains a control that must be at chance.

B or M clips, F frames, T frames that the probes read, C channels, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor

from ...toybox.probes import (
    FRAME_STRIDE,
    ChanceCheck,
    ProbeNet,
    chance_checks,
    noise_check,
    recognise,
    save_probes,
)
from ...toybox.scenes import HEADS, Labels, draw_labelled

LEARNING_RATE, WEIGHT_DECAY, SMOOTHING = 3e-3, 0.01, 0.02
BATCH = 128

OnLoss = Callable[[int, int, dict[str, float]], None]  # steps done, steps in all, the loss by name


@dataclass(frozen=True)
class ProbeRecipe:
    """How many true clips probes are trained on and checked with, and for how many steps.

    control_steps: steps of the control network, which is trained on shuffled labels and must be at chance.
    """

    clips: int = 6000
    held_out: int = 500
    steps: int = 2500
    control_steps: int = 500
    seed: int = 0


def train_probes(
    frames_u8: Tensor,
    labels: Labels,
    steps: int,
    device: torch.device | str,
    seed: int = 0,
    on_loss: OnLoss | None = None,
) -> ProbeNet:
    """Train probes on true clips frames_u8 (M, 17, H, W, 3), which are kept on `device` during training.

    Each of the `steps` batches has at most 128 augmented clips. Returns the network in eval mode on `device`.
    """
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    net = ProbeNet().to(device).train()
    clips = frames_u8[:, ::FRAME_STRIDE].to(device)
    truth = {name: torch.as_tensor(classes, device=device) for name, classes in labels.items()}
    optimizer = torch.optim.AdamW(net.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=max(2, steps), pct_start=0.15)
    for step in range(steps):
        rows = torch.randint(len(clips), (min(BATCH, len(clips)),), generator=draw).to(device)
        seen = _degraded(clips[rows], draw)
        with torch.autocast(seen.device.type, torch.bfloat16, enabled=seen.is_cuda):
            logits = net.read(seen)
        losses = [F.cross_entropy(logits[name].float(), truth[name][rows], label_smoothing=SMOOTHING) for name in HEADS]
        loss = torch.stack(losses).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        rates.step()
        if on_loss is not None and (step % 20 == 0 or step == steps - 1):
            on_loss(step + 1, steps, {"loss": loss.item()})
    return net.eval()


def _degraded(clips_BTHWC: Tensor, draw: torch.Generator) -> Tensor:
    """The clips as floats (B, T, 3, H, W), with the flaws of a decoder: blurred, noisy, relit, shifted."""
    batch, device = len(clips_BTHWC), clips_BTHWC.device
    soft, slow, noise, light, contrast = torch.rand(5, batch, 1, 1, 1, 1, generator=draw).to(device).unbind(0)
    clips = rearrange(clips_BTHWC, "b t h w c -> b t c h w").float() / 255
    factor = int(torch.randint(2, 4, (1,), generator=draw))
    small = F.avg_pool2d(clips.flatten(0, 1), factor)
    blurred = F.interpolate(small, clips.shape[-2:], mode="bilinear", align_corners=False)
    clips = torch.lerp(clips, blurred.unflatten(0, clips.shape[:2]), soft**2)
    neighbours = (clips.roll(1, 1) + clips.roll(-1, 1)) / 2
    neighbours = torch.cat([clips[:, :1], neighbours[:, 1:-1], clips[:, -1:]], dim=1)
    clips = torch.lerp(clips, neighbours, 0.3 * slow)
    clips = clips.roll([int(shift) for shift in torch.randint(-3, 4, (2,), generator=draw)], (3, 4))
    relit = (clips - 0.5) * (0.9 + 0.2 * contrast) + 0.5 + 0.1 * (light - 0.5)
    return relit + 0.06 * noise * torch.randn_like(clips)


def shuffled_check(
    frames_u8: Tensor,
    labels: Labels,
    held_out: tuple[NDArray[np.uint8], Labels],
    steps: int,
    device: torch.device | str,
    seed: int = 0,
) -> dict[str, ChanceCheck]:
    """Check probes that were trained on shuffled labels: on held-out clips, their accuracy must be at chance."""
    draw = np.random.default_rng(seed)
    shuffled = {name: draw.permutation(classes) for name, classes in labels.items()}
    clips, truth = held_out
    return chance_checks(recognise(train_probes(frames_u8, shuffled, steps, device, seed), clips), truth)


def probe_accuracy(net: ProbeNet, frames_u8: NDArray[np.uint8], labels: Labels) -> dict[str, float]:
    """The fraction of clips that each head classifies correctly."""
    seen = recognise(net, frames_u8)
    return {name: float((seen[name] == labels[name]).mean()) for name in HEADS}


def build_probes(
    world: Path | str,
    recipe: ProbeRecipe,
    device: torch.device | str,
    workers: int | None = None,
    on_loss: OnLoss | None = None,
) -> dict[str, Any]:
    """Draw clips, train and check the probes, and save them in a world's folder; returns the facts on their card."""
    first = recipe.seed * 1_000_000
    frames, labels = draw_labelled(range(first, first + recipe.clips), workers)
    held_out = draw_labelled(range(first + 500_000, first + 500_000 + recipe.held_out), workers)
    clips = torch.from_numpy(frames)
    net = train_probes(clips, labels, recipe.steps, device, recipe.seed, on_loss)
    facts: dict[str, Any] = {"recipe": asdict(recipe)}
    controls = {
        "noise": noise_check(net, held_out[1], recipe.seed),
        "shuffled": shuffled_check(clips, labels, held_out, recipe.control_steps, device, recipe.seed),
    }
    facts["accuracy"] = probe_accuracy(net, *held_out)
    facts |= {kind: {name: asdict(check) for name, check in found.items()} for kind, found in controls.items()}
    save_probes(net, world, facts)
    return facts
