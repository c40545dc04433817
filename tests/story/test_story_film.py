"""A story as a film: what is seen, heard and read in it, and what happens when it cannot be written."""

import errno
import shutil
import subprocess
from unittest import mock

import av
import numpy as np
import pytest
from small_disk import small_disk

from animegamer_core.__main__ import main
from animegamer_core.cli import play
from animegamer_core.media.soundtrack import RATE, resampled
from animegamer_core.media.video import read_clip
from animegamer_core.story.film import export_film
from animegamer_core.story.folder import rename_story, story_names
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story

GAME = ("Character: Miko; Motion: gently run; Background: day beach.", "Yuzu sleeps", "\u5343\u5c0b\u304c\u8d70\u308b")
SHOT = 17


@pytest.fixture(scope="module")
def root(world, tmp_path_factory):
    """A story of three turns, and a second branch whose last turn is another take."""
    folder = tmp_path_factory.mktemp("stories")
    for game, seed in ((GAME, 0), (GAME[:2], 7)):
        story = Story.open(folder, "tale", world.spec.name, world.fingerprint)
        Player(world, story, PlaySettings(steps=1, seed=seed)).play(game)
    return folder


@pytest.fixture
def story(root):
    story = Story.read(root, "tale")
    story.use("main")
    return story


def read(path):
    with av.open(str(path)) as film:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)])


def sound_of(path):
    with av.open(str(path)) as film:
        return np.concatenate([frame.to_ndarray() for frame in film.decode(audio=0)], 1)


def tone(seconds, rate=8000):
    return np.sin(2 * np.pi * 440 * np.arange(int(seconds * rate)) / rate).astype(np.float32)[None] * 0.5


def test_a_plain_film_shows_the_shots_in_order(story, tmp_path):
    story.file_tags["prompt"] = "a graph"
    film = export_film(story, tmp_path / "film.mp4")
    shots = np.concatenate([read_clip(story.shots.path(entry.shot)).frames for entry in story.entries])
    frames = read(film.files[0])
    assert film.files == (tmp_path / "film.mp4",) and film.size == frames.shape[2:0:-1]
    assert frames.shape == shots.shape and np.abs(frames.astype(int) - shots).mean() < 4
    assert film.seconds == len(frames) / film.fps and not film.notes
    assert read_clip(film.files[0]).metadata.items() >= {"title": "tale", "prompt": "a graph"}.items()
    with pytest.raises(ValueError, match="has no drawn turns"):
        export_film(story, tmp_path / "none.mp4", turns=0)


def test_soft_subtitles_are_in_the_film_and_beside_it(story, tmp_path):
    film = export_film(story, tmp_path / "film.mp4", subtitles=True)
    with av.open(str(film.files[0])) as container:
        track = container.streams.subtitles[0]
        assert track.codec_context.name == "mov_text"
        packets = [packet for packet in container.demux(track) if packet.size > 2]
        inside = [(packet.pts * track.time_base, bytes(packet)[2:].decode()) for packet in packets]
    assert [text for _, text in inside] == [
        "1. Miko \u00b7 gently run \u00b7 day beach",
        *map(". ".join, zip("23", GAME[1:], strict=True)),
    ]
    starts = [0, SHOT / 8, 2 * SHOT / 8]
    assert [time for time, _ in inside] == pytest.approx(starts, abs=0.01)
    srt = film.files[1].read_text(encoding="utf-8")
    assert srt.startswith("1\n00:00:00,000 --> 00:00:02,125\n1. Miko") and srt.endswith(f"3. {GAME[2]}\n")


def test_an_interrupted_film_leaves_the_older_one(story, tmp_path):
    path = export_film(story, tmp_path / "film.mp4").files[0]
    before = path.read_bytes()

    def stop(done, total):
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_film(story, path, subtitles=True, on_frame=stop)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_a_story_in_use_is_not_exported_nor_renamed_in_the_middle(root, monkeypatch, capsys):
    with Story.read(root, "tale").lock():
        assert main(["export", str(root / "tale")]) == 2
    assert "is being played elsewhere" in capsys.readouterr().err

    def rename(*_):
        rename_story(root, "tale", "other")

    monkeypatch.setattr(play.Progress, "__call__", rename)
    assert main(["export", str(root / "tale")]) == 2
    assert "is being played" in capsys.readouterr().err and (root / "tale").exists()


def test_a_story_on_a_read_only_disk_is_shown_and_exported(root, tmp_path):
    with small_disk(tmp_path / "disk", 4096):
        shutil.copytree(root / "tale", tmp_path / "disk" / "tale")
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "disk")], check=True)
        assert story_names(tmp_path / "disk") == ["tale"]
        assert main(["export", str(tmp_path / "disk" / "tale"), "--out", str(tmp_path / "film.mp4")]) == 0
        with pytest.raises(OSError, match="Read-only"), Story.read(tmp_path / "disk", "tale").lock():
            pass  # whoever plays needs the lock
    assert len(read(tmp_path / "film.mp4")) == 2 * SHOT


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_story_in_a_folder_of_somebody_else_is_exported(root, tmp_path, number):
    with mock.patch("animegamer_core.story.folder.locked", side_effect=OSError(number, "no")):
        assert main(["export", str(root / "tale"), "--out", str(tmp_path / "film.mp4")]) == 0


@pytest.mark.parametrize("seconds", [2.0, 9.0])
def test_sound_fills_the_film_and_fades_out(story, tmp_path, seconds):
    film = export_film(story, tmp_path / "film.mp4", sound=resampled(tone(seconds), 8000))
    heard = sound_of(film.files[0])
    assert heard.shape[1] / RATE == pytest.approx(film.seconds, abs=0.05)
    loud = [np.abs(heard[:, int(at * RATE) : int((at + 0.2) * RATE)]).max() for at in (1, 4.5, 5.5, 6.1)]
    assert loud[0] == pytest.approx(0.5, abs=0.1) == loud[1] and loud[1] > 1.5 * loud[2] > 2 * loud[3]


@pytest.mark.parametrize("sample", [1e8, np.nan])  # for both the encoder's search never ends, or it refuses them
def test_a_sound_of_one_sample_of_any_size_ends(story, tmp_path, sample):
    film = export_film(story, tmp_path / "film.mp4", sound=np.full((2, 1), sample, np.float32))
    assert np.abs(sound_of(film.files[0])).max() < 1.5


def test_a_sound_that_is_too_short_for_a_sample_is_none():
    with pytest.raises(ValueError, match="contains no sound"):
        resampled(np.ones((1, 1), np.float32), 192000)
