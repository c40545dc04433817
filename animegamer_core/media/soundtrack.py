"""The sound of a film: repeated or cut to the film's length, fading out at its end."""

from __future__ import annotations

import itertools
import typing
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .video import open_media

if typing.TYPE_CHECKING:
    import av

RATE = 48000  # samples a second of a film's sound
FADE = 1.5  # seconds of the fade-out, or the film's length if that is shorter
_PIECE = 4096  # samples that are converted at a time
# FFmpeg's names of demuxers, of audio files and of films
_SOUNDS = "wav,w64,aiff,caf,mp3,flac,aac,ac3,wv,ape,mov,matroska,ogg,asf,avi,mpegts,mpeg,flv"


def read_sound(path: Path) -> np.ndarray:
    """The sound of an audio file, or of a film, as float32 (2, samples) at RATE; ValueError if there is none."""
    import av

    try:
        with open_media(path, _SOUNDS) as container:
            frames = container.decode(container.streams.audio[0]) if container.streams.audio else iter(())
            return _whole(frames, str(path))
    except FileNotFoundError:  # names the file already
        raise
    except av.error.FFmpegError as error:
        raise ValueError(f"{path}: not a readable audio file ({error.strerror})") from error


def resampled(samples: np.ndarray, rate: int) -> np.ndarray:
    """Sound in -1..1, (1 or 2 channels, samples) at `rate`, as float32 (2, samples) at RATE; ValueError for others."""
    import av

    if samples.ndim != 2 or not 1 <= samples.shape[0] <= 2 or not samples.shape[1]:
        raise ValueError(f"the sound has the shape {samples.shape}; expected (1 or 2 channels, samples)")
    layout = "mono" if samples.shape[0] == 1 else "stereo"
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples, np.float32), format="fltp", layout=layout)
    frame.rate = rate
    return _whole(iter([frame]), "the sound")


def _whole(frames: Iterator[av.AudioFrame], name: str) -> np.ndarray:
    pieces = list(_resampled(frames))
    if not any(piece.shape[1] for piece in pieces):
        raise ValueError(f"{name}: contains no sound; give an audio file such as .mp3, .wav or .flac")
    return np.concatenate(pieces, 1)


def sound_frames(samples: np.ndarray, seconds: float) -> Iterator[av.AudioFrame]:
    """Yield the sound of a film of this length. samples: float32 (2, n) at RATE, repeated if it is shorter."""
    import av

    total = round(seconds * RATE)
    faded = min(total, round(FADE * RATE))
    for first in range(0, total, _PIECE):
        places = np.arange(first, min(first + _PIECE, total))
        loudness = np.minimum(1, (total - places) / faded, dtype=np.float32)
        # The encoder never ends with samples far beyond 1, which files of floats may hold, and refuses NaN.
        piece = np.nan_to_num(samples[:, places % samples.shape[1]]).clip(-1, 1) * loudness
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(piece), format="fltp", layout="stereo")
        frame.rate, frame.pts = RATE, first
        yield frame


def _resampled(frames: Iterator[av.AudioFrame]) -> Iterator[np.ndarray]:
    """Yield the sound as float32 (2, n) at RATE."""
    import av

    resampler = None
    for frame in itertools.chain(frames, [None]):
        if frame is not None:
            frame.pts = None  # gaps of the file's clock would be refused by the resampler
            if resampler is None:
                # Mono stays mono here and is as loud in both ears as it was: libswresample would make it 3 dB softer.
                layout = "mono" if frame.layout.nb_channels == 1 else "stereo"
                resampler = av.AudioResampler(format="fltp", layout=layout, rate=RATE)
        for piece in () if resampler is None else resampler.resample(frame):
            yield np.broadcast_to(piece.to_ndarray(), (2, piece.samples))
