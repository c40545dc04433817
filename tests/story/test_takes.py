"""Judged takes: several shots of a turn, a judge that looks at them, and the best one kept."""

import json

import pytest
import torch
from tiny_world import save_tiny_world

from animegamer_core.__main__ import main
from animegamer_core.checkpoint import World, open_world
from animegamer_core.evaluate.judges import (
    PROBES,
    MotionRule,
    ToyboxJudge,
    has_judge,
    named_classes,
    open_judge,
    probe_parts,
)
from animegamer_core.state import MotionTable
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story
from animegamer_core.story.takes import TAKE_STRIDE, Takes, best_take, judgement_of
from animegamer_core.toybox import probes
from animegamer_core.toybox.drawing.draw import draw_shot
from animegamer_core.toybox.scenes import HEADS, probe_scene
from animegamer_core.toybox.world import caption

GAME = (
    "Character: Miko; Motion: gently run; Background: day beach.",
    "Character: Miko, Taro; Motion: wildly talk to a friend with a red scarf; Background: night forest.",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A tiny world with probes of random weights, which judge its shots."""
    folder = tmp_path_factory.mktemp("judged")
    world = save_tiny_world(folder)
    torch.manual_seed(1)
    probes.save_probes(probes.ProbeNet(), folder, {})
    return world


def player(world, root, count=3, after=0, seed=0, **takes):
    story = Story.open(root, "game", world.spec.name, world.fingerprint)
    takes = Takes(open_judge(world), count, **takes)
    return Player(world, story, PlaySettings(seed=seed, steps=2), after, takes=takes)


def chosen(session):
    return [(turn.address, turn.seed) for turn in session.turns]


def best_of(played):
    return max(played.takes, key=lambda take: take.judged.score)


def test_the_best_take_is_kept_and_the_others_stay_in_the_story(world, tmp_path):
    game = player(world, tmp_path)
    played = [game.step(text) for text in GAME]
    for number, turn in enumerate(played):
        assert [take.seed for take in turn.takes] == [number, number + TAKE_STRIDE, number + 2 * TAKE_STRIDE]
        assert len({take.judged.score for take in turn.takes}) == 3, "the judge tells them apart"
        assert turn.turn.seed == best_of(turn).seed and all(0 <= take.judged.score <= 1 for take in turn.takes)
        assert turn.clip.read_bytes() == game.story.shots.path(best_of(turn).shot).read_bytes()
    story = Story.read(tmp_path, "game")
    assert story.branches() == ["main"], "takes make no branches"
    assert [entry.takes for entry in story.entries] == [tuple(take.shot for take in turn.takes) for turn in played]
    assert [turn.seed for turn in story.session(2, 4).turns] == [turn.turn.seed for turn in played]
    for take in played[0].takes:
        assert judgement_of(story.shots.record(take.shot)) == take.judged


def test_a_replay_chooses_the_same_and_loads_nothing(world, tmp_path, monkeypatch):
    first = player(world, tmp_path)
    first.play(GAME)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def load(*_):
        raise AssertionError("a model was loaded for a known turn")

    for name in ("load_engine", "load_decoder"):
        monkeypatch.setattr(World, name, load)
    monkeypatch.setattr(probes, "load_probes", load)
    again = player(world, tmp_path)
    assert chosen(again.play(GAME)) == chosen(first.session)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_predicting_ahead_plays_the_same_game(world, tmp_path):
    one, other = player(world, tmp_path / "one"), player(world, tmp_path / "other")
    assert chosen(one.play(GAME)) == chosen(other.play(GAME, ahead=True))


def test_another_take_can_be_chosen_later(world, tmp_path):
    game = player(world, tmp_path)
    played = game.step(GAME[0])
    other = next(take for take in played.takes if take.seed != played.turn.seed)
    story = Story.open(tmp_path, "game", world.spec.name, world.fingerprint)
    again = Player(world, story, PlaySettings(seed=other.seed, steps=2)).step(GAME[0])
    assert (again.drawn, again.turn.seed, again.takes) == (False, other.seed, ())
    assert story.branch == "line-2" and story.entries[0].shot == other.shot
    player(world, tmp_path).step(GAME[0])
    assert Story.read(tmp_path, "game").branch == "main", "the judged game is still the judged game"


def test_a_stop_between_takes_keeps_those_that_are_drawn(world, tmp_path):
    game, drawn = player(world, tmp_path), []

    def stop_in_the_third(done, steps, _):
        drawn.append(done)
        if len(drawn) == 2 * steps + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        game.play(GAME, on_step=stop_in_the_third)
    assert game.session.next_number == 2
    story = Story.read(tmp_path, "game")
    assert (
        len(story.entries) == 1 and len(story.entries[0].takes) == 2 and story.entries[0].shot in story.entries[0].takes
    )
    drawn[:] = [0] * 1000
    whole = player(world, tmp_path)
    whole.play(GAME)
    apart = player(world, tmp_path / "apart")
    assert chosen(apart.play(GAME)) == chosen(whole.session), "it goes on as if it had not stopped"
    story = Story.read(tmp_path, "game")
    assert story.branches() == ["main"] and [len(entry.takes) for entry in story.entries] == [3, 3]


def test_a_shot_below_the_bar_is_redrawn_up_to_a_budget(world, tmp_path):
    scores = [take.judged.score for take in player(world, tmp_path / "all", 4).step(GAME[0]).takes]
    never = player(world, tmp_path / "never", 1, bar=1.0, most=4).step(GAME[0])
    assert [take.judged.score for take in never.takes] == scores and best_of(never).judged.score == max(scores)
    good = player(world, tmp_path / "good", 1, bar=scores[0], most=4).step(GAME[0])
    assert len(good.takes) == 1
    until = next((index for index, score in enumerate(scores) if score > scores[0]), None)
    if until is not None:
        some = player(world, tmp_path / "some", 1, bar=scores[until], most=4).step(GAME[0])
        assert len(some.takes) == until + 1 and some.turn.seed == some.takes[-1].seed


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"count": 0}, "takes is 0; expected 1 to 64"),
        ({"count": 3, "most": 2}, "most takes is 2; expected 3"),
        ({"bar": 1.5, "most": 3}, "the bar is 1.5; expected a score from 0 to 1"),
        ({"count": 2, "bar": 0.5}, "has no effect with at most 2 takes"),
    ],
)
def test_impossible_takes_are_refused(world, values, said):
    with pytest.raises(ValueError, match=said):
        Takes(open_judge(world), **values)


def test_of_equal_takes_the_first_is_kept():
    assert best_take([0.5, 0.7, 0.7]) == 1
    assert best_take([0.5]) == 0


@pytest.mark.parametrize("parts", [{"who": 1e308, "where": 1e308}, {"who": -5}, {"who": "1"}, [1], None])
def test_a_score_that_no_judge_gives_is_none(parts):
    """Two of 1e308 are infinite together, which is no JSON, and the page could not read the story."""
    assert judgement_of({"judged": {"by": "me", "parts": parts}}) is None
    assert judgement_of({"judged": {"by": "me", "parts": {"who": 1.0000001, "where": 0}}}).score == 0.50000005


def test_a_shot_of_an_old_story_is_judged_when_takes_are_asked_for(world, tmp_path):
    story = Story.open(tmp_path, "game", world.spec.name, world.fingerprint)
    Player(world, story, PlaySettings(steps=2)).play(GAME[:1])
    old = story.entries[0]
    assert "takes" not in json.loads((tmp_path / "game" / "lines" / "main.jsonl").read_text())
    played = player(world, tmp_path).step(GAME[0])
    assert played.takes[0].shot == old.shot and len(played.takes) == 3
    story = Story.read(tmp_path, "game")
    assert story.branches() == (["main"] if played.takes[0] == best_of(played) else ["main", "line-2"])
    story.use("main")
    assert story.entries[0].shot == old.shot, "nothing is overwritten"


def test_other_probes_judge_anew(world, tmp_path):
    first = player(world, tmp_path).step(GAME[0])
    torch.manual_seed(2)
    weights = (world.folder / PROBES).read_bytes()
    try:
        probes.save_probes(probes.ProbeNet(), world.folder, {})
        second = player(world, tmp_path).step(GAME[0])
    finally:
        (world.folder / PROBES).write_bytes(weights)
    assert [take.shot for take in second.takes] == [take.shot for take in first.takes] and not second.drawn
    assert [take.judged for take in second.takes] != [take.judged for take in first.takes]


def test_the_command_prints_the_takes_and_the_kept_one(world, tmp_path, capsys):
    script = tmp_path / "game.txt"
    script.write_text("\n".join(GAME))
    options = ["--world", str(world.folder), "--out", str(tmp_path), "--steps", "2"]
    assert main(["play", str(script), "--takes", "2", *options]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "takes:" in line]
    assert len(lines) == 2 and all(line.count("seed") == 2 and line.count(", kept") == 1 for line in lines)


def test_the_director_plays_judged_takes_too(world, tmp_path):
    script = tmp_path / "game.txt"
    script.write_text(GAME[0])
    options = ["--world", str(world.folder), "--out", str(tmp_path), "--steps", "2"]
    assert main(["play", str(script), "--auto", "1", "--takes", "2", *options]) == 0
    assert [len(entry.takes) for entry in Story.read(tmp_path, "game").entries] == [2, 2]


# the judges ---------------------------------------------------------------------------------------------------------


def test_the_names_of_files_are_those_of_the_probes():
    assert PROBES == f"{probes.FOLDER}/{probes.WEIGHTS}"


def test_a_world_that_nothing_can_judge_says_what_to_do(tmp_path, capsys):
    world = save_tiny_world(tmp_path / "world")
    assert not has_judge(world)
    with pytest.raises(ValueError, match="nothing can judge the shots of world 'tiny'.*play with 1 take"):
        open_judge(world)
    assert main(["play", "--auto", "1", "--takes", "2", "--world", str(world.folder), "--out", str(tmp_path)]) == 2
    assert "nothing can judge" in capsys.readouterr().err and not (tmp_path / "auto").exists()


def test_an_instruction_names_what_the_probes_look_for():
    assert named_classes(GAME[1]) == {
        "character": ("Miko",),
        "partner": ("Taro",),
        "place": ("forest",),
        "time": ("night",),
        "motion": ("talk",),
        "colour": ("red",),
    }
    referring = "Character: she; Motion: slowly do the same again with the scarf; Background: in the same place by day."
    assert named_classes(referring) == {"time": ("day",), "colour": HEADS["colour"][1:]}
    assert named_classes("a walk in the rain") == {}


def test_the_shipped_probes_prefer_the_shot_that_shows_what_was_asked_for():
    world = open_world("toybox")
    judge = open_judge(world)
    assert isinstance(judge, ToyboxJudge) and has_judge(world)
    scene, other = probe_scene(1), probe_scene(2)
    clips = [draw_shot(scene), draw_shot(other)]
    parts = [judge.judge(caption(scene, 3), world.motion_table.value(3), clip) for clip in clips]
    assert parts[0]["character"] > 0.9 > parts[1]["character"] and set(parts[0]) >= {"motion", "place", "level"}
    assert probe_parts("words", {}) == {}


def test_motion_counts_by_its_distance_in_levels():
    rule = MotionRule(MotionTable("own", (0.8, 1.5, 3.0, 6.0, 12.0), (1.0, 2.0, 4.0, 8.0)), None)
    assert [rule.fits(3.0, measured) for measured in (3.0, 1.5, 9.0, 0.5)] == [1, 0.75, 0.5, 0.5]
    assert rule.asked(5.0) == 4, "a motion value that no level has asks for the level that it is measured in"


def test_motion_without_measured_borders_is_not_judged(world):
    rule = MotionRule.of(world)
    assert world.motion_table.edges is None and rule.flow is None
    assert rule.parts(2.5, draw_shot(probe_scene(1))) == {}
    assert MotionRule.of(open_world("toybox")).flow is not None
