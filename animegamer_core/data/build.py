"""Cuts films into clips, the long part of building a dataset; every step is saved, so a killed build continues.

Several machines that share the folder may each cut other films into it. From the clips `assemble` makes the tables that
training reads.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import multiprocessing
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import make_folder, room_for
from ..game.life import STATS, Stat
from .dataset import DatasetFolder, read_info
from .films import transnet, writing
from .films.cutting import ClipShape, cut_span, spans_of
from .films.film import FilmError
from .films.film_index import (
    add_film,
    add_scenes,
    check_same_settings,
    films_by_name,
    finished_scenes,
    read_film_index,
    strip_folder,
    tidy_film,
)
from .films.survey import FilmPart, Survey, survey_film
from .films.writing import MOST_TEXT
from .games import GamePlan
from .motion import SLOW_FRACTION, FlowSettings, motion_facts, open_flow
from .workers import parallel_map, worker_count

OnProgress = Callable[[str, int, int], None]  # (what, how many are done, of how many or 0 if unknown)


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """What determines the clips of a dataset and its games. All clips of a folder have the same settings.
    See also `of_folder`.

    most_text: fraction of the picture that text may cover, else a clip is credits or a title; 1 keeps them all. stats:
    those that captions state the changes of.
    """

    shape: ClipShape
    part: FilmPart = FilmPart()
    most_text: float = MOST_TEXT
    flow: FlowSettings = FlowSettings(slow_fraction=SLOW_FRACTION)
    games: GamePlan = GamePlan()
    stats: tuple[Stat, ...] = STATS

    def __post_init__(self) -> None:
        if not 0 < self.most_text <= 1:
            raise ValueError(f"text may cover {self.most_text} of the picture; expected above 0, at most 1")

    def of_folder(self, out: Path) -> BuildSettings:
        """The same, with the slow fraction that the folder's clips were measured by, and the folder's stats."""
        settings = dataclasses.replace(self, stats=DatasetFolder(out, (), (), read_info(out)).stats)
        for film in read_film_index(out).values():
            fraction = film.settings.get("motion", {}).get("slow_fraction", self.flow.slow_fraction)
            return dataclasses.replace(settings, flow=dataclasses.replace(self.flow, slow_fraction=fraction))
        return settings

    def cutting(self) -> dict[str, Any]:
        """What the clips depend on, as JSON values; FlowError if the flow backend cannot be used."""
        motion = motion_facts(open_flow(self.flow), self.flow.threshold, self.flow.slow_fraction)
        found = {"detector": transnet.DETECTOR, "text_detector": writing.DETECTOR, "most_text": self.most_text}
        clips, part = dataclasses.asdict(self.shape), dataclasses.asdict(self.part)
        return json.loads(json.dumps({"clips": clips, **part, "scenes": found, "motion": motion}))


def cut_films(
    films: Sequence[Path],
    out: Path,
    settings: BuildSettings,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
    device: str | None = None,
) -> dict[str, str]:
    """Survey films and cut them into the folder; returns film -> message for those that broke off.

    Finished scenes stay. workers: processes, None for one per core; the result is the same for any number. device:
    where TransNetV2 runs, cpu or cuda; None for the first GPU if there is one. ValueError: clips in the folder with
    other settings, or a network is not installed that is needed. OSError: the folder is not writable; what is finished
    stays.
    """
    report = on_progress or (lambda what, done, total: None)
    named = films_by_name(films, out)
    broken = _survey_films(named, out, settings, workers, device, report)
    entries = {name: film for name, film in read_film_index(out).items() if name in named}
    broken |= {name: film.survey.broken for name, film in entries.items() if film.survey.broken is not None}
    spans = [
        span
        for name, film in entries.items()
        for span in spans_of(named[name], name, film.survey, finished_scenes(out, name), settings.most_text)
    ]
    scenes = sum(len(film.survey.scenes) for film in entries.values())
    done = scenes - sum(len(span.scenes) for span in spans)
    work = functools.partial(cut_span, out=out, shape=settings.shape, flow=settings.flow)
    for span, cuts in parallel_map(work, spans, workers, chunk=1, ordered=False):
        if isinstance(cuts, str):
            broken[span.name] = cuts
            continue
        add_scenes(out, span, cuts)
        done += len(span.scenes)
        report("scenes cut", done, scenes)
    for name, film in entries.items():
        if len(finished_scenes(out, name)) == len(film.survey.scenes):
            tidy_film(out, name)
    return broken


def _survey_films(
    named: Mapping[str, Path],
    out: Path,
    settings: BuildSettings,
    workers: int | None,
    device: str | None,
    report: OnProgress,
) -> dict[str, str]:
    """Survey the films that are not in the index yet; returns film -> message for those that cannot be read at all."""
    cutting, known, broken = settings.cutting(), read_film_index(out), {}
    check_same_settings(out, known, named, cutting)
    make_folder(out)
    with room_for(out), tempfile.TemporaryFile(dir=out):
        pass  # an OSError now, not after a whole film was read
    todo = [(name, film) for name, film in named.items() if name not in known]
    if todo:
        transnet.network_class()
        if settings.most_text < 1:
            writing.detector_file()
    cores = worker_count(workers)
    threads = max(1, cores // max(1, len(todo)))
    progress = report if min(cores, len(todo)) == 1 else None
    survey_one = functools.partial(
        _survey, part=settings.part, threads=threads, device=device, out=out, report=progress
    )
    surveys = parallel_map(survey_one, todo, cores, chunk=1, ordered=False)
    for done, (name, survey) in enumerate(surveys, start=len(named) - len(todo) + 1):
        if isinstance(survey, str):
            broken[name] = survey
        else:
            add_film(out, name, named[name], cutting, survey)
        report("films read", done, len(named))
    return broken


def _survey(
    item: tuple[str, Path],
    part: FilmPart,
    threads: int,
    device: str | None,
    out: Path,
    report: OnProgress | None = None,
) -> tuple[str, Survey | str]:
    """A film's survey, or the message why it cannot be read.

    One process reads a film from start to end, since finding scenes needs the frames around each; cores without a film
    of their own decode for the others. Without a GPU most of the time goes into TransNetV2, which takes all cores for a
    single film, and a core for each of several.
    """
    name, film = item
    if multiprocessing.parent_process() is not None:  # a worker among others; torch would start a thread a core
        import torch

        torch.set_num_threads(threads)

    on_seconds = None if report is None else lambda done, total: report(f"seconds of {name}", round(done), round(total))
    try:
        device, strip = device or transnet.best_device(), strip_folder(out, name)
        return name, survey_film(film, part, threads=threads, device=device, strip=strip, on_seconds=on_seconds)
    except FilmError as error:
        return name, str(error)
