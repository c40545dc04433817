"""The paper's baselines GC, GFC and GSC as players, which draw with stock diffusers pipelines in the user's folders.

This package does not import torch; models are loaded when the first game is played.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .settings import NAMES, BaselineSettings

if TYPE_CHECKING:
    from ...evaluate.players import GamePlayer

__all__ = ["NAMES", "BaselineSettings", "open_baseline"]


def open_baseline(name: str, settings: BaselineSettings) -> GamePlayer:
    """Open the baseline `gc`, `gfc` or `gsc`; ValueError if a folder or a file is missing or wrong."""
    from .players import FirstFrameToVideo, StoryToVideo, TextToVideo

    players = {"gc": TextToVideo, "gfc": FirstFrameToVideo, "gsc": StoryToVideo}
    if name not in players:
        raise ValueError(f"unknown baseline {name!r}; choose one of {', '.join(NAMES)}")
    return players[name](settings)
