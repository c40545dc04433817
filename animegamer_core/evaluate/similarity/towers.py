"""The towers that CLIP-I, CLIP-T and DreamSim are read off: what they offer, and where they come from.

M pictures or texts, E embedding width, H height, W width, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

STAND_IN = "toybox towers"
KINDS = ("toybox", "published")
DREAMSIM_HELP = "folder of DreamSim's weights; code that lies there with its DINO is run, so fetch it yourself"


class PictureText(Protocol):
    """A CLIP model: pictures and texts in one space, where their cosine says how well they fit.

    name: as a report prints it, with the model. facts: what else a report has to say (files and their hashes), as plain
    json values.
    """

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Plain json values for a report: which files, with their hashes."""

    def pictures(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU, of RGB pictures of one size."""

    def texts(self, texts: Sequence[str]) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU."""


class Perceptual(Protocol):
    """A DreamSim model: the cosine of two pictures' vectors is their similarity, 1 minus DreamSim's distance."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Plain json values for a report: which files, with their hashes."""

    def pictures(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU, of RGB pictures of one size."""


@dataclass(frozen=True)
class Towers:
    """What scores pictures. stand_in: they are the Toybox's own. dreamsim None: its rows stay unmeasured."""

    clip: PictureText
    dreamsim: Perceptual | None
    stand_in: bool = False

    def label(self, metric: str) -> str:
        """A row's printed name: `CLIP-I`, or `CLIP-I (toybox towers)` for the stand-ins, never under the bare name."""
        return f"{metric} ({STAND_IN})" if self.stand_in else metric

    @property
    def facts(self) -> dict[str, Any]:
        """What a report says of the towers, as plain json values."""
        dreamsim = None if self.dreamsim is None else {"name": self.dreamsim.name, **self.dreamsim.facts}
        return {"stand_in": self.stand_in, "clip": {"name": self.clip.name, **self.clip.facts}, "dreamsim": dreamsim}


def open_towers(
    name: str,
    *,
    clip: Path | None = None,
    dreamsim: Path | None = None,
    device: torch.device | str = "cpu",
) -> Towers:
    """The towers `toybox` (shipped) or `published`; ValueError says which files are missing and where people get them.

    clip, dreamsim: the user's own folders with published weights, read as they are and never downloaded; `toybox` takes
    none. Without a dreamsim folder there are no DreamSim rows.
    """
    if name not in KINDS:
        raise ValueError(f"unknown towers {name!r}; choose one of {', '.join(KINDS)}")
    if name == "toybox":
        if clip is not None or dreamsim is not None:
            raise ValueError(f"towers 'toybox' take no folder, got {clip or dreamsim}; say 'published' to use it")
        from .stand_ins import open_stand_ins

        return open_stand_ins(device)
    from .clip import CLIP_SOURCE, open_clip_tower
    from .dream import open_dreamsim

    if clip is None:
        raise ValueError(f"published towers need a folder with a CLIP model; download one yourself, e.g. {CLIP_SOURCE}")
    return Towers(open_clip_tower(clip, device), None if dreamsim is None else open_dreamsim(dreamsim, device))
