"""The scoring models behind CLIP-I, CLIP-T and DreamSim: their interface.

M images or texts, E embedding width, H height, W width, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

STAND_IN = "toybox towers"  # in saved runs and reports; new text says "scoring models"


class ImageModel(Protocol):
    """A model that embeds images, such as DreamSim: the cosine of two embeddings is their similarity."""

    @property
    def name(self) -> str:
        """The model's name in reports."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What a report says about the model: its files with their hashes, as plain json values."""

    def embed_images(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU, of RGB images of one size."""


class ImageTextModel(ImageModel, Protocol):
    """A CLIP model: it embeds texts into the same space as images, where the cosine says how well they fit."""

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU."""


@dataclass(frozen=True)
class ScoringModels:
    """What scores shots. stand_in: these are the Toybox's own models. dreamsim None: its rows stay unmeasured."""

    clip: ImageTextModel
    dreamsim: ImageModel | None
    stand_in: bool = False

    def label(self, metric: str) -> str:
        """A row's printed name: `CLIP-I`, or `CLIP-I (toybox towers)` for the Toybox's models."""
        return f"{metric} ({STAND_IN})" if self.stand_in else metric

    @property
    def facts(self) -> dict[str, Any]:
        """What a report says about the models, as plain json values."""
        dreamsim = None if self.dreamsim is None else {"name": self.dreamsim.name, **self.dreamsim.facts}
        return {"stand_in": self.stand_in, "clip": {"name": self.clip.name, **self.clip.facts}, "dreamsim": dreamsim}
