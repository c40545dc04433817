"""Captioning a dataset: clips in parallel, resumable at every reply, with what could not be done set down.

captions.jsonl    every reply of a model (answers.py)
set_aside.jsonl   {clip, reason, reply, record}: clips whose replies stayed invalid; they get no line in turns.jsonl
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...files import write_text
from ...video import read_clip
from ..records import ClipRecord
from ..tables import CAPTION_FIELDS, SET_ASIDE
from .answers import AnswerLog, captions_log
from .captioner import Captioner, ClipTask, ModelCaptioner
from .pictures import Cast, Reference
from .questions import CaptionerAway, CaptionerError, ClipUnreadable
from .replies import Caption, ReplyError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GIVE_UP = 8  # clips in a row that no question about could be answered: the service is away
SHOWN_REPLY = 500  # characters of a reply in set_aside.jsonl

OnProgress = Callable[[int, int], None]  # (clips done, clips in all)


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
    not be asked about; its record is unchanged, and the next run tries again. stopped: why the run ended early.
    requests: replies that were given in this run, valid or not; uncounted: those whose tokens the service did not
    tell. tokens_in, tokens_out, cost: of this run. trouble: failed requests by kind.
    """

    records: tuple[ClipRecord, ...]
    captioned: int = 0
    kept: int = 0
    set_aside: tuple[SetAside, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    stopped: str | None = None
    requests: int = 0
    uncounted: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    trouble: Mapping[str, int] = field(default_factory=dict)

    @property
    def uncaptioned(self) -> int:
        """Clips that still lack a caption and are not set aside."""
        return sum(not _told(record) for record in self.records)

    @property
    def text(self) -> str:
        """The report for people, a few lines."""
        lines = [
            f"captions: {self.captioned} new, {self.kept} kept, {len(self.set_aside)} set aside, "
            f"{self.uncaptioned} still open",
            f"requests: {self.requests}, tokens {self.tokens_in} in and {self.tokens_out} out"
            + (f" (not counted by the service: {self.uncounted} replies)" if self.uncounted else "")
            + ("" if self.cost is None else f", cost {self.cost:.4f}"),
        ]
        lines += [f"failed requests: {count} x {kind}" for kind, count in sorted(self.trouble.items())]
        reasons = Counter(self.failures.values())
        lines += [f"could not be asked about, {count} clips: {reason}" for reason, count in reasons.most_common(5)]
        return "\n".join([*lines, *([f"stopped early: {self.stopped}"] if self.stopped else [])])


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
    with captions_log(folder) as answers:
        before = read_set_aside(folder)
        run = _Run(folder, captioner, cast, answers)
        run.work(todo, workers, on_progress or (lambda done, total: None))
        given = {record.clip for record in todo}
        _write_set_aside(folder, [*(item for item in before if item.record.clip not in given), *run.set_aside])
    return run.report(records)


class _Run:
    """The state of one call of caption_clips."""

    def __init__(self, folder: Path, captioner: Captioner, cast: Cast, answers: AnswerLog) -> None:
        self.folder, self.captioner, self.cast, self.answers = folder, captioner, cast, answers
        self.stop = threading.Event()
        self.captions: dict[str, Caption] = {}
        self.set_aside: list[SetAside] = []
        self.failures: dict[str, str] = {}
        self.stopped: str | None = None
        self._in_a_row = 0
        self._trouble_before = Counter(self._trouble())

    def work(self, todo: Sequence[ClipRecord], workers: int, on_progress: OnProgress) -> None:
        """Caption the clips, `workers` at a time, until all are tried or nothing can be asked any more."""
        done = 0
        with ThreadPoolExecutor(workers) as pool:
            try:
                for record, future in self._futures(pool, todo, workers):
                    self._take(record, future)
                    done += 1
                    on_progress(done, len(todo))
            finally:
                self.stop.set()  # where the block is left early, what waits is given up and what is asked is awaited

    def _futures(
        self, pool: ThreadPoolExecutor, todo: Sequence[ClipRecord], workers: int
    ) -> Iterator[tuple[ClipRecord, Future[Caption]]]:
        """The clips' futures as they end; no more are begun once the run has stopped."""
        rest = iter(todo)
        under_way: dict[Future[Caption], ClipRecord] = {}
        while True:
            while not self.stop.is_set() and len(under_way) < 2 * workers and (record := next(rest, None)):
                under_way[pool.submit(self.captioner.caption, self._task(record))] = record
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                yield under_way.pop(future), future

    def _task(self, record: ClipRecord) -> ClipTask:
        return ClipTask(record, lambda: _frames(self.folder / record.clip), self.cast, self.answers, self.stop)

    def _take(self, record: ClipRecord, future: Future[Caption]) -> None:
        """Keep what came of a clip; stops the run where the service is away."""
        try:
            self.captions[record.clip] = future.result()
        except ReplyError as error:
            self.set_aside.append(SetAside(record, str(error), error.reply))
        except CaptionerError as error:
            self._fail(record, error)
            return
        self._in_a_row = 0

    def _fail(self, record: ClipRecord, error: CaptionerError) -> None:
        if self.stop.is_set():  # another clip stopped the run and told why
            return
        self.failures[record.clip] = str(error)
        self._in_a_row += not isinstance(error, ClipUnreadable)
        if isinstance(error, CaptionerAway):
            self.stopped = str(error)
        elif self._in_a_row >= GIVE_UP:
            self.stopped = f"{GIVE_UP} clips in a row could not be asked about; the last: {error}"
        if self.stopped:
            self.stop.set()

    def report(self, records: Sequence[ClipRecord]) -> CaptionReport:
        """The report over all records that were given."""
        aside = {item.record.clip for item in self.set_aside}
        written = self.answers.written
        tokens_in = sum(reply.tokens_in or 0 for reply in written)
        tokens_out = sum(reply.tokens_out or 0 for reply in written)
        return CaptionReport(
            records=tuple(self._captioned(record) for record in records if record.clip not in aside),
            captioned=len(self.captions),
            kept=sum(map(_told, records)),
            set_aside=tuple(self.set_aside),
            failures=self.failures,
            stopped=self.stopped,
            requests=len(written),
            uncounted=sum(None in (reply.tokens_in, reply.tokens_out) for reply in written),
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost=_cost(self.captioner, tokens_in, tokens_out),
            trouble=Counter(self._trouble()) - self._trouble_before,
        )

    def _trouble(self) -> Mapping[str, int]:
        return self.captioner.model.trouble if isinstance(self.captioner, ModelCaptioner) else {}

    def _captioned(self, record: ClipRecord) -> ClipRecord:
        caption = self.captions.get(record.clip)
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


def _cost(captioner: Captioner, tokens_in: int, tokens_out: int) -> float | None:
    """What the tokens cost, in the currency of the prices; None where no prices were given."""
    if not isinstance(captioner, ModelCaptioner) or captioner.price_in is None:
        return None
    return (tokens_in * captioner.price_in + tokens_out * captioner.price_out) / 1e6
