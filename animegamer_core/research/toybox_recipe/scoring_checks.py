"""Checks the scoring models on held-out true clips, with controls that must be at chance.

M scenes, P pictures of a scene, G pictures of a gallery, E embedding width. All figures but those of control models are
of the models in fp16, as they are shipped.
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

from ...toybox.references import reference_pictures
from ...toybox.scoring_models import ScoringNet, load_scoring_models, save_scoring_models
from ...toybox.world import CHARACTERS, COLOURS, MOTIONS, PLACES, PROPS, TIMES, Scene, instruction
from .scoring_models import (
    BATCH,
    FIRST_SEED,
    HELD_OUT_SEED,
    PICTURES,
    SEEDS,
    Examples,
    draw_examples,
    train_scoring_models,
)
from .training import OnLoss

GALLERY = 100  # pictures of a gallery
LEVEL = 3  # motion level of all texts in the checks, since a single picture does not show speed
NOTE = (
    "trained apart from the towers that condition the world, on true clips alone, of seeds that no game, no probe and "
    "no other stage uses"
)


@dataclass(frozen=True)
class ScoringRecipe:
    """How many true scenes the scoring models are trained on and checked with, and for how many steps.

    control_steps: steps of the control models, which are trained with shuffled captions.
    """

    scenes: int = 6_000
    held_out: int = 500
    steps: int = 400
    control_steps: int = 80
    seed: int = 0


def build_scoring_models(
    world: Path | str,
    recipe: ScoringRecipe,
    device: torch.device | str,
    workers: int | None = None,
    on_loss: OnLoss | None = None,
) -> dict[str, Any]:
    """Draw pictures; train, check and save the scoring models in a world's folder. Returns the facts on their card."""
    base = recipe.seed * SEEDS
    examples = draw_examples(range(base + FIRST_SEED, base + FIRST_SEED + recipe.scenes), workers)
    held_out = draw_examples(range(base + HELD_OUT_SEED, base + HELD_OUT_SEED + recipe.held_out), workers)
    facts: dict[str, Any] = {"recipe": {**asdict(recipe), "batch": BATCH, "pictures": PICTURES}, "note": NOTE}
    save_scoring_models(
        train_scoring_models(examples, examples.scenes, recipe.steps, device, recipe.seed, on_loss), world, facts
    )
    net = load_scoring_models(world, device)
    facts |= {
        "retrieval": retrieval(net, held_out),
        "ranking": ranking(net, held_out),
        "references": reference_ranking(net, held_out),
        "perceptual": perceptual_ranking(net, held_out.frames),
        "noise": noise_check(net, held_out, recipe.seed),
        "shuffled": shuffled_check(examples, held_out, recipe.control_steps, device, recipe.seed),
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


def other_scenes(scene: Scene, rng: random.Random) -> dict[str, Scene]:
    """Fact -> a scene that differs from this one only in that fact; without the facts that the scene lacks."""
    others = {
        "place": replace(scene, place=_other(PLACES, scene.place, rng)),
        "time": replace(scene, time=_other(TIMES, scene.time, rng)),
    }
    alike = [name for name, row in MOTIONS.items() if row.partner == MOTIONS[scene.motion].partner]
    others["motion"] = replace(scene, motion=_other(alike, scene.motion, rng))
    free = [name for name in CHARACTERS if name != scene.partner]
    others["character"] = replace(scene, character=_other(free, scene.character, rng))
    if scene.partner:
        free = [name for name in CHARACTERS if name != scene.character]
        others["partner"] = replace(scene, partner=_other(free, scene.partner, rng))
    if scene.prop:
        others["prop"] = replace(scene, prop=_other(PROPS, scene.prop, rng))
        others["colour"] = replace(scene, prop_colour=_other(tuple(COLOURS), scene.prop_colour, rng), prop_told=True)
    return others


def _other(names: Sequence[str], own: str | None, rng: random.Random) -> str:
    return rng.choice([name for name in names if name != own])


def ranking(net: ScoringNet, examples: Examples, seed: int = 0) -> dict[str, float]:
    """Fact -> how often a picture matches its own instruction better than one that differs only in that fact.

    Chance is 1/2.
    """
    rng = random.Random(f"toybox/scorers/ranking/{seed}")
    picture_ME = net.embed_pictures(examples.frames[:, 0])
    rows: dict[str, list[tuple[int, str, str]]] = {}
    for index, scene in enumerate(examples.scenes):
        for fact, other in other_scenes(scene, rng).items():
            own = replace(scene, prop_told=True) if fact == "colour" else scene
            rows.setdefault(fact, []).append((index, instruction(own, LEVEL), instruction(other, LEVEL)))
    return {fact: _preferred(net, picture_ME, row) for fact, row in rows.items()}


def _preferred(net: ScoringNet, picture_ME: Tensor, rows: Sequence[tuple[int, str, str]]) -> float:
    pictures = picture_ME[[index for index, _, _ in rows]]
    right, wrong = (net.embed_texts([row[side] for row in rows]) for side in (1, 2))
    return float(((pictures * (right - wrong)).sum(-1) > 0).float().mean())


def reference_ranking(net: ScoringNet, examples: Examples) -> float:
    """How often a picture is nearest to the mean embedding of its own character's reference pictures.

    Only scenes with one character count. Chance is 1/6.
    """
    known = torch.stack([net.embed_pictures(reference_pictures(name)).mean(dim=0) for name in CHARACTERS])
    single = [index for index, scene in enumerate(examples.scenes) if scene.partner is None]
    nearest = (net.embed_pictures(examples.frames[single, 0]) @ known.T).argmax(dim=1).tolist()
    names = tuple(CHARACTERS)
    own = zip(single, nearest, strict=True)
    return float(np.mean([names[near] == examples.scenes[index].character for index, near in own]))


def perceptual_ranking(net: ScoringNet, frames_MPHWC: NDArray[np.uint8]) -> dict[str, float]:
    """For the DreamSim stand-in: how often a frame is nearer to another frame of its shot than to one of another scene.

    The result also has the mean similarity in both cases. Chance is 1/2.
    """
    first, second = (net.embed_pictures(frames_MPHWC[:, index], perceptual=True) for index in (0, 1))
    same, other = (first * second).sum(-1), (first * second.roll(1, 0)).sum(-1)
    nearer = (same > other).float() + 0.5 * (same == other).float()
    return {"nearer": float(nearer.mean()), "same_shot": float(same.mean()), "other_shot": float(other.mean())}


def noise_check(net: ScoringNet, examples: Examples, seed: int = 0) -> dict[str, float]:
    """`retrieval` and `perceptual_ranking` with noise instead of pictures; both must be at chance.

    The DreamSim stand-in compares a true first frame with noise.
    """
    draw = np.random.default_rng(seed)
    noise = draw.integers(0, 256, examples.frames[:, 0].shape, dtype=np.uint8)
    frames = np.stack([examples.frames[:, 0], noise], axis=1)
    found = retrieval(net, Examples(examples.scenes, noise[:, None]))
    nearer = perceptual_ranking(net, frames)["nearer"]
    return {"text_to_picture": found["text_to_picture"], "picture_to_text": found["picture_to_text"], "nearer": nearer}


def shuffled_check(
    examples: Examples, held_out: Examples, steps: int, device: torch.device | str, seed: int = 0
) -> dict[str, float]:
    """`retrieval` of models that were trained with shuffled captions; it must be at chance."""
    captioned = list(examples.scenes)
    random.Random(f"toybox/scorers/shuffled/{seed}").shuffle(captioned)
    return retrieval(train_scoring_models(examples, captioned, steps, device, seed), held_out)
