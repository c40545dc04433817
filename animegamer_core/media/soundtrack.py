"""The sound of a film: a file's or an array's, cut or looped to the film's length, fading out at its end."""

from __future__ import annotations

import itertools
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .limits import OPTIONS

if typing.TYPE_CHECKING:
    import av

RATE = 48000  # samples a second of a film's sound
FADE = 1.5  # seconds of the fade-out, or the film's length if that is shorter
_PIECE = 4096  # samples that are converted at a time


@dataclass(frozen=True)
class Soundtrack:
    """A sound and how it fills the film.

    source: an audio file (or a film with sound), or samples: float32 (channels, samples) in -1..1 with their `rate`.
    loop: a shorter sound starts again until the film ends; otherwise silence follows it.
    """

    source: Path | np.ndarray
    rate: int = RATE
    loop: bool = True
    fade: float = FADE

    def __post_init__(self) -> None:
        if not 0 <= self.fade <= 3600:
            raise ValueError(f"the fade-out is {self.fade:g} seconds; expected 0 to 3600")
        if isinstance(self.source, Path) and self.source.exists() and not self.source.is_file():  # a pipe would wait
            raise ValueError(f"{self.source}: is not a file; give an audio file such as .mp3, .wav or .flac")

    def pieces(self, seconds: float) -> Iterator[np.ndarray]:
        """Yield the sound of a film of this length as float32 (2, n) at RATE.

        ValueError: a file without readable sound, an empty array.
        """
        total, done = round(seconds * RATE), 0
        for piece in itertools.chain(self._repeated(), itertools.repeat(np.zeros((2, _PIECE), np.float32))):
            piece = piece[:, : total - done]
            yield piece * self._loudness(done, piece.shape[1], total)
            done += piece.shape[1]
            if done >= total:
                return

    def says(self, seconds: float) -> str:
        """What was done to fit the sound to a film of this length, in one sentence."""
        own, fade = self.seconds(), min(self.fade, seconds)
        if own > seconds:
            how = f"cut from {own:.1f} to {seconds:.1f} s"
        else:
            how = f"of {own:.1f} s {'repeated' if self.loop else 'followed by silence'} up to {seconds:.1f} s"
        return f"sound {how}" + (f", fading out over the last {fade:.1f} s" if fade else "")

    def seconds(self) -> float:
        """The sound's own length, as its file states it, or counted where it states none."""
        if isinstance(self.source, Path):
            import av

            with av.open(str(self.source), options=OPTIONS) as container:
                if container.duration:
                    return container.duration / av.time_base
        return sum(piece.shape[1] for piece in self._once()) / RATE

    def _loudness(self, first: int, count: int, total: int) -> np.ndarray:
        """1, falling evenly to 0 over the last seconds of the film; float32 (count,)."""
        faded = min(total, round(self.fade * RATE))
        left = total - np.arange(first, first + count, dtype=np.float32)
        return np.minimum(1, left / faded) if faded else np.ones(count, np.float32)

    def _repeated(self) -> Iterator[np.ndarray]:
        yield from self._once()
        while self.loop:
            yield from self._once()

    def _once(self) -> Iterator[np.ndarray]:
        """The sound's own samples at RATE, float32 (2, n)."""
        read = _file_frames(self.source) if isinstance(self.source, Path) else _array_frames(self.source, self.rate)
        heard = False
        for piece in _resampled(read):
            heard = heard or piece.shape[1] > 0
            yield piece
        if not heard:
            raise ValueError(f"{self._name}: contains no sound; give an audio file such as .mp3, .wav or .flac")

    @property
    def _name(self) -> str:
        return str(self.source) if isinstance(self.source, Path) else "the sound"


def _resampled(frames: Iterator[av.AudioFrame]) -> Iterator[np.ndarray]:
    """The sound at RATE, float32 (2, n)."""
    first = next(frames, None)
    if first is None:
        return
    resampler = resampler_for(first)
    for frame in itertools.chain([first], frames, [None]):
        for piece in resampler.resample(frame):
            yield as_stereo(piece)


def resampler_for(frame: av.AudioFrame) -> av.AudioResampler:
    """A resampler to RATE for frames like this one; see `as_stereo`."""
    import av

    # Mono stays mono here and is as loud in both ears as it was: libswresample would make it 3 dB softer in stereo.
    layout = "mono" if frame.layout.nb_channels == 1 else "stereo"
    return av.AudioResampler(format="fltp", layout=layout, rate=RATE)


def as_stereo(piece: av.AudioFrame) -> np.ndarray:
    """What a resampler gave, as float32 (2, n)."""
    return np.broadcast_to(piece.to_ndarray(), (2, piece.samples))


def _file_frames(path: Path) -> Iterator[av.AudioFrame]:
    import av

    try:
        with av.open(str(path), options=OPTIONS) as container:
            if not container.streams.audio:
                raise ValueError(f"{path}: contains no sound; give an audio file such as .mp3, .wav or .flac")
            for frame in container.decode(container.streams.audio[0]):
                frame.pts = None  # gaps of the file's clock would be refused by the resampler
                yield frame
    except FileNotFoundError:  # names the file already
        raise
    except av.error.FFmpegError as error:
        raise ValueError(f"{path}: not a readable audio file ({error.strerror})") from error


def _array_frames(samples: np.ndarray, rate: int) -> Iterator[av.AudioFrame]:
    import av

    if samples.ndim != 2 or not 1 <= samples.shape[0] <= 2 or not samples.shape[1]:
        raise ValueError(f"the sound has the shape {samples.shape}; expected (1 or 2 channels, samples)")
    layout = "mono" if samples.shape[0] == 1 else "stereo"
    for first in range(0, samples.shape[1], _PIECE):
        piece = np.ascontiguousarray(samples[:, first : first + _PIECE], np.float32)
        frame = av.AudioFrame.from_ndarray(piece, format="fltp", layout=layout)
        frame.rate = rate
        yield frame


class SoundWriter:
    """Encodes a soundtrack into a container next to its pictures."""

    def __init__(self, container: av.container.OutputContainer, sound: Soundtrack, seconds: float) -> None:
        """seconds: the film's length."""
        self._container = container
        self._stream = container.add_stream("aac", rate=RATE, layout="stereo")
        self._pieces = sound.pieces(seconds)
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
