"""The opening of a game from a picture, a clip or a film: the frame that the engine reads, and turn 0's clip.

The shot encoder reads one frame, and in training that is a clip's first. So turn 0's clip starts with the frame that is
read. If less than a shot follows, it starts earlier; anything shorter than a shot freezes on its last frame. Imports
torch and PyAV only when they are used. C channels, H height, W width.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Sequence
from pathlib import Path

from ..game.state import GameSession, GameState, OpeningClip, read_instruction
from ..spec import DecoderSpec

if typing.TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from ..model.encoder import ShotEncoder

DEFAULT_TEXT = "stands still"
MOST_FPS = 1000.0
LARGEST_PICTURE = 1 << 21  # pixels, those of Full HD; a shot has a sixth of that, and a span has 17 pictures
_CLOSE = 1e-3  # seconds: times of films are rounded to milliseconds


def open_game(
    encoder: ShotEncoder, text: str, frame_at: Callable[[int], Tensor], count: int, frame: int = 0, fps: float = 0.0
) -> GameSession:
    """A new game with one of these frames as turn 0, and the frames around it as its clip.

    frame_at: frame i of `count`, (3, H, W) in [-1, 1] of any size; its middle is cropped to the shot's aspect ratio.
    frame: the one that is read, from 0; -1 is the last one. fps: of the frames; 0: the shot's rate. ValueError: empty
    text, invalid frame or rate, a frame with values that are not finite.
    """
    import torch

    from ..media.video import to_uint8
    from ..model.latents import fitted

    words, decoder = read_instruction(text), encoder.spec.decoder
    if not -count <= frame < count:
        raise ValueError(
            f"frame is {frame}, but the clip has {count} frames; choose 0 to {count - 1}, or -1 for the last one"
        )
    read = frame % count
    shown = shown_frames(count, read, fps, decoder)
    picture = frame_at(read)
    if not picture.isfinite().all():
        raise ValueError(f"frame {read} has values that are not finite; look at the node that made it")
    state = GameState.of_picture(encoder.represent(words, picture))
    pictures = {index: fitted(frame_at(index)[None], decoder) for index in dict.fromkeys(shown)}
    clip = to_uint8(torch.cat([pictures[index] for index in shown]))
    return GameSession().open_with(words, state, OpeningClip(clip, float(decoder.fps)))


def shown_frames(count: int, read: int, fps: float, decoder: DecoderSpec) -> list[int]:
    """Which of `count` frames at `fps` make the clip of a shot's length and rate; 0: the frames have its rate already.

    read: the frame that it starts with, where enough follow.
    """
    if not 0 <= fps <= MOST_FPS:  # False for NaN
        raise ValueError(f"clip_fps is {fps:g}; expected the clip's frames per second, or 0 for the shot's rate")
    step = (fps or decoder.fps) / decoder.fps
    missing = read + (decoder.frames - 1) * step - (count - 1)
    before = max(0, min(math.ceil(missing / step - _CLOSE), int(read / step + _CLOSE)))
    first = read - before * step
    return [min(count - 1, int(first + number * step + _CLOSE)) for number in range(decoder.frames)]


def film_span(path: Path, at: float, decoder: DecoderSpec) -> tuple[list[np.ndarray], int]:
    """The pictures (H, W, 3) uint8 of a film for a shot from second `at` on, and which of them is the one at `at`.

    Only this part of the film is decoded. At most as many as a shot has, at its rate; if the film ends before that,
    they start earlier. Large ones are made smaller. FilmError, a ValueError: the file is not a film, or `at` is not in
    it.
    """
    from ..data.films.film import FilmError, frames_at, probe, read_frames

    seconds = probe(path).seconds  # 0 if the header has none
    _check_second(str(path), at, seconds)
    before, count = 0, decoder.frames
    if seconds:
        following = 1 + int(max(0.0, seconds - at - _CLOSE) * decoder.fps)
        before = max(0, min(decoder.frames - following, int(at * decoder.fps + _CLOSE)))
        count = min(decoder.frames, before + following)
    times = [at + (number - before) / decoder.fps for number in range(count)]
    frames = read_frames(path, max(0.0, times[0]), times[-1] + 2 * _CLOSE)
    pictures: list[np.ndarray] = []
    last = None
    for number, full in enumerate(frames_at(frames, times)):
        if full is None:
            raise FilmError(f"{path}: is damaged at {times[number]:.1f} s; choose another second")
        pictures.append(pictures[-1] if full is last else _shrunk(full, decoder))
        last = full
    return pictures, before


def _shrunk(picture: np.ndarray, decoder: DecoderSpec) -> np.ndarray:
    """A picture (H, W, 3) of at most LARGEST_PICTURE pixels, unless either side would be shorter than a shot's."""
    import numpy as np
    from PIL import Image

    height, width = picture.shape[:2]
    wanted = math.ceil(math.sqrt(height * width / LARGEST_PICTURE))
    factor = min(wanted, height // decoder.height, width // decoder.width)
    return picture if factor <= 1 else np.asarray(Image.fromarray(picture).reduce(factor))


def frame_at_second(count: int, fps: float, at: float) -> int:
    """Which of `count` frames at `fps` is shown at second `at`; ValueError if none is."""
    _check_second("the film", at, count / fps)
    return min(count - 1, int(at * fps + _CLOSE))


def _check_second(film: str, at: float, seconds: float) -> None:
    """seconds: the film's length, 0 if it is unknown."""
    if not 0 <= at < (seconds or math.inf):  # False for NaN
        length = f", and it has {seconds:.2f} seconds" if seconds else ""
        raise ValueError(f"{film}: has no frame at {at:g} s{length}; choose a time within the film")


def read_opening(path: Path, at: float | None, decoder: DecoderSpec) -> tuple[list[np.ndarray], int]:
    """Like `film_span`, for a film or a picture, which has one frame. at: None is the start.

    ValueError: a file that is neither, or `at` for a picture.
    """
    from ..data.captions.pictures import open_picture
    from ..data.films.film import FILM_SUFFIXES

    if path.suffix.lower() in (*FILM_SUFFIXES, ".gif"):
        return film_span(path, at or 0.0, decoder)
    if at is not None:
        raise ValueError(f"{path}: is a picture, so it has nothing at {at:g} s; drop the time, or name a film")
    import numpy as np

    return [_shrunk(np.asarray(open_picture(path)), decoder)], 0


def frames_of_bytes(pictures: Sequence[np.ndarray]) -> Callable[[int], Tensor]:
    """Frame i of these pictures, (H, W, 3) uint8, as `open_game` reads it."""
    import torch

    return lambda index: torch.from_numpy(pictures[index].copy()).permute(2, 0, 1).float() / 127.5 - 1
