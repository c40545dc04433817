"""The interface of the scoring models behind CLIP-I, CLIP-T and DreamSim.

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

STAND_IN = "toybox towers"  # stays as it is, since saved runs and reports contain it


class ImageModel(Protocol):
    """A model that embeds images, such as DreamSim; the cosine of two embeddings is the images' similarity."""

    @property
    def name(self) -> str:
        """The model's name in reports."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What a report says about the model, such as its files and their hashes, as plain JSON values."""

    def embed_images(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """Embed RGB images of one size: (M, E) fp32 unit vectors on the CPU."""


class ImageTextModel(ImageModel, Protocol):
    """A CLIP model: it embeds texts into the space of images, where the cosine says how well they match."""

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts: (M, E) fp32 unit vectors on the CPU."""


@dataclass(frozen=True)
class ScoringModels:
    """The models that score shots. dreamsim: None leaves its rows empty. stand_in: they are the Toybox's own."""

    clip: ImageTextModel
    dreamsim: ImageModel | None
    stand_in: bool = False

    def label(self, metric: str) -> str:
        """A row's printed name: `CLIP-I`, or `CLIP-I (toybox towers)` for the Toybox's models."""
        return f"{metric} ({STAND_IN})" if self.stand_in else metric

    @property
    def facts(self) -> dict[str, Any]:
        """What a report says about the models, as plain JSON values."""
        dreamsim = None if self.dreamsim is None else {"name": self.dreamsim.name, **self.dreamsim.facts}
        return {"stand_in": self.stand_in, "clip": {"name": self.clip.name, **self.clip.facts}, "dreamsim": dreamsim}
