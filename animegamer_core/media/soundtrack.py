"""The sound of a film: repeated or cut to the film's length, fading out at its end."""

from __future__ import annotations

import itertools
import typing
from collections.abc import Iterator
from pathlib import Path

import numpy as np

if typing.TYPE_CHECKING:
    import av

RATE = 48000  # samples a second of a film's sound
FADE = 1.5  # seconds of the fade-out, or the film's length if that is shorter
_PIECE = 4096  # samples that are converted at a time


def read_sound(path: Path) -> np.ndarray:
    """The sound of an audio file, or of a film, as float32 (2, samples) at RATE; ValueError if there is none."""
    import av

    try:
        with av.open(str(path)) as container:
            frames = container.decode(container.streams.audio[0]) if container.streams.audio else iter(())
            pieces = list(_resampled(map(_without_clock, frames)))
    except FileNotFoundError:  # names the file already
        raise
    except av.error.FFmpegError as error:
        raise ValueError(f"{path}: not a readable audio file ({error.strerror})") from error
    if not any(piece.shape[1] for piece in pieces):
        raise ValueError(f"{path}: contains no sound; give an audio file such as .mp3, .wav or .flac")
    return np.concatenate(pieces, 1)


def resampled(samples: np.ndarray, rate: int) -> np.ndarray:
    """Sound in -1..1, (1 or 2 channels, samples) at `rate`, as float32 (2, samples) at RATE; ValueError for others."""
    import av

    if samples.ndim != 2 or not 1 <= samples.shape[0] <= 2 or not samples.shape[1]:
        raise ValueError(f"the sound has the shape {samples.shape}; expected (1 or 2 channels, samples)")
    layout = "mono" if samples.shape[0] == 1 else "stereo"
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples, np.float32), format="fltp", layout=layout)
    frame.rate = rate
    return np.concatenate(list(_resampled(iter([frame]))), 1)


def fitted_sound(samples: np.ndarray, seconds: float) -> Iterator[np.ndarray]:
    """Yield the sound of a film of this length in pieces, float32 (2, n) at RATE. A shorter sound is repeated."""
    total = round(seconds * RATE)
    faded = min(total, round(FADE * RATE))
    for first in range(0, total, _PIECE):
        places = np.arange(first, min(first + _PIECE, total))
        loudness = np.minimum(1, (total - places) / faded, dtype=np.float32)
        yield samples[:, places % samples.shape[1]] * loudness


def _without_clock(frame: av.AudioFrame) -> av.AudioFrame:
    frame.pts = None  # gaps of the file's clock would be refused by the resampler
    return frame


def _resampled(frames: Iterator[av.AudioFrame]) -> Iterator[np.ndarray]:
    first = next(frames, None)
    if first is None:
        return
    resampler = _resampler_for(first)
    for frame in itertools.chain([first], frames, [None]):
        for piece in resampler.resample(frame):
            yield _as_stereo(piece)


def _resampler_for(frame: av.AudioFrame) -> av.AudioResampler:
    """A resampler to RATE for frames like this one; see `_as_stereo`."""
    import av

    # Mono stays mono here and is as loud in both ears as it was: libswresample would make it 3 dB softer in stereo.
    layout = "mono" if frame.layout.nb_channels == 1 else "stereo"
    return av.AudioResampler(format="fltp", layout=layout, rate=RATE)


def _as_stereo(piece: av.AudioFrame) -> np.ndarray:
    """What a resampler gave, as float32 (2, n)."""
    return np.broadcast_to(piece.to_ndarray(), (2, piece.samples))


class SoundWriter:
    """Encodes a film's sound into a container next to its pictures."""

    def __init__(self, container: av.container.OutputContainer, pieces: Iterator[np.ndarray]) -> None:
        """pieces: float32 (2, n) at RATE, such as from `fitted_sound`."""
        self._container = container
        self._stream = container.add_stream("aac", rate=RATE, layout="stereo")
        self._pieces = pieces
        self._written = 0  # samples

    def write_until(self, seconds: float | None) -> None:
        """Write the sound up to this time of the film; None: all that is left."""
        import av

        while seconds is None or self._written < seconds * RATE:
            piece = next(self._pieces, None)
            if piece is None:
                break
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(piece), format="fltp", layout="stereo")
            frame.rate, frame.pts = RATE, self._written
            self._written += piece.shape[1]
            self._container.mux(self._stream.encode(frame))
        if seconds is None:
            self._container.mux(self._stream.encode())
