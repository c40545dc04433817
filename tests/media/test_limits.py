"""Films, clips and pictures that are too large are refused by their headers."""

import numpy as np
import pytest
from PIL import Image

from animegamer_core.data.captions.pictures import open_picture
from animegamer_core.data.films.film import probe, read_frames
from animegamer_core.media import limits
from animegamer_core.media.video import read_clip, read_clip_info, write_clip

FRAMES = np.zeros((17, 32, 48, 3), np.uint8)


def lower(monkeypatch, pixels):
    monkeypatch.setattr(limits, "MOST_PIXELS", pixels)
    monkeypatch.setitem(limits.OPTIONS, "max_pixels", str(2 * pixels))


@pytest.fixture
def files(tmp_path):
    for name in ("clip.mp4", "clip.safetensors"):
        write_clip(tmp_path / name, FRAMES, 8)
    Image.fromarray(FRAMES[0]).save(tmp_path / "picture.png")
    return tmp_path


READERS = {
    "clip.mp4": read_clip,
    "clip.safetensors": read_clip,
    "a look at clip.mp4": lambda path: read_clip_info(path),
    "a look at clip.safetensors": read_clip_info,
}
ONE_BY_ONE = {
    "the film clip.mp4": probe,
    "the frames of clip.mp4": lambda path: list(read_frames(path)),
    "picture.png": open_picture,
}


@pytest.mark.parametrize("reader", READERS | ONE_BY_ONE)
def test_what_has_too_many_pixels_is_refused_by_its_header(files, monkeypatch, reader):
    read, path = (READERS | ONE_BY_ONE)[reader], files / reader.split()[-1]
    frames = 17 if reader in READERS else 1
    lower(monkeypatch, frames * 48 * 32)
    read(path)
    lower(monkeypatch, frames * 48 * 32 - 1)
    many = f"{frames} frames of " if frames > 1 else ""
    with pytest.raises(ValueError, match=f"has {many}48 x 32 pixels; expected at most {frames * 48 * 32 - 1} in all"):
        read(path)
