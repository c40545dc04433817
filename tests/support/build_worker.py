"""Run by test_toybox_recipe.py: the build of a tiny world of the harder games, also in several processes."""

from __future__ import annotations

import sys
from dataclasses import replace
from unittest import mock

from animegamer_core.research.toybox_recipe import build
from animegamer_core.research.toybox_recipe.probes import ProbeRecipe
from animegamer_core.research.toybox_recipe.recipe import HARD, HARD_QUICK
from animegamer_core.research.toybox_recipe.scoring_checks import ScoringRecipe
from animegamer_core.spec import SPECS
from animegamer_core.toybox.dataset import DatasetGames

_TINY, _HARD = SPECS["tiny"].decoder, HARD.spec.decoder
_SIZE = {"height": _HARD.height, "width": _HARD.width, "patch": _HARD.patch, "guides_motion": _HARD.guides_motion}
_VAE = replace(_TINY.vae, latent_channels=_HARD.vae.latent_channels)
_GAMES = DatasetGames(games=2, held_out=1, turns=3, edition=2)
TINY_HARD = replace(
    HARD_QUICK,
    spec=replace(SPECS["tiny"], decoder=replace(_TINY, **_SIZE, steps=1, vae=_VAE)),
    dataset_games=_GAMES,
    engine_games=_GAMES,
    probes=ProbeRecipe(clips=4, held_out=2, steps=1, control_steps=1),
    frames=ProbeRecipe(clips=4, held_out=2, steps=1, control_steps=1, seed=2),
    scoring=ScoringRecipe(scenes=4, held_out=2, steps=1, control_steps=1),
)

if __name__ == "__main__":
    with mock.patch.object(build, "RECIPES", {(2, True): TINY_HARD}):
        sys.exit(build.main())
