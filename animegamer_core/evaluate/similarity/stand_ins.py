"""The Toybox's own scoring towers in the place of CLIP and DreamSim, so that a report needs no download.

M pictures or texts, E embedding width, H height, W width, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoint.world import EMBEDDED
from ...toybox.scorers import FOLDER, WEIGHTS, Scorers, load_scorers, read_card
from .files import file_facts
from .towers import STAND_IN, Towers

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True)
class StandInClip:
    """Both towers of a Toybox world."""

    scorers: Scorers
    facts: Mapping[str, Any]
    name: str = STAND_IN

    def pictures(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU, of RGB pictures of one size."""
        return self.scorers.embed_pictures(frames_MHWC)

    def texts(self, texts: Sequence[str]) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU."""
        return self.scorers.embed_texts(texts)


@dataclass(frozen=True)
class StandInDreamSim:
    """The picture tower's middle layers, where colour and layout count."""

    scorers: Scorers
    facts: Mapping[str, Any]
    name: str = STAND_IN

    def pictures(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU, of RGB pictures of one size."""
        return self.scorers.embed_pictures(frames_MHWC, perceptual=True)


def open_stand_ins(device: torch.device | str = "cpu", world: Path = EMBEDDED["toybox"]) -> Towers:
    """The scoring towers of the shipped world, which score every Toybox world alike; ValueError if they are missing."""
    scorers = load_scorers(world, device)
    facts = {"files": file_facts([world / FOLDER / WEIGHTS]), "trained": read_card(world)["facts"]}
    return Towers(StandInClip(scorers, facts), StandInDreamSim(scorers, facts), stand_in=True)
