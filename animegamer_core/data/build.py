"""Films into clips, the long part of a dataset's making: every step is kept, so a killed build goes on.

Several machines that share the folder may cut films of their own into it. From what `cut_films` leaves, `finish` makes
the tables that training reads.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .films.cutting import ClipShape, cut_span, spans_of
from .films.filmfile import FilmError
from .films.filmnotes import begin, check_same, finished_scenes, named_films, note_scenes, read_notes, settle
from .films.scenes import SceneSettings
from .films.survey import OnSeconds, Survey, survey_film
from .flow import FlowSettings, motion_facts, open_flow
from .games import GamePlan
from .workers import count_of, spread

OnProgress = Callable[[str, int, int], None]  # (what is done, how much of it, of how much or 0)


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """What decides the clips of a dataset, and its games. Clips of one folder are all cut with the same settings, but
    for `scenes`: a film keeps the scenes that it was cut into before."""

    shape: ClipShape
    scenes: SceneSettings = SceneSettings()
    flow: FlowSettings = FlowSettings()
    games: GamePlan = GamePlan()

    def cutting(self) -> dict[str, Any]:
        """What the clips depend on, as json keeps it; FlowError where the flow backend cannot be used here."""
        with open_flow(self.flow) as flow:
            motion = motion_facts(flow, self.flow.threshold)
        both = {"clips": dataclasses.asdict(self.shape), "scenes": dataclasses.asdict(self.scenes), "motion": motion}
        return json.loads(json.dumps(both))


def cut_films(
    films: Sequence[Path],
    out: Path,
    settings: BuildSettings,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, str]:
    """Survey and cut films into the folder; returns film -> sentence for those that could not be read to their end.

    Scenes that were finished before are left as they are. workers: processes, None for one a core; the result is the
    same for any number. ValueError: two films of one name, or clips in the folder that were cut with other settings
    than these, `scenes` aside. OSError where the folder cannot be written to; what is finished stays.
    """
    told = on_progress or (lambda what, done, total: None)
    named = named_films(films)
    broken = _survey_films(named, out, settings, workers, told)
    surveys = {name: note.survey for name, note in read_notes(out).items() if name in named}
    broken |= {name: survey.broken for name, survey in surveys.items() if survey.broken is not None}
    spans = [
        span
        for name, survey in surveys.items()
        for span in spans_of(named[name], name, survey, finished_scenes(out, name))
    ]
    scenes = sum(len(survey.scenes) for survey in surveys.values())
    done = scenes - sum(len(span.scenes) for span in spans)
    work = functools.partial(cut_span, out=out, shape=settings.shape, flow=settings.flow)
    for span, cuts in spread(work, spans, workers, chunk=1, ordered=False):
        if isinstance(cuts, str):
            broken[span.name] = cuts
            continue
        note_scenes(out, span, cuts)
        done += len(span.scenes)
        told("scenes cut", done, scenes)
    for name, survey in surveys.items():
        if len(finished_scenes(out, name)) == len(survey.scenes):
            settle(out, name)
    return broken


def shard_of(films: Sequence[Path], number: int, count: int) -> list[Path]:
    """Every count-th film from the number-th (1, 2, ...): the part of one of several machines, given the same films.

    ValueError: no such part, or two films of one name, which no machine by itself would see.
    """
    if not 1 <= number <= count:
        raise ValueError(f"shard {number}/{count}: expected 1/{count} to {count}/{count}")
    named_films(films)
    return list(films[number - 1 :: count])


def _survey_films(
    named: Mapping[str, Path], out: Path, settings: BuildSettings, workers: int | None, told: OnProgress
) -> dict[str, str]:
    """Read the films that have no note yet; returns the sentences of those of which nothing can be read."""
    cutting, notes, broken = settings.cutting(), read_notes(out), {}
    check_same(out, notes, named, cutting)
    _try_to_write(out)
    todo = [(name, film) for name, film in named.items() if name not in notes]
    done = len(named) - len(todo)
    for name, survey in _surveys(todo, settings.scenes, workers, told):
        if isinstance(survey, str):
            broken[name] = survey
        else:
            begin(out, name, named[name], cutting, survey)
        done += 1
        told("films read", done, len(named))
    return broken


def _try_to_write(out: Path) -> None:
    """Make the folder and a file in it, since a whole film is read before the first is needed; OSError names it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        told = f"the output folder cannot be written to ({error.strerror}); name another"
        raise OSError(error.errno, told, str(out)) from error


def _surveys(
    films: Sequence[tuple[str, Path]], settings: SceneSettings, workers: int | None, told: OnProgress
) -> Iterator[tuple[str, Survey | str]]:
    """(name, survey or sentence) of each film. Cores that have no film of their own decode for the others.

    A film is read from its start to its end by one process, since a scene is told from all that is around it. Finding
    scenes takes about as long as decoding 360 lines on one core [measured: 0.7 to 1.0 thousand frames a second], so
    that more than two cores help a single film only if it is large.
    """
    cores = count_of(workers)
    work = functools.partial(_survey, settings=settings, threads=max(1, cores // max(1, len(films))))
    if len(films) == 1:
        what = f"seconds of {films[0][0]}"
        yield work(films[0], on_seconds=lambda done, total: told(what, round(done), round(total)))
    else:
        yield from spread(work, films, workers, chunk=1, ordered=False)


def _survey(
    item: tuple[str, Path], settings: SceneSettings, threads: int, on_seconds: OnSeconds | None = None
) -> tuple[str, Survey | str]:
    """A film's survey, or the sentence of one that cannot be read."""
    name, film = item
    try:
        return name, survey_film(film, settings, threads=threads, on_seconds=on_seconds)
    except FilmError as error:
        return name, str(error)
