"""A saved world of random weights at the tiny size, for tests that play through the public loading path."""

import torch

from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.engine import GameEngine
from animegamer_core.model.prompt import GameTokenizer
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.toybox.world import vocabulary
from animegamer_core.weights import save_part, save_world


def save_tiny_world(folder, seed=0):
    """Write the world and return it opened."""
    torch.manual_seed(seed)
    spec, profile = SPECS["tiny"], PROFILES["paper"]
    world = save_world(folder, spec, profile=profile.name)
    tokenizer = GameTokenizer.from_words(vocabulary(), spec.state.tokens)
    world = save_part(world, GameEngine(spec, tokenizer, profile))
    return save_part(world, ShotDecoder(spec, profile))
