"""Reading films of every kind, and what broken ones say."""

import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from av.stream import Disposition
from drawn_film import drawn_film
from film_parts import FilmPlan
from made_film import make_film

from animegamer_core.data.films.film import Clock, FilmError, frames_at, opened, probe, read_frames, until_broken
from animegamer_core.data.films.film_index import find_films
from animegamer_core.data.films.interlaced import field_order
from animegamer_core.data.films.survey import survey_film
from animegamer_core.spec import get_spec
from animegamer_core.story.opening import film_span

HEIGHT, WIDTH, FPS = 48, 80, 24
H273 = {"bt709": 1, "bt601": 6, "bt2020": 9}
LUMA = {"bt709": (0.2126, 0.0722), "bt601": (0.299, 0.114), "bt2020": (0.2627, 0.0593)}  # share of red, of blue


def numbered(count: int, height: int = HEIGHT, width: int = WIDTH) -> list[np.ndarray]:
    """Grey pictures that tell their number: 16, 17, 18 ... in three bits of stripes, safe from lossy coding."""
    bits = (np.arange(count)[:, None] >> np.arange(8)) & 1
    rows = 32 + 192 * np.repeat(bits, height // 8, axis=1)
    return list(np.broadcast_to(rows[:, :, None, None], (count, height, width, 3)).astype(np.uint8))


def number_of(picture: np.ndarray) -> int:
    """The number that a picture of `numbered` shows."""
    rows = picture.mean(axis=(1, 2)).reshape(8, -1).mean(axis=1) > 128
    return int((rows << np.arange(8)).sum())


def write_film(
    path: Path,
    pictures: Iterable[np.ndarray],
    *,
    codec: str = "libx264",
    rate: int = FPS,
    size: tuple[int, int] = (HEIGHT, WIDTH),
    times: Callable[[int], int] | None = None,
    sound: float = 0.0,
    options: dict[str, str] | None = None,
    codec_options: dict[str, str] | None = None,
    tags: dict[str, object] | None = None,
) -> Path:
    """A film of a size (height, width); times: in 1/rate s. tags: attributes of the stream and its codec."""
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(codec, rate=rate, options=codec_options or {})
        stream.height, stream.width, stream.pix_fmt = *size, "yuv420p"
        for name, value in (tags or {}).items():
            setattr(stream.codec_context, name, value)
        voice = container.add_stream("aac", rate=44100, layout="mono") if sound else None
        for index, picture in enumerate(pictures):
            frame = as_frame(picture, stream.pix_fmt)
            frame.pts, frame.time_base = times(index) if times else index, Fraction(1, rate)
            if frame.format.name == stream.pix_fmt:
                frame.color_range, frame.colorspace = stream.codec_context.color_range, stream.codec_context.colorspace
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if voice:
            mux_silence(container, voice, sound)
    return path


def mux_silence(container: av.container.OutputContainer, voice: av.AudioStream, seconds: float = 1.0) -> None:
    for block in range(int(seconds * 44100 / 1152)):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1152), np.float32), format="fltp", layout="mono")
        frame.rate, frame.pts = 44100, 1152 * block
        container.mux(voice.encode(frame))
    container.mux(voice.encode())


def as_frame(picture: np.ndarray, pixels: str) -> av.VideoFrame:
    return av.VideoFrame.from_ndarray(picture, format="rgb24" if picture.ndim == 3 else pixels)


def times_of(path: Path, start: float = 0.0, stop: float | None = None) -> list[float]:
    return [frame.seconds for frame in read_frames(path, start, stop)]


def noise(count: int) -> np.ndarray:
    """Pictures that compress badly, so that a file holds more than its header."""
    return np.random.default_rng(0).integers(0, 255, (count, HEIGHT, WIDTH, 3)).astype(np.uint8)


# --- whole films ------------------------------------------------------------------------------------------------------

KINDS = dict.fromkeys(("mp4", "mkv", "mov", "avi", "ts", "flv"), "libx264")  # avi: when pictures are decoded, not shown
KINDS |= {"webm": "libvpx-vp9", "mpg": "mpeg2video", "wmv": "wmv2"}


@pytest.mark.parametrize(("kind", "codec"), [*KINDS.items(), ("avi", "mpeg4")])
def test_every_kind_of_file_is_read_in_order_from_its_start_or_from_the_frame_shown_at_a_time(kind, codec, tmp_path):
    # In a program stream only pictures of some size have times.
    rough = np.random.default_rng(0).integers(-20, 20, (60, HEIGHT, WIDTH, 3))
    pictures = (np.stack(numbered(60)) + rough).astype(np.uint8)
    bits = {"b": "2000000"} | ({"bf": "2"} if codec == "mpeg4" else {})  # old films show some before a key frame
    film = write_film(tmp_path / f"film.{kind}", pictures, codec=codec, codec_options=bits)
    frames = list(read_frames(film))
    assert [number_of(frame.rgb) for frame in frames] == list(range(60))
    assert [frame.seconds for frame in frames] == pytest.approx([n / FPS for n in range(60)], abs=1e-3)
    assert frames[0].seconds == 0.0
    frames = list(read_frames(film, 1.01, 1.2))
    assert [number_of(frame.rgb) for frame in frames] == [24, 25, 26, 27, 28]
    assert [number_of(frame.rgb) for frame in read_frames(film, 1000.0)] == [59]


@pytest.mark.parametrize("kind", ["mp4", "mkv"])
def test_a_variable_frame_rate_keeps_its_times(kind, tmp_path):
    shown = [0, 1, 2, 5, 6, 11, 12, 13, 30, 31]
    film = write_film(tmp_path / f"film.{kind}", numbered(10), times=lambda index: shown[index])
    assert times_of(film) == pytest.approx([n / FPS for n in shown], abs=1e-3)
    assert number_of(next(read_frames(film, 20 / FPS)).rgb) == 7


def test_packets_without_bytes_repeat_a_frame_and_are_no_damage():
    film = Path(__file__).with_name("repeats.ogv")  # in Theora, which PyAV cannot write: 5 of 13 packets are empty
    assert len(times_of(film)) == 8


@pytest.mark.parametrize("first", [-7, 50])
def test_the_first_shown_frame_is_at_0_whatever_the_file_begins_with(first, tmp_path):
    shown = {"times": lambda index: index + first, "options": {"avoid_negative_ts": "disabled"}}
    film = write_film(tmp_path / "film.mkv", numbered(48), **shown)
    assert times_of(film) == pytest.approx([n / FPS for n in range(48)], abs=1.1e-3)
    assert number_of(next(read_frames(film, 1.01)).rgb) == 24


def clocked(times: Sequence[float | None], seconds: float) -> list[float]:
    """The times that frames get in a file of this length that states `times`."""
    clock = Clock(times[0], 1 / FPS, seconds)
    return [clock.read(time) for time in times]


@pytest.mark.parametrize("first, lost", [(60, 0), (55, 6)])  # a part of 55 frames looks as if its end were damaged
def test_joined_recordings_are_one_film_wherever_reading_begins(first, lost, tmp_path):
    film, parts = tmp_path / "film.ts", np.split(numbered(120), [first])
    film.write_bytes(b"".join(write_film(tmp_path / f"{n}.ts", part).read_bytes() for n, part in enumerate(parts)))
    frames = list(until_broken(read_frames(film)))
    assert [number_of(frame.rgb) for frame in frames] == [*range(first - lost), *range(first, 120)]
    assert frames[-1].seconds == pytest.approx(119 / FPS, abs=1.1 / FPS)
    assert FPS * sum(frame.lost for frame in frames) == pytest.approx(lost, abs=1)
    for time in (1.0, 3.5):
        shown = [frame for frame in frames if frame.seconds <= time + 1e-3][-1]
        assert number_of(next(read_frames(film, time)).rgb) == number_of(shown.rgb)


def test_one_wrong_time_moves_no_other_frame_and_a_clock_that_starts_again_continues():
    right = [n / FPS for n in range(20)]
    read = clocked([*right[:5], 9999.0, *right[6:12], right[3], *right[13:]], 1.0)
    assert [read[n] for n in range(20) if n not in (5, 12)] == [right[n] for n in range(20) if n not in (5, 12)]
    part = [n / FPS for n in range(24)]
    assert clocked([*part, *part], 0.0) == pytest.approx([n / FPS for n in range(48)], abs=1 / FPS)


# --- what is shown ----------------------------------------------------------------------------------------------------


def coded(rgb: Sequence[float], matrix: str, full: bool, bits: int, pixels: str) -> np.ndarray:
    """A plain picture as planes of Y'CbCr, computed by the formulas of ITU-T H.273."""
    red, green, blue = (value / 255 for value in rgb)
    kr, kb = LUMA[matrix]
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    planes = np.array([luma, (blue - luma) / (2 - 2 * kb), (red - luma) / (2 - 2 * kr)])
    scale = 2 ** (bits - 8)
    if full:
        codes = planes * (2**bits - 1) + np.array([0, 2 ** (bits - 1), 2 ** (bits - 1)])
    else:
        codes = (planes * np.array([219, 224, 224]) + np.array([16, 128, 128])) * scale
    kind = np.uint8 if bits == 8 else np.uint16
    sizes = (HEIGHT, HEIGHT // 4, HEIGHT // 4)
    return np.concatenate([np.full((rows, WIDTH), round(code), kind) for rows, code in zip(sizes, codes, strict=True)])


def plain_film(path: Path, rgb: Sequence[float], matrix: str, full: bool, bits: int, **tags: object) -> Path:
    pixels = "yuv420p" if bits == 8 else "yuv420p10le"
    picture = coded(rgb, matrix, full, bits, pixels)
    all_tags = {"pix_fmt": pixels, "colorspace": H273[matrix], "color_range": 2 if full else 1, **tags}
    return write_film(path, [picture] * 3, codec="ffv1", tags=all_tags)


@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("matrix", LUMA)
def test_matrix_range_and_depth_are_read_correctly(matrix, full, bits, tmp_path):
    for number, rgb in enumerate([(200, 60, 20), (20, 180, 90), (255, 255, 255)]):
        film = plain_film(tmp_path / f"{number}.mkv", rgb, matrix, full, bits)
        assert np.abs(next(read_frames(film)).rgb[5, 5].astype(int) - rgb).max() <= 2, rgb


@pytest.mark.parametrize(("pixels", "rgb"), [("yuv422p10le", (255, 255, 255)), ("yuv444p12le", (200, 60, 20))])
def test_more_bits_are_read_at_their_brightness_with_every_chroma(pixels, rgb, tmp_path):
    pictures = [np.full((HEIGHT, WIDTH, 3), rgb, np.uint8)] * 3
    film = write_film(tmp_path / "film.mkv", pictures, codec="ffv1", tags={"pix_fmt": pixels})
    assert np.abs(next(read_frames(film)).rgb[5, 5].astype(int) - rgb).max() <= 1


def with_matrix(film: Path, a: int, b: int, c: int, d: int) -> Path:
    """The mp4, to be displayed with each stored place (x, y) at (ax + cy, bx + dy)."""
    data = bytearray(film.read_bytes())
    matrix = [a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30]
    at = data.index(b"tkhd") + 4 + 40
    data[at : at + 36] = b"".join(value.to_bytes(4, "big", signed=True) for value in matrix)
    film.write_bytes(data)
    return film


def corner() -> np.ndarray:
    """A picture that looks different in all eight positions."""
    picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    picture[: HEIGHT // 2, : WIDTH // 2] = 255  # top left
    picture[HEIGHT // 2 :, : WIDTH // 2] = 128
    return picture


@pytest.mark.parametrize(
    ("matrix", "shown_as"),
    [
        ((0, 1, -1, 0), lambda picture: np.rot90(picture, -1)),  # of a phone that was held upright
        ((-1, 0, 0, -1), lambda picture: np.rot90(picture, 2)),
        ((0, -1, 1, 0), np.rot90),
        ((1, 0, 0, 1), np.array),
        ((-1, 0, 0, 1), lambda picture: picture[:, ::-1]),  # of a front camera
        ((1, 0, 0, -1), lambda picture: picture[::-1]),
        ((0, 1, 1, 0), lambda picture: picture.transpose(1, 0, 2)),
        ((0, -1, -1, 0), lambda picture: picture[::-1, ::-1].transpose(1, 0, 2)),
    ],
)
def test_a_rotated_or_mirrored_film_is_shown_upright(matrix, shown_as, tmp_path):
    film = with_matrix(write_film(tmp_path / "film.mp4", [corner()] * 3), *matrix)
    info, shown, expected = probe(film), next(read_frames(film)).rgb, shown_as(corner())
    assert (info.height, info.width) == shown.shape[:2] == expected.shape[:2]
    assert np.abs(shown.astype(int) - expected).mean() < 8


@pytest.mark.parametrize(("aspect", "size"), [(Fraction(16, 11), (48, 116)), (Fraction(8, 9), (54, 80))])
def test_pixels_that_are_not_square_are_made_so(aspect, size, tmp_path):
    film = write_film(tmp_path / "film.mkv", numbered(3), tags={"sample_aspect_ratio": aspect})
    info = probe(film)
    assert (info.height, info.width) == next(read_frames(film)).rgb.shape[:2] == size


def test_the_track_that_is_flagged_as_default_is_read(tmp_path):
    with av.open(str(tmp_path / "film.mkv"), "w") as container:
        streams = [container.add_stream("ffv1", rate=FPS) for _ in range(2)]
        for stream, size, default in zip(streams, (32, HEIGHT), (False, True), strict=True):
            stream.height = stream.width = size
            stream.pix_fmt, stream.disposition = "yuv420p", Disposition.default if default else Disposition(0)
        for stream in streams:
            frame = as_frame(np.zeros((stream.height, stream.width, 3), np.uint8), "yuv420p")
            frame.pts, frame.time_base = 0, Fraction(1, FPS)
            container.mux([*stream.encode(frame), *stream.encode()])
    assert probe(tmp_path / "film.mkv").height == HEIGHT


def test_a_film_that_changes_its_shape_is_shown_and_cut_in_each(tmp_path):
    """As a recording of television, where an advertisement in 4:3 is followed by a film in 16:9."""
    film = tmp_path / "film.ts"
    for number, aspect in enumerate([Fraction(1), Fraction(4, 3)]):
        pictures, tags = np.full((36, 96, 128, 3), 60 + 140 * number, np.uint8), {"sample_aspect_ratio": aspect}
        write_film(tmp_path / f"{number}.ts", pictures, codec="mpeg2video", size=(96, 128), tags=tags)
    film.write_bytes(b"".join((tmp_path / f"{number}.ts").read_bytes() for number in range(2)))
    shapes = {(frame.rgb.mean() > 128, *frame.rgb.shape[:2]) for frame in until_broken(read_frames(film))}
    assert shapes == {(False, 96, 128), (True, 96, 171)}
    assert [scene.start for scene in survey_film(film, threads=1).scenes] == pytest.approx([0, 1.5], abs=0.2)


@pytest.mark.parametrize(("kind", "lower_first"), [("mpg", 1), ("mp4", 0), ("mp4", 1)])  # mp4: told to be progressive
def test_an_interlaced_film_is_deinterlaced_and_keeps_its_times(kind, lower_first, tmp_path):
    black, lower = np.zeros((96, 160, 3), np.uint8), np.arange(96)[:, None, None] % 2
    ball = [cv2.circle(black.copy(), (10 + 2 * at, 48), 20, (255, 255, 255), -1) for at in range(72)]
    woven = [np.where(lower ^ lower_first, *pair) for pair in zip(ball[1::2], ball[::2], strict=True)]
    options = {"flags": "+ilme+ildct", "g": "12"} if kind == "mpg" else {}
    film = write_film(tmp_path / f"film.{kind}", woven, codec=KINDS[kind], size=(96, 160), codec_options=options)
    frames = list(read_frames(film))
    assert [frame.seconds for frame in frames] == pytest.approx([n / FPS for n in range(36)], abs=1e-3)
    for at, frame in list(enumerate(frames))[1:-1]:
        rows = frame.rgb[..., 1].astype(int)
        assert np.abs(rows[2:] + rows[:-2] - 2 * rows[1:-1]).mean() < np.abs(rows[2:] - rows[:-2]).mean()
        first, second = (np.abs(rows - ball[moment][..., 1]).mean() for moment in (2 * at, 2 * at + 1))
        assert first < second, "the first field's moment is shown"


def test_a_film_drawn_on_ones_twos_and_threes_is_not_taken_for_interlaced(tmp_path):
    shots = [shot for shot in drawn_film(5).shots if shot.action in ("run", "shake", "quick pan", "smear")]
    for number, shot in enumerate(shots):
        film = write_film(tmp_path / f"{number}.mkv", map(shot.picture, range(shot.frames)), size=(270, 480))
        with opened(film, 1) as opening:
            assert field_order(opening.container, opening.stream, opening.seconds) == "", shot
    assert {shot.step for shot in shots} == {1, 2, 3}


def test_hdr_is_refused_by_name(tmp_path):
    film = plain_film(tmp_path / "film.mkv", (200, 60, 20), "bt2020", False, 10, color_trc=16, color_primaries=9)
    with pytest.raises(FilmError, match="HDR.*convert it to SDR"):
        probe(film)


def test_a_rate_that_tells_the_ticks_of_a_clock_is_not_taken_for_the_films(tmp_path):
    """As browsers and screen recorders write it."""
    path, times = tmp_path / "film.webm", lambda index: round(1000 * index / 29)
    write_film(path, numbered(30), codec="libvpx", rate=1000, times=times)
    assert probe(path).fps == 25
    survey = survey_film(path, threads=1)
    assert survey.broken is None and survey.seconds == pytest.approx(1.04, abs=1e-3)


def test_a_film_of_24_frames_a_second_is_cut_the_same_in_a_file_of_60(tmp_path):
    """Such a file repeats each frame two or three times; beside a repeated frame, any movement looks sudden."""
    path, size = tmp_path / "film.mp4", (96, 144)
    plan = FilmPlan(seed=29, scenes=6, size=size, fps=24.0, short=0.0, seconds=(1.2, 1.8), wild=1.0, grain=0.0)
    make_film(path, plan)
    shown = [frame.rgb for frame in read_frames(path)]
    repeated = [shown[index * 24 // 60] for index in range(len(shown) * 60 // 24)]
    fast = write_film(tmp_path / "fast.mp4", repeated, rate=60, size=size)
    slow, quick = (survey_film(each, threads=1) for each in (path, fast))
    assert len(slow.scenes) == 6
    starts = [[scene.start for scene in survey.scenes] for survey in (slow, quick)]
    assert starts[1] == pytest.approx(starts[0], abs=2 / 30)


# --- finding films ----------------------------------------------------------------------------------------------------


def test_films_are_found_in_folders_and_named_files_are_taken_as_they_are(tmp_path):
    with pytest.raises(ValueError, match="no film found"):
        find_films([tmp_path])
    with pytest.raises(FilmError, match="No such file"):
        find_films([tmp_path / "missing.mp4"])
    for name in ("b/2.MKV", "b/deep/1.mp4", "b/notes.txt", "b/.hidden.mp4", "odd.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = find_films([tmp_path / "odd.bin", tmp_path / "b", tmp_path / "b" / "2.MKV"])
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["b/2.MKV", "b/deep/1.mp4", "odd.bin"]


@pytest.mark.parametrize("out", ["", "mine"])
def test_the_clips_of_datasets_among_the_films_are_not_films(out, tmp_path):
    """As where a dataset is built into the folder of its films, and the same command is given again."""
    clips = [tmp_path / out / "clips" / "one" / "0.mp4", tmp_path / "other" / "clips" / "two" / "0.mp4"]
    films = [tmp_path / "one.mp4", tmp_path / "clips of a trip" / "two.mp4", tmp_path / "films" / "clips" / "three.mp4"]
    for path in (*clips, *films):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "other" / "turns.jsonl").touch()
    assert find_films([tmp_path], tmp_path / out) == sorted(films)
    assert find_films([clips[1].parent.parent]) == [clips[1]], "named itself"


# --- broken films -----------------------------------------------------------------------------------------------------


def sentence(path: Path) -> str:
    """What is said of a file that is no film."""
    with pytest.raises(FilmError) as probed:
        probe(path)
    assert "\n" not in str(probed.value) and path.name in str(probed.value)
    return str(probed.value)


def test_what_is_no_film_is_said(tmp_path):
    from PIL import Image

    dot = np.zeros((3, 1, 1, 3), np.uint8)
    assert "1 x 1 pixels" in sentence(write_film(tmp_path / "dot.mkv", dot, codec="ffv1", size=(1, 1)))
    assert "zero frames" in sentence(write_film(tmp_path / "film.mkv", [], sound=1.0))
    with av.open(str(tmp_path / "song.m4a"), "w") as container:
        mux_silence(container, container.add_stream("aac", rate=44100, layout="mono"))
    assert "no video" in sentence(tmp_path / "song.m4a")
    (tmp_path / "notes.mkv").write_text("Once upon a time\n" * 300)
    assert "not a film" in sentence(tmp_path / "notes.mkv")
    Image.fromarray(numbered(1)[0]).save(tmp_path / "still.png")
    assert "a picture, a playlist?" in sentence(tmp_path / "still.png")


@pytest.mark.parametrize(("kind", "options"), [("mp4", {"movflags": "faststart"}), ("mkv", {}), ("flv", {})])
def test_a_film_that_breaks_off_gives_what_it_has_and_then_says_where(kind, options, tmp_path):
    film = write_film(tmp_path / f"film.{kind}", noise(120), sound=5.0, options=options)
    whole = [frame.rgb for frame in read_frames(film)]
    film.write_bytes(film.read_bytes()[: film.stat().st_size * 6 // 10])
    read = []
    with pytest.raises(FilmError, match=r"ends at \d\.\d s of 5\.\d s: the file is truncated or damaged"):
        read.extend(frame.rgb for frame in read_frames(film))
    assert 40 < len(read) < 80
    assert all(np.array_equal(*pair) for pair in zip(read[:40], whole, strict=False))


def damage(film: Path, start: int, stop: int) -> None:
    data = bytearray(film.read_bytes())
    data[start:stop] = bytes(byte ^ 0x5A for byte in data[start:stop])
    film.write_bytes(data)


# (codec, kind, bytes, packet where they begin). After 64 KiB of damage, the reader of MPEG-TS gives up for once. The
# decoders of the second line must be asked. AV1 may show its key frame again; the last film begins with what is lost.
CODECS = [*(("libx264", kind, 4000, 62) for kind in ("mkv", "mp4", "ts")), ("libx264", "ts", 99000, 62)]
CODECS += [("mjpeg", "avi", 0, 62), ("wmv2", "wmv", 0, 62), ("msmpeg4", "avi", 0, 62), ("libx265", "mkv", 100, 62)]
CODECS += [("libsvtav1", "mkv", 4000, 37), ("libvpx-vp9", "webm", 100, 62), ("libx264", "ts", 4000, 0)]


@pytest.mark.parametrize(("codec", "kind", "length", "at"), CODECS)
def test_damage_costs_the_frames_up_to_the_next_key_frame_and_is_told_in_seconds(codec, kind, length, at, tmp_path):
    tags = {"pix_fmt": "yuvj420p"} if codec == "mjpeg" else {"gop_size": 12 if at > 60 else 36}
    hashes = {"x265-params": "hash=1:log-level=none"}
    film = write_film(tmp_path / f"film.{kind}", noise(120), codec=codec, tags=tags, codec_options=hashes)
    whole = [frame.rgb.astype(int) for frame in read_frames(film)]
    with av.open(str(film)) as container:
        packet = [packet for packet in container.demux(video=0) if packet.size][at]
    middle = packet.pos + packet.size // 2
    damage(film, middle, middle + length if length else packet.pos + packet.size - 8)
    frames = []
    with pytest.raises(FilmError, match=r"\d\.\d s of 5\.\d s are damaged, and are left out \(\d\.\d to \d\.\d s\)"):
        frames.extend(read_frames(film))
    assert at - 4 <= len(frames) < 120 and frames[-1].seconds == pytest.approx(119 / FPS, abs=2e-3)
    # Garbage is 20 and more away; a frame next to a gap 5, where noise is read as interlaced.
    assert all(np.abs(frame.rgb - whole[round(frame.seconds * FPS)]).mean() < 10 for frame in frames)
    (gap,) = [frame for frame in frames if frame.lost]
    assert gap.lost == pytest.approx((120 - len(frames)) / FPS, abs=2e-3)
    lost = gap.seconds - gap.lost / 2
    assert next(frames_at(iter(frames), [lost])) is None
    with pytest.raises(FilmError, match=r"is damaged from \d\.\d to \d\.\d s"):
        list(frames_at(read_frames(film, lost, gap.seconds), [lost]))


def test_the_alpha_of_a_webm_which_lies_between_its_packets_is_no_damage(tmp_path):
    pictures = np.dstack([np.kron(noise(1)[0, :, :, :1], np.ones((4, 4, 1), np.uint8))] * 4)
    film = tmp_path / "film.webm"
    with av.open(str(film), "w") as container:
        stream = container.add_stream("libvpx-vp9", rate=FPS, options={"auto-alt-ref": "0"})
        stream.height, stream.width, stream.pix_fmt = *pictures.shape[:2], "yuva420p"
        for number in range(12):
            frame = av.VideoFrame.from_ndarray(np.roll(pictures, number, axis=1), format="rgba")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert len(list(read_frames(film))) == 12


def test_b_frames_are_left_out_with_the_damaged_frame_after_them(tmp_path):
    picture = np.kron(noise(1)[0, :12, :20], np.ones((16, 16, 1), np.uint8))
    pictures = [np.roll(picture, 3 * number, axis=1) for number in range(60)]
    options = {"crf": "10", "x264-params": "b-adapt=0:bframes=3:b-pyramid=0"}
    film = write_film(tmp_path / "film.mkv", pictures, size=(192, 320), codec_options=options)
    whole = [frame.rgb.astype(int) for frame in read_frames(film)]
    with av.open(str(film)) as container:
        packet = [packet for packet in container.demux(video=0) if packet.size][33]  # frame 36
    damage(film, packet.pos + packet.size // 2 + 6, packet.pos + packet.size * 6 // 10)
    frames = list(until_broken(read_frames(film)))
    assert len(frames) in (29, 33)  # the decoder flags frame 36, or refuses it and keeps four frames back
    assert all(np.abs(frame.rgb - whole[round(frame.seconds * FPS)]).mean() < 1 for frame in frames)


def test_what_the_decoder_of_an_avi_gives_last_has_no_time_and_comes_after_what_is_lost(tmp_path):
    tags = {"max_b_frames": 2, "gop_size": 119}
    options = {"sc_threshold": "1000000000"}  # no more key frames
    film = write_film(tmp_path / "film.avi", noise(120), codec="mpeg4", tags=tags, codec_options=options)
    damage(film, film.stat().st_size * 3 // 10, film.stat().st_size * 3 // 10 + 400)
    *_, before, after = until_broken(read_frames(film))
    assert before.seconds < 1 and after.lost == pytest.approx(119 / FPS - before.seconds, abs=0.2)


@pytest.mark.parametrize("kind", ["ts", "mpg"])
def test_seconds_without_a_packet_are_lost_where_the_format_does_not_say_so(kind, tmp_path):
    gap = {"codec": "mpeg2video", "tags": {"gop_size": 12}, "times": lambda number: number + 48 * (number > 65)}
    frames = list(until_broken(read_frames(write_film(tmp_path / f"film.{kind}", numbered(120), **gap))))
    assert [number_of(frame.rgb) for frame in frames if frame.lost] == [76]
    assert {number_of(frame.rgb) for frame in frames} == {*range(65), *range(76, 120)}


def test_what_follows_damage_in_a_film_of_one_key_frame_is_lost_and_no_opening(tmp_path):
    film = write_film(tmp_path / "film.mkv", noise(120), tags={"gop_size": 999})
    with av.open(str(film)) as container:
        packet = [packet for packet in container.demux(video=0) if packet.size][40]
    damage(film, packet.pos + 8, packet.pos + 408)  # the header of a slice too: in the rest, garbage may be a picture
    survey = survey_film(film, threads=1)
    assert survey.seconds < 2 and re.search(r"3\.\d s of 5\.\d s are damaged", survey.broken or "")
    with pytest.raises(FilmError, match="damaged"):
        film_span(film, 4.0, get_spec("tiny").decoder)
