"""GC, GFC and GSC: the paper's baselines (supplement 3.2) as players of a benchmark.

None of them keeps a state: they draw each turn from its instruction and predict neither level nor gauges. The noise of
turn n is seeded with seed + n - 1, for its first frame as for its clip, so a game's shots depend on nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...state import clean_text, motion_text
from ..players import PlayedShot
from .folders import FLUX, IMAGE_TO_VIDEO, SDXL, TEXT_TO_VIDEO, open_folder
from .frames import speed
from .models import ClipModel, PictureModel
from .settings import FPS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...data.benchmark import BenchmarkGame
    from .settings import BaselineSettings


def _shot(frames: NDArray[np.uint8], seconds: float) -> PlayedShot:
    """A baseline's shot: it predicts nothing, and reads how lively to be in words alone, so nothing is calibrated."""
    return PlayedShot(frames, None, None, seconds, uncalibrated=frames)


class _Baseline:
    """What the three share: a name, a frame rate, and the facts of how clips become shots."""

    name = ""
    prompts = ""
    fps = float(FPS)

    def __init__(self, settings: BaselineSettings, clips: ClipModel) -> None:
        self._settings = settings
        self._clips = clips

    @property
    def facts(self) -> dict[str, Any]:
        """Which models drew, from which texts, and how their clips became shots."""
        settings, drawn = self._settings, self._clips.frames
        return {
            "baseline": self.name,
            "prompts": self.prompts,
            "video": self._clips.facts,
            "frames_drawn": drawn,
            "frames": min(drawn, settings.frames),
            "take": settings.take,
            "speed": round(speed(drawn, settings.frames, settings.take), 3),
            "shot_size": list(settings.size or self._clips.size),
            "offload": settings.offload,
        }


class TextToVideo(_Baseline):
    """GC: a CogVideoX-2B, fine-tuned as the decoder D_a was, draws every clip from the whole instruction.

    `lora` holds the fine-tuning; without one the folder's own weights count as fine-tuned, as those of the Toybox's
    stage `gc` are.
    """

    name = "GC"
    prompts = "clip: the whole instruction"

    def __init__(self, settings: BaselineSettings) -> None:
        if settings.pictures is not None:
            raise ValueError(f"GC draws no first frames, and pictures is {settings.pictures}; leave it out")
        folder = open_folder(settings.video, TEXT_TO_VIDEO, self.name)
        super().__init__(settings, ClipModel(folder, settings, settings.lora))

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """The shots of a game's turns."""
        self._clips.load()  # so that loading counts in no turn's seconds
        for index, turn in enumerate(game.turns):
            begun = time.perf_counter()
            frames = self._clips.draw(clean_text(turn.instruction), seed + index)
            yield _shot(frames, time.perf_counter() - begun)


class FirstFrameToVideo(_Baseline):
    """GFC: FLUX with a LoRA of first frames draws one from the instruction; CogVideoX-5B-I2V moves it.

    The paper gives the action instruction to the stock image-to-video model; that is the motion part, adverb included.
    """

    name = "GFC"
    prompts = "first frame: the whole instruction; clip: its motion part"

    def __init__(self, settings: BaselineSettings) -> None:
        clips = ClipModel(open_folder(settings.video, IMAGE_TO_VIDEO, self.name), settings)
        super().__init__(settings, clips)
        self._pictures = PictureModel(
            open_folder(settings.pictures, FLUX, self.name), settings, clips.size, settings.lora
        )

    @property
    def facts(self) -> dict[str, Any]:
        """As of every baseline, and what drew the first frames."""
        return {**super().facts, "pictures": self._pictures.facts}

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """The shots of a game's turns."""
        self._pictures.load()
        self._clips.load()
        for index, turn in enumerate(game.turns):
            begun = time.perf_counter()
            picture = self._pictures.draw(clean_text(turn.instruction), seed + index)
            frames = self._clips.draw(motion_text(turn.instruction), seed + index, picture)
            yield _shot(frames, time.perf_counter() - begun)


class StoryToVideo(_Baseline):
    """GSC: SDXL with consistent self-attention draws the first frames of a whole game together; they move as in GFC.

    A turn's seconds are those of its own clip and an equal share of the seconds that all first frames took.
    """

    name = "GSC"
    prompts = "first frames: the whole instructions of a game at once; clip: the motion part"

    def __init__(self, settings: BaselineSettings) -> None:
        if settings.lora is not None:
            raise ValueError(f"GSC trains nothing, and lora is {settings.lora}; leave it out")
        clips = ClipModel(open_folder(settings.video, IMAGE_TO_VIDEO, self.name), settings)
        super().__init__(settings, clips)
        self._pictures = PictureModel(open_folder(settings.pictures, SDXL, self.name), settings, clips.size)

    @property
    def facts(self) -> dict[str, Any]:
        """As of every baseline, and how the first frames were drawn together."""
        settings = self._settings
        return {
            **super().facts,
            "pictures": self._pictures.facts,
            "style": settings.style,
            "share": settings.share,
            "share_after": settings.share_after,
            "batch": settings.batch,
            "seconds": "a clip's own, and an equal share of the time of the game's first frames",
        }

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """The shots of a game's turns; the first comes after all first frames are drawn."""
        self._pictures.load()
        self._clips.load()
        style = clean_text(self._settings.style)
        begun = time.perf_counter()
        prompts = [" ".join(filter(None, (clean_text(turn.instruction), style))) for turn in game.turns]
        pictures = self._pictures.draw_together(prompts, [seed + index for index in range(len(prompts))])
        shared = (time.perf_counter() - begun) / len(prompts)
        for index, (turn, picture) in enumerate(zip(game.turns, pictures, strict=True)):
            begun = time.perf_counter()
            frames = self._clips.draw(motion_text(turn.instruction), seed + index, picture)
            yield _shot(frames, shared + time.perf_counter() - begun)
