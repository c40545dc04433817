import io
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from animegamer_core.__main__ import main
from animegamer_core.cli.play import parse_motion, plan
from animegamer_core.game.state import MOTION_TABLES
from animegamer_core.media import contact_sheet as sheet
from animegamer_core.media.video import read_clip, to_uint8, write_clip
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.sampler import TRAIN_STEPS
from animegamer_core.runtime.cfg_parallel import replicas
from animegamer_core.runtime.models import LoadedModels
from animegamer_core.spec import SPECS
from animegamer_core.story import player as player_module
from animegamer_core.story.player import Player, PlaySettings, export
from animegamer_core.story.story import Story
from animegamer_core.weights import World

GAME = (
    "Character: Miko; Motion: gently run; Background: day beach.",
    "Character: Miko, Taro; Motion: wildly dance; Background: night forest.",
    "Character: Yuzu; Motion: softly sleep; Background: night street.",
    "Character: Yuzu; Motion: quickly climb a ladder; Background: day castle.",
)
ROOT = Path(__file__).parents[2]
TABLE = MOTION_TABLES["released"]


@pytest.fixture
def unloadable(monkeypatch):
    """A function after which models cannot be loaded, so all turns must be known."""

    def forbid(name):
        def load(*_):
            raise AssertionError(f"{name} was loaded for a known turn")

        monkeypatch.setattr(World, name, load)

    return lambda *names: [forbid(name) for name in names]


def opened(world, root, name="game"):
    return Story.open(root, name, world.spec.name, world.fingerprint)


def played(world, root, instructions, after=0, **settings):
    player = Player(world, opened(world, root), PlaySettings(**settings), after)
    player.play(instructions)
    return player


def content(folder):
    """Everything that a finished story holds."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("part-"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_game_writes_a_clip_per_turn_the_story_and_a_sheet(world, tmp_path):
    player = played(world, tmp_path, GAME[:3])
    files = player.finish()
    names = ["turn-001.mp4", "turn-002.mp4", "turn-003.mp4", "story.mp4", "contact-sheet.png"]
    assert [path.name for path in files] == names and all(path.stat().st_size for path in files)
    decoder = SPECS["tiny"].decoder
    clip = read_clip(files[0])
    assert clip.frames.shape == (decoder.frames, decoder.height, decoder.width, 3) and clip.fps == decoder.fps
    assert len(read_clip(files[3]).frames) == 3 * decoder.frames
    note = json.loads(clip.metadata["animegamer"])
    assert (note["turn"], note["instruction"], note["seed"]) == (1, GAME[0], 0)


def test_the_clip_is_the_shot_of_the_predicted_state(world, tmp_path):
    player = played(world, tmp_path, GAME[:1], seed=9)
    turn = player.session.turns[0]
    frames = player.models.decoder().shoot(turn.state.representation, TABLE.value(turn.state.motion), seed=9)
    write_clip(tmp_path / "wanted.mp4", to_uint8(frames), 8)
    assert (read_clip(player.story.clips()[1]).frames == read_clip(tmp_path / "wanted.mp4").frames).all()
    assert player.models.engine().predict((), GAME[0]).change == turn.state.change


def test_a_resumed_game_equals_an_uninterrupted_one(world, tmp_path):
    whole = played(world, tmp_path / "whole", GAME)
    played(world, tmp_path / "parts", GAME[:2])
    parts = played(world, tmp_path / "parts", GAME[2:], after=2)
    assert content(parts.story.folder) == content(whole.story.folder)
    for one, other in zip(whole.session.turns[2:], parts.session.turns[2:], strict=True):
        assert torch.equal(one.state.representation, other.state.representation)


def test_the_window_decides_which_turns_are_used(world, tmp_path):
    stories = {window: played(world, tmp_path / str(window), GAME[:3], window=window) for window in (0, 2, 9)}
    last = {window: player.session.turns[-1].state.representation for window, player in stories.items()}
    fresh = stories[0].models.engine().predict((), GAME[2]).representation
    assert torch.equal(last[0], fresh) and not torch.equal(last[2], fresh)
    assert torch.equal(last[2], last[9])  # three turns have but two before them
    addresses = {window: player.story.entries[-1].state for window, player in stories.items()}
    assert len(set(addresses.values())) == 3


@pytest.mark.parametrize(
    "setting, redrawn",
    [
        ({"motion": {2: 33.0}}, [False, True]),
        ({"seed": 5}, [True, True]),
        ({"steps": 2}, [True, True]),
        ({"guidance": "constant"}, [True, True]),
    ],
)
def test_settings_of_a_shot_change_the_shot_and_not_the_history(world, tmp_path, unloadable, setting, redrawn):
    plain = played(world, tmp_path, GAME[:2]).story
    clip = plain.clips()[2].read_bytes()
    unloadable("load_engine")
    other = played(world, tmp_path, GAME[:2], **setting).story
    assert [entry.state for entry in other.entries] == [entry.state for entry in plain.entries]
    assert [one.shot != two.shot for one, two in zip(plain.entries, other.entries, strict=True)] == redrawn
    assert other.clips()[2].read_bytes() != clip


def test_old_representations_are_loaded_for_a_wide_window(world, tmp_path):
    lines = [f"{GAME[number % 4]}" for number in range(6)]
    player = Player(world, opened(world, tmp_path), PlaySettings(window=5))
    for line in lines[:5]:
        player.step(line, draw=False)
    later = Player(world, opened(world, tmp_path), PlaySettings(window=5), after=5)
    assert all(turn.state.representation is None for turn in later.session.past())
    state = later.step(lines[5], draw=False).turn.state
    wanted = player.models.engine().predict(player.session.past(), lines[5])
    assert torch.equal(state.representation, wanted.representation)


def test_progress_is_reported_step_by_step(world, tmp_path):
    seen, turns = [], []
    player = Player(world, opened(world, tmp_path), PlaySettings(steps=3, motion={1: 0.0}))
    player.play(GAME[:2], turns.append, lambda done, steps, latent: seen.append((done, steps)))
    assert seen == [(1, 3), (2, 3), (3, 3)] * 2
    assert [(one.turn.number, one.predicted, one.drawn) for one in turns] == [(1, True, True), (2, True, True)]
    assert turns[0].motion == 0.0 < turns[1].motion, "a motion value of zero is an override"


@pytest.mark.parametrize("settings", [{"steps": 0}, {"steps": TRAIN_STEPS + 1}, {"seed": -1}, {"seed": 1 << 64}])
@pytest.mark.parametrize("motion", [{}, {0: 1.0}, {1: -1.0}, {1: math.nan}])
def test_invalid_settings_are_refused(settings, motion):
    with pytest.raises(ValueError, match="steps is 0|steps is 1001; .* 1000 at most|seed is"):
        PlaySettings(**settings, motion=motion)
    assert PlaySettings(steps=TRAIN_STEPS).steps == TRAIN_STEPS
    if motion:
        with pytest.raises(ValueError, match="turns count from 1"):
            PlaySettings(motion=motion)


@pytest.mark.parametrize("place", [0, 2])
def test_an_empty_instruction_stops_the_game_there(world, tmp_path, place):
    with pytest.raises(ValueError, match="the instruction is empty"):
        played(world, tmp_path, [*GAME[:place], " \n", *GAME[place:]])
    assert (tmp_path / "game").exists() == bool(place) and len(opened(world, tmp_path).entries) == place


@pytest.mark.parametrize(
    "engine, decoder, apart, precision",
    [
        (None, "cpu", False, "float32"),
        ("cpu", "cuda", True, "float32+stored"),
        ("cuda:0", "cuda", False, "stored"),
        ("cuda:1", "cuda", True, "stored"),
    ],
)
def test_an_engine_on_a_device_of_its_own(engine, decoder, apart, precision):
    settings = PlaySettings(device=decoder, engine_device=engine)
    assert (settings.engine_is_apart, settings.precision) == (apart, precision)


def test_how_shots_are_drawn_is_in_the_address_of_shots_only(world, tmp_path):
    plain = played(world, tmp_path, GAME[:1]).story.entries[0]
    player = played(world, tmp_path, GAME[:1], precision_suffix="+first_block")
    entry = player.story.entries[0]
    assert entry.state == plain.state and entry.shot != plain.shot
    assert player.story.shots.record(entry.shot)["key"]["precision"] == "float32+first_block"


def test_a_second_device_gives_the_decoder_a_copy(world):
    assert len(replicas(LoadedModels(world, PlaySettings(cfg_parallel="cpu")).decoder())) == 2
    assert len(replicas(LoadedModels(world, PlaySettings()).decoder())) == 1


# How a game ends


def test_a_partly_played_game_ends_there(world, tmp_path):
    player = played(world, tmp_path, GAME[:3])
    files = export(player.story, player.session.rewind(2))
    assert [path.stem for path in files] == ["turn-001", "turn-002", "story", "contact-sheet"]
    assert len(read_clip(files[2]).frames) == 2 * world.spec.decoder.frames
    whole, again = player.story.entries, played(world, tmp_path, GAME[:1])
    assert [path.stem for path in again.finish()] == ["turn-001", "story", "contact-sheet"]
    story = opened(world, tmp_path)
    assert story.entries == whole[:1]
    story.use("main")
    assert story.entries == whole


def test_a_contact_sheet_shows_the_last_turns(world, tmp_path, monkeypatch):
    shown, real = [], sheet.contact_sheet

    def watched(turns, *others):
        shown.extend(turn.number for turn in turns)
        return real(turns, *others)

    monkeypatch.setattr(sheet, "contact_sheet", watched)
    monkeypatch.setattr(player_module, "SHEET_TURNS", 2)
    played(world, tmp_path, GAME[:3]).finish()
    assert shown == [2, 3]


# The command


@pytest.fixture
def game(tmp_path):
    path = tmp_path / "game.txt"
    path.write_text("# a comment\n" + "\n\n".join(GAME[:3]) + "\n")
    return path


def run_play(world, tmp_path, *words):
    return main(["play", *map(str, words), "--world", str(world.folder), "--out", str(tmp_path / "out")])


def typed(monkeypatch, *lines):
    """Lines on standard input."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def instructions_of(story):
    return [turn.instruction for turn in story.session(len(story.entries), 4).turns]


def test_play_lists_its_files_and_branches(world, tmp_path, game, capsys):
    assert run_play(world, tmp_path, game, "--motion", "2=wild", "--motion", "3=1.5px") == 0
    out, err = capsys.readouterr()
    listed = [Path(line) for line in out.splitlines()[-5:]]
    assert all(path.is_file() for path in listed) and listed[-1].name == "contact-sheet.png"
    assert "turn 3/3" in out and "(40 px)" in out and "(1.5 px)" in out and err == ""
    (tmp_path / "other.txt").write_text(GAME[3])
    assert run_play(world, tmp_path, tmp_path / "other.txt", "--name", "game", "--branch", 1) == 0
    assert "turn 2/2" in capsys.readouterr().out
    assert instructions_of(opened(world, tmp_path / "out")) == [GAME[0], GAME[3]]


def test_a_story_in_use_is_refused(world, tmp_path, game, capsys):
    with opened(world, tmp_path / "out").lock():
        assert run_play(world, tmp_path, game) == 2
    assert "story 'game' is being played elsewhere" in capsys.readouterr().err
    assert run_play(world, tmp_path, game) == 0


def test_typed_games(world, tmp_path, capsys, monkeypatch):
    typed(monkeypatch, "# begin", GAME[0], "", GAME[1], "@undo", "@Undo 1", "Yuzu sleeps", "quit", GAME[2])
    assert run_play(world, tmp_path) == 0
    out, err = capsys.readouterr()
    assert instructions_of(opened(world, tmp_path / "out", "story")) == [GAME[0], "Yuzu sleeps"]
    assert "was not trained with these words: sleeps" in err and "turn-002.mp4" in out
    assert "unknown command @Undo 1; use @undo or @quit" in err
    before = content(tmp_path / "out" / "story")
    typed(monkeypatch, GAME[1])
    assert run_play(world, tmp_path) == 2
    assert "has 2 turns; add --resume" in capsys.readouterr().err
    assert content(tmp_path / "out" / "story") == before, "typing replaces no game"


def test_a_typed_line_that_cannot_be_read_ends_no_game(world, tmp_path, capsys, monkeypatch):
    lines = [GAME[0], "far too long " * 3000, "run a " * 600, "@auto " + "9" * 5000, GAME[1]]
    data = "\n".join(lines).encode() + b"\nMiko \xff\xfe runs\nYuzu sleeps\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
    assert run_play(world, tmp_path) == 0
    assert instructions_of(opened(world, tmp_path / "out", "story")) == [GAME[0], GAME[1], "Yuzu sleeps"]
    err = capsys.readouterr().err
    assert "38999 letters; shorten it" in err and "1200 tokens; shorten it" in err and "how many turns?" in err
    assert "has bytes that are not UTF-8; type it again" in err


def test_out_of_memory_is_one_sentence(world, tmp_path, game, capsys, monkeypatch):
    def shoot(*given, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nGPU 0 has ...")

    monkeypatch.setattr(ShotDecoder, "shoot", shoot)
    assert run_play(world, tmp_path, game) == 2
    err = capsys.readouterr().err
    assert "cpu is out of memory" in err and "--preset low_vram" in err and len(err.strip().splitlines()) == 1


def test_a_game_can_go_on_after_all_turns_were_taken_back(world, tmp_path, monkeypatch):
    typed(monkeypatch, *GAME[:2], "@undo", "@undo", "quit")
    assert run_play(world, tmp_path) == 0
    typed(monkeypatch, GAME[2])
    assert run_play(world, tmp_path, "--resume") == 0
    story = opened(world, tmp_path / "out", "story")
    assert instructions_of(story) == [GAME[2]]
    story.use("main")
    assert len(story.entries) == 2


@pytest.mark.parametrize(
    "first, way_on", [([], "the same command and --resume"), (["--branch", 1], "--resume instead of --branch")]
)
def test_an_interrupted_typed_game_says_how_to_go_on(world, tmp_path, capsys, monkeypatch, first, way_on):
    class Typing(io.StringIO):
        def readline(self):
            if not (line := super().readline()):
                raise KeyboardInterrupt
            return line

    typed(monkeypatch, GAME[0])
    if first:
        assert run_play(world, tmp_path) == 0
    monkeypatch.setattr(sys, "stdin", Typing(f"{GAME[1]}\n"))
    assert run_play(world, tmp_path, *first) == 130
    assert f"Continue with {way_on}." in capsys.readouterr().err
    typed(monkeypatch, GAME[2])
    assert run_play(world, tmp_path, "--resume") == 0
    wanted = [*[GAME[0]] * bool(first), GAME[1], GAME[2]]
    assert instructions_of(opened(world, tmp_path / "out", "story")) == wanted


@pytest.mark.parametrize(
    "words, named",
    [
        (["--world", "nowhere"], "nowhere"),
        (["missing.txt"], "missing.txt"),
        (["--name", "../up"], "story name"),
        (["--motion", "3=quick"], "--motion 3=quick"),
        (["--branch", "7"], "no story 'game'"),
        (["--resume"], "no story 'game'"),
        (["--window", "-1"], "window is -1"),
        (["--device", "cpu:here"], "device 'cpu:here' is not available"),
        (["--device", "cuda:77" if not torch.cuda.is_available() else "abacus"], "device"),
    ],
)
def test_mistakes_get_one_sentence(world, tmp_path, game, capsys, words, named):
    given = words if words[0].endswith(".txt") else [game, *words]
    assert main(["play", "--world", str(world.folder), "--out", str(tmp_path / "out"), *map(str, given)]) == 2
    out, err = capsys.readouterr()
    assert named in err and len(err.strip().splitlines()) == 1 and out == ""
    assert not list((tmp_path / "out").glob("*/*")), "a mistake leaves nothing behind"


@pytest.mark.parametrize("text, value", [("3=fast", 15.0), ("3=4", 15.0), ("3=2.5px", 2.5), ("3=STILL", 0.5)])
def test_motion_of_a_turn(text, value):
    assert parse_motion(text, TABLE) == (3, value)


@pytest.mark.parametrize("text", ["fast", "3=", "x=fast", "3=9", "3=px", "=fast"])
def test_unreadable_motion(text):
    with pytest.raises(ValueError, match="expected TURN=SCOPE"):
        parse_motion(text, TABLE)


def test_what_is_played_next(world, tmp_path):
    story = played(world, tmp_path, GAME[:2]).story
    assert plan(story, GAME, resume=False, branch=None) == (0, GAME)
    assert plan(story, GAME, resume=True, branch=None) == (2, GAME[2:])
    assert plan(story, GAME[:2], resume=True, branch=None) == (2, ())
    assert plan(story, GAME[2:], resume=True, branch=None) == (2, GAME[2:])
    assert plan(story, GAME[2:], resume=False, branch=1) == (1, GAME[2:])
    assert plan(story, GAME, resume=False, branch=1) == (1, GAME[1:])


def test_the_largest_seed_plays(world, tmp_path):
    played(world, tmp_path, GAME[:2], seed=(1 << 64) - 1)
    assert [entry.seed for entry in opened(world, tmp_path).entries] == [(1 << 64) - 1, 0]


def streams(monkeypatch, stdout):
    """Standard output to here, and what is printed as errors; pytest's own streams count as broken."""
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", errors)
    return errors


@pytest.mark.skipif(os.name == "nt", reason="pipes of a shell")
def test_a_broken_pipe_is_not_an_error(world, tmp_path, game, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "animegamer_core", "play", game, "--out", tmp_path, "--world", world.folder]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONUNBUFFERED", None)
    done = subprocess.run(command, env=environment, stdout=writer, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b""), "nor when Python flushes at exit"
    assert len(Story.read(tmp_path, "game").entries) == 1, "the turn that could not be printed is saved"
    errors = streams(monkeypatch, open(writer, "w", 1))
    sys.stdout.reconfigure(write_through=True)  # as under `python -u`
    assert (run_play(world, tmp_path, game), errors.getvalue()) == (1, "")


# An interrupt

LONG_GAME = "\n".join(GAME * 4)


def start_play(world, out, game, *words):
    command = [sys.executable, "-m", "animegamer_core", "play", game, "--world", world.folder, "--out", out, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        list(map(str, command)),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores Ctrl-C
    )


def new_turn(line):
    """The number of the new turn in a line of output, or 0."""
    return int(line.split("turn-")[1][:3]) if ".mp4 (" in line and "(known)" not in line else 0


def kill_within(process, turns, how=signal.SIGKILL):
    """End a play at a random moment within so many new turns; returns the last turn that it reported."""
    reported, moments = 0, []
    for _ in range(random.randint(1, turns)):
        reported = next(filter(None, map(new_turn, process.stdout)), 0)
        assert reported, "the game ended before it could be killed"
        moments.append(time.monotonic())
    turn = moments[-1] - moments[-2] if len(moments) > 1 else 0.1  # the first turn's time includes the start
    time.sleep(random.random() * min(turn, 0.3))
    process.send_signal(how)
    reported = max([reported, *map(new_turn, process.stdout)])
    process.wait()
    process.stdout.close()
    return reported


@pytest.fixture(scope="module")
def unbroken(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    (folder / "game.txt").write_text(LONG_GAME)
    assert run_play(world, folder, folder / "game.txt") == 0
    return content(folder / "out" / "game")


def test_ctrl_c_ends_cleanly(world, tmp_path, unbroken):
    game = tmp_path / "game.txt"
    game.write_text(LONG_GAME)
    process = start_play(world, tmp_path / "out", game)
    reported = kill_within(process, 6, signal.SIGINT)
    assert process.returncode == 130
    assert reported <= len(opened(world, tmp_path / "out").entries) <= reported + 1
    assert run_play(world, tmp_path, game, "--resume") == 0
    assert content(tmp_path / "out" / "game") == unbroken
