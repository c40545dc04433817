"""How one clip gets its caption: which characters it shows, then what happens in it (supplement, section 2)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..records import ClipRecord
from .answers import AnswerLog, Asked, answer_key, first_valid
from .pictures import CAPTIONING_FRAMES, MATCHING_FRAMES, Cast, frame_sheet
from .prompts import captioning_prompt, matching_prompt
from .questions import VisionModel
from .replies import Caption, parse_caption, parse_matching
from .rounds import Prices

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORM = 1  # of the questions; a new one makes kept replies unread


@dataclass(frozen=True)
class ClipTask:
    """A clip to caption. frames: reads it, (F, H, W, 3) uint8; only called where the pictures are needed."""

    record: ClipRecord
    frames: Callable[[], NDArray[np.uint8]]
    cast: Cast
    answers: AnswerLog
    stop: threading.Event


class Captioner(Protocol):
    """Captions one clip; may be called from several threads."""

    name: str

    def caption(self, task: ClipTask) -> Caption:
        """The caption. ReplyError: every reply was invalid. CaptionerError: nothing could be asked."""


@dataclass(frozen=True)
class ModelCaptioner:
    """Captions clips with a vision model. tries: replies to one question before the clip is set aside.

    price_in, price_out: what a million tokens cost, in any currency; None where nothing is to be paid or known.
    """

    model: VisionModel
    tries: int = 3
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.tries <= 20:
            raise ValueError(f"tries is {self.tries}; expected 1 to 20 replies before a clip is set aside")
        self.prices  # noqa: B018  both or none

    @property
    def prices(self) -> Prices:
        """Of its tokens."""
        return Prices(self.price_in, self.price_out)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    def caption(self, task: ClipTask) -> Caption:
        """The caption; every reply is in the log before it is read."""
        references = task.cast.references
        put = partial(first_valid, model=self.model, kept=task.answers, tries=self.tries, stop=task.stop)
        indices = put(_matching(task, self.model)) if references else ()
        caption = put(_captioning(task, self.model))
        return replace(caption, characters=tuple(references[index - 1].name for index in indices))


def _matching(task: ClipTask, model: VisionModel) -> Asked[tuple[int, ...]]:
    count = len(task.cast.references)
    # a copy of the sheet, since Pillow writes to a picture while it is saved and threads share this one
    return Asked(
        prompt=matching_prompt(count),
        pictures=lambda: (task.cast.sheet.copy(), frame_sheet(task.frames(), MATCHING_FRAMES)),
        parse=lambda text: parse_matching(text, count),
        **_named(task, model, "matching", task.cast.digest),
    )


def _captioning(task: ClipTask, model: VisionModel) -> Asked[Caption]:
    level = task.record.motion_level
    return Asked(
        prompt=captioning_prompt(level),
        pictures=lambda: (frame_sheet(task.frames(), CAPTIONING_FRAMES),),
        parse=parse_caption,
        **_named(task, model, "captioning", level),
    )


def _named(task: ClipTask, model: VisionModel, step: str, depends: Any) -> dict[str, Any]:
    """Under which name, key and remarks replies are kept. depends: what they depend on beside clip and model."""
    record = task.record
    key = answer_key(FORM, model.name, step, record.film, record.start, record.end, depends)
    about = {"clip": record.clip, "level": record.motion_level, "captioner": model.name, "step": step}
    return {"name": step, "key": key, "about": about}
