"""The benchmark's text form, and the games of the Toybox that ship in it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from write_benchmark import REMARKS, benchmark_games

from animegamer_core.data.benchmark import (
    BenchmarkError,
    BenchmarkGame,
    BenchmarkTurn,
    benchmark_text,
    parse_benchmark,
    parse_turn,
    read_benchmark,
)
from animegamer_core.evaluate.toybox.run import SEED_SPAN
from animegamer_core.game.life import STATS
from animegamer_core.toybox.games import BENCHMARK, BENCHMARK_GAMES, sample_game, true_game
from animegamer_core.toybox.world import ADVERBS, caption

LINE = "<S>Qiqi, Ponyo</S><MD>fly on a broom</MD><EV>night sky</EV><ML>4</ML><MA>swiftly</MA>"
LINE += "<SC>1</SC><ET>0</ET><ST>-1</ST>"
OTHER = LINE.replace("Qiqi, Ponyo", "Qiqi").replace("-1</ST>", "1</ST>")


@pytest.fixture(scope="module")
def shipped():
    return read_benchmark(BENCHMARK)


def test_a_line_says_who_does_what_where_how_and_what_it_changes():
    turn = parse_turn(LINE)
    assert turn == BenchmarkTurn(
        ("Qiqi", "Ponyo"), "fly on a broom", "night sky", 4, "swiftly", {"social": 1, "entertainment": 0, "stamina": -1}
    )
    assert turn.instruction == "Character: Qiqi, Ponyo; Motion: swiftly fly on a broom; Background: night sky."
    assert turn.line == LINE
    spread = LINE.replace("><", "> <").replace("fly on", "  fly \u3000 on")
    assert parse_turn(spread).line == LINE, "spaces do not matter"
    assert parse_turn(LINE.replace("<MA>swiftly", "<MA>")).instruction.count("Motion: fly on a broom;") == 1


def test_games_stand_between_blank_lines_and_have_names():
    text = f"# a remark\r\n\r\n# name: the-first\r\n{LINE}\r\n# between\r\n  {OTHER}\t\r\n\r\n\r\n{OTHER}\r\n"
    first, second = parse_benchmark(text)
    assert (first.name, second.name) == ("the-first", "game-002")
    assert [turn.line for turn in first.turns] == [LINE, OTHER] and len(second.turns) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "has no game"),
        (f"# name: ../up\n{LINE}", "line 1: '../up' is not a valid name for a game"),
        (f"# name: con\n{LINE}", "line 1: 'con' is not a valid name for a game"),
        (f"# name: Qiqi\n{LINE}", "not a valid name for a game"),
        (f"# name: a\n{LINE}\n\n# name: a\n{LINE}", "line 5: the name a is used"),
    ],
)
def test_names_are_file_names_and_belong_to_one_game(text, expected):
    with pytest.raises(BenchmarkError, match="(?s).*" + expected.replace("(", "\\(")):
        parse_benchmark(text)


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "games.txt").write_bytes("caf\xe9".encode("latin-1"))
    with pytest.raises(ValueError, match="games.txt: not UTF-8 text"):
        read_benchmark(tmp_path / "games.txt")


WORDS = st.lists(st.text("abcXYZ '-\u00e9\u5c11", min_size=1, max_size=8), min_size=1, max_size=4).map(
    lambda words: " ".join(" ".join(words).split())
)
TURNS = st.builds(
    BenchmarkTurn,
    characters=st.lists(WORDS.filter(bool), min_size=1, max_size=3, unique=True).map(tuple),
    motion=WORDS.filter(bool),
    background=WORDS.filter(bool),
    level=st.integers(1, 5),
    adverb=WORDS,
    change=st.fixed_dictionaries({stat.name: st.sampled_from(stat.choices) for stat in STATS}),
)
NAMES = st.from_regex(r"g[a-z0-9-]{0,20}", fullmatch=True)


@given(
    st.lists(
        st.tuples(NAMES, st.lists(TURNS, min_size=1, max_size=3)), min_size=1, max_size=4, unique_by=lambda g: g[0]
    )
)
def test_what_is_written_is_read_back(parts):
    games = tuple(BenchmarkGame(name, tuple(turns)) for name, turns in parts)
    assert parse_benchmark(benchmark_text(games, ("a remark",))) == games


def test_the_shipped_file_is_what_its_program_writes(shipped):
    assert list(benchmark_games(BENCHMARK_GAMES[:1], workers=1)) == list(shipped[:1])
    assert tuple(game.name for game in shipped) == BENCHMARK_GAMES and {len(game.turns) for game in shipped} == {10}
    assert BENCHMARK.read_bytes().decode("ascii") == benchmark_text(shipped, REMARKS)
    counts = np.bincount([turn.level for game in shipped for turn in game.turns], minlength=6)[1:]
    assert counts.min() > 75


def test_a_turn_is_the_true_scenes_own_caption(shipped):
    for game in shipped:
        true = true_game(game.name)
        assert true == sample_game(true.seed, split="heldout") and 100_000 < true.seed < SEED_SPAN
        for turn, scene in zip(game.turns, true.scenes, strict=True):
            assert turn.instruction == caption(scene, turn.level) and turn.adverb in ADVERBS[turn.level]
    assert true_game("heldout-00003") is None and true_game("game-001") is None
