"""The verb `dataset`: films into a folder that a person can correct and training reads."""
# ruff: noqa: T201

from __future__ import annotations

import sys
import typing
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from ..data.films.writing import MOST_TEXT
from ..data.flow import BACKENDS
from ..messages import shell_word
from ..runtime.device import choose_device
from ..spec import PROGRAM, get_spec
from .endpoint_options import Progress
from .options import Device, Flag, confirmed, one_of

if typing.TYPE_CHECKING:
    from ..data.assemble import BuildReport
    from ..data.build import BuildSettings
    from ..data.captions import Captioner
    from ..data.dataset import DatasetFolder

SHOWN_PROBLEMS = 50
CAPTIONER_OPTIONS = {  # option of open_captioner -> argument
    **{name: name for name in ("url", "model", "tries", "max_tokens", "timeout", "retries")},
    **{"price_in": "price_in", "price_out": "price_out", "device": "captioner_device", "dtype": "captioner_dtype"},
}


@dataclass(frozen=True, kw_only=True)
class Build:
    """Cut films into captioned clips; the same command continues."""

    films: Positional[tuple[Path, ...]] = ()
    """Film files or folders; none: finish the dataset from what is cut."""
    out: Path
    """The dataset's folder."""
    spec: str = "release"
    """The spec that sets the clips' size: toybox, release."""
    characters: Path | None = None
    """Reference pictures: a folder with NAME.png, or NAME/ with several."""
    workers: int | None = None
    """Processes that read films; unset: one per core."""
    scene_device: Device = "auto"
    """Device for finding scenes: auto, cpu or cuda."""
    shard: str | None = None
    """I/N: cut only every N-th film, starting with the I-th; afterwards run once without this option."""
    most_text: float = MOST_TEXT
    """Fraction of the picture; clips with more text are dropped as credits or titles; 1: drop none."""
    captioner: Literal["none", "endpoint", "transformers", "script"] = "none"
    """Who captions the clips; the options that follow default to the captioner's own values."""
    url: str | None = None
    """Endpoint: an OpenAI-compatible address, such as http://localhost:8000/v1; the key is read from OPENAI_API_KEY."""
    model: str | None = None
    """Endpoint: the model's name; transformers: its folder."""
    asked_at_once: int = 4
    """Parallel requests."""
    tries: int | None = None
    """Invalid replies before a clip is set aside."""
    max_tokens: int | None = None
    """Tokens per reply."""
    timeout: float | None = None
    """Endpoint: seconds without an answer before a request is tried again; unset: 120."""
    retries: int | None = None
    """Endpoint: retries after a failed request; unset: 5."""
    price_in: float | None = None
    """Endpoint: price per million input tokens, to report the cost."""
    price_out: float | None = None
    """Endpoint: price per million output tokens."""
    captioner_device: str | None = None
    """Transformers: cpu, cuda, cuda:1 or mps."""
    captioner_dtype: str | None = None
    """Transformers: auto, bfloat16, float16 or float32."""
    flow: Annotated[str, one_of(BACKENDS)] = "dis"
    """What measures motion."""
    flow_weights: Path | None = None
    """raft, memflow: file of weights."""
    flow_python: Path | None = None
    """memflow: python of an environment that has ptlflow."""
    flow_device: Device = "auto"
    """raft, memflow: auto, cpu or cuda."""
    threshold: float = 0.2
    """px per frame; slower pixels count as still."""
    slow_fraction: float | None = None
    """Fraction of the fast pixels' speed; slower pixels count as background. Unset: 0.5, or what the folder has."""
    turns: int = 10
    """Clips per game."""
    held_out: float = 0.1
    """Fraction of the games to hold out; at least one of two or more games, unless 0. A rebuild keeps every clip in its
    split; to choose again, delete games.jsonl."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """List what is wrong, with file and line; exit status 1 if anything is."""

    folder: Positional[Path]
    """The dataset."""
    deep: Flag = False
    """Decode every frame of every clip."""
    apply: Path | None = None
    """First apply corrections exported by review.html."""


@dataclass(frozen=True, kw_only=True)
class Stats:
    """Print counts, draw stats.png and write review.html."""

    folder: Positional[Path]
    """The dataset."""


@dataclass(frozen=True, kw_only=True)
class Cache:
    """Compute what training needs once: latents, text and image features."""

    folder: Positional[Path]
    """The dataset."""
    world: str
    """The world whose VAE and encoders compute them."""
    out: Path
    """The folder for `train --cache`."""
    features: tuple[str, ...] = ()
    """Some of latents, text, image, image_random, states; unset: the first three."""
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class Example:
    """Download a real film and build a dataset from it."""

    out: Path
    """Folder for the film and its dataset."""
    spec: str = "toybox"
    """The spec that sets the clips' size."""
    workers: int | None = None
    """Processes that read the film; unset: one per core."""
    held_out: float = 0.1
    """Fraction of the games to hold out."""
    yes: Flag = False
    """Do not ask before the download."""


Options = Build | Check | Stats | Cache | Example


def run(options: Options) -> int:
    """Do the task; returns the exit status.

    1: films broke off, clips have no caption, or a check found something. 2: no film could be read, or the disk is
    full. 130: interrupted.
    """
    return {Build: _build, Check: _check, Stats: _stats, Cache: _cache, Example: _example}[type(options)](options)


def _example(args: Example) -> int:
    """Get the film with its captions and reference pictures, and build its dataset; 1 if the answer is no.

    ExampleError: the film cannot be downloaded.
    """
    from ..data.examples.example_film import BIG_BUCK_BUNNY, CHARACTERS, describe, get_film, has_film, plan_text

    example = BIG_BUCK_BUNNY
    if not has_film(example, args.out):
        print(plan_text(example, args.out), end="")
        if not args.yes and not confirmed("Get it, under these licences?"):
            print("Nothing was downloaded.")
            return 1
        sys.stdout.flush()  # before pip writes
    film = get_film(example, args.out)
    describe(example, args.out)
    print(f"{film}: {example.title}, {example.licence}")
    chosen = {name: getattr(args, name) for name in ("spec", "workers", "held_out")}
    return _build(
        Build(
            films=(film,),
            out=args.out / "dataset",
            characters=args.out / CHARACTERS,
            captioner="script",
            **chosen,
        )
    )


def _build(args: Build) -> int:
    try:
        return _cut_and_finish(args)
    except KeyboardInterrupt:
        print("\nstopped; finished work is kept; run the same command to continue", file=sys.stderr)
        return 130


def _cut_and_finish(args: Build) -> int:
    from ..data.assemble import assemble_dataset
    from ..data.build import cut_films, shard_of
    from ..data.captions import read_references
    from ..data.films.film_index import read_film_index
    from ..data.films.find import find_films

    films = find_films(args.films, args.out) if args.films else []
    settings = _settings(args)
    captioner = _captioner(args, films)
    references = read_references(args.characters) if args.characters else ()
    part = shard_of(films, *_shard(args.shard)) if args.shard else films
    device = None if args.scene_device == "auto" else choose_device(args.scene_device)
    broken = cut_films(part, args.out, settings, args.workers, Progress().show, device) if part else {}
    for sentence in broken.values():
        print(sentence, file=sys.stderr)
    if args.shard:
        print(f"shard {args.shard}: {len(part) - len(broken)} of {len(part)} films fully cut")
        return int(bool(broken))
    if broken and not read_film_index(args.out):
        return 2  # no film could be read; the messages are above
    report = assemble_dataset(args.out, settings, captioner, references, args.asked_at_once, Progress().show)
    _print_report(report, broken.values())
    _write_pictures(args.out)
    _print_next(report.dataset, get_spec(args.spec).name)
    return int(bool(broken or report.broken or report.open or report.captions.failures or report.captions.set_aside))


def _settings(args: Build) -> BuildSettings:
    from ..data.build import BuildSettings
    from ..data.films.cutting import ClipShape
    from ..data.flow import FlowSettings
    from ..data.games import GamePlan
    from ..data.motion import SLOW_FRACTION

    flow = FlowSettings(
        backend=args.flow,
        weights=args.flow_weights,
        python=args.flow_python,
        device="cpu" if args.flow == "dis" else choose_device(args.flow_device),
        threshold=args.threshold,
        slow_fraction=SLOW_FRACTION if args.slow_fraction is None else args.slow_fraction,
    )
    settings = BuildSettings(
        shape=ClipShape.of(get_spec(args.spec).decoder),
        most_text=args.most_text,
        flow=flow,
        games=GamePlan(turns=args.turns, held_out=args.held_out),
    )
    return settings.of_folder(args.out) if args.slow_fraction is None else settings


def _captioner(args: Build, films: Sequence[Path]) -> Captioner | None:
    """The chosen captioner; ValueError names an option that it does not take or that is missing."""
    from ..data.captions import CAPTIONERS, open_captioner

    options: dict[str, object] = {name: getattr(args, given) for name, given in CAPTIONER_OPTIONS.items()}
    if args.captioner == "script":
        options["sidecars"] = _sidecars(args.out, films)
    kind = CAPTIONERS[args.captioner]
    lacking = [name for name in kind.needs if options.get(name) is None]
    if lacking and all(value is None or name in kind.takes for name, value in options.items()):
        raise ValueError(f"--captioner {args.captioner} needs --{CAPTIONER_OPTIONS[lacking[0]].replace('_', '-')}")
    return open_captioner(args.captioner, **options)


def _sidecars(out: Path, films: Sequence[Path]) -> dict[str, Path]:
    """The sidecar of each film; ValueError if a film of the dataset is not named, since its clips need one too."""
    from ..data.captions import sidecar_of
    from ..data.films.film_index import films_by_name, read_film_index

    sidecars = {name: sidecar_of(film) for name, film in films_by_name(films).items()}
    for name, film in read_film_index(out).items():
        if name not in sidecars:
            raise ValueError(f"captioner 'script' reads files next to the films; name {film.file} too")
    return sidecars


def _shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise ValueError(f"--shard {text}: expected this shard's number and the count of shards, such as 1/4")
    return int(number), int(count)


def _print_report(report: BuildReport, printed: Collection[str]) -> None:
    """Print what the folder has now and what is missing. printed: messages that were shown before."""
    from ..data.stats import counted

    for sentence in report.broken.values():
        if sentence not in printed:
            print(sentence, file=sys.stderr)
    for film, scenes in report.open.items():
        print(f"{film}: {counted(scenes, 'scene')} not cut; name the film again to cut the rest", file=sys.stderr)
    for sentence in report.other_settings.values():
        print(sentence, file=sys.stderr)
    dataset = report.dataset
    films, clips = counted(len(dataset.info["provenance"]["films"]), "film"), counted(len(dataset.turns), "clip")
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(report.dropped.items()))
    print(f"{films}, {clips}, left out: {dropped or 'nothing'}")
    print(report.captions.text)
    held_out = sum(game.held_out for game in dataset.games)
    print(f"{counted(len(dataset.games), 'game')}, {held_out} of them held out, in {dataset.path}")


def _print_next(dataset: DatasetFolder, spec: str) -> None:
    """Print the next commands."""
    from ..train.stages import SCRATCH_SPECS, STAGES, STAGES_IN_ORDER

    folder = shell_word(dataset.path)
    print(
        f"next: review the clips in review.html, then apply its export: {PROGRAM} dataset check {folder} --apply FILE"
    )
    if uncaptioned := sum(not turn.captioned for turn in dataset.turns):
        print(f"{uncaptioned} clips have no caption: run the same command again with --captioner, or name what they")
        print("show in review.html; until then they can only train stage vae")
    elif spec in SCRATCH_SPECS:
        print(f"then: {PROGRAM} train STAGE --dataset {folder} --world WORLD --spec {spec} --out RUN")
        print(f"      for the stages {', '.join(STAGES_IN_ORDER)}, in this order")
    else:
        for stage, facts in STAGES.items():
            if facts.after is None:
                continue
            start = "".join(f" runs/{name}/{name}.safetensors" for name in facts.after)
            command = f"train {stage} --dataset {folder} --world WORLD --out runs/{stage}"
            print(f"then: {PROGRAM} {command}{' --start' + start if start else ''}")


def _check(args: Check) -> int:
    from ..data.check import check
    from ..data.corrections import apply_corrections
    from ..data.films.film_index import scenes_to_cut
    from ..data.review import write_review
    from ..data.stats import counted

    if args.apply is not None:
        print(f"{counted(apply_corrections(args.folder, args.apply), 'correction')} applied")
        for film, scenes in scenes_to_cut(args.folder).items():
            print(f"{film}: {counted(scenes, 'scene')} to cut; build the dataset again with this film")
        write_review(args.folder)
    problems = check(args.folder, args.deep, Progress("clips opened"))
    for problem in problems[:SHOWN_PROBLEMS]:
        print(problem)
    if len(problems) > SHOWN_PROBLEMS:
        print(f"... and {len(problems) - SHOWN_PROBLEMS} more")
    serious = sum(problem.serious for problem in problems)
    print(f"{serious} to fix" if serious else "nothing to fix")
    return int(bool(serious))


def _stats(args: Stats) -> int:
    from ..data.stats import stats

    print(stats(args.folder))
    _write_pictures(args.folder)
    return 0


def _write_pictures(folder: Path) -> None:
    """Write stats.png and review.html, and print their paths."""
    from ..data.review import write_review
    from ..data.stats_picture import write_stats

    print(write_stats(folder))
    print(write_review(folder))


def _cache(args: Cache) -> int:
    from ..train.cache_job import DEFAULT_FEATURES, cache_features

    features = args.features or DEFAULT_FEATURES
    done = cache_features(args.folder, args.world, args.out, features, Progress().show, args.device)
    for feature in done:
        state = "computed" if feature.fresh else "was there"
        print(f"{feature.name}: {feature.clips} clips, {feature.bytes / 2**20:.1f} MiB, {state}")
    return 0
