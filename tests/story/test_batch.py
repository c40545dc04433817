"""Batches of games: their files, what is checked before the first is played, and the size of the grid's picture."""

import pytest

from animegamer_core.__main__ import main
from animegamer_core.media.video import read_clip
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.runtime.models import LoadedModels
from animegamer_core.story.batch import read_game_files
from animegamer_core.story.story import Story


def test_a_folder_among_the_files_of_games_is_passed_over(tmp_path):
    (tmp_path / "folder.txt").mkdir()
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("Miko runs\n", encoding="utf-8")
    assert [game.name for game in read_game_files([tmp_path])] == ["one", "two"]
    with pytest.raises(ValueError, match="two games are called 'two'"):
        read_game_files([tmp_path, tmp_path / "two.txt"])


def test_games_whose_names_differ_in_case_alone_are_refused(tmp_path):
    """On Windows and macOS both would be played in one story."""
    for name in ("a/Tale", "b/tale"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.txt").write_text("Miko runs\n", encoding="utf-8")
    with pytest.raises(ValueError, match="two games are called 'Tale'"):
        read_game_files([tmp_path / "a", tmp_path / "b"])


@pytest.mark.parametrize("name, says", [("con", "is not a valid folder name"), ("taken", "taken")])
def test_a_game_that_cannot_be_saved_is_refused_before_any_is_played(world, tmp_path, capsys, name, says):
    games, out = tmp_path / "games", tmp_path / "out"
    for path in (games / "a.txt", games / f"{name}.txt", out / "taken" / "notes.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Miko runs\n", encoding="utf-8")
    assert main(["batch", str(games), "--world", str(world.folder), "--out", str(out), "--steps", "1"]) == 2
    assert says in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["taken"]


@pytest.fixture
def batch_of(world, tmp_path, capsys):
    """Run the verb with two takes of two games, of two turns and of one: its status, stdout and stderr."""
    games = tmp_path / "games"
    games.mkdir()
    (games / "one.txt").write_text("Miko runs\nYuzu sleeps\n", encoding="utf-8")
    (games / "two.txt").write_text("# the second\nMiko waves\n", encoding="utf-8")

    def run(out):
        words = ["--takes", "2", "--seed", "5", "--steps", "1", "--world", str(world.folder), "--out", str(out)]
        status = main(["batch", str(games), *words])
        return (status, *capsys.readouterr())

    return run


def shots_in(out):
    return {path.relative_to(out): path.stat().st_mtime_ns for path in out.glob("*/shots/*")}


def test_games_are_played_in_takes_and_again_for_nothing(batch_of, tmp_path, monkeypatch):
    out = tmp_path / "out"
    status, said, drawn = batch_of(out)
    assert status == 0 and (drawn.count("(drawn)"), drawn.count("(known)")) == (6, 0)
    assert said.splitlines() == [
        "game 1/2 one  seed 5  branch main",
        "game 1/2 one  seed 1014  branch branch-2",
        *(str(out / "one" / "films" / name) for name in ("takes.mp4", "takes.png")),
        "game 2/2 two  seed 5  branch main",
        "game 2/2 two  seed 1014  branch branch-2",
        *(str(out / "two" / "films" / name) for name in ("takes.mp4", "takes.png")),
    ]
    for name, turns in (("one", 2), ("two", 1)):
        story = Story.read(out, name)
        assert (story.branches(), story.branch, len(story.entries)) == (["main", "branch-2"], "main", turns)
        assert read_clip(out / name / "films" / "takes.mp4").frames.shape == (turns * 17, 192, 2 * 288, 3)
    before = shots_in(out)
    for models in ("engine", "decoder"):
        monkeypatch.setattr(LoadedModels, models, lambda _: pytest.fail("a model is loaded"))
    status, again, known = batch_of(out)
    assert status == 0 and again == said and (known.count("(drawn)"), known.count("(known)")) == (0, 6)
    assert shots_in(out) == before


def test_a_batch_goes_on_after_an_interrupt(batch_of, tmp_path, monkeypatch):
    out, shoot, drawn = tmp_path / "out", ShotDecoder.shoot, []

    def interrupted(decoder, *args, **options):
        if len(drawn) == 3:  # in the second take of the first game
            raise KeyboardInterrupt
        drawn.append(shoot(decoder, *args, **options))
        return drawn[-1]

    with monkeypatch.context() as patch:
        patch.setattr(ShotDecoder, "shoot", interrupted)
        status, said, _ = batch_of(out)
    assert status == 130 and said == "game 1/2 one  seed 5  branch main\n" and not (out / "two").exists()
    before = shots_in(out)
    assert len([path for path in before if path.suffix == ".mp4"]) == 3
    status, _, how = batch_of(out)
    assert status == 0 and (how.count("(drawn)"), how.count("(known)")) == (3, 3)
    assert before.items() <= shots_in(out).items()
    assert batch_of(tmp_path / "whole")[0] == 0
    assert shots_in(out).keys() == shots_in(tmp_path / "whole").keys(), "as if it had never stopped"
