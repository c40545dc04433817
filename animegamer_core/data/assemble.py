"""Assembles the clips that were cut into a dataset: levels over all clips, captions, games, tables.

It can run again at any time. Captions that captioners and people wrote into the tables stay, and so do the clips that a
person dropped through corrections; a clip whose line was merely deleted comes back. Clips of held-out games stay held
out. For a film whose file was replaced by another one nothing stays: its clips are other pictures.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import PART, locked, write_text
from .build import BuildSettings, OnProgress
from .captions.pictures import Reference
from .captions.run import (
    ANSWERS,
    Captioner,
    CaptionReport,
    caption_clips,
    open_captions_log,
    read_set_aside,
)
from .dataset import GAMES, TURNS, DatasetFolder, read_info, with_levels, write_tables
from .films.cutting import Cut, Duplicates, clips_of, is_cut
from .films.film_index import (
    FILMS,
    FilmEntry,
    check_same_settings,
    films_with_other_settings,
    read_film_index,
    read_scenes,
    remove_unused_clips,
)
from .games import games_of
from .records import (
    ADVERBS,
    CAPTION_FIELDS,
    DROPPED,
    LOCK,
    SET_ASIDE,
    ClipRecord,
    jsonl_text,
    read_lines,
    read_rows,
    record_at,
)


@dataclass(frozen=True)
class BuildReport:
    """What a folder has now. dropped: reason -> segments left out. broken: film -> why only its beginning is there.
    open: film -> scenes that are not cut yet, or whose clips are missing. other_settings: film -> the message that its
    scenes were found with other settings."""

    dropped: Mapping[str, int]
    broken: Mapping[str, str]
    open: Mapping[str, int]
    other_settings: Mapping[str, str]
    captions: CaptionReport
    dataset: DatasetFolder


def assemble_dataset(
    out: Path,
    settings: BuildSettings,
    captioner: Captioner | None = None,
    references: Sequence[Reference] = (),
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> BuildReport:
    """Write the tables of all clips that were cut. workers: questions to the captioner at a time.

    ValueError: nothing is cut, or too little to set levels; clips were cut with other settings; a table is unreadable;
    another build is running in the folder.
    """
    if not (out / FILMS).is_dir():
        raise ValueError(f"{out} has no clips yet; name a film")
    with locked(
        out / LOCK, f"another build is finishing {out}, or corrections are being applied; wait until that ends"
    ):
        for leftover in out.glob(f"{PART}*"):  # of a build that was killed
            leftover.unlink(missing_ok=True)
        cutting = settings.cutting()
        films = read_film_index(out)
        check_same_settings(out, films, {}, cutting)
        replaced = _replaced_films(out, films)
        if replaced:
            _forget_films(out, replaced)
        found = _Segments.read(out, films, replaced, keep_set_aside=captioner is None)
        if not found.records:
            raise ValueError(f"{out} has no clip: {found.why_none(films, settings)}")
        try:
            records, levels = with_levels(found.records)
        except ValueError as error:
            raise ValueError(f"{out}: {error}; cut more of a film") from error
        held_out_before = _held_out_before(out, found.known)
        report = _caption(out, records, captioner, references, workers, on_progress or (lambda what, done, total: None))
        dropped = [*found.dropped, *found.dropped_by_people]
        write_text(out / DROPPED, jsonl_text(dropped))
        dataset = write_tables(
            out,
            report.records,
            games_of(report.records, settings.games, held_out_before),
            {
                "films": {name: film.provenance(cutting) for name, film in films.items()},
                "captioner": None if captioner is None else captioner.name,
            },
            {
                "fps": settings.shape.fps,
                **cutting,
                "games": dataclasses.asdict(settings.games),
                "motion": {**cutting["motion"], **levels},
            },
        )
        for name in films.keys() - found.open.keys():
            remove_unused_clips(out, name)
    broken = {name: film.survey.broken for name, film in films.items() if film.survey.broken is not None}
    other = films_with_other_settings(films, cutting, out)
    return BuildReport(_by_reason(dropped), broken, found.open, other, report, dataset)


def _replaced_films(out: Path, films: Mapping[str, FilmEntry]) -> frozenset[str]:
    """The films whose file had another size when the tables were written."""
    before = DatasetFolder(out, (), (), read_info(out, [])).film_bytes
    return frozenset(name for name, film in films.items() if before.get(name, film.bytes) != film.bytes)


def _forget_films(out: Path, films: Collection[str]) -> None:
    """Remove the replies, set-aside clips and adverbs of these films; the other tables are rewritten."""
    prefixes = tuple(map(clips_of, films))
    with open_captions_log(out):  # nobody else appends
        for path in (out / ANSWERS, out / SET_ASIDE, out / ADVERBS):
            rows = [(number, row) for number, row in read_lines(path)[0] if isinstance(row, dict)]
            if gone := {number for number, row in rows if str(row.get("clip")).startswith(prefixes)}:
                lines = enumerate(path.read_bytes().splitlines(keepends=True), start=1)
                write_text(path, b"".join(line for number, line in lines if number not in gone).decode("utf-8"))


@dataclass
class _Segments:
    """The segments of a folder before it is assembled. records: its clips in order of film and time, with the captions
    that they have. known: clips of turns.jsonl, without replaced films. dropped, dropped_by_people: rows of
    dropped.jsonl. open: film -> scenes that are not cut, or not wholly there."""

    known: Mapping[str, ClipRecord]
    records: list[ClipRecord] = field(default_factory=list)
    dropped: list[dict[str, Any]] = field(default_factory=list)
    dropped_by_people: list[dict[str, Any]] = field(default_factory=list)
    open: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(
        cls, out: Path, films: Mapping[str, FilmEntry], replaced: Collection[str], keep_set_aside: bool
    ) -> _Segments:
        """keep_set_aside: whether clips without a valid caption stay out; else the captioner is asked again."""
        known = {clip: record for clip, record in _read_turns(out).items() if record.film not in replaced}
        by_people = [row for _, row in read_rows(out / DROPPED) if _dropped_clip(row) is not None]
        found = cls(known, dropped_by_people=[row for row in by_people if row.get("film") not in replaced])
        dropped = {_dropped_clip(row) for row in found.dropped_by_people}
        set_aside = {item.record.clip for item in read_set_aside(out)}
        segments: list[tuple[str, str, Cut]] = []
        for name, film in films.items():
            complete = 0
            for number, cuts in read_scenes(out, name).items():
                there = [cut for cut in cuts if cut.dropped is not None or (out / cut.clip).is_file()]
                complete += there == cuts
                segments += [(name, f"{name}#{number}", cut) for cut in there]
            if complete < len(film.survey.scenes):
                found.open[name] = len(film.survey.scenes) - complete
        duplicates = _duplicates(segments, {*known, *dropped, *set_aside})
        hidden = dropped | set_aside if keep_set_aside else dropped
        for name, _, cut in segments:
            if reason := cut.dropped or duplicates.get(cut.clip):
                duplicate = {"clip": cut.clip} if cut.dropped is None else {}  # it has a file
                found.dropped.append({"film": name, "start": cut.start, "end": cut.end, "reason": reason, **duplicate})
            elif cut.clip not in hidden:
                record = ClipRecord(film=name, start=cut.start, end=cut.end, clip=cut.clip, motion_value=cut.value)
                if before := known.get(cut.clip):
                    captions = {name: getattr(before, name) for name in CAPTION_FIELDS}
                    record = dataclasses.replace(record, **captions)
                found.records.append(record)
        found._add_clips_of_people(out, films, dropped)
        return found

    def _add_clips_of_people(self, out: Path, films: Mapping[str, FilmEntry], dropped: Collection[str | None]) -> None:
        """Add the clips that a person made, known by names that cutting never gives: in their film, or after all."""
        added = [record for clip, record in self.known.items() if clip not in dropped]
        self.records += [
            record
            for record in added
            if record.film in films and not is_cut(record.clip, record.film) and (out / record.clip).is_file()
        ]
        order = {name: place for place, name in enumerate(films)}
        self.records.sort(key=lambda record: (order[record.film], record.start))
        self.records += [record for record in added if record.film not in films]

    def why_none(self, films: Mapping[str, FilmEntry], settings: BuildSettings) -> str:
        """Why there is no clip, as a message."""
        if not films:
            return "no film was cut"
        if self.dropped or self.dropped_by_people:
            reasons = _by_reason([*self.dropped, *self.dropped_by_people])
            return f"all its segments were dropped ({', '.join(f'{n} {reason}' for reason, n in reasons.items())})"
        if self.open:
            return "no scene has been cut yet"
        lengths = [item.scene.end - item.scene.start for film in films.values() for item in film.survey.scenes]
        needed = (settings.shape.frames - 1) / settings.shape.fps
        return f"a clip takes {needed:g} s, but the longest scene in these films has {max(lengths, default=0):.1f} s"


def _duplicates(segments: Sequence[tuple[str, str, Cut]], known: Collection[str | None]) -> dict[str, str]:
    """Clip -> 'duplicate of <clip>'. segments: (film, scene, segment). known: clips of the tables, which people may
    have corrected or dropped; of two alike they stay, even if an earlier film now shows the same."""
    kept, found = Duplicates(), {}
    for is_known in (True, False):
        for _, scene, cut in segments:
            if cut.dropped is None and (cut.clip in known) == is_known:
                found[cut.clip] = kept.add(cut.signature, cut.clip, scene)
    return {clip: reason for clip, reason in found.items() if reason is not None}


def _read_turns(out: Path) -> dict[str, ClipRecord]:
    """The lines of turns.jsonl by clip; DatasetError names an unreadable line."""
    records = (record_at(out / TURNS, number, values) for number, values in read_rows(out / TURNS))
    return {record.clip: record for record in records}


def _held_out_before(out: Path, known: Collection[str]) -> dict[str, bool | None]:
    """Clip -> whether the tables hold it out of training, None for a clip in no game; {} if they hold out none.

    DatasetError names an unreadable line of games.jsonl.
    """
    clips: dict[bool, set[str]] = {True: set(), False: set()}
    for _, game in read_rows(out / GAMES, {"game": str, "clips": list}):
        clips[game.get("held_out", False) is True].update(clip for clip in game["clips"] if isinstance(clip, str))
    if not clips[True]:
        return {}
    return {**dict.fromkeys(known), **dict.fromkeys(clips[False], False), **dict.fromkeys(clips[True], True)}


def _dropped_clip(row: Mapping[str, Any]) -> str | None:
    """The clip that a person dropped with this row of dropped.jsonl; None if a rule dropped it."""
    record = row.get("record")
    return record.get("clip") if isinstance(record, dict) else None


def _caption(
    out: Path,
    records: Sequence[ClipRecord],
    captioner: Captioner | None,
    references: Sequence[Reference],
    workers: int,
    on_progress: OnProgress,
) -> CaptionReport:
    """Caption the clips without a caption; ask again for adverbs that a captioner chose for another level."""
    if captioner is None:
        return caption_clips(out, records, None)
    rows = read_rows(out / ADVERBS, {"clip": str, "level": int, "adverb": str})
    chosen = {(row["clip"], row["level"], row["adverb"]) for _, row in rows}
    levels: dict[tuple[str, str | None], set[int]] = {}  # (clip, adverb) -> levels that a captioner chose it for
    for clip, level, adverb in chosen:
        levels.setdefault((clip, adverb), set()).add(level)
    asked = [
        dataclasses.replace(record, adverb=None)
        if record.motion_level not in levels.get((record.clip, record.adverb), {record.motion_level})
        else record
        for record in records
    ]
    report = caption_clips(
        out, asked, captioner, references, workers, lambda done, total: on_progress("clips captioned", done, total)
    )
    without = {record.clip for record in asked if record.adverb is None}
    now = chosen | {
        (record.clip, record.motion_level, record.adverb)
        for record in report.records
        if record.clip in without and record.adverb is not None
    }
    if now != chosen:
        lines = ({"clip": clip, "level": level, "adverb": adverb} for clip, level, adverb in sorted(now))
        write_text(out / ADVERBS, jsonl_text(lines))
    return report


def _by_reason(dropped: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The number of rows by reason; 'duplicate of <clip>' counts as duplicate."""
    return dict(Counter(str(row.get("reason", "dropped")).split(" of ")[0] for row in dropped))
