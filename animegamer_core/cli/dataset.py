"""The verb `dataset`: films into a folder that a person can correct and training reads."""
# ruff: noqa: T201

from __future__ import annotations

import typing
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional

from ..data.captions.asking import AskSettings
from ..data.captions.models import LocalSettings
from ..data.films.survey import FilmPart
from ..data.films.writing import MOST_TEXT
from ..data.games import GamePlan
from ..data.motion import BACKENDS, FlowSettings
from ..data.records import SET_ASIDE
from ..data.stats import counted
from ..endpoint import EndpointSettings
from ..messages import shell_word
from ..runtime.device import choose_device
from ..spec import PROGRAM, get_spec
from .options import Device, Progress, note, one_of, typed, unprefixed

if typing.TYPE_CHECKING:
    from ..data.assemble import BuildReport
    from ..data.build import BuildSettings
    from ..data.captions.run import Captioner

FLOW, CAPTIONER = "flow_", "captioner_"  # what options begin with
Flow = OmitArgPrefixes[typed(FlowSettings, ("weights", "device"), FLOW)]
Threshold = OmitArgPrefixes[typed(FlowSettings, ("threshold",))]
Endpoint = OmitArgPrefixes[typed(EndpointSettings)]
Asking = OmitArgPrefixes[typed(AskSettings)]
Local = OmitArgPrefixes[typed(LocalSettings, ("device", "dtype"), CAPTIONER)]
Part = OmitArgPrefixes[typed(FilmPart)]
Games = OmitArgPrefixes[typed(GamePlan, ("turns", "held_out"))]


@dataclass(frozen=True, kw_only=True)
class Build:
    """Cut films into captioned clips; the same command continues."""

    films: Positional[tuple[Path, ...]] = ()
    """Film files or folders; none: finish the dataset from what is cut."""
    out: Path
    """The dataset's folder."""
    spec: str = "release"
    """The spec that sets the clips' size: toybox, release."""
    world: str | None = None
    """The world whose stats captions state the changes of; unset: the published three, or those of the folder."""
    characters: Path | None = None
    """Reference pictures: a folder with NAME.png, or NAME/ with several."""
    workers: int | None = None
    """Processes that read films; unset: one per core."""
    scene_device: Device = "auto"
    """Device for finding scenes: auto, cpu or cuda."""
    part: Part = field(default_factory=dict)
    most_text: float = MOST_TEXT
    """Fraction of the picture; clips with more text are dropped as credits or titles; 1: drop none."""
    crop: str = ""
    """What to cut away from the picture, such as subtitles: top=10%,bottom=80px; also left, right."""
    captioner: Literal["none", "endpoint", "transformers", "script"] = "none"
    """Who captions the clips; the options that follow default to the captioner's own values."""
    endpoint: Endpoint = field(default_factory=dict)
    asking: Asking = field(default_factory=dict)
    local: Local = field(default_factory=dict)
    flow: Annotated[str, one_of(BACKENDS)] = "dis"
    """What measures motion; steady: dis without the camera's own motion."""
    flow_model: Flow = field(default_factory=dict)
    threshold: Threshold = field(default_factory=dict)
    slow_fraction: float | None = None
    """Fraction of the fast pixels' speed; slower pixels count as background. Unset: 0.5, or what the folder has."""
    games: Games = field(default_factory=dict)

    def run(self) -> int:
        """Cut, caption and finish; 1 if something is missing, 2 if no film could be read."""
        from ..data.assemble import assemble_dataset
        from ..data.build import cut_films
        from ..data.captions.pictures import read_references
        from ..data.films.film_index import find_films, read_film_index

        films = find_films(self.films, self.out) if self.films else []
        settings = self._settings()
        captioner = self._captioner(films, settings)
        references = read_references(self.characters) if self.characters else ()
        device = None if self.scene_device == "auto" else choose_device(self.scene_device)
        broken = cut_films(films, self.out, settings, self.workers, Progress().show, device) if films else {}
        for sentence in broken.values():
            note(sentence)
        if broken and not read_film_index(self.out):
            return 2  # no film could be read; the messages are above
        at_once = self.asking.get("asked_at_once", AskSettings.asked_at_once)
        report = assemble_dataset(self.out, settings, captioner, references, at_once, Progress().show)
        _print_report(report, broken.values(), get_spec(self.spec).name, captioner is not None)
        captions = report.captions
        unanswered = captioner is not None and (captions.uncaptioned or captions.set_aside)
        return int(bool(broken or report.broken or report.open or unanswered))

    def _settings(self) -> BuildSettings:
        from ..data.build import BuildSettings
        from ..data.films.cutting import ClipShape
        from ..data.motion import SLOW_FRACTION
        from ..weights import open_world

        flow: dict[str, Any] = {**unprefixed(self.flow_model, FLOW), **self.threshold, "backend": self.flow}
        flow["device"] = "cpu" if self.flow != "memflow" else choose_device(flow.get("device", "auto"))
        flow["slow_fraction"] = SLOW_FRACTION if self.slow_fraction is None else self.slow_fraction
        settings = BuildSettings(
            shape=ClipShape.of(get_spec(self.spec).decoder, self.crop),
            part=FilmPart(**self.part),
            most_text=self.most_text,
            flow=FlowSettings(**flow),
            games=GamePlan(**self.games),
        )
        known = settings.of_folder(self.out)
        stats = open_world(self.world).life.rules.stats if self.world else known.stats
        return replace(known if self.slow_fraction is None else settings, stats=stats)

    def _captioner(self, films: Sequence[Path], settings: BuildSettings) -> Captioner | None:
        """The chosen captioner; ValueError names an option that it does not take or that is missing."""
        from ..data.captions.run import open_captioner

        options = {**self.endpoint, **self.asking, **unprefixed(self.local, CAPTIONER)}
        options.pop("asked_at_once", None)
        if self.captioner == "script":
            options["sidecars"] = _sidecars(self.out, films)
        return open_captioner(self.captioner, settings.stats, **options)


@dataclass(frozen=True, kw_only=True)
class Check:
    """List what is wrong, with file and line; exit status 1 if anything is."""

    folder: Positional[Path]
    """The dataset."""
    apply: Path | None = None
    """First apply corrections exported by review.html."""

    def run(self) -> int:
        from ..data.check import check
        from ..data.corrections import apply_corrections
        from ..data.films.film_index import scenes_to_cut
        from ..data.review import write_review

        if self.apply is not None:
            print(f"{counted(apply_corrections(self.folder, self.apply), 'correction')} applied")
            for film, scenes in scenes_to_cut(self.folder).items():
                print(f"{film}: {counted(scenes, 'scene')} to cut; build the dataset again with this film")
            write_review(self.folder)
        problems = check(self.folder, Progress("clips opened"))
        for problem in problems:
            print(problem)
        serious = sum(problem.serious for problem in problems)
        print(f"{serious} to fix" if serious else "nothing to fix")
        return int(bool(serious))


@dataclass(frozen=True, kw_only=True)
class Stats:
    """Print counts, draw stats.png and write review.html."""

    folder: Positional[Path]
    """The dataset."""

    def run(self) -> int:
        from ..data.stats import stats

        print(stats(self.folder))
        _write_pictures(self.folder)
        return 0


def _sidecars(out: Path, films: Sequence[Path]) -> dict[str, Path]:
    """The sidecar of each film; ValueError if a film of the dataset is not named, since its clips need one too."""
    from ..data.captions.models import sidecar_of
    from ..data.films.film_index import films_by_name, read_film_index

    sidecars = {name: sidecar_of(film) for name, film in films_by_name(films, out).items()}
    for name, film in read_film_index(out).items():
        if name not in sidecars:
            raise ValueError(f"captioner 'script' reads files next to the films; name {film.file} too")
    return sidecars


def _print_report(report: BuildReport, printed: Collection[str], spec: str, has_captioner: bool) -> None:
    """Print what the folder has now, what is missing and what comes next. printed: messages that were shown before."""
    from ..train.stages import SCRATCH_SPECS

    for sentence in report.broken.values():
        if sentence not in printed:
            note(sentence)
    for film, scenes in report.open.items():
        note(f"{film}: {counted(scenes, 'scene')} not cut; name the film again to cut the rest")
    dataset = report.dataset
    films, clips = counted(len(dataset.info["provenance"]["films"]), "film"), counted(len(dataset.turns), "clip")
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(report.dropped.items()))
    print(f"{films}, {clips}, left out: {dropped or 'nothing'}")
    if report.subtitles:
        print(report.subtitles)
    print(report.captions.text)
    held_out = sum(game.held_out for game in dataset.games)
    print(f"{counted(len(dataset.games), 'game')}, {held_out} of them held out, in {dataset.path}")
    _write_pictures(dataset.path)
    folder, sizes = shell_word(dataset.path), f" --spec {spec}" if spec in SCRATCH_SPECS else ""
    print(f"next: review the clips in review.html; apply its export: {PROGRAM} dataset check {folder} --apply FILE")
    train = f"{PROGRAM} train all --dataset {folder} --world WORLD{sizes} --out RUN"
    uncaptioned, set_aside = report.captions.uncaptioned, len(report.captions.set_aside)
    if uncaptioned and has_captioner:
        print(f"{counted(uncaptioned, 'clip')} got no answer, see above why; then run the same command again")
    elif uncaptioned:
        print(f"{counted(uncaptioned, 'clip')} without a caption only train stage vae: build again with --captioner")
    elif set_aside:
        print(f"{counted(set_aside, 'clip')} got no valid answer, see {dataset.path / SET_ASIDE} for the replies: give")
        print(f"more --tries or another --model, or train without these clips: {train}")
    else:
        print(f"then: {train}")


def _write_pictures(folder: Path) -> None:
    """Write stats.png and review.html, and print their paths."""
    from ..data.review import write_review
    from ..data.stats import write_stats

    print(write_stats(folder))
    print(write_review(folder))


Options = Build | Check | Stats
