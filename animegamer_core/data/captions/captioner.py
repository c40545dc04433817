"""How one clip gets its caption: which characters it shows, then what happens in it (supplement, section 2)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..records import ClipRecord
from .answers import AnswerLog, answer_key
from .pictures import CAPTIONING_FRAMES, MATCHING_FRAMES, Cast, frame_sheet
from .prompts import again_prompt, captioning_prompt, matching_prompt
from .questions import Cancelled, Question, Reply, VisionModel
from .replies import Caption, ReplyError, parse_caption, parse_matching
from .rounds import Prices

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

T = TypeVar("T")
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
class _Step(Generic[T]):
    """One question about a clip. depends: what the reply depends on beside clip and model."""

    name: str
    depends: tuple[Any, ...]
    prompt: str
    pictures: Callable[[], tuple[Image.Image, ...]]
    parse: Callable[[str], T]


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
        indices = _first_valid(self, task, _matching(task)) if references else ()
        caption = _first_valid(self, task, _captioning(task))
        return replace(caption, characters=tuple(references[index - 1].name for index in indices))


def _matching(task: ClipTask) -> _Step[tuple[int, ...]]:
    count = len(task.cast.references)
    # a copy of the sheet, since Pillow writes to a picture while it is saved and threads share this one
    return _Step(
        "matching",
        (task.cast.digest,),
        matching_prompt(count),
        lambda: (task.cast.sheet.copy(), frame_sheet(task.frames(), MATCHING_FRAMES)),
        lambda text: parse_matching(text, count),
    )


def _captioning(task: ClipTask) -> _Step[Caption]:
    level = task.record.motion_level
    return _Step(
        "captioning",
        (level,),
        captioning_prompt(level),
        lambda: (frame_sheet(task.frames(), CAPTIONING_FRAMES),),
        parse_caption,
    )


def _first_valid(captioner: ModelCaptioner, task: ClipTask, step: _Step[T]) -> T:
    """What the first valid reply says; ReplyError where all replies that may be asked for are invalid."""
    prompt = step.prompt
    for attempt in range(1, captioner.tries + 1):
        reply = _reply(captioner.model, task, step, attempt, prompt)
        try:
            if reply.problem:
                raise ReplyError(reply.problem, "a whole reply", reply.text)
            return step.parse(reply.text)
        except ReplyError as error:
            last = error
        prompt = again_prompt(step.prompt, last.expected)
    found = f"{captioner.tries} invalid replies to the {step.name} question; of the last, {last.found}"
    raise ReplyError(found, last.expected, last.reply)


def _reply(model: VisionModel, task: ClipTask, step: _Step[Any], attempt: int, prompt: str) -> Reply:
    """The kept reply, or a new one, which is kept before anything else happens."""
    record = task.record
    key = answer_key(FORM, model.name, step.name, record.film, record.start, record.end, *step.depends)
    reply = task.answers.get(key, attempt)
    if reply is not None:
        return reply
    if task.stop.is_set():
        raise Cancelled("the run was stopped")
    reply = model.answer(Question(prompt, step.pictures()), attempt, task.stop)
    about = {"clip": record.clip, "level": record.motion_level, "captioner": model.name, "step": step.name}
    task.answers.put(key, attempt, reply, about)
    return reply
