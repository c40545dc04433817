"""A story as a film: what is seen, heard and read in it, and what happens when it cannot be written."""

import shutil
import wave

import av
import numpy as np
import pytest
from PIL import Image

from animegamer_core.__main__ import main
from animegamer_core.cli import export
from animegamer_core.data.interpolation import at_rate
from animegamer_core.media import fonts
from animegamer_core.media.film_writer import Caption, FilmFacts, write_film
from animegamer_core.media.soundtrack import RATE, Soundtrack
from animegamer_core.media.video import read_clip
from animegamer_core.story.film import FilmOptions, export_film
from animegamer_core.story.manage import rename_story
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
    film = export_film(story, tmp_path / "film.mp4", FilmOptions())
    shots = np.concatenate([read_clip(story.shots.path(entry.shot)).frames for entry in story.entries])
    frames = read(film.files[0])
    assert film.files == (tmp_path / "film.mp4",) and film.size == frames.shape[2:0:-1]
    assert frames.shape == shots.shape and np.abs(frames.astype(int) - shots).mean() < 4
    assert film.seconds == len(frames) / film.fps and not film.notes


def test_soft_subtitles_are_in_the_film_and_beside_it(story, tmp_path):
    film = export_film(story, tmp_path / "film.mp4", FilmOptions("soft", title="A tale"))
    with av.open(str(film.files[0])) as container:
        track = container.streams.subtitles[0]
        assert track.codec_context.name == "mov_text"
        inside = [(packet.pts, bytes(packet)[2:].decode()) for packet in container.demux(track) if packet.size > 2]
    assert [text for _, text in inside] == [
        "1. Miko \u00b7 gently run \u00b7 day beach",
        *map(". ".join, zip("23", GAME[1:], strict=True)),
    ]
    starts = [20 / 8, (20 + SHOT) / 8, (20 + 2 * SHOT) / 8]
    assert [time * track.time_base for time, _ in inside] == pytest.approx(starts, abs=0.01)
    srt = film.files[1].read_text(encoding="utf-8")
    assert srt.startswith("1\n00:00:02,500 --> 00:00:04,625\n1. Miko") and srt.endswith(f"3. {GAME[2]}\n")


@pytest.mark.parametrize("title", ["\ud800A\x1b[31m\n\x00 <tale>", "tale " * 30_000, "\x00", "\u202e\ufeff"])
def test_a_title_is_text_and_nothing_else(story, tmp_path, title):
    film = export_film(story, tmp_path / "film.mp4", FilmOptions("soft", title=title), 1)
    with av.open(str(film.files[0])) as file:
        kept = file.metadata["title"]
    assert kept.isprintable() and not set("<>") & set(kept)
    assert (film.seconds > 3) == bool(kept != "tale"), "no card without a text"


def shown_subtitles(path):
    """The texts as a player gets them, with the styles that ffmpeg found in them."""
    with av.open(str(path)) as file:
        packets = file.demux(file.streams.subtitles[0])
        return [sub.ass.decode().split(",", 8)[8] for packet in packets for sub in packet.decode()]


def test_text_of_a_caption_is_no_style_of_the_subtitles(tmp_path):
    captions = [Caption(0, 1, "{\\an8}{\\b1}up"), Caption(1, 2, "<b>down</b> {y:i}")]
    frames = [np.zeros((32, 32, 3), np.uint8)] * 16
    for path in write_film(tmp_path / "film.mp4", frames, FilmFacts(8, 2, "styles", captions)):
        texts = shown_subtitles(path)
        assert len(texts) == 2 and not any(sign in text for text in texts for sign in "{}<>"), path.suffix
        assert "an8" in texts[0] and "y:i" in texts[1], path.suffix


def test_subtitles_of_an_older_film_do_not_stay_beside_one_without(story, tmp_path):
    film, subtitles = export_film(story, tmp_path / "film.mp4", FilmOptions("soft"), 1).files
    export_film(story, tmp_path / "film.gif", FilmOptions(), 1)
    assert subtitles.exists(), "they are the mp4's"
    export_film(story, film, FilmOptions(), 1)
    assert not subtitles.exists()
    subtitles.write_text("somebody's own")
    export_film(story, film, FilmOptions(), 1)
    assert subtitles.exists()


def test_text_is_drawn_where_it_belongs_and_the_picture_is_enlarged_for_it(story, tmp_path):
    plain = read(export_film(story, tmp_path / "plain.mp4", FilmOptions(scale=8)).files[0]).astype(int)
    text = FilmOptions("burned", stats=True, scale=8)
    drawn = read(export_film(story, tmp_path / "text.mp4", text).files[0]).astype(int)
    change = np.abs(drawn - plain).mean((0, 3))
    height = len(change)
    assert change[-height // 5 :].mean() > 5, "the caption"
    assert change[: height // 3, : height // 2].mean() > 20, "the stats"
    assert change[height // 2 : height * 3 // 4].mean() < 2, "nothing else"
    assert export_film(story, tmp_path / "auto.mp4", FilmOptions(stats=True)).size[1] >= 256


def test_a_title_card_comes_first(story, tmp_path):
    film = export_film(story, tmp_path / "film.mp4", FilmOptions(title="A tale", scale=4))
    frames = read(film.files[0])
    assert len(frames) == 20 + 3 * SHOT and (np.abs(frames[0].astype(int) - frames[15]) < 12).all()
    assert frames[5].mean() < 0.7 * frames[20].mean()


def test_letters_that_no_font_has_are_named(story, tmp_path, monkeypatch):
    for cached in (fonts._font_for, fonts._wide_fonts):
        cached.cache_clear()
    monkeypatch.setattr(fonts, "_WIDE_FONTS", ())
    film = export_film(story, tmp_path / "film.mp4", FilmOptions("burned"))
    assert any("no font" in note for note in film.notes)
    assert not export_film(story, tmp_path / "soft.mp4", FilmOptions("soft")).notes
    for cached in (fonts._font_for, fonts._wide_fonts):
        cached.cache_clear()


@pytest.mark.parametrize("kind", ["gif", "webp"])
def test_pictures_that_move_without_a_player(story, tmp_path, kind):
    film = export_film(story, tmp_path / f"film.{kind}", FilmOptions("burned"))
    with Image.open(film.files[0]) as picture:
        assert (picture.n_frames, picture.size, picture.info["loop"]) == (3 * SHOT, film.size, 0)
        picture.seek(SHOT + 3)
        shown = np.asarray(picture.convert("RGB")).astype(int)
    wanted = read(export_film(story, tmp_path / "film.mp4", FilmOptions("burned")).files[0])[SHOT + 3]
    assert np.abs(shown - wanted).mean() < 12


def test_a_branch_and_its_first_turns(story, tmp_path):
    other = Story.read(story.folder.parent, "tale")
    other.use("line-2")
    first, second = (export_film(s, tmp_path / f"{s.branch}.mp4", FilmOptions(), 2).files[0] for s in (story, other))
    assert read(first).shape == read(second).shape and np.abs(read(first).astype(int) - read(second)).mean() > 1


def test_another_rate_keeps_the_length_and_lies_between_the_pictures():
    ground = np.random.default_rng(0).normal(128, 60, (160, 240)).clip(0, 255).astype(np.uint8)
    ground = np.array(Image.fromarray(ground).resize((480, 320)).convert("RGB"))
    shot = [ground[80:208, 60 + 6 * frame : 252 + 6 * frame] for frame in range(5)]
    frames = list(at_rate(shot, 8, 24))
    assert len(frames) == 15 and all((frames[3 * index] == shot[index]).all() for index in range(5))
    assert (frames[13] == shot[4]).all() and (frames[14] == shot[4]).all()
    for index in range(12):
        wanted = ground[80:208, 60 + 2 * index : 252 + 2 * index].astype(int)
        mixed = ((3 - index % 3) * shot[index // 3].astype(int) + index % 3 * shot[index // 3 + 1]) / 3
        inside = slice(16, -16)
        error, of_mix = (np.abs(picture - wanted)[:, inside].mean() for picture in (frames[index], mixed))
        assert error < 6 and (index % 3 == 0 or of_mix > 3 * error), "moved, not mixed"
    assert [*at_rate(shot, 8, 4)][1] is shot[2]


def test_a_film_of_another_rate(story, tmp_path):
    film = export_film(story, tmp_path / "film.mp4", FilmOptions(fps=24))
    assert len(read(film.files[0])) == 3 * 3 * SHOT and film.seconds == 3 * SHOT / 8


@pytest.mark.parametrize("seconds, says", [(2.0, "of 2.0 s repeated up to 6.4 s"), (9.0, "cut from 9.0 to 6.4 s")])
def test_sound_fills_the_film_and_fades_out(story, tmp_path, seconds, says):
    film = export_film(story, tmp_path / "film.mp4", FilmOptions(sound=Soundtrack(tone(seconds), 8000)))
    heard = sound_of(film.files[0])
    assert film.notes == (f"sound {says}, fading out over the last 1.5 s",)
    assert heard.shape[1] / RATE == pytest.approx(film.seconds, abs=0.05)
    loud = [np.abs(heard[:, int(at * RATE) : int((at + 0.2) * RATE)]).max() for at in (1, 4.5, 5.5, 6.1)]
    assert loud[0] == pytest.approx(0.5, abs=0.1) == loud[1] and loud[1] > 1.5 * loud[2] > 2 * loud[3]


def test_sound_of_a_file_that_ends_is_followed_by_silence(story, tmp_path):
    spoken = export_film(story, tmp_path / "spoken.mp4", FilmOptions(sound=Soundtrack(tone(2), 8000, False)), 1).files[
        0
    ]
    film = export_film(story, tmp_path / "film.mp4", FilmOptions(sound=Soundtrack(spoken, loop=False, fade=0)))
    heard = sound_of(film.files[0])
    assert "followed by silence" in film.notes[0] and "fading" not in film.notes[0]
    assert np.abs(heard[:, : RATE // 2]).max() > 0.3 and np.abs(heard[:, 3 * RATE :]).max() < 0.01


def test_a_mono_file_is_as_loud_as_it_was(tmp_path):
    samples = tone(1)
    with wave.open(str(tmp_path / "mono.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes((32767 * samples).astype("<i2").tobytes())
    for source in (tmp_path / "mono.wav", samples):
        heard = np.concatenate([*Soundtrack(source, 8000, fade=0).pieces(1)], 1)
        assert heard.shape == (2, RATE) and np.abs(heard).max(1) == pytest.approx([0.5, 0.5], abs=0.01)


def test_an_interrupted_film_leaves_the_older_one(story, tmp_path):
    path = export_film(story, tmp_path / "film.mp4", FilmOptions()).files[0]
    before = path.read_bytes()

    def stop(done, total):
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_film(story, path, FilmOptions(stats=True), on_frame=stop)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_odd_pictures_are_refused(tmp_path):
    with pytest.raises(ValueError, match="33 x 48; both must be even"):
        write_film(tmp_path / "film.mp4", [np.zeros((48, 33, 3), np.uint8)], FilmFacts(8, 1, "odd"))


def test_the_verb_says_what_it_wrote_and_what_is_wrong(root, tmp_path, capsys):
    folder, sound = str(root / "tale"), tmp_path / "sound.mp4"
    assert main(["export", folder, "--branch", "main", "--subtitles", "soft", "--title", "A tale"]) == 0
    written = capsys.readouterr()
    assert written.out.splitlines() == [str(root / "tale" / "films" / name) for name in ("film.mp4", "film.srt")]
    assert "8 frames per second" in written.err
    shutil.copy(root / "tale" / "story.json", sound)
    for words, expected in (
        (["--out", str(tmp_path / "a.avi")], "choose mp4, gif, webp"),
        (["--out", str(tmp_path / "a.gif"), "--subtitles", "soft"], "choose burned ones"),
        (["--out", str(tmp_path / "a.gif"), "--audio", str(sound)], "cannot have sound"),
        (["--out", str(tmp_path / "a.gif"), "--fps", "60"], "expected 1 to 50"),
        (["--audio", str(sound)], "not a readable audio file"),
        (["--audio", str(root / "tale" / "turn-001.mp4")], "contains no sound"),
        (["--branch", "line-9"], "its branches are main, line-2"),
        (["--turns", "9"], "has 3 turns"),
        (["--scale", "9"], "expected 1 to 8"),
        (["--out", str(tmp_path / "part-1-sea.mp4")], "part-1-sea.mp4 would be taken for an unfinished file"),
        *((["--fps", rate], f"fps is {rate}; expected 1 to 120") for rate in ("nan", "inf", "-1", "1e+09")),
    ):
        assert main(["export", folder, "--branch", "main", *words]) == 2
        assert expected in capsys.readouterr().err


def changed(one, other):
    """How much two films differ where the caption is, where the stats are, and in between."""
    change = np.abs(one.astype(int) - other).mean((0, 3))
    height = len(change)
    parts = change[-height // 5 :], change[: height // 3, : height // 2], change[height // 2 : height * 3 // 4]
    return [part.mean() for part in parts]


def test_the_verb_shows_a_branch_with_text_and_sound(root, story, tmp_path, capsys):
    tune = tmp_path / "tune.wav"
    with wave.open(str(tune), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes((32767 * tone(3)).astype("<i2").tobytes())

    def exported(name, *words, branch="line-2"):
        out = tmp_path / name
        look = ["--branch", branch, "--turns", "2", "--scale", "8", "--out", str(out)]
        assert main(["export", str(root / "tale"), *look, *words]) == 0
        said = capsys.readouterr()
        assert said.out == f"{out}\n" and "384 x 256, 8 frames per second, 4.2 s" in said.err
        return out, said.err

    plain, of_main = (read(exported(f"{branch}.mp4", branch=branch)[0]) for branch in ("line-2", "main"))
    assert (of_main == read(export_film(story, tmp_path / "own.mp4", FilmOptions(scale=8), 2).files[0])).all()
    assert np.abs(plain.astype(int) - of_main).mean() > 1
    text = ("--subtitles", "burned", "--stats")
    film, said = exported("film.mp4", *text, "--audio", str(tune), "--once", "--fade", "2")
    assert "of 3.0 s followed by silence up to 4.2 s, fading out over the last 2.0 s" in said
    with av.open(str(film)) as file:
        assert [stream.type for stream in file.streams] == ["video", "audio"]
    frames, heard = read(film), np.abs(sound_of(film))
    assert frames.shape == plain.shape == (2 * SHOT, 256, 384, 3)
    caption, stats, between = changed(frames, plain)
    assert caption > 5 and stats > 20 and between < 2
    loud, faded, silent = (heard[:, int(at * RATE) : int((at + 0.2) * RATE)].max() for at in (1, 2.7, 3.5))
    assert loud == pytest.approx(0.5, abs=0.1) and 0.2 < faded < 0.45 and silent < 0.01
    looped = sound_of(exported("looped.mp4", "--audio", str(tune), "--fade", "0")[0])
    assert np.abs(looped[:, int(3.5 * RATE) :]).max() == pytest.approx(0.5, abs=0.1)
    for name in ("film.gif", "film.webp"):
        with Image.open(exported(name, *text)[0]) as picture:
            assert (picture.n_frames, picture.size) == (2 * SHOT, (384, 256))
            picture.seek(SHOT + 3)
            shown = np.asarray(picture.convert("RGB"))[None]
        caption, stats, between = changed(shown, plain[SHOT + 3 : SHOT + 4])
        assert caption > 5 and stats > 20 and between < 12, name


def test_a_story_in_use_is_not_exported_nor_renamed_in_the_middle(root, monkeypatch, capsys):
    with Story.read(root, "tale").lock():
        assert main(["export", str(root / "tale")]) == 2
    assert "is being played elsewhere" in capsys.readouterr().err

    def rename(*_):
        rename_story(root, "tale", "other")

    monkeypatch.setattr(export._Bar, "show", rename)
    assert main(["export", str(root / "tale")]) == 2
    assert "is being played or exported" in capsys.readouterr().err and (root / "tale").exists()
