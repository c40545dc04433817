"""Run by test_toybox_recipe.py: the build of a tiny world, also in several processes."""

import sys
from dataclasses import replace
from unittest import mock

from animegamer_core.evaluate.toybox_recipe import build
from animegamer_core.evaluate.toybox_recipe.probes import ProbeRecipe
from animegamer_core.evaluate.toybox_recipe.recipe import FULL, QUICK
from animegamer_core.spec import SPECS
from animegamer_core.toybox.dataset import DatasetGames

_TINY, _FULL = SPECS["tiny"].decoder, FULL.spec.decoder
_SIZE = {"height": _FULL.height, "width": _FULL.width, "patch": _FULL.patch}
_VAE = replace(_TINY.vae, latent_channels=_FULL.vae.latent_channels, tiny=(8, 8, 8), fast=True)
_GAMES = DatasetGames(games=2, held_out=1, turns=3)
_PROBES = ProbeRecipe(clips=4, held_out=2, steps=1, control_steps=1)
SMALL = replace(
    QUICK,
    spec=replace(SPECS["tiny"], decoder=replace(_TINY, **_SIZE, steps=1, vae=_VAE)),
    dataset_games=_GAMES,
    engine_games=_GAMES,
    probes=_PROBES,
)

if __name__ == "__main__":
    with mock.patch.object(build, "QUICK", SMALL):
        sys.exit(build.main())
