"""Files from outside are opened as what they should be, whatever their content claims to be."""

import os

import pytest
from PIL import EpsImagePlugin, Image

from animegamer_core.data.captions.pictures import KnownCharacters, read_references
from animegamer_core.evaluate.world.scores import references_of
from animegamer_core.media.soundtrack import read_sound
from animegamer_core.media.video import read_clip
from animegamer_core.spec import SPECS
from animegamer_core.story.opening import read_opening


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """A file that appears when Ghostscript is started."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/mark\n")
    (tmp_path / "bin" / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    return tmp_path / "mark"


PLACES = {
    "opening": lambda picture: read_opening(picture, None, SPECS["tiny"].decoder),
    "captions": lambda picture: KnownCharacters.of(read_references(picture.parent)),
    "characters of a table": lambda picture: references_of(["Miko"], picture.parent),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["EPS", "PPM"])
def test_a_picture_of_another_format_is_refused_and_starts_no_program(place, kind, mark, tmp_path):
    picture = tmp_path / "characters" / "Miko.png"
    picture.parent.mkdir()
    Image.new("RGB", (40, 30), "red").save(picture, kind)
    with pytest.raises(ValueError, match=r"Miko\.png: not a readable picture"):
        PLACES[place](picture)
    assert not mark.exists()


FILMS = {"opening": lambda film: read_opening(film, 0.0, SPECS["tiny"].decoder), "clip": read_clip, "sound": read_sound}
LISTS = {
    "concat": "ffconcat version 1.0\nfile inner.mp4\n",
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\ninner.mp4\n#EXT-X-ENDLIST\n",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
}


@pytest.mark.parametrize("place", FILMS)
@pytest.mark.parametrize("kind", LISTS)
def test_a_list_of_other_files_is_no_film(place, kind, tmp_path):
    (tmp_path / "film.mp4").write_text(LISTS[kind])
    with pytest.raises(ValueError, match=r"film\.mp4: .*(Invalid argument|Invalid data)"):
        FILMS[place](tmp_path / "film.mp4")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
@pytest.mark.parametrize("place", FILMS)
def test_a_pipe_is_refused_and_not_waited_for(place, tmp_path):
    os.mkfifo(tmp_path / "film.mp4")
    with pytest.raises((ValueError, OSError), match="a pipe is no film or sound"):
        FILMS[place](tmp_path / "film.mp4")
