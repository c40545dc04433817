"""The choice of scoring models: the Toybox's own, or published ones in the user's folders. Light to import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .models import ScoringModels

if TYPE_CHECKING:
    import torch

KINDS = ("toybox", "published")


def open_scoring_models(
    name: str,
    *,
    clip: Path | None = None,
    dreamsim: Path | None = None,
    device: torch.device | str = "cpu",
) -> ScoringModels:
    """The scoring models `toybox` (shipped) or `published`; ValueError says which files are missing and their source.

    clip, dreamsim: the user's own folders of published weights, which are never downloaded; `toybox` takes none.
    Without a dreamsim folder there are no DreamSim rows.
    """
    if name not in KINDS:
        raise ValueError(f"unknown scoring models {name!r}; choose one of {', '.join(KINDS)}")
    if name == "toybox":
        from .toybox_models import open_toybox_models

        if clip is not None or dreamsim is not None:
            raise ValueError(f"--towers toybox takes no folder, got {clip or dreamsim}; use --towers published")
        return open_toybox_models(device)
    from .published_clip import CLIP_SOURCE, open_clip_model
    from .published_dreamsim import open_dreamsim

    if clip is None:
        raise ValueError(
            f"--towers published needs a folder with a CLIP model; download one yourself, e.g. {CLIP_SOURCE}"
        )
    return ScoringModels(open_clip_model(clip, device), None if dreamsim is None else open_dreamsim(dreamsim, device))
