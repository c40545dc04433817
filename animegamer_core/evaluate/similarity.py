"""The scoring models behind CLIP-I, CLIP-T and DreamSim: the Toybox's own, or published ones in the user's folders.

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

    from ..toybox.scoring_models import ScoringNet

KINDS = ("toybox", "published")
STAND_IN = "toybox towers"  # stays as it is, since saved runs and reports contain it


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
    """The models that score shots. dreamsim: None leaves its rows empty. stand_in: they are the Toybox's own."""

    clip: ImageTextModel
    dreamsim: ImageModel | None
    stand_in: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """What a report says about the models, as plain JSON values."""
        dreamsim = None if self.dreamsim is None else {"name": self.dreamsim.name, **self.dreamsim.facts}
        return {"stand_in": self.stand_in, "clip": {"name": self.clip.name, **self.clip.facts}, "dreamsim": dreamsim}


@dataclass(frozen=True)
class ToyboxModel:
    """The Toybox's image and text encoder. perceptual: use the middle layers, which see colour and layout."""

    net: ScoringNet
    facts: Mapping[str, Any]
    perceptual: bool = False
    name: str = STAND_IN

    def embed_images(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        return self.net.embed_pictures(frames_MHWC, self.perceptual)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        return self.net.embed_texts(texts)


def open_scoring_models(
    name: str, *, clip: Path | None = None, dreamsim: Path | None = None, device: torch.device | str = "cpu"
) -> ScoringModels:
    """Open the scoring models: `toybox` (shipped, which judge all worlds) or `published`.

    clip, dreamsim: the user's folders of published weights, which are never downloaded; `toybox` takes none. Without a
    dreamsim folder there are no DreamSim rows. ValueError says which files are missing, and where to get them.
    """
    if name == "toybox":
        if clip is not None or dreamsim is not None:
            raise ValueError(f"--towers toybox takes no folder, got {clip or dreamsim}; use --towers published")
        from ..toybox.scoring_models import FOLDER, WEIGHTS, load_scoring_models, read_card
        from ..weights.storage import note_of
        from ..weights.world import EMBEDDED

        world = EMBEDDED["toybox"]
        net = load_scoring_models(world, device)
        facts = {"files": {WEIGHTS: note_of(world / FOLDER / WEIGHTS).sha256}, "trained": read_card(world)["facts"]}
        return ScoringModels(ToyboxModel(net, facts), ToyboxModel(net, facts, perceptual=True), stand_in=True)
    from .published import CLIP_SOURCE, open_clip_model, open_dreamsim

    if clip is None:
        raise ValueError(f"--towers published needs a folder with a CLIP model; download one, e.g. {CLIP_SOURCE}")
    return ScoringModels(open_clip_model(clip, device), None if dreamsim is None else open_dreamsim(dreamsim, device))
