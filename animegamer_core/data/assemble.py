"""Assembles the clips that were cut into a dataset: levels over all clips, captions, games, tables.

It can run again at any time. Captions that captioners and people wrote into the tables stay, and so do the clips that a
person dropped through corrections; a clip whose line was merely deleted comes back. Clips of held-out games stay held
out. A clip of a scene that was cut again takes over from the earlier clip that it overlaps most.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..files import UNFINISHED, locked, write_text
from ..game.life import STATS
from ..media.video import read_clip
from .build import BuildSettings, OnProgress
from .captions.pictures import Reference
from .captions.run import Captioner, CaptionReport, caption_clips
from .dataset import GAMES, TURNS, DatasetFolder, GameLine, read_info, with_levels, write_tables
from .films.cutting import ClipShape, Cut, Duplicates, is_cut
from .films.film_index import FILMS, FilmEntry, check_same_settings, read_film_index, read_scenes, remove_unused_clips
from .films.framing import Margins
from .films.scenes import Scene
from .films.writing import Line, credits_and_subtitles
from .games import games_of
from .records import (
    ADVERBS,
    CAPTION_FIELDS,
    DROPPED,
    LOCK,
    REVIEWED,
    SET_ASIDE,
    ChosenAdverb,
    ClipRecord,
    Dropped,
    SetAside,
    jsonl_text,
    read_table,
)

Segments = Sequence[tuple[str, str, Cut]]  # (film, unique name of the scene, segment)


@dataclass(frozen=True)
class BuildReport:
    """What a folder has now. dropped: reason -> segments left out. broken: film -> why only its beginning is there.
    open: film -> scenes that are not cut yet, or whose clips are missing. subtitles: what to say of them, or ''."""

    dropped: Mapping[str, int]
    broken: Mapping[str, str]
    open: Mapping[str, int]
    captions: CaptionReport
    dataset: DatasetFolder
    subtitles: str


def assemble_dataset(
    out: Path,
    settings: BuildSettings,
    captioner: Captioner | None = None,
    references: Sequence[Reference] = (),
    workers: int = 1,
    on_progress: OnProgress | None = None,
) -> BuildReport:
    """Write the tables of all clips that were cut. workers: questions to the captioner at a time.

    ValueError: nothing is cut, or too little to set levels; clips were cut with other settings or from another film of
    the same name; a table is unreadable; another build is running in the folder.
    """
    if not (out / FILMS).is_dir():
        raise ValueError(f"{out} has no clips yet; name a film")
    with locked(
        out / LOCK, f"another build is finishing {out}, or corrections are being applied; wait until that ends"
    ):
        for leftover in out.glob(f"{UNFINISHED}*"):  # of a build that was killed
            leftover.unlink(missing_ok=True)
        cutting, films = settings.cutting(), read_film_index(out)
        check_same_settings(out, films, {}, cutting)
        _check_same_films(out, films)
        known = _known_clips(out, settings)
        held_out_before = _held_out_before(out, known)
        by_people = [row for row in read_table(out / DROPPED, Dropped) if row.reason == REVIEWED]
        set_aside = {item.clip for item in read_table(out / SET_ASIDE, SetAside)}
        gone = {row.record.clip for row in by_people}
        wanted = {clip for clip, row in known.items() if row.captioned or row.kept}
        segments, subtitles, open_scenes = _segments(out, films, settings.most_text, wanted | gone)
        facts = {name: film.survey.facts for name, film in films.items()}
        sizes = {name: (facts[name]["width"] * facts[name]["height"], film.bytes) for name, film in films.items()}
        largest_first = sorted(segments, key=lambda item: sizes[item[0]], reverse=True)
        reasons = _duplicates(out, largest_first, {*known, *gone, *set_aside}) | _between_credits(segments, wanted)
        dropped, records = by_people, []
        for film, _, cut in segments:
            start, end, clip = cut.start, cut.end, cut.clip
            record = ClipRecord(film=film, start=start, end=end, clip=clip, motion_value=cut.value) if clip else None
            if reason := cut.dropped or reasons.get(clip):
                dropped.append(
                    Dropped(film=film, start=start, end=end, reason=reason, clip=clip or None, record=record)
                )
            elif record is not None and clip not in gone and not (captioner is None and clip in set_aside):
                before = known.get(clip) or (_overlapped(record, known.values()) if captioner is None else None)
                if before is not None:
                    said = {name: getattr(before, name) for name in (*CAPTION_FIELDS, "kept")}
                    record = msgspec.structs.replace(record, **said)
                    held_out_before |= {clip: held_out_before[before.clip]} if held_out_before else {}
                records.append(record)
        # Clips that a person made have names that cutting never gives.
        made = (row for clip, row in known.items() if not (row.film in films and is_cut(clip, row.film)))
        records += [row for row in made if row.clip not in gone and (out / row.clip).is_file()]
        places = {film: place for place, film in enumerate(films)}
        records.sort(key=lambda record: (places.get(record.film, len(places)), record.start))
        counts = Counter(row.reason.split(" of ")[0] for row in dropped)  # 'duplicate of <clip>' as duplicate
        more = "cut more of a film"
        if counts["credits"]:
            more += ", or keep clips with text: build in another folder with --most-text 1"
        if not records:
            why = ", ".join(f"{n} {reason}" for reason, n in counts.items()) or _too_short(films, settings.shape)
            raise ValueError(f"{out} has no clip ({why}); {more}")
        try:
            records, levels = with_levels(records)
        except ValueError as error:
            raise ValueError(f"{out}: {error}; {more}") from error
        report = _caption(out, records, captioner, references, workers, on_progress or (lambda what, done, total: None))
        write_text(out / DROPPED, jsonl_text(dropped))
        dataset = write_tables(
            out,
            report.records,
            games_of(report.records, settings.games, held_out_before),
            {
                "films": {name: film.provenance() for name, film in films.items()},
                "captioner": None if captioner is None else captioner.name,
            },
            {
                "fps": settings.shape.fps,
                **cutting,
                "games": dataclasses.asdict(settings.games),
                "motion": {**cutting["motion"], **levels},
                **({} if settings.stats == STATS else {"stats": msgspec.to_builtins(settings.stats)}),
            },
        )
        for name in films.keys() - open_scenes.keys():
            remove_unused_clips(out, name)
    broken = {name: film.survey.broken for name, film in films.items() if film.survey.broken is not None}
    shown = [subtitles.get(record.clip, []) for record in records]
    return BuildReport(counts, broken, open_scenes, report, dataset, _crop_advice(shown, settings.shape.crop))


def _crop_advice(shown: Sequence[Sequence[Line]], crop: Margins) -> str:
    """How many clips show subtitles, and how to leave them out; '' if none does. shown: their lines in each clip."""
    lines = [line for clip in shown for line in clip]  # some letters are half as high again
    ends = {"top": [line.top + 1.5 * line.height for line in lines if line.middle < 0.5]}
    ends["bottom"] = [1 - line.top + 0.5 * line.height for line in lines if line.middle > 0.5]
    sides = ",".join(f"{side}={math.ceil(100 * max(found))}%" for side, found in ends.items() if found)
    return sides and (
        f"{sum(map(bool, shown))} of {len(shown)} clips show subtitles, which a world learns to draw; to leave them "
        f"out, build in another folder with crop {sides}{' of what is left now' if crop != Margins() else ''}"
    )


def _too_short(films: Mapping[str, FilmEntry], shape: ClipShape) -> str:
    """What the longest scene of films without a clip lacks."""
    scenes = [scene for film in films.values() for scene in film.survey.scenes]
    scene = max(scenes, key=lambda scene: scene.end - scene.start, default=Scene(0.0, 0.0, "start"))
    fades = scene.fade_in + scene.fade_out
    faded = f", of which fades, that no clip shows, take {fades:.1f} s" if fades else ""
    seconds = (shape.frames - 1) / shape.fps
    return f"a clip takes {seconds:g} s, and the longest scene has {scene.end - scene.start:.1f} s{faded}"


def _check_same_films(out: Path, films: Mapping[str, FilmEntry]) -> None:
    """ValueError if the tables describe another film of the same name, whose captions its clips would get."""
    before = DatasetFolder(out, (), (), read_info(out)).film_bytes
    for name, film in films.items():
        if before.get(name, film.bytes) != film.bytes:
            raise ValueError(f"{film.file} is another film than the {name!r} in {out}; rename it, or use another --out")


def _known_clips(out: Path, settings: BuildSettings) -> dict[str, ClipRecord]:
    """The lines of turns.jsonl by clip; ValueError for one that cannot be used."""
    known = {record.clip: record for record in read_table(out / TURNS, ClipRecord)}
    for record in known.values():
        try:
            record.check(settings.stats)
        except ValueError as error:
            raise ValueError(f"{out / TURNS}: {record.clip}: {error}") from error
    return known


def _segments(
    out: Path, films: Mapping[str, FilmEntry], most_text: float, spared: Collection[str]
) -> tuple[Segments, dict[str, list[Line]], dict[str, int]]:
    """The segments that are there in order of film and time, credits dropped; clip -> lines of its subtitles;
    film -> scenes not cut, or not wholly there.

    spared: clips that are no credits, since somebody said what they show, brought them back, or dropped them.
    """
    segments: list[tuple[str, str, Cut]] = []
    subtitles: dict[str, list[Line]] = {}
    open_scenes: dict[str, int] = {}
    for name, film in films.items():
        complete, found = 0, []
        for number, cuts in read_scenes(out, name).items():
            there = [cut for cut in cuts if cut.dropped is not None or (out / cut.clip).is_file()]
            complete += there == cuts
            found += [(f"{name}#{number}", cut) for cut in there]
        texts = credits_and_subtitles([cut.text for _, cut in found], most_text)
        for (scene, cut), (is_credits, lines) in zip(found, texts, strict=True):
            subtitles[cut.clip] = lines
            is_unwanted = is_credits and cut.clip not in spared
            segments.append((name, scene, dataclasses.replace(cut, dropped="credits") if is_unwanted else cut))
        if complete < len(film.survey.scenes):
            open_scenes[name] = len(film.survey.scenes) - complete
    return segments, subtitles, open_scenes


def _duplicates(out: Path, segments: Segments, known: Collection[str]) -> dict[str, str]:
    """Clip -> 'duplicate of <clip>', of two alike the later of `segments`. known: clips of the tables, which people may
    have corrected, kept or dropped; they stay."""
    kept, found = Duplicates(lambda clip: read_clip(out / clip).frames), dict[str, str]()
    for is_known in (True, False):
        for _, scene, cut in segments:
            if cut.dropped is None and (cut.clip in known) == is_known:
                if (reason := kept.add(cut.signature, cut.clip, scene)) and not is_known:
                    found[cut.clip] = reason
    return found


def _between_credits(segments: Segments, wanted: Collection[str]) -> dict[str, str]:
    """Clip -> 'credits' between two segments of credits in one scene: there one card fades out before the next.

    wanted: clips that stay, since somebody said what they show or brought them back.
    """
    three = zip(segments, segments[1:], segments[2:], strict=False)
    return {
        cut.clip: "credits"
        for (_, scene, before), (_, _, cut), (_, last_scene, after) in three
        if scene == last_scene and before.dropped == after.dropped == "credits"
        if cut.dropped is None and cut.clip not in wanted
    }


def _overlapped(record: ClipRecord, known: Iterable[ClipRecord]) -> ClipRecord | None:
    """The known clip of the same film that covers most of a clip, and at least half of it; of two, the later."""
    found = [(min(record.end, one.end) - max(record.start, one.start), one) for one in known if one.film == record.film]
    shared, most = max(found, key=lambda row: (round(row[0], 3), row[1].start), default=(0.0, None))
    return most if shared >= (record.end - record.start) / 2 else None


def _held_out_before(out: Path, known: Collection[str]) -> dict[str, bool]:
    """Clip -> whether the tables hold it out of training; {} if they hold out none. known: clips of turns.jsonl.

    DatasetError names an unreadable line of games.jsonl.
    """
    games = read_table(out / GAMES, GameLine)
    held_out = {clip for game in games if game.held_out for clip in game.clips}
    clips = {*known, *(clip for game in games for clip in game.clips)}
    return {clip: clip in held_out for clip in clips} if held_out else {}


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
    chosen = set(read_table(out / ADVERBS, ChosenAdverb))
    levels: dict[tuple[str, str | None], set[int]] = defaultdict(set)
    for row in chosen:
        levels[row.clip, row.adverb].add(row.level)
    asked = [
        msgspec.structs.replace(record, adverb=None)
        if record.motion_level not in levels.get((record.clip, record.adverb), {record.motion_level})
        else record
        for record in records
    ]
    report = caption_clips(
        out, asked, captioner, references, workers, lambda done, total: on_progress("clips captioned", done, total)
    )
    without = {record.clip for record in asked if record.adverb is None}
    new = (record for record in report.records if record.clip in without and record.adverb is not None)
    now = chosen | {ChosenAdverb(record.clip, record.motion_level, record.adverb) for record in new}
    if now != chosen:
        write_text(out / ADVERBS, jsonl_text(sorted(now)))
    return report
