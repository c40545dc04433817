"""The scoring models behind CLIP-I, CLIP-T and DreamSim: published ones, from the user's folders.

Imports torch only when models are opened. M images or texts, E embedding width, H height, W width, C channels.
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

FACTS = "scoring models"  # key of a run's settings
ROWS = {"clip": "CLIP-I, CLIP-T", "dreamsim": "DreamSim"}  # by the model that they need, which is also its option


class ImageModel(Protocol):
    """A model that embeds images, such as DreamSim; the cosine of two embeddings is the images' similarity.

    facts: what a report says about it, such as its files and their hashes, as plain JSON values.
    """

    @property
    def name(self) -> str: ...

    @property
    def facts(self) -> Mapping[str, Any]: ...

    def embed_images(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """Embed RGB images of one size: (M, E) fp32 unit vectors on the CPU."""


class ImageTextModel(ImageModel, Protocol):
    """A CLIP model: it embeds texts into the space of images, where the cosine says how well they match."""

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts: (M, E) fp32 unit vectors on the CPU."""


@dataclass(frozen=True)
class ScoringModels:
    """The models that score pictures. Without one, its rows are left out."""

    clip: ImageTextModel | None = None
    dreamsim: ImageModel | None = None

    @property
    def by_row(self) -> dict[str, ImageModel]:
        """The models by the row of their similarity between pictures."""
        models = {"clip_i": self.clip, "dreamsim": self.dreamsim}
        return {row: model for row, model in models.items() if model is not None}

    @property
    def facts(self) -> dict[str, Any]:
        """What a report says about the models by their options, as plain JSON values."""
        models = {"clip": self.clip, "dreamsim": self.dreamsim}
        return {key: {"name": one.name, **one.facts} for key, one in models.items() if one is not None}

    @property
    def remarks(self) -> tuple[str, ...]:
        """A remark about the rows that are left out, if there are any."""
        lacking = [key for key in ROWS if key not in self.facts]
        rows, options = ", ".join(ROWS[key] for key in lacking), ", ".join(f"--{key} FOLDER" for key in lacking)
        return (f"left out: {rows}; the command's {options} (published weights) brings them",) if lacking else ()


def open_scoring_models(
    *, clip: Path | None = None, dreamsim: Path | None = None, device: torch.device | str = "cpu"
) -> ScoringModels:
    """Open the models in the user's folders of published weights, which are never downloaded.

    ValueError says which files are missing, and where to get them.
    """
    from .published import open_clip_model, open_dreamsim

    return ScoringModels(
        None if clip is None else open_clip_model(clip, device),
        None if dreamsim is None else open_dreamsim(dreamsim, device),
    )
