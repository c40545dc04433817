"""The first pass over a film: its scenes and their black borders."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .film import FilmFrame, probe, read_frames
from .film_file import FilmError
from .framing import Crop, border_sample, crops_of_scenes
from .scenes import Scene, SceneFinder, SceneSettings
from .strip import StripWriter

if TYPE_CHECKING:
    import torch

SAMPLED = 1 / 3  # seconds between two measurements of the borders
OnSeconds = Callable[[float, float], None]  # (seconds of film read, the film's length or 0.0 if unknown)


@dataclass(frozen=True)
class FilmScene:
    """A scene and its crop."""

    scene: Scene
    crop: Crop


@dataclass(frozen=True)
class Survey:
    """What the first pass found.

    facts: from the file's header. seconds: how much could be read. broken: a message if the film breaks off, else None.
    """

    facts: Mapping[str, Any]
    seconds: float
    scenes: tuple[FilmScene, ...]
    broken: str | None = None


def survey_film(
    path: Path,
    settings: SceneSettings,
    *,
    threads: int = 0,
    device: str | torch.device = "cpu",
    strip: Path | None = None,
    on_seconds: OnSeconds | None = None,
) -> Survey:
    """Read a film from start to end; FilmError if nothing of it can be read.

    threads: of the decoder (see `read_frames`); use 1 when several films are read at once. device: of TransNetV2.
    strip: the folder for its strip of pictures, None for no strip; OSError if it cannot be written. on_seconds: called
    about three times per second of film.
    """
    info = probe(path)
    try:
        finder = SceneFinder(settings, info.fps, device)
    except ValueError as error:
        raise FilmError(f"{path}: {error}") from error
    pictures = StripWriter(strip, info.width, info.height) if strip is not None else None
    samples, end = [], 0.0
    frames = ReadableFrames(read_frames(path, threads=threads))
    for frame in frames:
        finder.add(frame)
        if pictures is not None:
            pictures.add(frame)
        if not samples or frame.seconds >= samples[-1].seconds + SAMPLED:
            samples.append(border_sample(frame))
            if on_seconds is not None:
                on_seconds(frame.seconds, info.seconds)
        end = frame.seconds + 1 / info.fps
    if pictures is not None:
        pictures.finish()
    scenes = finder.finish(end)
    framed = tuple(map(FilmScene, scenes, crops_of_scenes(samples, scenes)))
    return Survey(dataclasses.asdict(info), round(end, 6), framed, frames.broken)


class ReadableFrames:
    """The readable frames of a film; `broken` then says why they end early, if so. FilmError if there are none."""

    def __init__(self, frames: Iterable[FilmFrame]) -> None:
        self._frames = frames
        self.broken: str | None = None

    def __iter__(self) -> Iterator[FilmFrame]:
        begun = False
        try:
            for frame in self._frames:
                begun = True
                yield frame
        except FilmError as error:
            if not begun:
                raise
            self.broken = str(error)
