"""Trains the scoring models on pictures with captions, with symmetric InfoNCE, and checks them on held-out pictures.

B or M pictures or texts, L words, C channels, H height, W width, G pictures of a gallery, E embedding width.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.workers import parallel_map
from ...toybox.drawing.draw import draw_frame
from ...toybox.scenes import probe_scene
from ...toybox.scoring_models import (
    PAD,
    UNKNOWN,
    ScoringNet,
    load_scoring_models,
    save_scoring_models,
    to_pictures,
)
from ...toybox.sentences import instruction
from ...toybox.world import ADVERBS, FRAMES, HEIGHT, WIDTH, Scene, adverb, motion_text, words
from ...train.losses import contrastive
from .probes import JudgeRecipe, OnLoss, blurred, relit, train_network

LABELS = frozenset(words("Character: , ; Motion: ; Background: ."))  # words that say nothing about a picture
ADVERB_WORDS = frozenset(word for row in ADVERBS.values() for word in row)
FIRST_SEED, HELD_OUT_SEED, SEEDS = 300_000, 800_000, 1_000_000  # the probes' seeds begin at 0 and at 500,000
PICTURES = 2  # per scene: its first frame and a later one
BATCH, LEARNING_RATE, WEIGHT_DECAY = 160, 2e-3, 0.02
MAX_LOGIT_SCALE = 50.0
GALLERY = 100  # pictures of a gallery
LEVEL = 3  # motion level of all texts in the checks, since a single picture does not show speed
NOTE = (
    "trained apart from the towers that condition the world, on true clips alone, of seeds that no game, no probe and "
    "no other stage uses"
)


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
        texts = [caption(captioned[row], rng) for row in rows.tolist()]
        ids_BL = net.text.text_ids(texts)
        # some words are dropped, to train the embedding of UNKNOWN
        dropped = (torch.rand(ids_BL.shape, generator=draw) < 0.02) & (ids_BL != PAD)
        ids_BL = ids_BL.masked_fill(dropped, UNKNOWN).to(device)
        with torch.autocast(pictures.device.type, torch.bfloat16, enabled=pictures.is_cuda):
            images, captions = net.picture(pictures), net.text(ids_BL)
        scale = net.warmth.exp().clamp(max=MAX_LOGIT_SCALE)
        return contrastive(captions.float(), images.float(), scale, same_captions(texts).to(device))

    train_network(net, batch_loss, steps, LEARNING_RATE, WEIGHT_DECAY, on_loss)
    net.eval().picture.set_middle(to_pictures(frames[:: max(1, len(frames) // 512), 0].to(device)))
    return net


def _degraded(pictures_BCHW: Tensor, draw: torch.Generator) -> Tensor:
    """Pictures with the flaws of a decoder: blurred, noisy, relit, shifted."""
    soft, noise, light, contrast = torch.rand(4, len(pictures_BCHW), 1, 1, 1, generator=draw).to(pictures_BCHW.device)
    factor = int(torch.randint(2, 4, (1,), generator=draw))
    pictures = torch.lerp(pictures_BCHW, blurred(pictures_BCHW, factor), soft**2)
    pictures = pictures.roll([int(shift) for shift in torch.randint(-4, 5, (2,), generator=draw)], (2, 3))
    grain = torch.randn(pictures.shape, generator=draw).to(pictures.device)
    return relit(pictures, light, contrast) + 0.06 * noise * grain


def build_scoring_models(
    world: Path | str,
    recipe: JudgeRecipe,
    device: torch.device | str,
    workers: int | None = None,
    on_loss: OnLoss | None = None,
) -> dict[str, Any]:
    """Draw pictures; train, check and save the scoring models in a world's folder. Returns the facts on their card.

    The checks are of the models in fp16, as they are shipped; noise and shuffled captions must give chance.
    """
    first = recipe.seed * SEEDS + FIRST_SEED
    examples = draw_examples(range(first, first + recipe.clips), workers)
    first = recipe.seed * SEEDS + HELD_OUT_SEED
    held_out = draw_examples(range(first, first + recipe.held_out), workers)
    trained = train_scoring_models(examples, examples.scenes, recipe.steps, device, recipe.seed, on_loss)
    save_scoring_models(trained, world, {})
    net = load_scoring_models(world, device)
    shuffled = list(examples.scenes)
    random.Random(f"toybox/scorers/shuffled/{recipe.seed}").shuffle(shuffled)
    control = train_scoring_models(examples, shuffled, recipe.control_steps, device, recipe.seed)
    facts = {
        "recipe": {**asdict(recipe), "batch": BATCH, "pictures": PICTURES},
        "note": NOTE,
        "retrieval": retrieval(net, held_out),
        "noise": noise_check(net, held_out, recipe.seed),
        "shuffled": retrieval(control, held_out),
    }
    save_scoring_models(net, world, facts)
    return facts


def retrieval(net: ScoringNet, examples: Examples) -> dict[str, float]:
    """The top-1 accuracy of finding a text's picture (a first frame) in a gallery, and a picture's text.

    The texts are whole instructions. `gallery` in the result is the gallery's size, so chance is 1 / gallery. Finding
    another picture with the same text also counts.
    """
    texts = [instruction(scene, LEVEL) for scene in examples.scenes]
    text_ME, picture_ME = net.embed_texts(texts), net.embed_pictures(examples.frames[:, 0])
    size = min(GALLERY, len(texts))
    galleries = [slice(start, start + size) for start in range(0, len(texts) - size + 1, size)]
    found = [_is_found(text_ME[part], picture_ME[part], texts[part]) for part in galleries]
    named = [_is_found(picture_ME[part], text_ME[part], texts[part]) for part in galleries]
    return {
        "gallery": float(size),
        "text_to_picture": float(np.mean(np.concatenate(found))),
        "picture_to_text": float(np.mean(np.concatenate(named))),
    }


def _is_found(query_GE: Tensor, gallery_GE: Tensor, texts: Sequence[str]) -> NDArray[np.bool_]:
    best = (query_GE @ gallery_GE.T).argmax(dim=1).tolist()
    return np.array([texts[index] == text for index, text in zip(best, texts, strict=True)])


def noise_check(net: ScoringNet, examples: Examples, seed: int = 0) -> dict[str, float]:
    """`retrieval` with noise instead of pictures; it must be at chance."""
    noise = np.random.default_rng(seed).integers(0, 256, examples.frames[:, :1].shape, dtype=np.uint8)
    return retrieval(net, Examples(examples.scenes, noise))
