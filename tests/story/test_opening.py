"""A game that begins with a picture, a clip or a part of a film: what is read, what turn 0 shows, and what is kept."""

import random
import shutil
from dataclasses import replace

import av
import numpy as np
import pytest
from hostile import any_bytes
from PIL import Image
from test_play import GAME, content

from animegamer_core.__main__ import main
from animegamer_core.media.video import read_clip, write_clip
from animegamer_core.spec import SPECS
from animegamer_core.story import opening
from animegamer_core.story.film import export_film
from animegamer_core.story.folder import duplicate_story
from animegamer_core.story.opening import film_span, frames_of_bytes, open_game, read_opening, shown_frames
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story
from animegamer_core.weights import open_world, save_part

DECODER = SPECS["tiny"].decoder
STEP = 7  # grey levels between two frames of a film


@pytest.fixture(scope="module")
def encoding_world(world, tiny_encoder, tmp_path_factory):
    """The tiny world with a shot encoder."""
    folder = tmp_path_factory.mktemp("encoding") / "tiny"
    shutil.copytree(world.folder, folder)
    return save_part(open_world(folder), tiny_encoder)


def greys(count, height=64, width=96):
    """Frames of one grey each, which tells their number."""
    return [np.full((height, width, 3), 10 + STEP * number, np.uint8) for number in range(count)]


def numbers_of(clip):
    """Which of `greys` the frames of a clip are."""
    return [round((float(frame.mean()) - 10) / STEP) for frame in clip]


@pytest.mark.parametrize(
    "count, read, fps, shown",
    [
        (1, 0, 0, [0] * 17),
        (17, 16, 0, list(range(17))),
        (40, 30, 0, list(range(23, 40))),
        (5, 4, 0, [0, 1, 2, 3, *[4] * 13]),
        (100, 99, 24, list(range(51, 100, 3))),
        (34, 33, 17.6, [*(int(2.2 * n + 1e-3) for n in range(16)), 33]),
    ],
)
def test_the_clip_begins_with_the_frame_or_as_much_earlier_as_it_must(count, read, fps, shown):
    assert shown_frames(count, read, fps, DECODER) == shown and read in shown


@pytest.fixture
def film(tmp_path):
    """Four seconds at 8 frames a second, whose greys tell the frame."""
    write_clip(tmp_path / "film.mp4", np.stack(greys(32, 48, 80)), 8)
    return tmp_path / "film.mp4"


@pytest.mark.parametrize(
    "at, frame, first, count", [(0, 0, 0, 17), (1.5, 0, 12, 17), (3, 9, 15, 17), (3.99, 16, 15, 17), (1.56, 0, 12, 17)]
)
def test_a_part_of_a_film_is_read_around_a_second(film, at, frame, first, count):
    pictures, read = film_span(film, at, DECODER)
    assert (numbers_of(pictures), read) == (list(range(first, first + count)), frame)
    write_clip(film, np.stack(greys(5, 48, 80)), 8)
    assert numbers_of(film_span(film, 0.25, DECODER)[0]) == [*range(5)], "all of a film shorter than a shot"
    shown = [opening.frame_at_second(*given) for given in ((32, 8, 3.9999), (32, 8, 0.24), (100, 100, 0.29))]
    assert shown == [31, 1, 29]
    with pytest.raises(ValueError, match="has no frame at 4 s, and it has 4.00 seconds"):
        opening.frame_at_second(32, 8, 4)


def test_a_picture_is_read_upright_and_has_no_seconds(tmp_path):
    Image.new("RGBA", (30, 20), (200, 10, 10, 255)).save(tmp_path / "own.png")
    (picture,), frame = read_opening(tmp_path / "own.png", None, DECODER)
    assert (picture.shape, frame, picture[0, 0].tolist()) == ((20, 30, 3), 0, [200, 10, 10])
    with pytest.raises(ValueError, match="is a picture, so it has nothing at 3 s"):
        read_opening(tmp_path / "own.png", 3, DECODER)
    for size, factor in (((3000, 2000), 2), ((1 << 19, DECODER.height), 1), ((DECODER.width, 1 << 19), 1)):
        Image.new("RGB", size).save(tmp_path / "large.png")
        shown = (size[1] // factor, size[0] // factor, 3)
        assert read_opening(tmp_path / "large.png", None, DECODER)[0][0].shape == shown, "no side shorter than a shot's"
    (tmp_path / "notes.txt").write_text("Miko")
    with pytest.raises(ValueError, match="not a readable picture"):
        read_opening(tmp_path / "notes.txt", None, DECODER)


def test_damaged_openings_are_read_or_refused_in_a_sentence(film, tmp_path):
    Image.fromarray(greys(1)[0]).save(tmp_path / "own.png")
    pictures = [Image.fromarray(frame) for frame in greys(9)]
    pictures[0].save(tmp_path / "own.gif", save_all=True, append_images=pictures[1:], duration=100)
    for seed in range(60):
        rng = random.Random(seed)
        source = rng.choice([film, tmp_path / "own.png", tmp_path / "own.gif"])
        path = tmp_path / f"damaged{source.suffix}"
        data, what = any_bytes(source.read_bytes(), rng)
        path.write_bytes(data)
        try:
            found, frame = read_opening(path, None, DECODER)
            assert 0 <= frame < len(found) <= DECODER.frames, f"{seed}: {source.name} {what}"
        except ValueError as error:
            assert str(path) in str(error) and str(error).isprintable(), f"{seed}: {source.name} {what}"


@pytest.fixture
def story_with_clip(encoding_world, tiny_encoder, tmp_path):
    """A story of two turns with an opening's clip."""
    world = encoding_world
    fast = [grey for grey in greys(DECODER.frames) for _ in range(3)]  # at three times the shot's rate
    began = open_game(tiny_encoder, "Miko waves", frames_of_bytes(fast), len(fast), 0, 3.0 * DECODER.fps)
    story = Story.open(tmp_path, "game", world.spec.name, world.fingerprint)
    story.file_tags["prompt"] = "a graph"
    Player(world, story, PlaySettings(steps=1), opening=began).play(GAME[:2])
    return story


def test_a_story_keeps_the_clip_beside_the_opening_and_gives_it_back(story_with_clip, tmp_path):
    story = Story.read(tmp_path, "game")
    session = story.session(2, 4)
    path = story.opening_clip(session)
    assert path == story.folder / "openings" / f"{session.picture.address}.mp4"
    clip = read_clip(path)
    assert clip.fps == DECODER.fps and numbers_of(clip.frames) == list(range(17))
    assert [clip.metadata[tag] for tag in ("title", "comment", "prompt")] == ["turn 0", "Miko waves", "a graph"]
    assert read_clip(story.clips()[1]).metadata["prompt"] == "a graph"
    duplicate_story(tmp_path, "game", "copy")
    copy = Story.read(tmp_path, "copy")
    assert copy.opening_clip(copy.session(0, 4)).read_bytes() == path.read_bytes()


def test_a_film_and_its_subtitles_begin_with_turn_0_only_if_asked(story_with_clip, tmp_path):
    usual = export_film(story_with_clip, tmp_path / "usual.mp4", subtitles=True)
    longer = export_film(story_with_clip, tmp_path / "longer.mp4", subtitles=True, opening=True)
    assert longer.seconds == usual.seconds + DECODER.frames / DECODER.fps
    with av.open(str(longer.files[0])) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert numbers_of(frames[:17]) == list(range(17))
    assert usual.files[1].read_text("utf-8").splitlines()[2].startswith("1. Miko")
    srt = longer.files[1].read_text("utf-8").splitlines()
    assert srt[2] == "0. Miko waves" and srt[1].startswith("00:00:00,000 -->")
    assert any(line.startswith("1. Miko") for line in srt)
    story_with_clip.add_turn(replace(story_with_clip.session(2, 4).turns[-1], number=3), None)
    drawn = export_film(story_with_clip, tmp_path / "drawn.mp4", opening=True)
    assert drawn.notes == ("skipped 1 turns without a shot",) and drawn.seconds == longer.seconds


@pytest.fixture
def play(encoding_world, tmp_path):
    game = tmp_path / "game.txt"
    game.write_text("\n".join(GAME[:2]))
    common = ["--world", str(encoding_world.folder), "--out", str(tmp_path / "out"), "--steps", "1"]
    return lambda *words: main(["play", str(game), *common, *map(str, words)])


def story_in(tmp_path):
    return Story.read(tmp_path / "out", "game")


def test_play_begins_with_a_part_of_a_film(play, film, tmp_path, capsys):
    assert play("--opening", film, "--opening-at", 1.5, "--opening-text", "Miko waves", "--show-opening") == 0
    story = story_in(tmp_path)
    session = story.session(2, 4)
    assert session.picture.instruction == "Miko waves"
    assert numbers_of(read_clip(story.opening_clip(session)).frames) == list(range(12, 29))
    assert len(read_clip(story.folder / "story.mp4").frames) == 3 * DECODER.frames
    assert "turn 1/2" in capsys.readouterr().out


def test_play_begins_with_a_picture_and_goes_on_without_it(play, tmp_path, monkeypatch):
    Image.fromarray(greys(4)[3]).save(tmp_path / "own.png")
    assert play("--opening", tmp_path / "own.png") == 0
    story = story_in(tmp_path)
    session = story.session(2, 4)
    assert session.picture.instruction == "stands still"
    assert numbers_of(read_clip(story.opening_clip(session)).frames) == [3] * 17
    monkeypatch.setattr("animegamer_core.weights.World.load_encoder", lambda *_: pytest.fail("was encoded again"))
    before = content(story.folder)
    assert play() == 0, "the same game again keeps its opening"
    assert content(story.folder) == before


def test_another_opening_is_refused_unless_the_game_begins_again(play, film, tmp_path, capsys):
    assert play("--opening", film) == 0
    before = content(story_in(tmp_path).folder)
    for words in ((), ("--resume",), ("--branch", 1)):
        assert play("--opening", film, "--opening-at", 3, *words) == 2
        assert "started with another opening; continue without an opening" in capsys.readouterr().err
    assert content(story_in(tmp_path).folder) == before
    assert play("--opening", film, "--opening-at", 3, "--branch", 0) == 0
    assert story_in(tmp_path).branches() == ["main", "branch-2"]
