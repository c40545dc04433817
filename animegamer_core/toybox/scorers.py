"""The Toybox's scoring towers: a small picture tower and a small text tower in one space, for CLIP-I and CLIP-T, and
the picture tower's middle layers as a stand-in for DreamSim.

They are trained on true clips of seeds that neither games nor probes use, apart from the towers that the world itself
is conditioned by, so they owe nothing to what they judge. B or M pictures or texts, E embedding width, L words,
C channels, H height, W width, P positions.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data.workers import spread
from ..train.losses import contrastive
from .draw import draw_frame
from .judges import load_judge, save_judge
from .scenes import probe_scene
from .world import ADVERBS, FRAMES, HEIGHT, WIDTH, Scene, adverb, instruction, motion_text, vocabulary, words

FOLDER, WEIGHTS, CARD = "scorers", "scorers.safetensors", "scorers.json"
WIDTHS = (24, 48, 96, 128)
EMBEDDING, LOOKS = 128, 4
TEXT_WIDTH, TEXT_LAYERS, TEXT_HEADS, TEXT_WORDS = 96, 2, 4, 48
GRIDS = ((1, (12, 18)), (2, (6, 9)), (3, (2, 3)))  # stages that perceptual vectors are read off, and how coarsely
PAD, UNKNOWN = 0, 1
LABELS = frozenset(words("Character: , ; Motion: ; Background: ."))  # what no picture shows
ADVERB_WORDS = frozenset(word for row in ADVERBS.values() for word in row)
FIRST_SEED, HELD_OUT_SEED, SEEDS = 300_000, 800_000, 1_000_000  # the probes' own begin at 0 and at 500,000
PICTURES = 2  # of a scene: its first frame and another
BATCH, LEARNING_RATE, WEIGHT_DECAY = 160, 2e-3, 0.02
WARMEST = 50.0  # the most that logits are scaled by

OnLoss = Callable[[int, int, float], None]  # (steps done, of how many, loss)


class PictureTower(nn.Module):
    """Strided convolutions; what is everywhere and what a few attending looks find become one vector."""

    def __init__(self) -> None:
        super().__init__()
        sides = (3, *WIDTHS)
        self.stages = nn.ModuleList(
            _conv(source, target, 5 if source == 3 else 3, 2) for source, target in zip(sides, WIDTHS, strict=False)
        )
        self.last = _conv(WIDTHS[-1], WIDTHS[-1], 3, 1)
        self.looks = nn.Linear(WIDTHS[-1], LOOKS)
        self.out = nn.Linear((1 + LOOKS) * WIDTHS[-1], EMBEDDING)
        for stage, _ in GRIDS:
            self.register_buffer(f"middle_{stage}", torch.zeros(WIDTHS[stage]))

    def maps(self, pictures_BCHW: Tensor) -> list[Tensor]:
        """Every stage's maps (B, C, H/2, W/2), (B, C, H/4, W/4) ... of pictures (B, 3, 96, 144) in [0, 1]."""
        maps = [(2 * pictures_BCHW - 1).contiguous(memory_format=torch.channels_last)]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        return maps[1:]

    def forward(self, pictures_BCHW: Tensor) -> Tensor:
        """(B, E) unit vectors of pictures (B, 3, 96, 144), floats in [0, 1]."""
        maps = self.maps(pictures_BCHW)[-1]
        spots_BPC = rearrange(maps + self.last(maps), "b c h w -> b (h w) c")
        looked = torch.einsum("bpk,bpc->bkc", self.looks(spots_BPC).softmax(dim=1), spots_BPC)
        everywhere = spots_BPC.mean(dim=1)
        return F.normalize(self.out(torch.cat([everywhere, looked.flatten(1)], dim=-1)), dim=-1)

    def perceive(self, pictures_BCHW: Tensor) -> Tensor:
        """(B, E') unit vectors in which colour and layout count: what the middle stages see, less what is usual.

        Each of the stages in GRIDS weighs the same. "Usual" is a channel's mean over true pictures (`set_middle`), so
        that unlike pictures score about 0.
        """
        maps, parts = self.maps(pictures_BCHW), []
        for stage, grid in GRIDS:
            middle_C = getattr(self, f"middle_{stage}")
            parts.append(F.normalize((F.adaptive_avg_pool2d(maps[stage], grid) - middle_C[:, None, None]).flatten(1)))
        return torch.cat(parts, dim=-1) / math.sqrt(len(parts))

    @torch.no_grad()
    def set_middle(self, pictures_BCHW: Tensor) -> None:
        """Take these pictures for what is usual."""
        maps = self.maps(pictures_BCHW)
        for stage, _ in GRIDS:
            getattr(self, f"middle_{stage}").copy_(maps[stage].mean(dim=(0, 2, 3)))


def _conv(source: int, target: int, kernel: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(source, target, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(target), nn.SiLU()
    )


class TextTower(nn.Module):
    """A small transformer over the words of an instruction, or of a part of one."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = {word: number for number, word in enumerate(vocabulary(), start=2)}
        self.words = nn.Embedding(2 + len(self.ids), TEXT_WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(TEXT_WORDS, TEXT_WIDTH))
        layer = nn.TransformerEncoderLayer(
            TEXT_WIDTH, TEXT_HEADS, 2 * TEXT_WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, TEXT_LAYERS, nn.LayerNorm(TEXT_WIDTH), enable_nested_tensor=False)
        self.out = nn.Linear(TEXT_WIDTH, EMBEDDING)

    def text_ids(self, texts: Sequence[str]) -> Tensor:
        """(B, L) int64 numbers of the words, cut to TEXT_WORDS and padded; words of no Toybox text are UNKNOWN."""
        rows = [[self.ids.get(word, UNKNOWN) for word in words(text)][:TEXT_WORDS] or [UNKNOWN] for text in texts]
        length = max(map(len, rows), default=0)
        return torch.tensor([row + [PAD] * (length - len(row)) for row in rows], dtype=torch.int64)

    def forward(self, ids_BL: Tensor) -> Tensor:
        """(B, E) unit vectors of texts' word numbers."""
        blank_BL = ids_BL == PAD
        hidden = self.layers(self.words(ids_BL) + self.places[: ids_BL.shape[1]], src_key_padding_mask=blank_BL)
        told = (~blank_BL).unsqueeze(-1).to(hidden)
        return F.normalize(self.out((hidden * told).sum(1) / told.sum(1)), dim=-1)


class Scorers(nn.Module):
    """Both towers."""

    def __init__(self) -> None:
        super().__init__()
        self.picture, self.text = PictureTower(), TextTower()
        self.warmth = nn.Parameter(torch.tensor(math.log(10.0)))

    @property
    def device(self) -> torch.device:
        """Where the towers are."""
        return self.warmth.device

    @torch.inference_mode()
    def embed_pictures(self, frames_MHWC: NDArray[np.uint8], perceptual: bool = False, batch: int = 64) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU, of RGB pictures of any one size; perceptual: see PictureTower.perceive.

        Other sizes are squeezed to 96x144, the size that the towers were trained at.
        """
        see = self.picture.perceive if perceptual else self.picture
        rows = [
            see(to_pictures(torch.as_tensor(frames_MHWC[start : start + batch])).to(self.device)).float().cpu()
            for start in range(0, len(frames_MHWC), batch)
        ]
        return torch.cat(rows)

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str], batch: int = 256) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU."""
        rows = [
            self.text(self.text.text_ids(texts[start : start + batch]).to(self.device)).float().cpu()
            for start in range(0, len(texts), batch)
        ]
        return torch.cat(rows)


def to_pictures(frames_BHWC: Tensor) -> Tensor:
    """Bytes (B, H, W, 3) as floats (B, 3, 96, 144) in [0, 1]."""
    pictures = rearrange(frames_BHWC, "b h w c -> b c h w").float() / 255
    if pictures.shape[-2:] == (HEIGHT, WIDTH):
        return pictures
    return F.interpolate(pictures, (HEIGHT, WIDTH), mode="bilinear", antialias=True).clamp(0, 1)


@dataclass(frozen=True)
class Examples:
    """Scenes with some of their pictures, uint8 (M, PICTURES, 96, 144, 3)."""

    scenes: tuple[Scene, ...]
    frames: NDArray[np.uint8]


def draw_examples(seeds: Sequence[int], workers: int | None = None) -> Examples:
    """The probe scenes of these seeds, each with its first frame and another."""
    scenes = tuple(probe_scene(seed) for seed in seeds)
    frames = np.empty((len(scenes), PICTURES, HEIGHT, WIDTH, 3), np.uint8)
    for index, pictures in enumerate(spread(_draw, scenes, workers, chunk=64)):
        frames[index] = pictures
    return Examples(scenes, frames)


def _draw(scene: Scene) -> NDArray[np.uint8]:
    later = random.Random(f"toybox/scorers/{scene.seed}").randrange(1, FRAMES)
    return np.stack([draw_frame(scene, 0), draw_frame(scene, later)])


def caption(scene: Scene, rng: random.Random) -> str:
    """A text that a picture of the scene fits: its instruction, the words of it alone, or its motion and background.

    Every other text tells the colour of the prop. The adverb is drawn blindly: a single picture does not show how fast
    anything moves.
    """
    level, form = rng.randint(1, 5), rng.randrange(3)
    scene = replace(scene, prop_told=scene.prop is not None and rng.random() < 0.5)
    if form == 0:
        return f"{adverb(scene, level)} {motion_text(scene)}, {scene.time} {scene.place}"
    text = instruction(scene, level)
    return text if form == 1 else " ".join(word for word in words(text) if word not in LABELS)


def same_captions(texts: Sequence[str]) -> Tensor:
    """(B,) numbers that are equal where texts say the same about a picture, whatever their adverbs and marks."""
    said = [" ".join(word for word in words(text) if word not in LABELS | ADVERB_WORDS) for text in texts]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(said))}
    return torch.tensor([numbers[text] for text in said])


def train_scorers(
    examples: Examples,
    captioned: Sequence[Scene],
    steps: int,
    device: torch.device | str,
    seed: int = 0,
    on_loss: OnLoss | None = None,
) -> Scorers:
    """Towers for these pictures, whose captions tell of the scenes `captioned` (the same, or shuffled ones).

    Symmetric InfoNCE, AdamW with a one-cycle rate over `steps` batches of at most BATCH worn pictures, in bf16 on CUDA.
    Returns them in eval mode on `device`.
    """
    torch.manual_seed(seed)
    draw, rng = torch.Generator().manual_seed(seed), random.Random(f"toybox/scorers/{seed}")
    net, frames = Scorers().to(device).train(), torch.from_numpy(examples.frames)
    optimizer = torch.optim.AdamW(net.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=max(2, steps), pct_start=0.15)
    for step in range(steps):
        rows = torch.randint(len(frames), (min(BATCH, len(frames)),), generator=draw)
        shown = frames[rows, torch.randint(PICTURES, rows.shape, generator=draw)].to(device)
        loss = _loss(net, worn(to_pictures(shown), draw), [caption(captioned[row], rng) for row in rows.tolist()], draw)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        rates.step()
        if on_loss is not None and (step % 20 == 0 or step == steps - 1):
            on_loss(step + 1, steps, loss.item())
    net.eval().picture.set_middle(to_pictures(frames[:: max(1, len(frames) // 512), 0].to(device)))
    return net


def _loss(net: Scorers, pictures_BCHW: Tensor, texts: Sequence[str], draw: torch.Generator) -> Tensor:
    ids_BL = net.text.text_ids(texts)
    forgotten = (torch.rand(ids_BL.shape, generator=draw) < 0.02) & (ids_BL != PAD)  # so that UNKNOWN means something
    ids_BL = ids_BL.masked_fill(forgotten, UNKNOWN)
    device = pictures_BCHW.device
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        seen, told = net.picture(pictures_BCHW), net.text(ids_BL.to(device))
    scale = net.warmth.exp().clamp(max=WARMEST)
    return contrastive(told.float(), seen.float(), scale, same_captions(texts).to(device))


def worn(pictures_BCHW: Tensor, draw: torch.Generator) -> Tensor:
    """Pictures with what a decoder does to them: softer, noisier, lighter, shifted."""
    soft, noise, light, contrast = torch.rand(4, len(pictures_BCHW), 1, 1, 1, generator=draw).to(pictures_BCHW.device)
    size, factor = pictures_BCHW.shape[-2:], int(torch.randint(2, 4, (1,), generator=draw))
    small = F.avg_pool2d(pictures_BCHW, factor)
    pictures = torch.lerp(pictures_BCHW, F.interpolate(small, size, mode="bilinear"), soft**2)
    pictures = pictures.roll([int(shift) for shift in torch.randint(-4, 5, (2,), generator=draw)], (2, 3))
    pictures = (pictures - 0.5) * (0.9 + 0.2 * contrast) + 0.5 + 0.1 * (light - 0.5)
    grain = torch.randn(pictures.shape, generator=draw).to(pictures.device)
    return pictures + 0.06 * noise * grain


def save_scorers(net: Scorers, world: Path | str, facts: dict[str, Any]) -> Path:
    """Write the towers, in fp16, and a card with `facts` about their training into a world's folder; returns theirs."""
    folder = Path(world) / FOLDER
    save_judge(net, folder / WEIGHTS, {"words": list(vocabulary()), "facts": facts})
    return folder


def load_scorers(world: Path | str, device: torch.device | str = "cpu") -> Scorers:
    """The towers of a world's folder in fp32 and eval mode; ValueError if missing, damaged or of other words."""
    folder = Path(world) / FOLDER
    if read_card(world).get("words") != list(vocabulary()):
        raise ValueError(f"{folder / CARD}: these towers know other words than this Toybox; build them anew")
    net = Scorers()
    load_judge(net, folder / WEIGHTS, "towers")
    return net.to(device).eval()


def read_card(world: Path | str) -> dict[str, Any]:
    """The card of a world's scoring towers: their words, and the facts that were saved with them."""
    folder = Path(world) / FOLDER
    if not (folder / WEIGHTS).is_file() or not (folder / CARD).is_file():
        raise ValueError(
            f"{folder} holds no scoring towers; train them with "
            "`python -m animegamer_core.toybox.build --work DIR --stages scorers`"
        )
    return json.loads((folder / CARD).read_text(encoding="utf-8"))
