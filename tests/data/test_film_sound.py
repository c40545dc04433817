"""The sound of films in their clips: it stands where it stood in the film, also where the film's is odd."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from animegamer_core.data.films.cutting import ClipShape, Span, cut_span
from animegamer_core.data.films.film import probe
from animegamer_core.data.films.framing import Crop
from animegamer_core.data.films.scenes import Scene
from animegamer_core.data.films.sound import sounds_at
from animegamer_core.data.films.survey import FilmScene
from animegamer_core.data.flow import FlowSettings
from animegamer_core.media.soundtrack import RATE
from animegamer_core.media.video import read_clip

av = pytest.importorskip("av")
pytest.importorskip("cv2")

FPS, SECONDS = 12, 9
FILM_RATE = 44_100
LOW, RISE = 300, 100  # hertz at the film's start, and a second
# The codec of the film's sound, its own start by the film's clock in seconds, and a time in the middle without sound.
FILMS = {
    "whole.mp4": ("aac", 0.0, None),
    "whole.mkv": ("flac", 0.0, None),
    "late.mp4": ("aac", 2.0, None),
    "gap.mkv": ("flac", 0.0, (3.0, 4.5)),
    "whole.avi": ("mp3", 0.0, None),
}


def tone(first: int, count: int) -> np.ndarray:
    """A tone whose pitch tells the time, float32 (1, count)."""
    times = np.arange(first, first + count) / FILM_RATE
    return (0.3 * np.sin(2 * math.pi * (LOW * times + RISE * times**2 / 2))).astype(np.float32)[None]


def make_film(path: Path, codec: str | None, begins: float = 0.0, gap: tuple[float, float] | None = None) -> Path:
    """A moving picture of nine seconds with the tone in it."""
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=FPS, options={"g": "24"})
        video.width, video.height, video.pix_fmt = 96, 64, "yuv420p"
        audio = container.add_stream(codec, rate=FILM_RATE, layout="mono") if codec else None
        noise = np.random.default_rng(0).integers(0, 255, (64, 400, 3), np.uint8)
        for number in range(FPS * SECONDS):
            picture = np.ascontiguousarray(noise[:, 2 * number : 2 * number + 96])
            container.mux(video.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(video.encode())
        for first in range(round(begins * FILM_RATE), SECONDS * FILM_RATE, 1152) if audio else ():
            if gap and gap[0] <= first / FILM_RATE < gap[1]:
                continue
            frame = av.AudioFrame.from_ndarray(tone(first, 1152), format="fltp", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = FILM_RATE, first, Fraction(1, FILM_RATE)
            container.mux(audio.encode(frame))
        if audio:
            container.mux(audio.encode())
    return path


def middle_of(sound: np.ndarray) -> np.ndarray:
    """A quarter of a second in the middle."""
    return sound[0, sound.shape[1] // 2 - RATE // 8 : sound.shape[1] // 2 + RATE // 8]


def second_of(sound: np.ndarray) -> float:
    """The film's second in the middle of a piece of the tone, by its pitch."""
    middle = middle_of(sound)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), 8 * len(middle)))
    return (spectrum.argmax() * RATE / (8 * len(middle)) - LOW) / RISE


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films")
    return {name: make_film(folder / name, *film) for name, film in FILMS.items()}


@pytest.mark.parametrize("name", FILMS)
def test_the_sound_of_a_clip_is_that_of_its_time(films, name):
    _, begins, gap = FILMS[name]
    starts = [0.5, 2.25, 5.25, 6.0, 7.0]
    sounds = list(sounds_at(films[name], starts, 1.0))
    assert [sound.shape for sound in sounds] == [(2, RATE)] * 5
    for start, sound in zip(starts, sounds, strict=True):
        if start + 1 > begins and not (gap and gap[0] < start + 0.5 < gap[1]):
            assert second_of(sound) == pytest.approx(start + 0.5, abs=0.06)
            assert middle_of(sound).std() == pytest.approx(0.3 / math.sqrt(2), rel=0.1)


def test_where_the_film_has_no_sound_a_clip_is_silent(films):
    (before,) = sounds_at(films["late.mp4"], [0.0], 1.5)
    assert np.abs(before).max() < 0.01
    (during,) = sounds_at(films["gap.mkv"], [3.25], 1.0)
    assert np.abs(during).max() < 0.01
    (after,) = sounds_at(films["whole.mp4"], [SECONDS - 0.5], 1.5)
    assert np.abs(after[:, : RATE // 4]).max() > 0.2 and np.abs(after[:, -RATE // 2 :]).max() < 0.01


def test_damaged_sound_is_silent_and_the_rest_stays(films, tmp_path):
    data = bytearray(films["whole.mkv"].read_bytes())
    with av.open(str(films["whole.mkv"])) as container:
        packets = [packet for packet in container.demux(container.streams.audio[0]) if packet.size]
    for packet in packets[len(packets) // 3 : len(packets) // 2]:
        at = data.find(bytes(packet))
        data[at : at + packet.size] = bytes(packet.size)
    path = tmp_path / "damaged.mkv"
    path.write_bytes(data)
    first, damaged, last = sounds_at(path, [0.5, 3.2, 7.0], 1.0)
    assert second_of(first) == pytest.approx(1.0, abs=0.06) and second_of(last) == pytest.approx(7.5, abs=0.06)
    assert np.abs(damaged).max() < 0.3


def test_cut_clips_keep_their_sound_and_read_as_before(films, tmp_path):
    film = films["whole.mp4"]
    scene = FilmScene(Scene(1.0, 8.5, "start"), Crop(0, 0, 0, 0))
    span = Span(film, "whole", 0, (scene,), True, most_text=1.0)
    shape = ClipShape(64, 96)
    _, [cuts] = cut_span(span, tmp_path / "out", shape, FlowSettings())
    kept = [cut for cut in cuts if cut.dropped is None]
    assert len(kept) == 3
    for cut in kept:
        path = tmp_path / "out" / cut.clip
        assert read_clip(path).frames.shape == (17, 64, 96, 3)
        assert probe(path).seconds == pytest.approx(17 / 8, abs=0.01)
        (sound,) = sounds_at(path, [0.0], 17 / 8)
        assert second_of(sound) == pytest.approx(cut.start + 17 / 16, abs=0.06)
