"""GC, GFC and GSC: the paper's baselines (supplement 3.2) as players of a benchmark.

They have no state: each turn is drawn from its instruction alone, and no motion level or stat change is predicted. The
first frame and the clip of turn n both have the seed `seed` + n - 1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...game.state import clean_text, motion_text
from ..players import PlayedShot
from . import FPS, SHOT_FRAMES
from .folders import FLUX, IMAGE_TO_VIDEO, SDXL, TEXT_TO_VIDEO, FolderKind, open_folder
from .models import ImageModel, VideoModel, speed

if TYPE_CHECKING:
    from PIL import Image

    from ...data.benchmark import BenchmarkGame
    from . import BaselineSettings


class _Baseline:
    """What the baselines share: frame rate, facts for the report, and drawing one turn."""

    name = ""
    prompts = ""
    fps = float(FPS)

    def __init__(self, settings: BaselineSettings, video: FolderKind, lora: Path | None = None) -> None:
        self._settings = settings
        self._clips = VideoModel(open_folder(settings.video, video, self.name), settings, lora)
        drawn = self._clips.frames
        self.facts: dict[str, Any] = {  # the models, their prompts, and how their clips become shots
            "baseline": self.name,
            "prompts": self.prompts,
            "video": self._clips.facts,
            "frames_drawn": drawn,
            "frames": min(drawn, SHOT_FRAMES),
            "take": settings.take,
            "speed": round(speed(drawn, SHOT_FRAMES, settings.take), 3),
            "shot_size": list(self._clips.size),
            "offload": settings.offload,
        }

    def _open_pictures(self, kind: FolderKind, lora: Path | None = None) -> None:
        """The model of the first frames."""
        folder = open_folder(self._settings.pictures, kind, self.name)
        self._pictures = ImageModel(folder, self._settings, self._clips.size, lora)
        self.facts["pictures"] = self._pictures.facts

    def _shot(self, begun: float, text: str, seed: int, picture: Image.Image | None = None) -> PlayedShot:
        """Draw a turn's shot. It has no predictions; only the text states its motion, so nothing is calibrated."""
        frames = self._clips.draw(text, seed, picture)
        return PlayedShot(frames, None, None, time.perf_counter() - begun, uncalibrated=frames)


class GC(_Baseline):
    """A CogVideoX-2B, fine-tuned as the decoder D_a was, draws every clip from the whole instruction.

    `lora` is the fine-tuning. Without it, the folder's weights must be fine-tuned already, like those that stage `gc`
    makes in the Toybox.
    """

    name = "GC"
    prompts = "clip: the whole instruction"

    def __init__(self, settings: BaselineSettings) -> None:
        if settings.pictures is not None:
            raise ValueError(f"pictures is {settings.pictures}, but GC draws no first frames; drop it")
        super().__init__(settings, TEXT_TO_VIDEO, settings.lora)

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        self._clips.pipeline  # noqa: B018  loaded before timing starts
        for index, turn in enumerate(game.turns):
            yield self._shot(time.perf_counter(), clean_text(turn.instruction), seed + index)


class GFC(_Baseline):
    """FLUX with a LoRA draws a first frame from the instruction; CogVideoX-5B-I2V animates it.

    As in the paper, the image-to-video model gets the action instruction: the motion part with its adverb.
    """

    name = "GFC"
    prompts = "first frame: the whole instruction; clip: its motion part"

    def __init__(self, settings: BaselineSettings) -> None:
        super().__init__(settings, IMAGE_TO_VIDEO)
        self._open_pictures(FLUX, settings.lora)

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        self._pictures.pipeline, self._clips.pipeline  # noqa: B018
        for index, turn in enumerate(game.turns):
            begun = time.perf_counter()
            (picture,) = self._pictures.draw([clean_text(turn.instruction)], [seed + index])
            yield self._shot(begun, motion_text(turn.instruction), seed + index, picture)


class GSC(_Baseline):
    """SDXL with consistent self-attention draws all first frames of a game together; they are animated as in GFC.

    A turn's seconds are those of its clip, plus an equal part of the seconds for all first frames of the game.
    """

    name = "GSC"
    prompts = "first frames: the whole instructions of a game at once; clip: the motion part"

    def __init__(self, settings: BaselineSettings) -> None:
        if settings.lora is not None:
            raise ValueError(f"lora is {settings.lora}, but GSC uses no LoRA; drop it")
        super().__init__(settings, IMAGE_TO_VIDEO)
        self._open_pictures(SDXL)
        self.facts |= {name: getattr(settings, name) for name in ("style", "share", "share_after", "batch")}
        self.facts["seconds"] = "a clip's own, and an equal share of the time of the game's first frames"

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """Yield the shots of a game's turns; draws all first frames before the first one."""
        self._pictures.pipeline, self._clips.pipeline  # noqa: B018
        style = clean_text(self._settings.style)
        begun = time.perf_counter()
        prompts = [" ".join(filter(None, (clean_text(turn.instruction), style))) for turn in game.turns]
        pictures = self._pictures.draw_together(prompts, [seed + index for index in range(len(prompts))])
        shared = (time.perf_counter() - begun) / len(prompts)
        for index, (turn, picture) in enumerate(zip(game.turns, pictures, strict=True)):
            yield self._shot(time.perf_counter() - shared, motion_text(turn.instruction), seed + index, picture)
