"""A full disk is one sentence with the path and the free space; what is finished stays, the same command goes on."""

import re

import published_files
import pytest
import stock_files
from hub_repositories import below, released_repositories
from hub_server import Hub, ask_instead
from small_disk import resize, small_disk
from table_world import save_measured_world, small_games

from animegamer_core.__main__ import main
from animegamer_core.data.benchmark import benchmark_text
from animegamer_core.story.story import Story
from animegamer_core.weights import convert as build
from animegamer_core.weights import fetch as fetching
from animegamer_core.weights import open_world

GAME = "".join(
    f"Character: Miko; Motion: run {word}; Background: day beach.\n" for word in ("one", "two", "three", "four")
)
SENTENCE = re.compile(
    r"\w+: (?P<path>/\S+): (No space left on device|(?P<large>File too large)) \(\d+\.\d MB free\); finished work is "
    r"kept; (?(large)choose a disk that takes larger files|free some space) and run the same command again"
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return save_measured_world(tmp_path_factory.mktemp("world")).folder


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    path = tmp_path_factory.mktemp("game") / "game.txt"
    path.write_text(GAME)
    return path


def play_words(world, game, out):
    return ["play", game, "--world", world, "--steps", "1", "--device", "cpu", "--out", out, "--name", "game"]


def run(words):
    return main([str(word) for word in words])


def check_refusal(capsys, status, words, out):
    """A command that found its disk full said so in one sentence."""
    assert status == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"{words[0]}: ")]
    assert len(lines) == 1, lines
    assert (match := SENTENCE.fullmatch(lines[0])), lines
    assert match["path"].startswith(str(out)) and "part-" not in match["path"]


def whole_size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) // 1024


def test_a_game_goes_on_once_there_is_room(world, game, tmp_path, capsys):
    assert run(play_words(world, game, tmp_path / "whole")) == 0
    whole = Story.read(tmp_path / "whole", "game")
    size, full, played = whole_size(whole.folder), tmp_path / "full", set()
    words = play_words(world, game, full)
    with small_disk(full, 4):
        for kilobytes in (4, size // 3, 2 * size // 3, 4 * size + 1000):
            resize(full, kilobytes)
            capsys.readouterr()
            status = run(words)
            if kilobytes > size:
                break
            check_refusal(capsys, status, words, full)
            if (full / "game" / "story.json").exists():
                played.add(len(Story.read(full, "game").entries))
        assert status == 0
        assert len(played) > 1, "turns were kept between one full disk and the next"
        assert [entry.state for entry in Story.read(full, "game").entries] == [entry.state for entry in whole.entries]


@pytest.fixture
def fetch(tmp_path, monkeypatch):
    mistral = published_files.write_mistral(tmp_path / "src" / "Mistral-7B-Instruct-v0.1")
    originals = published_files.make_originals(mistral)
    published_files.write_all(tmp_path / "src", originals)
    with Hub() as hub:
        hub.repositories = released_repositories(tmp_path / "src", originals)
        ask_instead(monkeypatch, hub.url)
        yield lambda out: ["fetch", "qiqi", "--out", out / "world", "--yes"]


@pytest.fixture
def new(tmp_path):
    base = stock_files.write_base(tmp_path / "base")
    models = ["--cogvideox", base / "CogVideoX-2b", "--mistral", base / "Mistral-7B-Instruct-v0.1"]
    return lambda out: ["new", *models, "--out", out / "world"]


@pytest.fixture
def export(world, game, tmp_path):
    assert run(play_words(world, game, tmp_path / "stories")) == 0
    story = tmp_path / "stories" / "game"
    return lambda out: ["export", story, "--out", out / "films" / "film.mp4"]


@pytest.fixture
def evaluate(world, tmp_path):
    (tmp_path / "games.txt").write_text(benchmark_text(small_games(2)))
    words = ["evaluate", "world", "--world", world, "--games", tmp_path / "games.txt"]
    return lambda out: [*words, *"--steps 1 --device cpu --limit 2".split(), "--out", out / "run"]


@pytest.fixture(params=("fetch", "new", "export", "evaluate"))
def command(request, monkeypatch):
    """The words of a command that writes to a folder. Others fill the disk after the command has looked for room."""
    for module in (fetching, build):
        monkeypatch.setattr(module, "check_room", lambda *asked: None)
    return request.getfixturevalue(request.param)


def content(out):
    """Weights and clips, which are the same in every run, and films, whose bytes differ: whole, if named."""
    kinds = (".safetensors", ".bin", ".pt", ".mp4")
    found = {path: data for path, data in below(out).items() if path.endswith(kinds) and ".downloads" not in path}
    return {path: b"a film" if path.startswith("films/") else data for path, data in found.items()}


def finished(out):
    """{path: when it was written} of a world's parts and scored games, which are not made again."""
    paths = [*out.glob("run/games/*/game.json")]
    if list(out.glob("world/world.json")):
        paths += [out / "world" / path for path in open_world(out / "world").files]
    return {path: path.stat().st_mtime_ns for path in paths}


def test_each_command_goes_on_once_there_is_room(command, tmp_path, capsys):
    whole, full = tmp_path / "whole", tmp_path / "full"
    assert run(command(whole)) == 0
    size = whole_size(whole)
    with small_disk(full, 4):
        for kilobytes in (4, size // 3, 2 * size // 3, size - 4, 4 * size):
            resize(full, kilobytes)
            before, words = finished(full), command(full)
            capsys.readouterr()
            status = run(words)
            if kilobytes > size:
                assert status == 0 and content(full) == content(whole)
            else:
                check_refusal(capsys, status, words, full)
                assert content(full).items() <= content(whole).items(), "a torn file has its name"
            assert before.items() <= finished(full).items(), "what was finished was made again"
