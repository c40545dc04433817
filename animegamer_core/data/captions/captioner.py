"""How one clip gets its caption: which characters it shows, then what happens in it (supplement, section 2)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...endpoint import VisionModel
from ..records import ClipRecord
from .batch import Prices
from .pictures import CAPTIONING_FRAMES, MATCHING_FRAMES, KnownCharacters, frame_sheet
from .prompts import captioning_prompt, matching_prompt
from .replies import Caption, parse_caption, parse_matching
from .reply_log import ReplyLog, Task, first_valid_reply


@dataclass(frozen=True)
class ClipTask:
    """A clip to caption. frames: reads it, (F, H, W, 3) uint8; called only where the pictures are needed."""

    record: ClipRecord
    frames: Callable[[], NDArray[np.uint8]]
    characters: KnownCharacters
    log: ReplyLog
    stop: threading.Event


class Captioner(Protocol):
    """Captions one clip; may be called from several threads."""

    name: str

    def caption(self, task: ClipTask) -> Caption:
        """The caption. ReplyError: every reply was invalid. CaptionerError: the model gave no answer."""


@dataclass(frozen=True)
class ModelCaptioner:
    """Captions clips with a vision model. tries: replies to one question before the clip is set aside.

    price_in, price_out: of a million tokens, in any currency; None if free or unknown.
    """

    model: VisionModel
    tries: int = 3
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.tries <= 20:
            raise ValueError(f"tries is {self.tries}; expected 1 to 20 replies before a clip is set aside")
        Prices(self.price_in, self.price_out)  # both or neither

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    def caption(self, task: ClipTask) -> Caption:
        """The caption; every reply is in the log before it is read."""
        references = task.characters.references
        indices: tuple[int, ...] = ()
        if references:
            # a copy of the sheet, since Pillow writes to a picture while saving it and threads share this one
            matching = Task(
                prompt=matching_prompt(len(references)),
                parse=lambda text: parse_matching(text, len(references)),
                pictures=lambda: (task.characters.sheet.copy(), frame_sheet(task.frames(), MATCHING_FRAMES)),
                **self._identity(task, "matching", task.characters.digest),
            )
            indices = first_valid_reply(matching, self.model, task.log, self.tries, task.stop)
        captioning = Task(
            prompt=captioning_prompt(task.record.motion_level),
            parse=parse_caption,
            pictures=lambda: (frame_sheet(task.frames(), CAPTIONING_FRAMES),),
            **self._identity(task, "captioning", task.record.motion_level),
        )
        caption = first_valid_reply(captioning, self.model, task.log, self.tries, task.stop)
        return replace(caption, characters=tuple(references[index - 1].name for index in indices))

    def _identity(self, task: ClipTask, step: str, depends: Any) -> dict[str, Any]:
        """What names a question and its stored replies. depends: what they depend on besides clip and model."""
        record = task.record
        return {
            "name": record.clip,
            "step": step,
            "depends": (step, record.film, record.start, record.end, depends),
            "about": {"clip": record.clip, "level": record.motion_level, "captioner": self.name, "step": step},
        }
