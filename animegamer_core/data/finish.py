"""What is cut becomes a dataset: levels over all clips, captions, games, tables. It may be done again at any time.

What captioners and people wrote into the tables stays: captions that were corrected, and clips that a person dropped
through corrections. A clip whose line was merely deleted comes back. Clips that a held-out game shows stay held out.
Nothing of this holds for a film that took another one's place: its clips are other pictures.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import locked, write_text
from .build import BuildSettings, OnProgress
from .captions import Captioner, CaptionReport, Reference, caption_clips, read_set_aside
from .dataset import GAMES, TURNS, DatasetFolder, levelled, write_tables
from .films.cutting import Cut, is_cut
from .films.filmnotes import FILMS, FilmNote, check_same, cut_otherwise, noted_scenes, read_notes
from .films.segments import Duplicates
from .games import games_of
from .records import ClipRecord
from .replaced import forget, replaced_films
from .tables import ADVERBS, CAPTION_FIELDS, DROPPED, LOCK, DatasetError, read_rows, to_text


@dataclass(frozen=True)
class BuildReport:
    """What a folder holds now. dropped: reason -> segments left out. broken: film -> why only its beginning is there.
    open: film -> scenes that are not cut yet, or whose clips are gone. otherwise: film -> that its scenes were found
    with other settings."""

    dropped: Mapping[str, int]
    broken: Mapping[str, str]
    open: Mapping[str, int]
    otherwise: Mapping[str, str]
    captions: CaptionReport
    dataset: DatasetFolder


def finish(
    out: Path,
    settings: BuildSettings,
    captioner: Captioner | None = None,
    references: Sequence[Reference] = (),
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> BuildReport:
    """Make the tables of all that is cut. workers: clips that are asked about at a time.

    ValueError: nothing is cut, or too little to part levels; clips cut with other settings; a table that a person left
    unreadable; or another build at it.
    """
    if not (out / FILMS).is_dir():
        raise ValueError(f"{out} holds nothing that was cut from a film; name a film")
    with locked(out / LOCK, f"another build is finishing {out}, or corrections are being applied; wait for it"):
        cutting = settings.cutting()
        notes = read_notes(out)
        check_same(out, notes, {}, cutting)
        replaced = replaced_films(out, notes)
        forget(out, replaced)
        found = _Found.read(out, notes, replaced, aside=captioner is None)
        if not found.records:
            raise ValueError(f"{out} has no clip: {found.why_none(notes, settings)}")
        try:
            records, levels = levelled(found.records)
        except ValueError as error:
            raise ValueError(f"{out}: {error}; more of a film makes them") from error
        told = on_progress or (lambda what, done, total: None)
        before = _sides_before(out, found.known)
        report = _captioned(out, records, captioner, references, workers, told)
        write_text(out / DROPPED, to_text([*found.dropped, *found.by_people]))
        dataset = write_tables(
            out,
            report.records,
            games_of(report.records, settings.games, before),
            {
                "films": {name: note.provenance(cutting) for name, note in notes.items()},
                "captioner": None if captioner is None else captioner.name,
            },
            {
                "fps": settings.shape.fps,
                **cutting,
                "games": dataclasses.asdict(settings.games),
                "motion": {**cutting["motion"], **levels},
            },
        )
    broken = {name: note.survey.broken for name, note in notes.items() if note.survey.broken is not None}
    dropped, otherwise = _counted([*found.dropped, *found.by_people]), cut_otherwise(notes, cutting, out)
    return BuildReport(dropped, broken, found.open, otherwise, report, dataset)


@dataclass
class _Found:
    """What the folder holds before it is finished. records: clips in order of film and time, with the captions that
    they have. known: clips of turns.jsonl as it was, but those of replaced films. dropped, by_people: rows of
    dropped.jsonl. open: film -> scenes that are not cut, or not wholly there."""

    known: Mapping[str, ClipRecord]
    records: list[ClipRecord] = field(default_factory=list)
    dropped: list[dict[str, Any]] = field(default_factory=list)
    by_people: list[dict[str, Any]] = field(default_factory=list)
    open: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, out: Path, notes: Mapping[str, FilmNote], replaced: Collection[str], aside: bool) -> _Found:
        """aside: whether clips that no valid caption was found for stay out, until somebody asks again."""
        known = {clip: record for clip, record in _turns_before(out).items() if record.film not in replaced}
        by_people = [row for _, row in read_rows(out / DROPPED) if _clip_in(row) is not None]
        found = cls(known, by_people=[row for row in by_people if row.get("film") not in replaced])
        left_out = {_clip_in(row) for row in found.by_people}
        set_aside = {item.record.clip for item in read_set_aside(out)}
        there: list[tuple[str, str, Cut]] = []
        for name, note in notes.items():
            scenes = noted_scenes(out, name)
            whole = 0
            for number, cuts in scenes.items():
                mine = [cut for cut in cuts if cut.dropped is not None or (out / cut.clip).is_file()]
                whole += mine == cuts
                there += [(name, f"{name}#{number}", cut) for cut in mine]
            if whole < len(note.survey.scenes):
                found.open[name] = len(note.survey.scenes) - whole
        twins = _duplicates(there, {*known, *left_out, *set_aside})
        for name, _, cut in there:
            found._sort(name, cut, cut.dropped or twins.get(cut.clip), left_out | set_aside if aside else left_out)
        found.records = [_as_before(record, known.get(record.clip)) for record in found.records]
        found._add_those_of_people(out, notes, left_out)
        return found

    def _add_those_of_people(self, out: Path, notes: Mapping[str, FilmNote], left_out: Collection[str | None]) -> None:
        """Clips that a person added, whose names no cutting gives: beside those of their film, or after all films."""
        added = [record for clip, record in self.known.items() if clip not in left_out]
        self.records += [record for record in added if record.film in notes and self._is_own(out, record)]
        places = {name: place for place, name in enumerate(notes)}
        self.records.sort(key=lambda record: (places[record.film], record.start))
        self.records += [record for record in added if record.film not in notes]

    @staticmethod
    def _is_own(out: Path, record: ClipRecord) -> bool:
        return not is_cut(record.clip, record.film) and (out / record.clip).is_file()

    def _sort(self, name: str, cut: Cut, reason: str | None, gone: set[str | None]) -> None:
        if reason is not None:
            row = {"film": name, "start": cut.start, "end": cut.end, "reason": reason}
            self.dropped.append(row | ({"clip": cut.clip} if cut.dropped is None else {}))  # a duplicate's file is kept
        elif cut.clip not in gone:
            self.records.append(
                ClipRecord(film=name, start=cut.start, end=cut.end, clip=cut.clip, motion_value=cut.value)
            )

    def why_none(self, notes: Mapping[str, FilmNote], settings: BuildSettings) -> str:
        """Why there is no clip, for people."""
        if not notes:
            return "no film was cut"
        if self.dropped or self.by_people:
            reasons = _counted([*self.dropped, *self.by_people])
            return f"all its segments were left out ({', '.join(f'{n} {reason}' for reason, n in reasons.items())})"
        if self.open:
            return "no scene is cut yet"
        lengths = [item.scene.end - item.scene.start for note in notes.values() for item in note.survey.scenes]
        wanted = (settings.shape.frames - 1) / settings.shape.fps
        return f"a clip lasts {wanted:g} s, and the longest scene of these films {max(lengths, default=0):.1f} s"


def _duplicates(there: Sequence[tuple[str, str, Cut]], before: Collection[str | None]) -> dict[str, str]:
    """Clip -> which kept one it looks like. there: (film, scene, segment). before: clips that the tables know, which
    people may have corrected or dropped; they stay, also where a film that comes earlier now shows the same."""
    likes, found = Duplicates(), {}
    for known in (True, False):
        for _, scene, cut in there:
            if cut.dropped is None and (cut.clip in before) == known:
                found[cut.clip] = likes.add(cut.signature, cut.clip, scene)
    return {clip: reason for clip, reason in found.items() if reason is not None}


def _turns_before(out: Path) -> dict[str, ClipRecord]:
    """The lines of turns.jsonl by clip, whose captions are kept; DatasetError names a line that cannot be read."""
    records = {}
    for number, values in read_rows(out / TURNS):
        try:
            record = ClipRecord.from_dict(values)
        except ValueError as error:
            raise DatasetError(f"{out / TURNS}:{number}: {error}; correct or delete the line") from error
        records[record.clip] = record
    return records


def _sides_before(out: Path, known: Collection[str]) -> dict[str, bool | None]:
    """Clip -> whether the tables hold it out of training, None for those of turns.jsonl that no game shows; {}
    where they hold out none. DatasetError names a line of games.jsonl that cannot be read.
    """
    games = [row for _, row in read_rows(out / GAMES, {"game": str, "clips": list})]
    sides = {True: set(), False: set()}
    for game in games:
        sides[game.get("held_out", False) is True].update(clip for clip in game["clips"] if isinstance(clip, str))
    if not sides[True]:
        return {}
    return {**dict.fromkeys(known), **dict.fromkeys(sides[False], False), **dict.fromkeys(sides[True], True)}


def _clip_in(row: Mapping[str, Any]) -> str | None:
    """The clip that a person left out by this row of dropped.jsonl; None for what was left out by rule."""
    record = row.get("record")
    return record.get("clip") if isinstance(record, dict) else None


def _as_before(record: ClipRecord, known: ClipRecord | None) -> ClipRecord:
    """A clip's record with the caption that it was given before."""
    if known is None:
        return record
    return dataclasses.replace(record, **{name: getattr(known, name) for name in CAPTION_FIELDS})


def _captioned(
    out: Path,
    records: Sequence[ClipRecord],
    captioner: Captioner | None,
    references: Sequence[Reference],
    workers: int,
    told: OnProgress,
) -> CaptionReport:
    """Caption what has no caption; adverbs that a captioner chose for another level are asked for again."""
    if captioner is None:
        return caption_clips(out, records, None)
    rows = read_rows(out / ADVERBS, {"clip": str, "level": int, "adverb": str})
    chosen = {(row["clip"], row["level"], row["adverb"]) for _, row in rows}
    levels: dict[tuple[str, str | None], set[int]] = {}
    for clip, level, adverb in chosen:
        levels.setdefault((clip, adverb), set()).add(level)
    asked = [_without_old_adverb(record, levels.get((record.clip, record.adverb), ())) for record in records]
    report = caption_clips(
        out, asked, captioner, references, workers, lambda done, total: told("clips captioned", done, total)
    )
    unsaid = {record.clip for record in asked if record.adverb is None}
    now = chosen | {
        (record.clip, record.motion_level, record.adverb)
        for record in report.records
        if record.clip in unsaid and record.adverb is not None
    }
    if now != chosen:
        rows = ({"clip": clip, "level": level, "adverb": adverb} for clip, level, adverb in sorted(now))
        write_text(out / ADVERBS, to_text(rows))
    return report


def _without_old_adverb(record: ClipRecord, levels: Collection[int]) -> ClipRecord:
    """levels: those that a captioner chose the record's adverb for, none for a person's own."""
    return dataclasses.replace(record, adverb=None) if levels and record.motion_level not in levels else record


def _counted(dropped: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Rows by their reason, whatever clip a duplicate is one of."""
    return dict(Counter(str(row.get("reason", "dropped")).split(" of ")[0] for row in dropped))
