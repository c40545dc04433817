"""The first pass over a film: its scenes, their black borders, a strip of pictures, and a person's corrections.

The strip shows four small pictures per second to a person who checks where scenes change:

    films/<film>/0000.jpg    the first minute: 12 rows of 20 pictures; unused places are black
    films/<film>/0001.jpg    the second minute, and so on
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from PIL import Image

from ...files import make_folder, replacing
from .film import AT, FilmError, FilmFrame, probe, read_frames
from .framing import BorderSample, border_sample, crops_of_scenes
from .scenes import Crop, Scene, SceneFinder

if TYPE_CHECKING:
    import torch

STEP = 0.25  # seconds from one picture to the next
WIDTH, LOWEST, HIGHEST = 96, 24, 170  # pixels of a picture: its width, and the limits of its height
COLUMNS, ROWS = 20, 12
_QUALITY = 70  # of JPEG; a minute of 96 x 54 then takes about 250 KB


def picture_height(width: int, height: int) -> int:
    """The height in pixels of a strip's pictures, for a film of this size."""
    return min(HIGHEST, max(LOWEST, round(WIDTH * height / width)))


class StripWriter:
    """Writes the strip of a film whose frames are added in order, and replaces an older one. Memory holds a minute."""

    def __init__(self, folder: Path, width: int, height: int, start: float = 0.0) -> None:
        """folder: of the strip. width, height: of the film in pixels. start: skipped seconds, whose places stay
        black. OSError if the folder cannot be written.
        """
        self._folder, self._size = folder, (WIDTH, picture_height(width, height))
        make_folder(folder)
        for sheet in folder.glob("*.jpg"):
            sheet.unlink()
        self._sheet = Image.new("RGB", (COLUMNS * WIDTH, ROWS * self._size[1]))
        self._count = int(start / STEP)

    def add(self, frame: FilmFrame) -> None:
        """Add the film's next frame; it fills each quarter of a second up to it that has no picture yet."""
        picture = None
        while frame.seconds >= self._count * STEP - AT:
            picture = picture or Image.fromarray(frame.rgb).resize(self._size, Image.Resampling.BOX, reducing_gap=2.0)
            row, column = divmod(self._count % (COLUMNS * ROWS), COLUMNS)
            self._sheet.paste(picture, (column * WIDTH, row * self._size[1]))
            self._count += 1
            if self._count % (COLUMNS * ROWS) == 0:
                self._save()

    def finish(self) -> None:
        """Write the last pictures."""
        if self._count % (COLUMNS * ROWS):
            self._save()

    def _save(self) -> None:
        number = (self._count - 1) // (COLUMNS * ROWS)
        with replacing(self._folder / f"{number:04d}.jpg") as part:
            self._sheet.save(part, "JPEG", quality=_QUALITY)
        self._sheet.paste((0, 0, 0), (0, 0, *self._sheet.size))


SAMPLED = 1 / 3  # seconds between two measurements of the borders
OnSeconds = Callable[[float, float], None]  # (seconds of film read, the film's length or 0.0 if unknown)


@dataclass(frozen=True)
class FilmPart:
    """The part of each film that is read."""

    start_time: float = 0.0
    """Seconds of each film to skip, such as an opening."""
    duration: float = 0.0
    """Seconds of each film to use from there; 0: to its end."""

    def __post_init__(self) -> None:
        if not (0 <= self.start_time < math.inf and 0 <= self.duration < math.inf):
            raise ValueError(f"start_time {self.start_time} and duration {self.duration} must be seconds, 0 or more")


@dataclass(frozen=True)
class Survey:
    """What the first pass found.

    facts: from the file's header. seconds: how much could be read. broken: a message if the film breaks off, else None.
    """

    facts: Mapping[str, Any]
    seconds: float
    scenes: tuple[Scene, ...]
    broken: str | None = None


def survey_film(
    path: Path,
    part: FilmPart = FilmPart(),
    *,
    threads: int = 0,
    device: str | torch.device = "cpu",
    strip: Path | None = None,
    on_seconds: OnSeconds | None = None,
) -> Survey:
    """Read a film, or a part of it, from start to end; FilmError if nothing of it can be read.

    threads: of the decoder (see `read_frames`); use 1 when several films are read at once. device: of TransNetV2.
    strip: the folder for its strip of pictures, None for no strip; OSError if it cannot be written. on_seconds: called
    about three times per second of film.
    """
    info = probe(path)
    finder = SceneFinder(info.fps, device)
    pictures = StripWriter(strip, info.width, info.height, part.start_time) if strip is not None else None
    samples: list[BorderSample] = []
    start, end, broken = part.start_time, 0.0, None
    stop = start + part.duration if part.duration else None
    try:
        for frame in read_frames(path, start, stop, threads=threads):
            finder.add(frame)
            if pictures is not None:
                pictures.add(frame)
            if not samples or frame.seconds >= samples[-1].seconds + SAMPLED:
                samples.append(border_sample(frame))
                if on_seconds is not None:
                    on_seconds(frame.seconds - start, part.duration or info.seconds - start)
            end = frame.seconds + 1 / info.fps
    except FilmError as error:
        if not end:
            raise
        broken = str(error)
    if end <= start:
        raise FilmError(f"{path}: ends at {end:.1f} s, so nothing is left after start_time {start:g} s")
    if pictures is not None:
        pictures.finish()
    scenes = finder.finish(end)
    crops = crops_of_scenes(samples, scenes)
    framed = tuple(dataclasses.replace(scene, crop=crop) for scene, crop in zip(scenes, crops, strict=True))
    return Survey(dataclasses.asdict(info), round(end, 6), framed, broken)


LONGEST = 5.0  # seconds from before to after
_SAME = 0.002  # seconds: times are written in milliseconds


class SceneChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of corrections.jsonl about a film (`corrections`). scene_change: clips leave out the time between."""

    film: str
    scene_change: tuple[float, float] | None = None
    no_scene_change: float | None = None

    def __post_init__(self) -> None:
        if (self.scene_change is None) == (self.no_scene_change is None):
            raise ValueError("a change of scene has either scene_change or no_scene_change")
        if self.scene_change is not None and not 0 < self.scene_change[1] - self.scene_change[0] <= LONGEST:
            raise ValueError(
                f"scene_change is {list(self.scene_change)}; give two times in seconds, the earlier first, and at most "
                f"{LONGEST:g} s between them"
            )

    def apply(self, scenes: Sequence[Scene]) -> list[Scene]:
        """The corrected scenes; unchanged if the correction was applied before. ValueError if no scene matches."""
        if self.scene_change is not None:
            return _with(scenes, *self.scene_change)
        assert self.no_scene_change is not None
        return _without(scenes, self.no_scene_change)


def _with(scenes: Sequence[Scene], before: float, after: float) -> list[Scene]:
    """The scenes, with the one that contains both times split there."""
    if any(before < scene.start <= after + _SAME for scene in scenes):
        return list(scenes)  # a scene begins there already
    for at, scene in enumerate(scenes):
        if scene.start <= before and after < scene.end:
            earlier = tuple(flash for flash in scene.flashes if flash[0] < after)
            first = dataclasses.replace(scene, end=after, fade_out=after - before, flashes=earlier)
            later = scene.flashes[len(earlier) :]
            second = dataclasses.replace(scene, start=after, begins="cut", fade_in=0.0, flashes=later)
            return [*scenes[:at], first, second, *scenes[at + 1 :]]
    raise ValueError(f"no scene of the film contains both {before:g} s and {after:g} s")


def _without(scenes: Sequence[Scene], second: float) -> list[Scene]:
    """The scenes, with the one that begins at `second` joined to the one before it."""
    at = next((at for at, scene in enumerate(scenes) if abs(scene.start - second) <= _SAME), None)
    if at == 0 or not scenes or not scenes[0].start < second < scenes[-1].end:
        raise ValueError(f"no scene change at {second:g} s can be removed: the film starts or ends there")
    if at is None:
        return list(scenes)  # removed already
    first, then = scenes[at - 1], scenes[at]
    crop = Crop(*map(max, zip(dataclasses.astuple(first.crop), dataclasses.astuple(then.crop), strict=True)))
    flashes = first.flashes + then.flashes
    joined = dataclasses.replace(first, end=then.end, fade_out=then.fade_out, flashes=flashes, crop=crop)
    return [*scenes[: at - 1], joined, *scenes[at + 1 :]]
