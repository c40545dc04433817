"""Films become a dataset: found in ComfyUI's input folder, cut, captioned, and handed to training."""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from comfy_api.v0_0_2 import io

from ..animegamer_core.data.films.film import FILM_SUFFIXES
from ..animegamer_core.index import check_story_name
from . import host
from .replay import Replays
from .values import CATEGORY, DatasetSocket
from .work import Bars, age_of_dataset, image_of_picture, looks

if typing.TYPE_CHECKING:
    from ..animegamer_core.data.build import BuildSettings
    from ..animegamer_core.data.captions import Captioner, Reference
    from ..animegamer_core.data.finish import BuildReport

NO_FILM = "none found"
SIZES = ("toybox", "release")
CAPTIONERS = {  # name: packages beyond those that cut films
    "none": (),
    "endpoint": ("openai",),
    "transformers": ("transformers", "accelerate"),
    "script": (),
}
PACKAGES = ("av", "cv2", "scenedetect")
MODELS, CAST = "captioners", "characters"  # below models/animegamer, and below input/animegamer
ASKED_AT_ONCE = 4  # questions to an endpoint
HOME = ("localhost", "127.0.0.1", "::1")  # a service on this machine
SERVICE, SERVICE_KEPT = "https://api.openai.com/v1", "OPENAI_BASE_URL"
BUILT = Replays(lambda name: age_of_dataset(_datasets() / name))


class BuildGameDataset(io.ComfyNode):
    """Somebody's own films as clips that training reads."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="BuildGameDataset",
            display_name="Build Game Dataset",
            category=CATEGORY,
            description="Cuts films into scenes and two-second clips, measures their motion, captions them and makes "
            "games of them: a dataset for Train LoRA Stage. It is a folder below output/animegamer/datasets; queue the "
            "node again to go on after an interrupt, or after you added a film.",
            inputs=[
                io.Combo.Input(
                    "film",
                    options=list(_films()) or [NO_FILM],
                    upload=io.UploadType.video,
                    tooltip="A film in ComfyUI's input folder, or a folder in it (with a / at its end) with all the "
                    "films that lie in it.",
                ),
                io.String.Input(
                    "dataset",
                    default="my-film",
                    tooltip="Name of the dataset: its folder below output/animegamer/datasets. It keeps all films that "
                    "were built under this name.",
                ),
                io.Combo.Input(
                    "size",
                    options=list(SIZES),
                    default=SIZES[0],
                    tooltip="The clips' size: toybox is 144 x 96 pixels, release is 720 x 480, as the published worlds "
                    "are.",
                ),
                io.Combo.Input(
                    "captioner",
                    options=list(CAPTIONERS),
                    default="none",
                    tooltip="Who says what happens in the clips. none: nobody, yet; endpoint: a vision model behind a "
                    "url; transformers: one in a folder; script: the file FILM.captions.jsonl beside the film.",
                ),
                io.String.Input(
                    "url",
                    default="http://127.0.0.1:8000/v1",
                    tooltip="endpoint: an OpenAI-compatible address on this machine, or the one in the environment "
                    "variable OPENAI_BASE_URL. The key is read from OPENAI_API_KEY, never from the graph.",
                ),
                io.String.Input(
                    "model_name", default="", tooltip="endpoint: the model's name, as the service lists it."
                ),
                io.Combo.Input(
                    "model_folder",
                    options=[host.NONE, *_captioners()],
                    default=host.NONE,
                    tooltip="transformers: a vision model's folder in models/animegamer/captioners.",
                ),
                io.Combo.Input(
                    "characters",
                    options=[host.NONE, *_characters()],
                    default=host.NONE,
                    tooltip="A folder in input/animegamer/characters with a picture NAME.png, or a folder NAME of "
                    "several, for each character that clips shall be searched for.",
                ),
                io.Float.Input(
                    "held_out",
                    default=0.1,
                    min=0.0,
                    max=0.9,
                    step=0.05,
                    tooltip="Share of the games that training does not see, to measure a world by. Clips of an "
                    "earlier build stay on their side.",
                ),
            ],
            outputs=[
                DatasetSocket.Output("dataset_out", display_name="dataset", tooltip="For Train LoRA Stage."),
                io.String.Output(
                    "report",
                    display_name="report",
                    tooltip="What was kept, what was left out and why, and where it is.",
                ),
                io.Image.Output("stats", display_name="stats", tooltip="Motion levels, gauges, characters and films."),
            ],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: typing.Any) -> str:
        """Changes when a film, a file beside it or a reference picture does, or the dataset is taken away."""
        return BUILT.fingerprint(widgets | _ages(widgets))

    @classmethod
    def execute(
        cls,
        film: str,
        dataset: str,
        size: str,
        captioner: str,
        url: str,
        model_name: str,
        model_folder: str,
        characters: str,
        held_out: float,
    ) -> io.NodeOutput:
        called = dict(film=film, dataset=dataset, size=size, captioner=captioner, url=url)
        called |= dict(model_name=model_name, model_folder=model_folder, characters=characters, held_out=held_out)
        called |= _ages(called)
        host.require(*PACKAGES, *_packages(captioner))
        from ..animegamer_core.data.build import cut_films
        from ..animegamer_core.data.captions import read_references
        from ..animegamer_core.data.finish import finish
        from ..animegamer_core.data.review import write_review
        from ..animegamer_core.data.stats import draw_stats, write_stats

        films, settings, show = _chosen(film), _settings(size, held_out), Bars()
        out = _new_dataset(dataset)
        asked = _captioner(captioner, url, model_name, model_folder, out, films)
        shown: Sequence[Reference] = ()
        if characters != host.NONE:
            shown = read_references(_folder(characters, _characters(), "characters", host.input_folder() / CAST))
        # Worker processes would start ComfyUI's own main module again, so films are cut here.
        broken = cut_films(films, out, settings, 1, lambda what, done, total: show(what, done, max(1, total)))
        try:
            report = finish(out, settings, asked, shown, ASKED_AT_ONCE, show)
        except ValueError as error:
            raise ValueError("; ".join(dict.fromkeys([*broken.values(), str(error)]))) from error
        write_stats(out)
        text, picture = _told(report, write_review(out)), image_of_picture(draw_stats(out))
        BUILT.done(called, dataset, again=bool(report.open or report.captions.failures))
        said = [*broken.values(), *report.broken.values(), *report.otherwise.values(), *_lacks(report)]
        # No picture on the node: it shows the chosen film, and newer pages would take the picture for a broken one.
        return io.NodeOutput(str(out), text, picture, ui=looks(cls, None, text, dict.fromkeys(said)))


def _datasets() -> Path:
    return host.output_folder() / host.DATASETS


def _films() -> dict[str, tuple[Path, ...]]:
    """Films by their names in the list: files, and folders with the films right in them; compared with, never made
    into paths. Deeper folders are passed over: among them are the clips of datasets.
    """
    top, own = host.input_folder().parent, host.input_folder()
    found: dict[str, tuple[Path, ...]] = {}
    for folder in (top, *_below(top), *_below(own)):
        films = _listed(folder, lambda path: path.suffix.lower() in FILM_SUFFIXES and path.is_file())
        if films and folder != top:
            found[f"{folder.relative_to(top).as_posix()}/"] = films
        found |= {path.relative_to(top).as_posix(): (path,) for path in films}
    return found


def _below(folder: Path) -> tuple[Path, ...]:
    return _listed(folder, Path.is_dir)


def _listed(folder: Path, wanted: Callable[[Path], bool]) -> tuple[Path, ...]:
    """What is wanted of a folder, sorted, without hidden files."""
    try:
        return tuple(path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and wanted(path))
    except OSError:  # one folder that is not there, or must not be read, keeps no node from loading
        return ()


def _captioners() -> dict[str, Path]:
    """Vision models by their names: folders below models/animegamer/captioners; the first of one name wins."""
    roots = reversed(host.model_folders())
    return {path.name: path for root in roots for path in _below(root / MODELS)}


def _characters() -> dict[str, Path]:
    return {path.name: path for path in _below(host.input_folder() / CAST)}


def _folder(name: str, folders: Mapping[str, Path], what: str, place: Path) -> Path:
    """The folder of a listed name; ValueError if it is gone, or none was chosen."""
    if name in folders:
        return folders[name]
    mend = f"choose {', '.join(folders)}" if folders else f"put its folder into {place} and press R"
    raise ValueError(f"{what} is {name!r}; {mend}")


def _chosen(name: str) -> tuple[Path, ...]:
    films = _films().get(name)
    if films is None:
        raise ValueError(
            f"film {name!r} is not there: put a film, or a folder of films, into {host.input_folder().parent} and "
            "press R, or upload one with the button on the node"
        )
    return films


def _ages(widgets: Mapping[str, typing.Any]) -> dict[str, str]:
    """What decides a dataset and lies on disk: the films, the files beside them, and the reference pictures."""
    from ..animegamer_core.data.captions import sidecar_of

    films = _films().get(widgets.get("film") or "", ())
    beside = [sidecar_of(film) for film in films]
    folder = _characters().get(widgets.get("characters") or "")
    pictures = sorted(folder.rglob("*")) if folder is not None else ()
    return {"ages": " ".join(map(host.age_of_file, (*films, *beside, *pictures)))}


def _packages(captioner: str) -> tuple[str, ...]:
    if captioner not in CAPTIONERS:  # older ComfyUI does not look
        raise ValueError(f"captioner is {captioner!r}; choose {', '.join(CAPTIONERS)}")
    return CAPTIONERS[captioner]


def _settings(size: str, held_out: float) -> BuildSettings:
    from ..animegamer_core.data.build import BuildSettings
    from ..animegamer_core.data.films.cutting import ClipShape
    from ..animegamer_core.data.games import GamePlan
    from ..animegamer_core.spec import get_spec

    if size not in SIZES:
        raise ValueError(f"size is {size!r}; choose {' or '.join(SIZES)}")
    return BuildSettings(shape=ClipShape.of(get_spec(size).decoder), games=GamePlan(held_out=held_out))


def _new_dataset(name: str) -> Path:
    """The folder of a dataset to build or go on with; ValueError where it would mix with one made otherwise."""
    from ..animegamer_core.data.films.filmnotes import FILMS

    out = _datasets() / check_story_name(name, "dataset")
    if age_of_dataset(out) and not (out / FILMS).is_dir():
        raise ValueError(f"dataset {name!r} was not cut from films; choose another name for the new one")
    return out


def _captioner(kind: str, url: str, model: str, folder: str, out: Path, films: Sequence[Path]) -> Captioner | None:
    from ..animegamer_core.data.captions import open_captioner

    options: dict[str, typing.Any] = {}
    if kind == "endpoint":
        options = {"url": _trusted(url), "model": model}
    elif kind == "transformers":
        path = _folder(folder, _captioners(), "model_folder", host.model_folders()[0] / MODELS)
        options = {"model": path, "device": str(host.clear_device())}
    elif kind == "script":
        options = {"sidecars": _sidecars(out, films)}
    return open_captioner(kind, **options)


def _sidecars(out: Path, films: Sequence[Path]) -> dict[str, Path]:
    """What lies beside the chosen films, and beside those that the dataset has already: levels move, and with them
    their adverbs. ValueError for one of these that is gone.
    """
    from ..animegamer_core.data.captions import sidecar_of
    from ..animegamer_core.data.films.filmnotes import film_name, named_films, read_notes

    named, listed = named_films(films), {film_name(film): film for row in _films().values() for film in row}
    for name, note in read_notes(out).items():
        if name not in named and name not in listed:
            raise ValueError(
                f"captioner 'script' reads what lies beside the films; put {note.file} back into "
                f"{host.input_folder().parent}, with {sidecar_of(Path(note.file)).name}"
            )
        named.setdefault(name, listed.get(name))
    return {name: sidecar_of(film) for name, film in named.items()}


def _trusted(url: str) -> str:
    """The url, if it is one that whoever started ComfyUI trusts with the key: a graph may come from anybody."""
    kept = os.environ.get(SERVICE_KEPT, SERVICE)
    place = urlsplit(url)
    if place.hostname in HOME or (place.scheme, place.netloc) == urlsplit(kept)[:2]:
        return url
    raise ValueError(
        f"url {url!r} is neither on this machine nor at {kept}; a graph must not choose who gets your key and your "
        f"film, so start ComfyUI with the environment variable {SERVICE_KEPT} set to this url"
    )


def _told(report: BuildReport, review: Path) -> str:
    """What became of the films, for the report."""
    from ..animegamer_core.data.stats import stats

    folder = report.dataset.path
    lines = [report.captions.text, f"dataset {folder}", f"to look through and correct: {review}", "", stats(folder)]
    return "\n".join(lines)


def _lacks(report: BuildReport) -> list[str]:
    """What the dataset lacks: scenes that could not be cut, and clips without a valid caption."""
    captions, sentences = report.captions, []
    for film, scenes in report.open.items():
        sentences.append(f"{film}: {scenes} scenes are not cut; choose the film again to cut them.")
    if captions.failures:
        why = captions.stopped or next(iter(captions.failures.values()))
        sentences.append(
            f"{len(captions.failures)} clips got no caption: {why}. Queue the node again to ask once more."
        )
    if captions.set_aside:
        why = captions.set_aside[0].reason
        sentences.append(
            f"{len(captions.set_aside)} clips were left out for want of a valid caption; the first: {why}."
        )
    return sentences
