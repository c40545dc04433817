"""Many questions to one model: several at a time, each with a few tries, resumable at every reply, with their cost."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...data.captions.answers import AnswerLog, Asked, answer_key, first_valid
from ...data.captions.questions import VisionModel
from ...data.captions.rounds import OnProgress, Prices, Round, Spent, reasons

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")
FORM = 1  # of the questions; a new one makes kept replies unread
LONGEST_KEPT = 20_000  # characters of a kept reply; a longer one is invalid anyway
SHOWN_REPLY = 2000  # characters of a reply that a list of what was set aside shows
_FENCE = re.compile(r"```\w*\s*\n(.*?)\n\s*```", re.DOTALL)


@dataclass(frozen=True)
class Task(Generic[T]):
    """One question. depends: what the reply depends on beside prompt and model. pictures: made when it is asked.

    parse: reads a reply, ReplyError where it is not in the asked form. about: for people who read the kept replies.
    """

    name: str
    prompt: str
    parse: Callable[[str], T]
    pictures: Callable[[], tuple[Image.Image, ...]] = tuple
    depends: tuple[Any, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Terms:
    """How questions are put. tries: replies to one before it is set aside. at_once: questions under way.

    price_in, price_out: of a million tokens, in any currency; None where nothing is to be paid or known.
    """

    tries: int = 3
    at_once: int = 4
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.tries <= 20 or not 1 <= self.at_once <= 256:
            raise ValueError(f"tries {self.tries}, asked at once {self.at_once}; expected 1 to 20 and 1 to 256")
        self.prices  # noqa: B018  both or none

    @property
    def prices(self) -> Prices:
        """Of a model's tokens."""
        return Prices(self.price_in, self.price_out)


@dataclass(frozen=True)
class SetAside:
    """A question whose replies stayed invalid. reply: the beginning of the last one."""

    reason: str
    reply: str


@dataclass(frozen=True)
class Answers(Generic[T]):
    """What came of the questions, by name: values, set_aside, and failures of those that could not be asked.

    stopped: why the run ended early. spent: by this run; spent_in_all: with those before it, whose trouble is unknown.
    """

    values: Mapping[str, T]
    set_aside: Mapping[str, SetAside]
    failures: Mapping[str, str]
    asked: int
    stopped: str | None = None
    spent: Spent = Spent()
    spent_in_all: Spent = Spent()

    @property
    def whole(self) -> bool:
        """Whether every question has its answer."""
        return len(self.values) == self.asked

    @property
    def facts(self) -> dict[str, Any]:
        """What a report says of the asking, as plain values."""
        return {
            "asked": self.asked,
            "answered": len(self.values),
            "set_aside": len(self.set_aside),
            "failed": len(self.failures),
            "stopped": self.stopped,
            **asdict(self.spent),
            "requests_in_all": self.spent_in_all.requests,
            "cost_in_all": self.spent_in_all.cost,
        }

    @property
    def text(self) -> str:
        """The facts for people, a few lines."""
        opened, in_all = self.asked - len(self.values) - len(self.set_aside), self.spent_in_all
        cost = "" if in_all.cost is None else f", cost {in_all.cost:.4f}"
        lines = [
            f"questions: {self.asked}, answered {len(self.values)}, set aside {len(self.set_aside)}, open {opened}",
            *self.spent.lines,
            f"with earlier runs: {in_all.requests} requests{cost}",
            *reasons(self.failures, "questions"),
        ]
        return "\n".join([*lines, *([f"stopped early: {self.stopped}"] if self.stopped else [])])


def whole_reply(text: str) -> str:
    """A reply in normal form, without spaces and a code fence around the whole."""
    whole = unicodedata.normalize("NFC", text).strip()
    fenced = _FENCE.fullmatch(whole)
    return fenced[1].strip() if fenced else whole


def kept_replies(path: Path) -> AbstractContextManager[AnswerLog]:
    """The replies that earlier runs were given, and room for more; as `AnswerLog.open`."""
    return AnswerLog.open(path, f"{path}: another run is asking for these; wait for it, or stop it", LONGEST_KEPT)


def ask_all(
    model: VisionModel, tasks: Sequence[Task[T]], kept: AnswerLog, terms: Terms, on_progress: OnProgress | None = None
) -> Answers[T]:
    """Ask all questions; replies that are kept are read, not asked for again.

    What stops the run (a refused key, a service that is away) is told in the answers; an interrupt, and whatever
    on_progress raises, first lets the requests under way end and be kept.
    """
    names = [task.name for task in tasks]
    assert len(set(names)) == len(names), "two questions of one name"
    trouble_before = Counter(model.trouble)
    asking: Round[Task[T], T] = Round(
        "questions", lambda task: task.name, lambda task: _answer(task, model, kept, terms.tries, asking.stop)
    )
    asking.work(tasks, terms.at_once, on_progress)
    trouble = Counter(model.trouble) - trouble_before
    return Answers(
        values=asking.values,
        set_aside={name: SetAside(str(error), error.reply[:SHOWN_REPLY]) for name, error in asking.invalid.items()},
        failures=asking.failures,
        asked=len(tasks),
        stopped=asking.stopped,
        spent=Spent.of(kept.written, terms.prices, trouble),
        spent_in_all=Spent.of(kept.everything, terms.prices, trouble),
    )


def _answer(task: Task[T], model: VisionModel, kept: AnswerLog, tries: int, stop: threading.Event) -> T:
    """What the first valid reply says; ReplyError where all that may be asked for are invalid."""
    key = answer_key(FORM, model.name, task.prompt, *task.depends)
    about = {"question": task.name, "model": model.name, **task.about}
    return first_valid(Asked(key, task.prompt, task.pictures, task.parse, about), model, kept, tries, stop)
