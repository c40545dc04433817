"""Captioning a dataset: clips in parallel, resumable at every reply, with a list of the clips that failed.

A clip is asked about twice: which known characters it shows, then what happens in it (supplement, section 2).

captions.jsonl    every reply of a model (asking.py)
set_aside.jsonl   clips whose replies stayed invalid; turns.jsonl does not list them
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...endpoint import ClipUnreadable, EndpointModel, EndpointSettings, VisionModel
from ...files import write_text
from ...game.life import STATS, Stat
from ...media.video import read_clip
from ..records import SET_ASIDE, ClipRecord, SetAside, jsonl_text, read_table
from .asking import (
    ClipTask,
    OnProgress,
    ReplyLog,
    Spent,
    Task,
    check_asking,
    failure_lines,
    first_valid_reply,
    run_batch,
)
from .models import LocalModel, LocalSettings, ScriptCaptioner
from .pictures import CAPTIONING_FRAMES, MATCHING_FRAMES, KnownCharacters, Reference, frame_sheet
from .replies import LONGEST_REPLY, Caption, captioning_prompt, matching_prompt, parse_caption, parse_matching

ANSWERS = "captions.jsonl"
SHOWN_REPLY = 500  # characters of a reply in set_aside.jsonl


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
    stats: Sequence[Stat] = STATS
    tries: int = 3
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        check_asking(self.tries, self.price_in, self.price_out)

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
            prompt=captioning_prompt(task.record.motion_level, self.stats),
            parse=lambda text: parse_caption(text, self.stats),
            pictures=lambda: (frame_sheet(task.frames(), CAPTIONING_FRAMES),),
            **self._identity(task, "captioning", [task.record.motion_level, *(stat.tag for stat in self.stats)]),
        )
        caption = first_valid_reply(captioning, self.model, task.log, self.tries, task.stop)
        return replace(caption, character=tuple(references[index - 1].name for index in indices) or caption.character)

    def _identity(self, task: ClipTask, step: str, depends: Any) -> dict[str, Any]:
        """What names a question and its stored replies. depends: what they depend on besides clip and model."""
        record = task.record
        return {
            "name": record.clip,
            "step": step,
            "depends": (step, record.film, record.start, record.end, depends),
            "about": {"clip": record.clip, "level": record.motion_level, "captioner": self.name, "step": step},
        }


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


CAPTIONERS = {  # name: the options that it takes, and those that it needs
    "none": ((), ()),
    "endpoint": ((*_fields(EndpointSettings), "tries", "price_in", "price_out"), ("url", "model")),
    "transformers": ((*_fields(LocalSettings), "tries"), ("model",)),
    "script": (("sidecars",), ("sidecars",)),
}


def open_captioner(name: str, stats: Sequence[Stat] = STATS, **options: Any) -> Captioner | None:
    """The captioner of a name: none (None), endpoint, transformers or script. Options of None are ignored.

    stats: those whose changes it states.

    ValueError: an unknown name or option, a missing option, a setting out of range, a model that cannot be opened.
    """
    if name not in CAPTIONERS:
        raise ValueError(f"unknown captioner {name!r}; choose one of {', '.join(CAPTIONERS)}")
    takes, needs = CAPTIONERS[name]
    given = {option: value for option, value in options.items() if value is not None}
    if unknown := [option for option in given if option not in takes]:
        raise ValueError(
            f"captioner {name!r} has no option {unknown[0]!r}; it takes {', '.join(takes) or 'no options'}"
        )
    if missing := [option for option in needs if option not in given]:
        raise ValueError(f"captioner {name!r} needs {missing[0]!r}")
    if name == "none":
        return None
    if name == "script":
        return ScriptCaptioner(**given, stats=stats)
    asking = {option: given.pop(option) for option in ("tries", "price_in", "price_out") if option in given}
    model = EndpointModel(EndpointSettings(**given)) if name == "endpoint" else LocalModel(LocalSettings(**given))
    return ModelCaptioner(model, stats, **asking)


@dataclass(frozen=True)
class CaptionReport:
    """What a run did. records: the given ones in their order, captioned where possible, without those set aside.

    captioned: clips captioned by this run, from new or stored replies. kept: clips that had a caption. failures: clip
    -> why the model gave no answer; its record is unchanged, and the next run tries again. stopped: why the run ended
    early. spent: by this run.
    """

    records: tuple[ClipRecord, ...]
    captioned: int = 0
    kept: int = 0
    set_aside: tuple[SetAside, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    stopped: str | None = None
    spent: Spent = Spent()

    @property
    def uncaptioned(self) -> int:
        """Clips that still have no caption and are not set aside."""
        return sum(bool(record.missing) for record in self.records)

    @property
    def text(self) -> str:
        """The report for people, a few lines."""
        counts = (
            f"captions: {self.captioned} new, {self.kept} kept, {len(self.set_aside)} set aside, {self.uncaptioned} "
            "without a caption"
        )
        stopped = [f"stopped early: {self.stopped}"] if self.stopped else []
        return "\n".join([counts, *self.spent.lines, *failure_lines(self.failures, "clips"), *stopped])


def caption_clips(
    folder: str | Path,
    records: Sequence[ClipRecord],
    captioner: Captioner | None,
    references: Sequence[Reference] = (),
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> CaptionReport:
    """Caption every record of a dataset folder that has no caption yet; without a captioner all stay as they are.

    Fields that a person filled in stay. The same call continues a run that was killed: stored replies are read, not
    paid for again. What stops the run early (a refused key, an unavailable service) is in the report; an interrupt,
    and any error of on_progress, first lets the requests under way finish and be stored.
    ValueError: a record without a motion level, unreadable references, another run in the same folder.
    """
    kept = sum(not record.missing for record in records)
    if captioner is None:
        return CaptionReport(tuple(records), kept=kept)
    todo = {record.clip: record for record in records if record.missing}
    unmeasured = [clip for clip, record in todo.items() if record.motion_level is None]
    if unmeasured:
        raise ValueError(f"{unmeasured[0]} has no motion level, which the adverb depends on; measure all clips first")
    if not 1 <= workers <= 256:
        raise ValueError(f"workers is {workers}; expected 1 to 256 parallel requests")
    folder = Path(folder)
    asks = isinstance(captioner, ModelCaptioner)
    prices = (captioner.price_in, captioner.price_out) if asks else ()
    # an unreadable picture ends the run before it costs anything
    characters = KnownCharacters.of(references if asks else ())
    with open_captions_log(folder) as log:
        before = read_table(folder / SET_ASIDE, SetAside)

        def caption(record: ClipRecord, stop: threading.Event) -> Caption:
            return captioner.caption(ClipTask(record, partial(_frames, folder / record.clip), characters, log, stop))

        jobs = {clip: partial(caption, record) for clip, record in todo.items()}
        result = run_batch(jobs, "clips", workers, on_progress)
        set_aside = [
            SetAside(clip=clip, reason=str(error), reply=error.reply[:SHOWN_REPLY], record=todo[clip])
            for clip, error in result.invalid.items()
        ]
        rows = [*(item for item in before if item.clip not in todo), *set_aside]
        if rows or before:
            rows.sort(key=lambda item: (item.record.film, item.record.start))
            write_text(folder / SET_ASIDE, jsonl_text(rows))
    return CaptionReport(
        records=tuple(
            with_caption(record, result.values[record.clip]) if record.clip in result.values else record
            for record in records
            if record.clip not in result.invalid
        ),
        captioned=len(result.values),
        kept=kept,
        set_aside=tuple(set_aside),
        failures=result.failures,
        stopped=result.stopped,
        spent=Spent.of(log.written, *prices),
    )


def open_captions_log(folder: str | Path) -> AbstractContextManager[ReplyLog]:
    """The log of a dataset's captions; see `ReplyLog.open`."""
    refusal = f"{folder}: another run is captioning this dataset; wait for it, or stop it"
    return ReplyLog.open(Path(folder) / ANSWERS, refusal, LONGEST_REPLY)


def with_caption(record: ClipRecord, caption: Caption) -> ClipRecord:
    """The record with its null fields and stats filled in."""
    known = {name: value for name, value in (record.stats or {}).items() if value is not None}
    values = {**dataclasses.asdict(caption), "stats": {**caption.stats, **known}}
    return msgspec.structs.replace(record, **{name: values[name] for name in record.missing})


def _frames(path: Path) -> NDArray[np.uint8]:
    try:
        return read_clip(path).frames
    except (OSError, ValueError) as error:
        raise ClipUnreadable(f"the clip cannot be read: {error}") from error
