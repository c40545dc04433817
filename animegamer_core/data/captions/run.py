"""Captioning a dataset: clips in parallel, resumable at every reply, with a list of the clips that failed.

captions.jsonl    every reply of a model (reply_log.py)
set_aside.jsonl   {clip, reason, reply, record}: clips whose replies stayed invalid; turns.jsonl does not list them
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...endpoint import ClipUnreadable
from ...files import write_text
from ...json_files import read_rows
from ...media.video import read_clip
from ..jsonl_tables import SET_ASIDE
from ..records import ClipRecord
from .batch import OnProgress, Prices, Spent, failure_lines, run_batch
from .captioner import Captioner, ClipTask, ModelCaptioner
from .pictures import KnownCharacters, Reference
from .replies import Caption
from .reply_log import open_captions_log

SHOWN_REPLY = 500  # characters of a reply in set_aside.jsonl


@dataclass(frozen=True)
class SetAside:
    """A clip without a caption because no reply about it was valid. reply: the last one."""

    record: ClipRecord
    reason: str
    reply: str


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
    folder, characters = Path(folder), KnownCharacters(tuple(references))
    model = captioner.model if isinstance(captioner, ModelCaptioner) else None
    prices = Prices() if model is None else Prices(captioner.price_in, captioner.price_out)
    if model is not None:
        characters.load()  # an unreadable picture ends the run before it costs anything
    with open_captions_log(folder) as log:
        set_aside_before = read_set_aside(folder)

        def caption(record: ClipRecord, stop: threading.Event) -> Caption:
            return captioner.caption(ClipTask(record, partial(_frames, folder / record.clip), characters, log, stop))

        jobs = {clip: partial(caption, record) for clip, record in todo.items()}
        result = run_batch(jobs, "clips", workers, on_progress)
        set_aside = [SetAside(todo[clip], str(error), error.reply) for clip, error in result.invalid.items()]
        _write_set_aside(folder, [*(item for item in set_aside_before if item.record.clip not in todo), *set_aside])
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
        spent=Spent.of(log.written, prices),
    )


def with_caption(record: ClipRecord, caption: Caption) -> ClipRecord:
    """The record with its null fields filled in. If no known character is seen, the subject takes its place."""
    values = {**dataclasses.asdict(caption), "character": caption.characters or (caption.subject,)}
    return dataclasses.replace(record, **{name: values[name] for name in record.missing})


class _StoredAside(msgspec.Struct):
    """A line of set_aside.jsonl; ValueError for an invalid record."""

    record: dict[str, Any]
    reason: str
    reply: str

    def __post_init__(self) -> None:
        ClipRecord.from_dict(self.record)


def read_set_aside(folder: str | Path) -> list[SetAside]:
    """The clips that earlier runs set aside; ValueError names a wrong line."""
    path = Path(folder) / SET_ASIDE
    found = []
    for number, line, problem in read_rows(path, _StoredAside):
        if problem is not None:
            raise ValueError(f"{path}:{number}: {problem}; this is not a clip that was set aside, so delete the line")
        found.append(SetAside(ClipRecord.from_dict(line.record), line.reason, line.reply))
    return found


def _write_set_aside(folder: Path, items: Sequence[SetAside]) -> None:
    if not items and not (folder / SET_ASIDE).is_file():
        return
    lines = []
    for item in sorted(items, key=lambda item: (item.record.film, item.record.start)):
        values = {"clip": item.record.clip, "reason": item.reason, "reply": item.reply[:SHOWN_REPLY]}
        lines.append(json.dumps({**values, "record": dataclasses.asdict(item.record)}) + "\n")
    write_text(folder / SET_ASIDE, "".join(lines))


def _frames(path: Path) -> NDArray[np.uint8]:
    try:
        return read_clip(path).frames
    except (OSError, ValueError) as error:
        raise ClipUnreadable(f"the clip cannot be read: {error}") from error
