"""The sound of a film's clips. Times are seconds since the first shown frame; S samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...media.soundtrack import RATE, as_stereo, resampler_for
from .film import has_sound, opened, sound_frames

if TYPE_CHECKING:
    import av

_JUMP = RATE // 20  # samples: if the film's clock differs by more from the samples counted, the clock is used


def sounds_at(path: Path, starts: Sequence[float], seconds: float) -> Iterator[NDArray[np.float32] | None]:
    """Yield `seconds` of sound from each start (in ascending order): float32 (2, S) in -1..1 at RATE.

    Yields None for each start if the film has no sound that can be decoded, or if its clock jumps, so that the sound's
    times are unknown. Damaged or missing parts are silent. Memory holds one such sound, however long the film is.
    """
    if not starts or not has_sound(path):
        yield from [None] * len(starts)
        return
    with opened(path, threads=1) as film:
        origin = film.origin
    count, pieces = round(seconds * RATE), _timed(sound_frames(path, origin + starts[0]), origin)
    held: deque[tuple[int, NDArray[np.float32]]] = deque()
    for start in starts:
        first = round(start * RATE)
        while not held or _end(held[-1]) < first + count:
            piece = next(pieces, None)
            if piece is None:
                break
            held.append(piece)
        while held and _end(held[0]) <= first:
            held.popleft()
        yield _between(held, first, count)


def _end(piece: tuple[int, NDArray[np.float32]]) -> int:
    return piece[0] + piece[1].shape[1]


def _between(pieces: Sequence[tuple[int, NDArray[np.float32]]], first: int, count: int) -> NDArray[np.float32]:
    """The samples from `first` on, silent where there is no piece."""
    sound = np.zeros((2, count), np.float32)
    for begins, samples in pieces:
        left, right = max(begins, first), min(begins + samples.shape[1], first + count)
        if left < right:
            sound[:, left - first : right - first] = samples[:, left - begins : right - begins]
    return sound


def _timed(frames: Iterator[av.AudioFrame], origin: float) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield (number of its first sample in the film, float32 (2, n) at RATE) for each piece of sound.

    The resampler refuses gaps in the film's clock, so samples are counted; after a gap, counting starts anew from the
    clock.
    """
    resampler, kind, at = None, None, 0
    for frame in frames:
        by_clock = at if frame.time is None else round((frame.time - origin) * RATE)
        now = frame.format.name, frame.layout.name, frame.sample_rate
        if resampler is None or now != kind or abs(by_clock - at) > _JUMP:
            resampler, kind, at = resampler_for(frame), now, by_clock
        frame.pts = None
        for piece in resampler.resample(frame):
            yield at, as_stereo(piece)
            at += piece.samples
