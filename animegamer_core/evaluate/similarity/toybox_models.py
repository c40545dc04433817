"""The Toybox's own scoring models in place of CLIP and DreamSim, so that a report needs no download.

M images or texts, E embedding width, H height, W width, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...checkpoint.world import EMBEDDED
from ...toybox.scoring_models import FOLDER, WEIGHTS, ScoringNet, load_scoring_models, read_card
from .files import file_facts
from .models import STAND_IN, ScoringModels

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True)
class ToyboxModel:
    """Image and text encoder of a Toybox world. perceptual: by the middle layers, which see colour and layout."""

    net: ScoringNet
    facts: Mapping[str, Any]
    perceptual: bool = False
    name: str = STAND_IN

    def embed_images(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU, of RGB images of one size."""
        return self.net.embed_pictures(frames_MHWC, self.perceptual)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU."""
        return self.net.embed_texts(texts)


def open_toybox_models(device: torch.device | str) -> ScoringModels:
    """The scoring models of the shipped world, for every Toybox world; ValueError if they are missing."""
    world = EMBEDDED["toybox"]
    net = load_scoring_models(world, device)
    facts = {"files": file_facts([world / FOLDER / WEIGHTS]), "trained": read_card(world)["facts"]}
    return ScoringModels(ToyboxModel(net, facts), ToyboxModel(net, facts, perceptual=True), stand_in=True)
