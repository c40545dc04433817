"""Captioning a dataset: clips in parallel, resumable at every reply, with what could not be done set down.

captions.jsonl    every reply of a model (answers.py)
set_aside.jsonl   {clip, reason, reply, record}: clips whose replies stayed invalid; they get no line in turns.jsonl
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...files import write_text
from ...video import read_clip
from ..records import ClipRecord
from ..tables import CAPTION_FIELDS, SET_ASIDE
from .answers import captions_log
from .captioner import Captioner, ClipTask, ModelCaptioner
from .pictures import Cast, Reference
from .questions import ClipUnreadable
from .replies import Caption
from .rounds import OnProgress, Prices, Round, Spent, reasons

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHOWN_REPLY = 500  # characters of a reply in set_aside.jsonl


@dataclass(frozen=True)
class SetAside:
    """A clip that got no caption, since no reply about it was valid. reply: the last one."""

    record: ClipRecord
    reason: str
    reply: str


@dataclass(frozen=True)
class CaptionReport:
    """What a run did. records: the given ones in their order, without those set aside; captioned where it went well.

    captioned, kept: clips captioned now (from new replies or kept ones) and before. failures: clip -> why it could
    not be asked about; its record is unchanged, and the next run tries again. stopped: why the run ended early. spent:
    of this run.
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
        """Clips that still lack a caption and are not set aside."""
        return sum(not _told(record) for record in self.records)

    @property
    def text(self) -> str:
        """The report for people, a few lines."""
        counts = (
            f"captions: {self.captioned} new, {self.kept} kept, {len(self.set_aside)} set aside, "
            f"{self.uncaptioned} still open"
        )
        stopped = [f"stopped early: {self.stopped}"] if self.stopped else []
        return "\n".join([counts, *self.spent.lines, *reasons(self.failures, "clips"), *stopped])


def caption_clips(
    folder: str | Path,
    records: Sequence[ClipRecord],
    captioner: Captioner | None,
    references: Sequence[Reference] = (),
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> CaptionReport:
    """Caption every record of a dataset folder that has no caption yet; a captioner of None leaves all as they are.

    Fields that a person filled in stay. A killed run is gone on with by the same call: replies that were written are
    read, not asked for again. What stops the run (a refused key, a service that is away) is told in the report;
    whatever on_progress raises, and an interrupt, first lets the requests under way end and be written.
    ValueError: a record without a motion level, unreadable references, another run in the same folder.
    """
    if captioner is None:
        return CaptionReport(tuple(records), kept=sum(map(_told, records)))
    todo = [record for record in records if not _told(record)]
    unmeasured = [record.clip for record in todo if record.motion_level is None]
    if unmeasured:
        raise ValueError(f"{unmeasured[0]} has no motion level, which its adverb depends on; measure all clips first")
    if not 1 <= workers <= 256:
        raise ValueError(f"workers is {workers}; expected 1 to 256 questions at a time")
    folder, cast = Path(folder), Cast(tuple(references))
    if references and isinstance(captioner, ModelCaptioner):
        cast.sheet, cast.digest  # noqa: B018  drawn now: a picture that cannot be read ends the run before it costs
    trouble_before = Counter(_trouble(captioner))
    with captions_log(folder) as answers:
        before = read_set_aside(folder)

        def caption(record: ClipRecord) -> Caption:
            task = ClipTask(record, lambda: _frames(folder / record.clip), cast, answers, asking.stop)
            return captioner.caption(task)

        asking: Round[ClipRecord, Caption] = Round("clips", lambda record: record.clip, caption)
        asking.work(todo, workers, on_progress)
        by_clip = {record.clip: record for record in todo}
        aside = [SetAside(by_clip[clip], str(error), error.reply) for clip, error in asking.invalid.items()]
        _write_set_aside(folder, [*(item for item in before if item.record.clip not in by_clip), *aside])
    return CaptionReport(
        records=tuple(_captioned(record, asking.values) for record in records if record.clip not in asking.invalid),
        captioned=len(asking.values),
        kept=sum(map(_told, records)),
        set_aside=tuple(aside),
        failures=asking.failures,
        stopped=asking.stopped,
        spent=Spent.of(answers.written, _prices(captioner), Counter(_trouble(captioner)) - trouble_before),
    )


def _trouble(captioner: Captioner) -> Mapping[str, int]:
    return captioner.model.trouble if isinstance(captioner, ModelCaptioner) else {}


def _prices(captioner: Captioner) -> Prices:
    return captioner.prices if isinstance(captioner, ModelCaptioner) else Prices()


def _captioned(record: ClipRecord, captions: Mapping[str, Caption]) -> ClipRecord:
    caption = captions.get(record.clip)
    return record if caption is None else with_caption(record, caption)


def with_caption(record: ClipRecord, caption: Caption) -> ClipRecord:
    """The record with those fields filled in that were null. No known character: the subject stands for it."""
    told = {name: getattr(caption, name) for name in CAPTION_FIELDS if name != "character"}
    told["character"] = caption.characters or (caption.subject,)
    missing = {name: value for name, value in told.items() if getattr(record, name) is None}
    return dataclasses.replace(record, **missing)


def read_set_aside(folder: str | Path) -> list[SetAside]:
    """The clips that earlier runs set aside; ValueError names a line that is wrong."""
    path = Path(folder) / SET_ASIDE
    found = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.is_file() else (), start=1):
        try:
            values = json.loads(line)
            found.append(SetAside(ClipRecord.from_dict(values["record"]), values["reason"], values["reply"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number}: not a clip that was set aside ({error}); delete this line") from error
    return found


def _write_set_aside(folder: Path, items: Sequence[SetAside]) -> None:
    if items or (folder / SET_ASIDE).is_file():
        items = sorted(items, key=lambda item: (item.record.film, item.record.start))
        write_text(folder / SET_ASIDE, "".join(map(_set_aside_line, items)))


def _set_aside_line(item: SetAside) -> str:
    values = {"clip": item.record.clip, "reason": item.reason, "reply": item.reply[:SHOWN_REPLY]}
    return json.dumps({**values, "record": dataclasses.asdict(item.record)}) + "\n"


def _frames(path: Path) -> NDArray[np.uint8]:
    try:
        return read_clip(path).frames
    except (OSError, ValueError) as error:
        raise ClipUnreadable(f"the clip cannot be read: {error}") from error


def _told(record: ClipRecord) -> bool:
    """Whether a record has all of its caption, from an earlier run or from a person."""
    return all(getattr(record, name) is not None for name in CAPTION_FIELDS)
