"""The probes: one small video network that reads off a shot who does what where, and the checks that keep it honest.

It is trained on true clips of its own seeds and frozen before any decoder is trained, so it owes nothing to what it
judges. B or M clips, F frames, T the frames that it looks at, C channels, H height, W width, P positions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor, nn

from .judges import load_judge, save_judge
from .scenes import HEADS, NONE, Labels, draw_labelled
from .world import FRAMES, HEIGHT, WIDTH

FOLDER, WEIGHTS, CARD = "probes", "probes.safetensors", "probes.json"
FRAME_STRIDE = 2  # every second frame tells as much at half the cost
WIDTHS = (24, 48, 96, 128)
LEARNING_RATE, WEIGHT_DECAY, SMOOTHING = 3e-3, 0.01, 0.02
BATCH = 128

OnLoss = Callable[[int, int, float], None]  # (steps done, of how many, loss)


class ProbeNet(nn.Module):
    """Strided convolutions on every second frame, short looks along time between them, one attending head a label."""

    def __init__(self) -> None:
        super().__init__()
        sides = (3, *WIDTHS)
        self.stages = nn.ModuleList(
            _conv(source, target, 5 if source == 3 else 3, 2) for source, target in zip(sides, WIDTHS, strict=False)
        )
        self.times = nn.ParameterList(torch.randn(3, width) / 3 for width in WIDTHS[1:])
        self.last = _conv(WIDTHS[-1], WIDTHS[-1], 3, 1)
        self.looks = nn.Linear(WIDTHS[-1], len(HEADS))
        self.heads = nn.ModuleDict({name: nn.Linear(2 * WIDTHS[-1], len(classes)) for name, classes in HEADS.items()})

    def forward(self, clips_BFCHW: Tensor) -> dict[str, Tensor]:
        """Logits (B, classes) of every head. clips: (B, 17, 3, H, W), bytes or floats in [0, 1]."""
        clips = clips_BFCHW[:, ::FRAME_STRIDE]
        if not clips.is_floating_point():
            clips = clips.float() / 255
        return self.read(clips)

    def read(self, clips_BTCHW: Tensor) -> dict[str, Tensor]:
        """Logits of the frames that `forward` picks, floats in [0, 1]."""
        batch = len(clips_BTCHW)
        maps = rearrange(2 * clips_BTCHW - 1, "b t c h w -> (b t) c h w").contiguous(memory_format=torch.channels_last)
        for index, stage in enumerate(self.stages):
            maps = stage(maps)
            if index > 0:
                maps = maps + _along_time(self.times[index - 1], maps, batch)
        maps = maps + self.last(maps)
        spots_BPC = rearrange(maps, "(b t) c h w -> b (t h w) c", b=batch)
        looked = torch.einsum("bph,bpc->hbc", self.looks(spots_BPC).softmax(dim=1), spots_BPC)
        everywhere = spots_BPC.mean(dim=1)
        return {
            name: head(torch.cat([everywhere, looked[index]], dim=-1))
            for index, (name, head) in enumerate(self.heads.items())
        }


def _conv(source: int, target: int, kernel: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(source, target, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(target), nn.SiLU()
    )


def _along_time(weights_3C: Tensor, maps: Tensor, batch: int) -> Tensor:
    """Each channel's weighted sum over the frame before, the frame itself and the one after; none is black."""
    before, now, after = weights_3C[:, None, :, None, None].to(maps)
    films = rearrange(maps, "(b t) c h w -> b t c h w", b=batch)
    padded = F.pad(films, (0, 0, 0, 0, 0, 0, 1, 1))
    return (before * padded[:, :-2] + now * films + after * padded[:, 2:]).flatten(0, 1)


def train_probes(
    frames_u8: Tensor,
    labels: Labels,
    steps: int,
    device: torch.device | str,
    seed: int = 0,
    on_loss: OnLoss | None = None,
) -> ProbeNet:
    """Probes for true clips frames_u8 (M, 17, H, W, 3), which stay in memory on `device` all the while.

    AdamW with a one-cycle rate over `steps` batches of at most 128 augmented clips, in bf16 on CUDA. Returns the
    network in eval mode on `device`.
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
        loss = _loss(net, _worn(clips[rows], draw), {name: classes[rows] for name, classes in truth.items()})
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        rates.step()
        if on_loss is not None and (step % 20 == 0 or step == steps - 1):
            on_loss(step + 1, steps, loss.item())
    return net.eval()


def _loss(net: ProbeNet, clips_BTCHW: Tensor, truth: dict[str, Tensor]) -> Tensor:
    with torch.autocast(clips_BTCHW.device.type, torch.bfloat16, enabled=clips_BTCHW.is_cuda):
        logits = net.read(clips_BTCHW)
    losses = [F.cross_entropy(logits[name].float(), truth[name], label_smoothing=SMOOTHING) for name in HEADS]
    return torch.stack(losses).sum()


def _worn(clips_BTHWC: Tensor, draw: torch.Generator) -> Tensor:
    """The clips as floats (B, T, 3, H, W) with what a decoder does to pictures: softer, noisier, lighter, shifted."""
    batch, device = len(clips_BTHWC), clips_BTHWC.device
    soft, slow, noise, light, contrast = torch.rand(5, batch, 1, 1, 1, 1, generator=draw).to(device).unbind(0)
    clips = rearrange(clips_BTHWC, "b t h w c -> b t c h w").float() / 255
    clips = torch.lerp(clips, _blurred(clips, int(torch.randint(2, 4, (1,), generator=draw))), soft**2)
    neighbours = (clips.roll(1, 1) + clips.roll(-1, 1)) / 2
    neighbours = torch.cat([clips[:, :1], neighbours[:, 1:-1], clips[:, -1:]], dim=1)
    clips = torch.lerp(clips, neighbours, 0.3 * slow)
    clips = clips.roll([int(shift) for shift in torch.randint(-3, 4, (2,), generator=draw)], (3, 4))
    clips = (clips - 0.5) * (0.9 + 0.2 * contrast) + 0.5 + 0.1 * (light - 0.5)
    return clips + 0.06 * noise * torch.randn_like(clips)


def _blurred(clips_BTCHW: Tensor, factor: int) -> Tensor:
    """Pictures that were shrunk `factor` times and enlarged again."""
    flat = rearrange(clips_BTCHW, "b t c h w -> (b t) c h w")
    small = F.avg_pool2d(flat, factor)
    large = F.interpolate(small, flat.shape[-2:], mode="bilinear", align_corners=False)
    return rearrange(large, "(b t) c h w -> b t c h w", b=len(clips_BTCHW))


def chance(truth: NDArray[np.int64]) -> float:
    """What the best blind guess scores: the share of the most frequent class."""
    return float(np.bincount(truth).max() / len(truth))


def is_blind(right: NDArray[np.bool_], truth: NDArray[np.int64]) -> bool:
    """Whether these answers are no better than a blind guess: at most 3 standard errors above `chance`."""
    guess, count = chance(truth), len(truth)
    return float(np.mean(right)) <= guess + 3 * math.sqrt(guess * (1 - guess) / count)


@torch.inference_mode()
def recognise(
    net: ProbeNet, frames_u8: NDArray[np.uint8] | Tensor, batch: int = 32, present: Collection[str] = ()
) -> Labels:
    """What probes in eval mode see in clips (M, 17, H, W, 3): the class number (M,) of every head.

    present: heads that may not answer "none", so that a guess has an even chance among the others.
    """
    device = net.looks.weight.device
    seen: dict[str, list[Tensor]] = {name: [] for name in HEADS}
    for start in range(0, len(frames_u8), batch):
        clips = torch.as_tensor(frames_u8[start : start + batch]).to(device)
        for name, logits in net(rearrange(clips, "b f h w c -> b f c h w")).items():
            first = HEADS[name].index(NONE) + 1 if name in present else 0
            seen[name].append(first + logits[:, first:].argmax(dim=-1).cpu())
    return {name: torch.cat(rows).numpy() if rows else np.empty(0, np.int64) for name, rows in seen.items()}


@dataclass(frozen=True)
class BlindCheck:
    """One head's score where nothing can be known, what a blind guess scores there, and whether it is no better."""

    accuracy: float
    chance: float
    blind: bool


def noise_check(net: ProbeNet, labels: Labels, seed: int = 0) -> dict[str, BlindCheck]:
    """The probes on frames of pure noise, one clip a label: they must score chance."""
    draw = np.random.default_rng(seed)
    shape = (1, FRAMES, HEIGHT, WIDTH, 3)
    seen = [recognise(net, draw.integers(0, 256, shape, dtype=np.uint8)) for _ in labels["character"]]
    return _blind({name: np.concatenate([row[name] for row in seen]) for name in HEADS}, labels)


def shuffled_check(
    frames_u8: Tensor,
    labels: Labels,
    held_out: tuple[NDArray[np.uint8], Labels],
    steps: int,
    device: torch.device | str,
    seed: int = 0,
) -> dict[str, BlindCheck]:
    """Probes trained on labels that were shuffled among the clips, scored on held-out clips: they must score chance."""
    draw = np.random.default_rng(seed)
    shuffled = {name: draw.permutation(classes) for name, classes in labels.items()}
    clips, truth = held_out
    return _blind(recognise(train_probes(frames_u8, shuffled, steps, device, seed), clips), truth)


def probe_accuracy(net: ProbeNet, frames_u8: NDArray[np.uint8], labels: Labels) -> dict[str, float]:
    """The share of clips that every head reads rightly."""
    seen = recognise(net, frames_u8)
    return {name: float((seen[name] == labels[name]).mean()) for name in HEADS}


def _blind(seen: Labels, labels: Labels) -> dict[str, BlindCheck]:
    right = {name: seen[name] == labels[name] for name in HEADS}
    return {
        name: BlindCheck(float(flags.mean()), chance(labels[name]), is_blind(flags, labels[name]))
        for name, flags in right.items()
    }


@dataclass(frozen=True)
class ProbeRecipe:
    """How many true clips the probes are trained on and checked with, and for how many steps.

    control_steps: for the second network, whose labels are shuffled.
    """

    clips: int = 10_000
    held_out: int = 500
    steps: int = 2_000
    control_steps: int = 500
    seed: int = 0


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
    facts = {
        "recipe": asdict(recipe),
        "accuracy": probe_accuracy(net, *held_out),
        "noise": _listed(noise_check(net, held_out[1], recipe.seed)),
        "shuffled": _listed(shuffled_check(clips, labels, held_out, recipe.control_steps, device, recipe.seed)),
    }
    save_probes(net, world, facts)
    return facts


def _listed(checks: dict[str, BlindCheck]) -> dict[str, dict[str, Any]]:
    return {name: asdict(check) for name, check in checks.items()}


def save_probes(net: ProbeNet, world: Path | str, facts: dict[str, Any]) -> Path:
    """Write the probes, in fp16, and a card with `facts` about their training into a world's folder; returns theirs."""
    folder = Path(world) / FOLDER
    save_judge(net, folder / WEIGHTS, {"heads": HEADS, "facts": facts})
    return folder


def load_probes(world: Path | str, device: torch.device | str = "cpu") -> ProbeNet:
    """The probes of a world's folder in fp32 and eval mode; ValueError if missing, damaged or of other labels."""
    folder = Path(world) / FOLDER
    heads = read_card(world).get("heads")
    if heads != {name: list(classes) for name, classes in HEADS.items()}:
        raise ValueError(f"{folder / CARD}: these probes know other labels than this Toybox; build them anew")
    net = ProbeNet()
    load_judge(net, folder / WEIGHTS, "probes")
    return net.to(device).eval()


def read_card(world: Path | str) -> dict[str, Any]:
    """The card of a world's probes: their labels, and the facts that were saved with them."""
    folder = Path(world) / FOLDER
    if not (folder / WEIGHTS).is_file() or not (folder / CARD).is_file():
        raise ValueError(f"{folder} holds no probes; train them with `python -m animegamer_core.toybox.build`")
    return json.loads((folder / CARD).read_text(encoding="utf-8"))
