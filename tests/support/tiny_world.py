"""A saved world of random weights at the tiny size, for tests that play through the public loading path."""

import torch

from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.encoder import ShotEncoder
from animegamer_core.model.engine import GameEngine
from animegamer_core.model.prompt import GameTokenizer
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.toybox.sentences import vocabulary
from animegamer_core.weights import save_part, save_world


def save_tiny_world(folder, seed=0, spec=SPECS["tiny"], encoder=False, **stated):
    """Write the world and return it opened. stated: see save_world."""
    torch.manual_seed(seed)
    world = save_world(folder, spec, **stated)
    tokenizer = GameTokenizer.from_words(vocabulary(), spec.state.tokens, world.life.rules.stats)
    world = save_part(world, GameEngine(spec, tokenizer, PROFILES["paper"]))
    world = save_part(world, ShotDecoder(spec, PROFILES["paper"]))
    return save_part(world, ShotEncoder(spec, tokenizer.backend)) if encoder else world
