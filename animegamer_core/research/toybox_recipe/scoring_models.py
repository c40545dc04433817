"""Trains the scoring models on pictures with captions, with symmetric InfoNCE.

B or M pictures or texts, L words, C channels, H height, W width.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.workers import parallel_map
from ...toybox.drawing.draw import draw_frame
from ...toybox.scenes import probe_scene
from ...toybox.scoring_models import PAD, UNKNOWN, ScoringNet, to_pictures
from ...toybox.world import ADVERBS, FRAMES, HEIGHT, WIDTH, Scene, adverb, instruction, motion_text, words
from ...train.losses import contrastive
from .training import OnLoss, blurred, relit, train_network

LABELS = frozenset(words("Character: , ; Motion: ; Background: ."))  # words that say nothing about a picture
ADVERB_WORDS = frozenset(word for row in ADVERBS.values() for word in row)
FIRST_SEED, HELD_OUT_SEED, SEEDS = 300_000, 800_000, 1_000_000  # the probes' seeds begin at 0 and at 500,000
PICTURES = 2  # per scene: its first frame and a later one
BATCH, LEARNING_RATE, WEIGHT_DECAY = 160, 2e-3, 0.02
MAX_LOGIT_SCALE = 50.0


@dataclass(frozen=True)
class Examples:
    """Scenes with some of their pictures, uint8 (M, PICTURES, 96, 144, 3)."""

    scenes: tuple[Scene, ...]
    frames: NDArray[np.uint8]


def draw_examples(seeds: Sequence[int], workers: int | None = None) -> Examples:
    """Draw the probe scenes of these seeds: the first frame and a later one of each."""
    scenes = tuple(probe_scene(seed) for seed in seeds)
    frames = np.empty((len(scenes), PICTURES, HEIGHT, WIDTH, 3), np.uint8)
    for index, pictures in enumerate(parallel_map(_draw, scenes, workers, chunk=64)):
        frames[index] = pictures
    return Examples(scenes, frames)


def _draw(scene: Scene) -> NDArray[np.uint8]:
    later = random.Random(f"toybox/scorers/{scene.seed}").randrange(1, FRAMES)
    return np.stack([draw_frame(scene, 0), draw_frame(scene, later)])


def caption(scene: Scene, rng: random.Random) -> str:
    """A random text for a picture of the scene: the instruction, its words without labels, or motion and background.

    Half of the texts name the prop's colour. The adverb is random, since a single picture does not show speed.
    """
    level, form = rng.randint(1, 5), rng.randrange(3)
    scene = replace(scene, prop_told=scene.prop is not None and rng.random() < 0.5)
    if form == 0:
        return f"{adverb(scene, level)} {motion_text(scene)}, {scene.time} {scene.place}"
    text = instruction(scene, level)
    return text if form == 1 else " ".join(word for word in words(text) if word not in LABELS)


def same_captions(texts: Sequence[str]) -> Tensor:
    """(B,): a number for each text; texts that differ only in adverbs, labels and punctuation have the same one."""
    contents = [" ".join(word for word in words(text) if word not in LABELS | ADVERB_WORDS) for text in texts]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(contents))}
    return torch.tensor([numbers[text] for text in contents])


def train_scoring_models(
    examples: Examples,
    captioned: Sequence[Scene],
    steps: int,
    device: torch.device | str,
    seed: int = 0,
    on_loss: OnLoss | None = None,
) -> ScoringNet:
    """Train the encoders on these pictures, with captions of the scenes `captioned` (the same ones, or shuffled).

    Each of the `steps` batches has at most BATCH augmented pictures. Returns the models in eval mode on `device`.
    """
    torch.manual_seed(seed)
    draw, rng = torch.Generator().manual_seed(seed), random.Random(f"toybox/scorers/{seed}")
    net, frames = ScoringNet().to(device).train(), torch.from_numpy(examples.frames)

    def batch_loss() -> Tensor:
        rows = torch.randint(len(frames), (min(BATCH, len(frames)),), generator=draw)
        shown = frames[rows, torch.randint(PICTURES, rows.shape, generator=draw)].to(device)
        pictures = _degraded(to_pictures(shown), draw)
        return _loss(net, pictures, [caption(captioned[row], rng) for row in rows.tolist()], draw)

    train_network(net, batch_loss, steps, LEARNING_RATE, WEIGHT_DECAY, on_loss)
    net.eval().picture.set_middle(to_pictures(frames[:: max(1, len(frames) // 512), 0].to(device)))
    return net


def _loss(net: ScoringNet, pictures_BCHW: Tensor, texts: Sequence[str], draw: torch.Generator) -> Tensor:
    ids_BL = net.text.text_ids(texts)
    dropped = (torch.rand(ids_BL.shape, generator=draw) < 0.02) & (ids_BL != PAD)  # to train the embedding of UNKNOWN
    ids_BL = ids_BL.masked_fill(dropped, UNKNOWN)
    device = pictures_BCHW.device
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        images, captions = net.picture(pictures_BCHW), net.text(ids_BL.to(device))
    scale = net.warmth.exp().clamp(max=MAX_LOGIT_SCALE)
    return contrastive(captions.float(), images.float(), scale, same_captions(texts).to(device))


def _degraded(pictures_BCHW: Tensor, draw: torch.Generator) -> Tensor:
    """Pictures with the flaws of a decoder: blurred, noisy, relit, shifted."""
    soft, noise, light, contrast = torch.rand(4, len(pictures_BCHW), 1, 1, 1, generator=draw).to(pictures_BCHW.device)
    factor = int(torch.randint(2, 4, (1,), generator=draw))
    pictures = torch.lerp(pictures_BCHW, blurred(pictures_BCHW, factor), soft**2)
    pictures = pictures.roll([int(shift) for shift in torch.randint(-4, 5, (2,), generator=draw)], (2, 3))
    grain = torch.randn(pictures.shape, generator=draw).to(pictures.device)
    return relit(pictures, light, contrast) + 0.06 * noise * grain
