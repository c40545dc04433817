import numpy as np
import pytest
import torch

from animegamer_core.data.films.film import read_frames
from animegamer_core.media.film_writer import write_film
from animegamer_core.media.video import join_clips, read_clip, to_uint8, write_clip


def drawn(shift=0, frames=17, height=32, width=48):
    """A moving gradient, smooth enough for a codec."""
    y, x = np.mgrid[0:height, 0:width]
    rows = [np.stack([x * 3 + 2 * f, y * 4, np.full_like(x, 90 + shift)], -1) for f in range(frames)]
    return np.clip(rows, 0, 255).astype(np.uint8)


def test_bytes_are_clamped_and_truncated_not_rounded(tmp_path):
    frames = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.999, 1.0, 3.0]).reshape(1, 1, 1, -1).expand(2, 3, 4, -1)
    got = to_uint8(frames)
    assert got.shape == (2, 4, 7, 3) and got.dtype == np.uint8
    assert got[1, 2, :, 0].tolist() == [0, 0, 63, 127, 254, 255, 255]
    colours = torch.stack([torch.full((4, 6), level) for level in (-1.0, 0.0, 1.0)])[None]
    assert to_uint8(colours)[0, 0, 0].tolist() == [0, 127, 255], "channels stay in their places"


def test_an_mp4_keeps_frames_rate_and_metadata_as_players_read_them(tmp_path):
    import av

    path = tmp_path / "clip.mp4"
    notes = {"comment": "Miko <b> runs \u96ea", "animegamer": '{"turn": 3}'}
    write_clip(path, drawn(), 7.5, notes)
    clip = read_clip(path)
    assert clip.fps == 7.5 and clip.frames.shape == (17, 32, 48, 3)
    assert np.abs(clip.frames.astype(int) - drawn()).mean() < 3
    assert notes.items() <= clip.metadata.items()
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264" and stream.codec_context.pix_fmt == "yuv420p"
        assert container.duration / 1e6 == pytest.approx(17 / 7.5, abs=0.01)


def patches(height, width):
    """Two equal frames of plain fields, each an eighth of the width."""
    colours = np.array([(230, 30, 40), (30, 200, 60), (40, 60, 220), (250, 220, 90), (0, 0, 0), (255,) * 3, (128,) * 3])
    places = np.minimum(np.arange(width) * 8 // width, len(colours) - 1)
    return np.broadcast_to(colours[places].astype(np.uint8), (2, height, width, 3))


WAYS = {
    "clip": (lambda path, frames: write_clip(path, frames, 8), lambda path: read_clip(path).frames),
    "film": (
        lambda path, frames: write_film(path, iter(frames), 8, len(frames), {}),
        lambda path: np.stack([frame.rgb for frame in read_frames(path)]),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("height, width, matrix", [(96, 144, 6), (480, 720, 6), (960, 1440, 1), (1440, 960, 1)])
def test_colours_are_tagged_and_survive_being_saved_again_and_again(way, height, width, matrix, tmp_path):
    import av

    path, (write, read) = tmp_path / "clip.mp4", WAYS[way]
    first = frames = patches(height, width)
    for _ in range(8):
        write(path, frames)
        frames = read(path)
    middles = slice(width // 16, None, width // 8)  # of the fields; x264 rounds off their edges
    assert np.abs(frames.astype(int) - first)[:, :, middles].max() <= 3
    with av.open(str(path)) as container:
        context = container.streams.video[0].codec_context
        tags = context.color_primaries, context.color_trc, context.colorspace, context.color_range
    assert tags == (1, 1, matrix, 1)


def test_the_same_frames_give_the_same_file(tmp_path):
    path, made = tmp_path / "clip.mp4", set()
    for _ in range(100):  # x264's defaults differ once in about fifty times at this size
        write_clip(path, drawn(), 8.0, {"comment": "same"})
        made.add(path.read_bytes())
    assert len(made) == 1


def test_joined_clips_have_all_frames_of_one_size(tmp_path):
    paths, out = [tmp_path / f"{index}.mp4" for index in range(3)], tmp_path / "all.mp4"
    for index, path in enumerate(paths):
        write_clip(path, drawn(40 * index), 8)
    join_clips(paths, out)
    whole = read_clip(out)
    assert whole.fps == 8
    assert (whole.frames == np.concatenate([read_clip(path).frames for path in paths])).all()
    out.unlink()
    write_clip(paths[2], drawn(height=34), 8)
    with pytest.raises(ValueError, match="differ"):
        join_clips(paths, out)
    assert sorted(tmp_path.iterdir()) == paths


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="none.mp4"):
        read_clip(tmp_path / "none.mp4")
