"""The verb `dataset`: films into a folder that a person can correct and training reads."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
import typing
from collections.abc import Collection, Sequence
from pathlib import Path

from ..messages import shell_word
from ..runtime.device import choose_device
from ..spec import PROGRAM, get_spec
from .dataset_example import add_example_arguments, prepare_example
from .endpoint_options import Progress, add_request_arguments

if typing.TYPE_CHECKING:
    from ..data.assemble import BuildReport
    from ..data.build import BuildSettings
    from ..data.captions import Captioner
    from ..data.dataset import DatasetFolder

SHOWN_PROBLEMS = 50
CAPTIONER_OPTIONS = {  # option of open_captioner -> argument
    **{name: name for name in ("url", "model", "tries", "max_tokens", "timeout", "retries", "per_minute")},
    **{"price_in": "price_in", "price_out": "price_out", "device": "captioner_device", "dtype": "captioner_dtype"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `dataset`."""
    tasks = parser.add_subparsers(dest="task", required=True, metavar="build|check|stats|cache|example")
    _build_arguments(tasks.add_parser("build", help="cut films into captioned clips; the same command continues"))
    check = tasks.add_parser("check", help="list what is wrong, with file and line; exit status 1 if anything is")
    check.add_argument("folder", type=Path, metavar="DATASET")
    check.add_argument("--deep", action="store_true", help="decode every frame of every clip")
    check.add_argument("--apply", type=Path, metavar="FILE", help="first apply corrections exported by review.html")
    stats = tasks.add_parser("stats", help="print counts, draw stats.png and write review.html")
    stats.add_argument("folder", type=Path, metavar="DATASET")
    cache = tasks.add_parser("cache", help="compute what training needs once: latents, text and image features")
    cache.add_argument("folder", type=Path, metavar="DATASET")
    cache.add_argument("--world", required=True, help="the world whose VAE and encoders compute them")
    cache.add_argument("--out", required=True, type=Path, metavar="CACHE", help="the folder for `train --cache`")
    cache.add_argument(
        "--features", nargs="+", metavar="NAME", help="some of latents, text, image, image_random, states"
    )
    cache.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default %(default)s)")
    add_example_arguments(tasks.add_parser("example", help="download a real film and build a dataset from it"))


def _build_arguments(parser: argparse.ArgumentParser) -> None:
    from ..data.captions import CAPTIONERS
    from ..data.films.writing import MOST_TEXT
    from ..data.flow import BACKENDS

    add = parser.add_argument
    add(
        "films",
        nargs="*",
        type=Path,
        metavar="FILM",
        help="film files or folders; none: finish the dataset from what is cut",
    )
    add("--out", required=True, type=Path, metavar="DATASET", help="the dataset's folder")
    add("--spec", default="release", help="the spec that sets the clips' size: toybox, release (default %(default)s)")
    add("--characters", type=Path, metavar="DIR", help="reference pictures: DIR/NAME.png, or DIR/NAME/ with several")
    add("--workers", type=int, metavar="N", help="processes that read films (default: one per core)")
    add("--scene-device", default="auto", help="device for finding scenes: auto, cpu or cuda (default %(default)s)")
    add(
        "--shard",
        metavar="I/N",
        help="cut only every N-th film, starting with the I-th; afterwards run once without this option",
    )
    add(
        "--most-text",
        type=float,
        default=MOST_TEXT,
        metavar="X",
        help="fraction of the picture; clips with more text are dropped as credits or titles; 1: drop none (default "
        "%(default)s)",
    )
    captions = parser.add_argument_group("captions", "Each option defaults to the captioner's own value.")
    add = captions.add_argument
    add("--captioner", choices=CAPTIONERS, default="none", help="who captions the clips (default %(default)s)")
    add(
        "--url",
        help="endpoint: an OpenAI-compatible address, such as http://localhost:8000/v1; the key is read from "
        "OPENAI_API_KEY",
    )
    add("--model", help="endpoint: the model's name; transformers: its folder")
    add("--asked-at-once", type=int, default=4, metavar="N", help="parallel requests (default %(default)s)")
    add("--tries", type=int, metavar="N", help="invalid replies before a clip is set aside")
    add("--max-tokens", type=int, metavar="N", help="tokens per reply")
    add_request_arguments(add, "endpoint: ")
    add("--captioner-device", metavar="DEVICE", help="transformers: cpu, cuda, cuda:1 or mps")
    add("--captioner-dtype", metavar="DTYPE", help="transformers: auto, bfloat16, float16 or float32")
    flow = parser.add_argument_group("motion")
    add = flow.add_argument
    add("--flow", choices=BACKENDS, default="dis", help="what measures motion (default %(default)s)")
    add("--flow-weights", type=Path, metavar="FILE", help="raft, memflow: file of weights")
    add("--flow-python", type=Path, metavar="FILE", help="memflow: python of an environment that has ptlflow")
    add("--flow-device", default="auto", help="raft, memflow: auto, cpu or cuda (default %(default)s)")
    add("--threshold", type=float, default=0.2, help="px per frame; slower pixels count as still (default %(default)s)")
    add(
        "--slow-fraction",
        type=float,
        metavar="X",
        help="fraction of the fast pixels' speed; slower pixels count as background (default 0.5, or what the folder "
        "has)",
    )
    games = parser.add_argument_group("games")
    games.add_argument("--turns", type=int, default=10, help="clips per game (default %(default)s)")
    games.add_argument(
        "--held-out",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="fraction of the games to hold out; at least one of two or more games, unless 0 (default %(default)s). A "
        "rebuild keeps every clip in its split; to choose again, delete games.jsonl",
    )


def run(args: argparse.Namespace) -> int:
    """Do the task; returns the exit status.

    1: films broke off, clips have no caption, or a check found something. 2: no film could be read, or the disk is
    full. 130: interrupted.
    """
    return {"build": _build, "check": _check, "stats": _stats, "cache": _cache, "example": _example}[args.task](args)


def _example(args: argparse.Namespace) -> int:
    """Get the film and build its dataset; 1 if the answer is no."""
    build = prepare_example(args)
    if build is None:
        return 1
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(build))


def _build(args: argparse.Namespace) -> int:
    try:
        return _cut_and_finish(args)
    except KeyboardInterrupt:
        print("\nstopped; finished work is kept; run the same command to continue", file=sys.stderr)
        return 130


def _cut_and_finish(args: argparse.Namespace) -> int:
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
    return int(bool(broken or report.broken or report.open or report.captions.failures))


def _settings(args: argparse.Namespace) -> BuildSettings:
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


def _captioner(args: argparse.Namespace, films: Sequence[Path]) -> Captioner | None:
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
    if not all(turn.captioned for turn in dataset.turns):
        print("clips without captions can only train stage vae; for the other stages, give --captioner")
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


def _check(args: argparse.Namespace) -> int:
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


def _stats(args: argparse.Namespace) -> int:
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


def _cache(args: argparse.Namespace) -> int:
    from ..train.cache_job import DEFAULT_FEATURES, cache_features

    features = args.features or DEFAULT_FEATURES
    done = cache_features(args.folder, args.world, args.out, features, Progress().show, args.device)
    for feature in done:
        state = "computed" if feature.fresh else "was there"
        print(f"{feature.name}: {feature.clips} clips, {feature.bytes / 2**20:.1f} MiB, {state}")
    return 0
