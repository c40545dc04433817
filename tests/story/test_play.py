import io
import json
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from animegamer_core.__main__ import main
from animegamer_core.cli.play import plan
from animegamer_core.game.state import MOTION_TABLES
from animegamer_core.media.contact_sheet import contact_sheet
from animegamer_core.media.video import read_clip, to_uint8, write_clip
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.spec import SPECS
from animegamer_core.story.player import SEEDS, Player, PlaySettings, export
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


def test_a_game_writes_a_clip_per_turn_the_story_and_a_sheet_of_the_last(world, tmp_path, monkeypatch):
    monkeypatch.setattr("animegamer_core.story.player.SHEET_TURNS", 2)
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
    last = contact_sheet(player.session.turns[-2:], [read_clip(file).frames for file in files[1:3]], "game")
    assert Image.open(files[4]).tobytes() == last.tobytes()


def test_the_clip_is_the_shot_of_the_predicted_state(world, tmp_path):
    player = played(world, tmp_path, GAME[:2], seed=SEEDS - 1, steps=3, solver="ddim")
    turn = player.session.turns[0]
    drawn = {"seed": SEEDS - 1, "steps": 3, "solver": "ddim"}
    frames = player.models.decoder().shoot(turn.state.representation, TABLE.value(turn.state.motion), **drawn)
    write_clip(tmp_path / "wanted.mp4", to_uint8(frames), 8)
    assert (read_clip(player.story.clips()[1]).frames == read_clip(tmp_path / "wanted.mp4").frames).all()
    assert player.models.engine().predict((), GAME[0]).change == turn.state.change
    assert player.story.entries[1].seed == 0, "after the last one comes the first"


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


@pytest.mark.parametrize("setting", [{"motion": {2: 0.0}}, {"seed": 5}, {"steps": 2}, {"guidance": "constant"}])
def test_settings_of_a_shot_change_the_shot_and_not_the_history(world, tmp_path, unloadable, setting):
    plain = played(world, tmp_path, GAME[:2]).story
    clip = plain.clips()[2].read_bytes()
    unloadable("load_engine")
    drawn, other = [], opened(world, tmp_path)
    Player(world, other, PlaySettings(**setting)).play(GAME[:2], drawn.append)
    assert [entry.state for entry in other.entries] == [entry.state for entry in plain.entries]
    redrawn = [one.shot != two.shot for one, two in zip(plain.entries, other.entries, strict=True)]
    assert redrawn == ["motion" not in setting, True] and other.clips()[2].read_bytes() != clip
    assert "motion" not in setting or drawn[1].motion == TABLE.values[0] / 2, "below it, shots move more again"
    assert [turn.drawn for turn in drawn] == redrawn and not any(turn.predicted for turn in drawn)


# How a game ends


def test_a_partly_played_game_ends_there(world, tmp_path):
    player = played(world, tmp_path, GAME[:3])
    files = export(player.story, player.session.rewind(2))
    assert [path.stem for path in files] == ["turn-001", "turn-002", "story", "contact-sheet"]
    assert len(read_clip(files[2]).frames) == 2 * world.spec.decoder.frames
    whole = player.story.entries
    player.rewind(2)
    assert opened(world, tmp_path).entries == whole[:2], "going back is saved at once"
    again = played(world, tmp_path, GAME[:1])
    assert [path.stem for path in again.finish()] == ["turn-001", "story", "contact-sheet"]
    story = opened(world, tmp_path)
    assert story.entries == whole[:1]
    story.use("main")
    assert story.entries == whole


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
    chosen = ("--motion", "1=0px", "--motion", "2=wild", "--motion", "3=1.5px")
    assert run_play(world, tmp_path, game, *chosen) == 0
    out, err = capsys.readouterr()
    listed = [Path(line) for line in out.splitlines()[-5:]]
    assert all(path.is_file() for path in listed) and listed[-1].name == "contact-sheet.png"
    assert "turn 3/3" in out and "(40 px)" in out and "(1.5 px)" in out and err == ""
    assert f"({TABLE.values[0] / 2} px)" in out, "0 would mean no value, which moves more"
    (tmp_path / "other.txt").write_text(GAME[3])
    assert run_play(world, tmp_path, tmp_path / "other.txt", "--name", "game", "--branch", 1) == 0
    assert "turn 2/2" in capsys.readouterr().out
    assert instructions_of(opened(world, tmp_path / "out")) == [GAME[0], GAME[3]]


def test_typed_games(world, tmp_path, capsys, monkeypatch):
    typed(monkeypatch, "# begin", GAME[0], "", GAME[1], "@undo", "@Undo 1", "Yuzu sleeps", "quit", GAME[2])
    assert run_play(world, tmp_path) == 0
    out, err = capsys.readouterr()
    assert instructions_of(opened(world, tmp_path / "out", "story")) == [GAME[0], "Yuzu sleeps"]
    assert "not known here: 'sleeps'" in out and "turn-002.mp4" in out
    assert "unknown command @Undo 1; use @undo or @quit" in err
    before = content(tmp_path / "out" / "story")
    typed(monkeypatch, GAME[1])
    assert run_play(world, tmp_path) == 2 and "has 2 turns; add --resume" in capsys.readouterr().err
    assert content(tmp_path / "out" / "story") == before, "typing replaces no game"


def test_a_typed_line_that_cannot_be_read_ends_no_game(world, tmp_path, capsys, monkeypatch):
    lines = [GAME[0], "far too long " * 3000, "run a " * 600, "@auto " + "9" * 5000, GAME[1]]
    typed(monkeypatch, *lines, "Yuzu sleeps")
    assert run_play(world, tmp_path) == 0
    assert instructions_of(opened(world, tmp_path / "out", "story")) == [GAME[0], GAME[1], "Yuzu sleeps"]
    err = capsys.readouterr().err
    assert "38999 letters; shorten it" in err and "1200 tokens; shorten it" in err and "how many turns?" in err


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
    assert not (tmp_path / "out" / "game").exists(), "a mistake leaves nothing behind"


def test_a_line_that_cannot_be_read_is_named(world, tmp_path, capsys):
    (tmp_path / "game.txt").write_text("\n".join(["# a game", GAME[0], "", "run a " * 600]))
    assert run_play(world, tmp_path, tmp_path / "game.txt") == 2
    assert "game.txt, line 4: the instruction 'run a" in capsys.readouterr().err


def test_what_is_played_next(world, tmp_path):
    story = played(world, tmp_path, GAME[:2]).story
    assert plan(story, GAME, resume=False, branch=None) == (0, GAME)
    assert plan(story, GAME, resume=True, branch=None) == (2, GAME[2:])
    assert plan(story, GAME[:2], resume=True, branch=None) == (2, ())
    assert plan(story, GAME[2:], resume=True, branch=None) == (2, GAME[2:])
    assert plan(story, GAME[2:], resume=False, branch=1) == (1, GAME[2:])
    assert plan(story, GAME, resume=False, branch=1) == (1, GAME[1:])


def test_ctrl_c_loses_no_turn_and_the_same_command_goes_on(world, tmp_path, game, monkeypatch):
    sample, drawn = ShotDecoder.sample, []

    def interrupted(decoder, *given, **options):
        if len(drawn) == 2:
            raise KeyboardInterrupt
        drawn.append(sample(decoder, *given, **options))
        return drawn[-1]

    with monkeypatch.context() as patch:
        patch.setattr(ShotDecoder, "sample", interrupted)
        assert run_play(world, tmp_path, game) == 130
    assert len(opened(world, tmp_path / "out").entries) == 2 and run_play(world, tmp_path, game, "--resume") == 0
    assert run_play(world, tmp_path / "whole", game) == 0
    assert content(tmp_path / "out" / "game") == content(tmp_path / "whole" / "out" / "game")
