"""Captioning a dataset: clips in parallel, resumable at every reply, with a list of the clips that failed.

A clip is asked about twice: which known characters it shows, then what happens in it (supplement, section 2).

captions.jsonl    every reply of a model (asking.py)
set_aside.jsonl   clips whose replies stayed invalid; turns.jsonl does not list them
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...endpoint import ClipUnreadable, EndpointModel, EndpointSettings, VisionModel
from ...files import write_text
from ...game.life import STATS, Stat
from ...media.video import read_clip
from ..records import SET_ASIDE, ClipRecord, SetAside, jsonl_text, read_table
from .asking import AskSettings, OnProgress, ReplyLog, Task, first_valid_reply, run_batch
from .models import LocalModel, LocalSettings, ScriptCaptioner
from .pictures import CAPTIONING_FRAMES, MATCHING_FRAMES, KnownCharacters, Reference, frame_sheet
from .replies import Caption, captioning_prompt, matching_prompt, parse_caption, parse_matching

ANSWERS = "captions.jsonl"
SHOWN_REPLY = 500  # characters of a reply in set_aside.jsonl
CAPTIONERS = ("none", "endpoint", "transformers", "script")


class ModelCaptioner:
    """Captions clips with a vision model. tries: replies to one question before the clip is set aside."""

    def __init__(self, model: VisionModel, stats: Sequence[Stat] = STATS, tries: int = AskSettings.tries) -> None:
        self.model, self.name, self.stats, self.tries = model, model.name, stats, AskSettings(tries).tries

    def caption(
        self,
        record: ClipRecord,
        frames: Callable[[], NDArray[np.uint8]],
        known: KnownCharacters,
        log: ReplyLog,
        stop: threading.Event,
    ) -> Caption:
        """The caption of a clip; every reply is in the log before it is read. frames: reads it, (F, H, W, 3) uint8;
        called only where the pictures are needed. ReplyError: every reply was invalid. CaptionerError: no answer."""

        def ask(step: str, depends: Any, **task: Any) -> Any:
            about = {"clip": record.clip, "level": record.motion_level, "captioner": self.name, "step": step}
            place = (step, record.film, record.start, record.end, depends)
            return first_valid_reply(
                Task(name=record.clip, step=step, depends=place, about=about, **task), self.model, log, self.tries, stop
            )

        indices: tuple[int, ...] = ()
        if count := len(known.references):
            indices = ask(
                "matching",
                known.digest,
                prompt=matching_prompt(count),
                parse=lambda text: parse_matching(text, count),
                # a copy of the sheet, since Pillow writes to a picture while saving it and threads share this one
                pictures=lambda: (known.sheet.copy(), frame_sheet(frames(), MATCHING_FRAMES)),
            )
        caption = ask(
            "captioning",
            [record.motion_level, *(stat.tag for stat in self.stats)],
            prompt=captioning_prompt(record.motion_level, self.stats),
            parse=lambda text: parse_caption(text, self.stats),
            pictures=lambda: (frame_sheet(frames(), CAPTIONING_FRAMES),),
        )
        named = tuple(known.references[index - 1].name for index in indices)
        return replace(caption, character=named or caption.character)


Captioner = ModelCaptioner | ScriptCaptioner


def open_captioner(name: str, stats: Sequence[Stat] = STATS, **options: Any) -> Captioner | None:
    """The captioner of a name: none (None), endpoint, transformers or script. Options of None are ignored.

    stats: those whose changes it states. ValueError: an unknown name or option, a missing option, a setting out of
    range, a model that cannot be opened.
    """
    if name not in CAPTIONERS:
        raise ValueError(f"unknown captioner {name!r}; choose one of {', '.join(CAPTIONERS)}")
    kind = {"endpoint": EndpointSettings, "transformers": LocalSettings}.get(name)
    takes: dict[str, bool] = {"sidecars": True} if name == "script" else {}  # option -> whether it is needed
    if kind is not None:
        takes = {row.name: row.default is dataclasses.MISSING for row in dataclasses.fields(kind)} | {"tries": False}
    given = {option: value for option, value in options.items() if value is not None}
    if unknown := [option for option in given if option not in takes]:
        raise ValueError(f"captioner {name!r} has no option {unknown[0]!r}; it takes {', '.join(takes) or 'none'}")
    if missing := [option for option, needed in takes.items() if needed and option not in given]:
        raise ValueError(f"captioner {name!r} needs {missing[0]!r}")
    if name == "none":
        return None
    if name == "script":
        return ScriptCaptioner(**given, stats=stats)
    tries = given.pop("tries", AskSettings.tries)
    model = EndpointModel(EndpointSettings(**given)) if name == "endpoint" else LocalModel(LocalSettings(**given))
    return ModelCaptioner(model, stats, tries)


@dataclass(frozen=True)
class CaptionReport:
    """What a run did. records: the given ones in their order, captioned where possible, without those set aside.

    captioned: clips captioned by this run, from new or stored replies. kept: clips that had a caption. failures: clip
    -> why the model gave no answer; its record is unchanged, and the next run tries again. stopped: why the run ended
    early. text: all this for people.
    """

    records: tuple[ClipRecord, ...]
    captioned: int = 0
    kept: int = 0
    set_aside: tuple[SetAside, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    stopped: str | None = None
    lines: Sequence[str] = ()

    @property
    def uncaptioned(self) -> int:
        """Clips that still have no caption and are not set aside."""
        return sum(bool(record.missing) for record in self.records)

    @property
    def text(self) -> str:
        """The report for people, a few lines."""
        counts = f"captions: {self.captioned} new, {self.kept} kept, {len(self.set_aside)} set aside"
        return "\n".join([f"{counts}, {self.uncaptioned} without a caption", *self.lines])


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
    AskSettings(asked_at_once=workers)
    todo = {record.clip: record for record in records if record.missing}
    unmeasured = [clip for clip, record in todo.items() if record.motion_level is None]
    if unmeasured:
        raise ValueError(f"{unmeasured[0]} has no motion level, which the adverb depends on; measure all clips first")
    folder = Path(folder)
    # an unreadable picture ends the run before it costs anything
    known = KnownCharacters.of(references if isinstance(captioner, ModelCaptioner) else ())
    with ReplyLog.open(folder / ANSWERS) as log:
        before = read_table(folder / SET_ASIDE, SetAside)

        def caption(record: ClipRecord, stop: threading.Event) -> Caption:
            if isinstance(captioner, ScriptCaptioner):
                return captioner.caption(record)
            return captioner.caption(record, partial(_frames, folder / record.clip), known, log, stop)

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
            _captioned(record, result.values[record.clip]) if record.clip in result.values else record
            for record in records
            if record.clip not in result.invalid
        ),
        captioned=len(result.values),
        kept=kept,
        set_aside=tuple(set_aside),
        failures=result.failures,
        stopped=result.stopped,
        lines=result.lines("clips", log.written),
    )


def _captioned(record: ClipRecord, caption: Caption) -> ClipRecord:
    """The record with its null fields and stats filled in."""
    known = {name: value for name, value in (record.stats or {}).items() if value is not None}
    values = {**dataclasses.asdict(caption), "stats": {**caption.stats, **known}}
    return msgspec.structs.replace(record, **{name: values[name] for name in record.missing})


def _frames(path: Path) -> NDArray[np.uint8]:
    try:
        return read_clip(path).frames
    except (OSError, ValueError) as error:
        raise ClipUnreadable(f"the clip cannot be read: {error}") from error
