"""The Toybox's scoring models: a small image encoder and a small text encoder.

Both embed into one space, for CLIP-I and CLIP-T. The image encoder's middle layers stand in for DreamSim. They are
trained on true clips with seeds that neither games nor probes use, and separately from the encoders that condition the
world, so they are independent of what they judge (see evaluate/toybox_recipe/scoring.py). B or M pictures or
texts, E embedding width, L words, C channels, H height, W width, P positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor, nn

from .networks import conv_block, conv_stages, load_network, read_network_card, save_network
from .sentences import vocabulary
from .world import HEIGHT, WIDTH, words

FOLDER, WEIGHTS, CARD = "scorers", "scorers.safetensors", "scorers.json"
WIDTHS = (24, 48, 96, 128)
EMBEDDING, LOOKS = 128, 4
TEXT_WIDTH, TEXT_LAYERS, TEXT_HEADS, TEXT_WORDS = 96, 2, 4, 48
GRIDS = ((1, (12, 18)), (2, (6, 9)), (3, (2, 3)))  # stages that make up the perceptual vector, and their pooled sizes
PAD, UNKNOWN = 0, 1


class ImageEncoder(nn.Module):
    """Strided convolutions; mean and attention pooling turn the last map into one vector.

    The attributes' names are keys of the weights' file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stages = conv_stages(WIDTHS)
        self.last = conv_block(WIDTHS[-1], WIDTHS[-1], 3, 1)
        self.looks = nn.Linear(WIDTHS[-1], LOOKS)
        self.out = nn.Linear((1 + LOOKS) * WIDTHS[-1], EMBEDDING)
        for stage, _ in GRIDS:
            self.register_buffer(f"middle_{stage}", torch.zeros(WIDTHS[stage]))

    def maps(self, pictures_BCHW: Tensor) -> list[Tensor]:
        """The maps of every stage, (B, C, H/2, W/2), (B, C, H/4, W/4) ..., for pictures (B, 3, 96, 144) in [0, 1]."""
        maps = [(2 * pictures_BCHW - 1).contiguous(memory_format=torch.channels_last)]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        return maps[1:]

    def forward(self, pictures_BCHW: Tensor) -> Tensor:
        """Embed pictures (B, 3, 96, 144), floats in [0, 1]: (B, E) unit vectors."""
        maps = self.maps(pictures_BCHW)[-1]
        cells_BPC = rearrange(maps + self.last(maps), "b c h w -> b (h w) c")
        attended_BKC = torch.einsum("bpk,bpc->bkc", self.looks(cells_BPC).softmax(dim=1), cells_BPC)
        mean_BC = cells_BPC.mean(dim=1)
        return F.normalize(self.out(torch.cat([mean_BC, attended_BKC.flatten(1)], dim=-1)), dim=-1)

    def perceive(self, pictures_BCHW: Tensor) -> Tensor:
        """Embed pictures by colour and layout: (B, E') unit vectors, the pooled maps of some stages with equal weight.

        Each channel's mean over true pictures (`set_middle`) is subtracted, so that unrelated pictures score about 0.
        """
        maps, parts = self.maps(pictures_BCHW), []
        for stage, grid in GRIDS:
            middle_C = getattr(self, f"middle_{stage}")
            parts.append(F.normalize((F.adaptive_avg_pool2d(maps[stage], grid) - middle_C[:, None, None]).flatten(1)))
        return torch.cat(parts, dim=-1) / math.sqrt(len(parts))

    @torch.no_grad()
    def set_middle(self, pictures_BCHW: Tensor) -> None:
        """Set the channel means that `perceive` subtracts to those of these pictures."""
        maps = self.maps(pictures_BCHW)
        for stage, _ in GRIDS:
            getattr(self, f"middle_{stage}").copy_(maps[stage].mean(dim=(0, 2, 3)))


class TextEncoder(nn.Module):
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
        """(B, L) int64 ids of the words, at most TEXT_WORDS, padded; words outside the vocabulary are UNKNOWN."""
        rows = [[self.ids.get(word, UNKNOWN) for word in words(text)][:TEXT_WORDS] or [UNKNOWN] for text in texts]
        length = max(map(len, rows), default=0)
        return torch.tensor([row + [PAD] * (length - len(row)) for row in rows], dtype=torch.int64)

    def forward(self, ids_BL: Tensor) -> Tensor:
        """Embed texts, given as word ids: (B, E) unit vectors."""
        blank_BL = ids_BL == PAD
        hidden = self.layers(self.words(ids_BL) + self.places[: ids_BL.shape[1]], src_key_padding_mask=blank_BL)
        is_word = (~blank_BL).unsqueeze(-1).to(hidden)
        return F.normalize(self.out((hidden * is_word).sum(1) / is_word.sum(1)), dim=-1)


class ScoringNet(nn.Module):
    """Both encoders, and `warmth`, the logarithm of the scale of their logits in training."""

    def __init__(self) -> None:
        super().__init__()
        self.picture, self.text = ImageEncoder(), TextEncoder()
        self.warmth = nn.Parameter(torch.tensor(math.log(10.0)))

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.warmth.device

    @torch.inference_mode()
    def embed_pictures(self, frames_MHWC: NDArray[np.uint8], perceptual: bool = False, batch: int = 64) -> Tensor:
        """Embed uint8 RGB pictures of one size: (M, E) fp32 unit vectors on the CPU.

        perceptual: see ImageEncoder.perceive. Pictures are resized to 144 x 96 px, the size of the training pictures.
        """
        see = self.picture.perceive if perceptual else self.picture
        rows = [
            see(to_pictures(torch.as_tensor(frames_MHWC[start : start + batch])).to(self.device)).float().cpu()
            for start in range(0, len(frames_MHWC), batch)
        ]
        return torch.cat(rows)

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str], batch: int = 256) -> Tensor:
        """Embed texts: (M, E) fp32 unit vectors on the CPU."""
        rows = [
            self.text(self.text.text_ids(texts[start : start + batch]).to(self.device)).float().cpu()
            for start in range(0, len(texts), batch)
        ]
        return torch.cat(rows)


def to_pictures(frames_BHWC: Tensor) -> Tensor:
    """Convert bytes (B, H, W, 3) to floats (B, 3, 96, 144) in [0, 1]."""
    pictures = rearrange(frames_BHWC, "b h w c -> b c h w").float() / 255
    if pictures.shape[-2:] == (HEIGHT, WIDTH):
        return pictures
    return F.interpolate(pictures, (HEIGHT, WIDTH), mode="bilinear", antialias=True).clamp(0, 1)


def save_scoring_models(net: ScoringNet, world: Path | str, facts: dict[str, Any]) -> Path:
    """Write the models in fp16, and a card with `facts` about their training, into a world's folder; returns theirs."""
    folder = Path(world) / FOLDER
    save_network(net, folder / WEIGHTS, {"words": list(vocabulary()), "facts": facts})
    return folder


def load_scoring_models(world: Path | str, device: torch.device | str = "cpu") -> ScoringNet:
    """Load a world's models, in fp32 and eval mode; ValueError if missing, damaged or made for other words."""
    folder = Path(world) / FOLDER
    if read_card(world).get("words") != list(vocabulary()):
        raise ValueError(
            f"{folder / CARD}: these scoring models have different words from this Toybox; build them again"
        )
    net = ScoringNet()
    load_network(net, folder / WEIGHTS, "scoring models")
    return net.to(device).eval()


def read_card(world: Path | str) -> dict[str, Any]:
    """The card of a world's scoring models: their words, and the facts saved with them. ValueError if missing."""
    folder = Path(world) / FOLDER
    command = "python -m animegamer_core.toybox.build --work DIR --stages scorers"
    return read_network_card(folder / WEIGHTS, f"{folder} holds no scoring models; train them with `{command}`")
