"""The probes: a small video classifier that recognises who does what where in a shot, and its checks against chance.

It is trained on true clips with seeds of its own, and frozen before any decoder is trained, so it is independent of
what it judges (see evaluate/toybox_recipe/probes.py). B or M clips, F frames, T frames that it reads, C channels, H
height, W width, P positions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor, nn

from ..files import replacing, write_text
from ..json_files import read_json
from .scenes import HEADS, NONE, Labels
from .world import FRAMES, HEIGHT, WIDTH

FOLDER, WEIGHTS = "probes", "probes.safetensors"  # their card is probes.json
FRAME_STRIDE = 2  # every second frame is enough, and halves the cost
WIDTHS = (24, 48, 96, 128)


class ProbeNet(nn.Module):
    """Strided convolutions on every second frame, mixing of adjacent frames, and one attention-pooled head per label.

    The attributes' names are keys of the weights' file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            _conv_block(source, target, 5 if source == 3 else 3, 2)
            for source, target in zip((3, *WIDTHS), WIDTHS, strict=False)
        )
        self.times = nn.ParameterList(torch.randn(3, width) / 3 for width in WIDTHS[1:])
        self.last = _conv_block(WIDTHS[-1], WIDTHS[-1], 3, 1)
        self.looks = nn.Linear(WIDTHS[-1], len(HEADS))
        self.heads = nn.ModuleDict({name: nn.Linear(2 * WIDTHS[-1], len(classes)) for name, classes in HEADS.items()})

    def forward(self, clips_BFCHW: Tensor) -> dict[str, Tensor]:
        """Logits (B, classes) of every head. clips_BFCHW: (B, 17, 3, H, W), bytes or floats in [0, 1]."""
        clips = clips_BFCHW[:, ::FRAME_STRIDE]
        if not clips.is_floating_point():
            clips = clips.float() / 255
        return self.read(clips)

    def read(self, clips_BTCHW: Tensor) -> dict[str, Tensor]:
        """Logits (B, classes) of every head, for frames as `forward` selects them, floats in [0, 1]."""
        batch = len(clips_BTCHW)
        maps = rearrange(2 * clips_BTCHW - 1, "b t c h w -> (b t) c h w").contiguous(memory_format=torch.channels_last)
        for index, stage in enumerate(self.stages):
            maps = stage(maps)
            if index > 0:
                maps = maps + _along_time(self.times[index - 1], maps, batch)
        maps = maps + self.last(maps)
        cells_BPC = rearrange(maps, "(b t) c h w -> b (t h w) c", b=batch)
        attended = torch.einsum("bph,bpc->hbc", self.looks(cells_BPC).softmax(dim=1), cells_BPC)
        mean_BC = cells_BPC.mean(dim=1)
        return {
            name: head(torch.cat([mean_BC, attended[index]], dim=-1))
            for index, (name, head) in enumerate(self.heads.items())
        }


def _conv_block(source: int, target: int, kernel: int, stride: int) -> nn.Sequential:
    """A convolution from `source` to `target` channels with batch norm and SiLU."""
    return nn.Sequential(
        nn.Conv2d(source, target, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(target), nn.SiLU()
    )


def _along_time(weights_3C: Tensor, maps: Tensor, batch: int) -> Tensor:
    """Each channel's weighted sum over the previous, the current and the next frame; missing frames count as 0."""
    before, now, after = weights_3C[:, None, :, None, None].to(maps)
    maps_BTCHW = rearrange(maps, "(b t) c h w -> b t c h w", b=batch)
    padded = F.pad(maps_BTCHW, (0, 0, 0, 0, 0, 0, 1, 1))
    return (before * padded[:, :-2] + now * maps_BTCHW + after * padded[:, 2:]).flatten(0, 1)


def chance(truth: NDArray[np.int64]) -> float:
    """The accuracy of the best constant guess: the fraction of the most frequent class."""
    return float(np.bincount(truth).max() / len(truth))


def is_at_chance(right: NDArray[np.bool_], truth: NDArray[np.int64]) -> bool:
    """Whether these answers are at chance: at most 3 standard errors above `chance`."""
    guess, count = chance(truth), len(truth)
    return float(np.mean(right)) <= guess + 3 * math.sqrt(guess * (1 - guess) / count)


@torch.inference_mode()
def recognise(
    net: ProbeNet, frames_u8: NDArray[np.uint8] | Tensor, batch: int = 32, present: Collection[str] = ()
) -> Labels:
    """Predict the class numbers (M,) of every head for clips (M, 17, H, W, 3). net: in eval mode.

    present: heads that may not answer "none", so that a guess has equal chances among the other classes.
    """
    device = net.looks.weight.device
    seen = {name: [torch.empty(0, dtype=torch.int64)] for name in HEADS}
    for start in range(0, len(frames_u8), batch):
        clips = torch.as_tensor(frames_u8[start : start + batch]).to(device)
        for name, logits in net(rearrange(clips, "b f h w c -> b f c h w")).items():
            first = HEADS[name].index(NONE) + 1 if name in present else 0
            seen[name].append(first + logits[:, first:].argmax(dim=-1).cpu())
    return {name: torch.cat(rows).numpy() for name, rows in seen.items()}


@dataclass(frozen=True)
class ChanceCheck:
    """One head's accuracy, the accuracy of the best constant guess, and whether the head is no better (`blind`).

    The fields' names are keys of the probes' card.
    """

    accuracy: float
    chance: float
    blind: bool


def noise_check(net: ProbeNet, labels: Labels, seed: int = 0) -> dict[str, ChanceCheck]:
    """Check the probes on clips of pure noise, one per label: their accuracy must be at chance."""
    draw = np.random.default_rng(seed)
    shape = (1, FRAMES, HEIGHT, WIDTH, 3)
    seen = [recognise(net, draw.integers(0, 256, shape, dtype=np.uint8)) for _ in labels["character"]]
    return chance_checks({name: np.concatenate([row[name] for row in seen]) for name in HEADS}, labels)


def chance_checks(seen: Labels, labels: Labels) -> dict[str, ChanceCheck]:
    """Compare each head's predictions with the true labels and with chance."""
    right = {name: seen[name] == labels[name] for name in HEADS}
    return {
        name: ChanceCheck(float(flags.mean()), chance(labels[name]), is_at_chance(flags, labels[name]))
        for name, flags in right.items()
    }


def save_probes(net: ProbeNet, world: Path | str, facts: dict[str, Any]) -> Path:
    """Write the probes in fp16, and a card with `facts` about their training, into a world; returns their folder."""
    from safetensors.torch import save_file

    path = Path(world) / FOLDER / WEIGHTS
    tensors = {
        name: (tensor.half() if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in net.state_dict().items()
    }
    with replacing(path) as part:
        save_file(tensors, part)
    write_text(path.with_suffix(".json"), json.dumps({"heads": HEADS, "facts": facts}, indent=2) + "\n")
    return path.parent


def load_probes(world: Path | str, device: torch.device | str = "cpu") -> ProbeNet:
    """Load a world's probes, in fp32 and eval mode; ValueError if missing, damaged or made for other labels."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(world) / FOLDER / WEIGHTS
    heads = read_card(world).get("heads")
    if heads != {name: list(classes) for name, classes in HEADS.items()}:
        card = path.with_suffix(".json")
        raise ValueError(f"{card}: these probes have different labels from this Toybox; build them again")
    net = ProbeNet()
    try:
        net.load_state_dict(load_file(path))  # strict by default: an extra or a missing tensor means another network
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{path}: not the probes of this version ({error}); build them again") from error
    return net.to(device).eval()


def read_card(world: Path | str) -> dict[str, Any]:
    """The card of a world's probes: their labels, and the facts that were saved with them. ValueError if missing."""
    path = Path(world) / FOLDER / WEIGHTS
    card = path.with_suffix(".json")
    if not path.is_file() or not card.is_file():
        raise ValueError(f"{path.parent} holds no probes; train them with `python -m animegamer_core.toybox.build`")
    return read_json(card, dict[str, Any])
