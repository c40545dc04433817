"""The evaluation's mathematics on hand-computed cases, and everything end to end in a tiny world of random weights."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from table_world import TABLE, save_judged_world

from animegamer_core.__main__ import main
from animegamer_core.evaluate import estimates
from animegamer_core.evaluate.report import Target
from animegamer_core.evaluate.toybox import rows as acceptance
from animegamer_core.evaluate.toybox.context import EvalContext, Script, play_games
from animegamer_core.evaluate.toybox.run import EvalRun, Plan
from animegamer_core.evaluate.toybox_recipe import probes as probe_training
from animegamer_core.game.recall import Memory
from animegamer_core.game.state import CACHED_TURNS
from animegamer_core.toybox import probes, scenes
from animegamer_core.toybox.games import opening_game, sample_game
from animegamer_core.toybox.splits import NEW_MOTIONS, NOVELTIES
from animegamer_core.toybox.world import REFERENCES
from animegamer_core.weights import open_world

SMALLEST = Plan(shots=5, true=5, sweeps=1, games=2, turns=3, colours=2, unseen=1, memory=1, long_game=100)


# metrics ------------------------------------------------------------------------------------------------------------


def test_share_is_wilsons_interval():
    """8 of 10 by hand: p 0.8, z^2/n 0.38415; middle (0.8 + 0.19207) / 1.38415, half as in Wilson's formula."""
    estimate = estimates.fraction([True] * 8 + [False] * 2)
    assert (estimate.value, estimate.count) == (0.8, 10)
    assert estimate.low == pytest.approx(0.4902, abs=1e-4)
    assert estimate.high == pytest.approx(0.9433, abs=1e-4)


def test_turns_that_go_wrong_together_are_worth_fewer():
    """Two games of four, one right and one wrong throughout: the variance between games, 2 * (2^2 + 2^2) / 8^2 = 1/4,
    is seven times that of independent turns, (1/4) / 7, so that the eight are worth 8/7.
    """
    together = estimates.fraction_over_games([[True] * 4, [False] * 4])
    assert (together.value, together.count) == (0.5, 8)
    square = 1.959964**2 * 7 / 8  # z^2/n; Wilson's half width is z sqrt(p (1 - p)/n + z^2/4n^2) / (1 + z^2/n)
    assert together.high - 0.5 == pytest.approx(math.sqrt(square * (1 + square)) / 2 / (1 + square), abs=1e-6)
    apart = estimates.fraction_over_games([[True, False], [False, True], [True, False], [True, False]])
    assert apart == estimates.fraction([True, False] * 4), "never worth more than they are"


def test_a_mean_has_the_normal_interval_and_nothing_measured_is_no_number():
    estimate = estimates.mean([1.0, 2.0, 3.0])
    assert estimate.value == 2.0
    assert estimate.high - estimate.value == pytest.approx(1.96 / math.sqrt(3), abs=1e-3)
    assert estimates.fraction([]).count == 0 and estimates.fraction_over_games([[]]).count == 0
    assert estimates.mean([]).json_values == {"value": None, "interval": [None, None], "n": 0}


def test_pictures_and_motion_by_hand():
    true = np.zeros((17, 4, 4, 3), np.uint8)
    assert estimates.psnr(true + 16, true) == pytest.approx(10 * math.log10(255**2 / 256))
    assert estimates.psnr(true, true) == math.inf
    assert estimates.chance_above(np.array([1, 2, 3]), np.array([1, 2])).value == pytest.approx((0.25 + 0.75 + 1) / 3)
    noise = np.random.default_rng(0).integers(0, 255, (3, 40, 50, 3), np.uint8)
    alike = [estimates.likeness(shown, noise, np.array([[12, 9, 30, 31]] * 3)) for shown in (noise, 255 - noise)]
    assert alike[0].tolist() == [1, 1] and (alike[1] < 0.5).all()
    moved = np.roll(noise, (5, -6), (1, 2))
    assert estimates.likeness(moved, noise, np.array([[12, 9, 30, 31]] * 3)).tolist() == [1, 1], "shifts of up to 6"
    asked, measured = [1, 2, 3, 4, 5], [1, 2, 4, 4, 2]
    assert estimates.motion_accuracy(asked, measured).value == pytest.approx(0.6)
    assert estimates.motion_error(asked, measured).value == pytest.approx(0.8)
    assert estimates.rank_correlation([1, 2, 3, 4], [2, 1, 4, 3]) == pytest.approx(1 - 6 * 4 / (4 * 15))
    # ties: ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3 give 4.5 / sqrt(4.5 * 5)
    assert estimates.rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(22.5))
    assert estimates.rank_correlation([5, 5, 5], [1, 2, 3]) == 0


# scenes and probes --------------------------------------------------------------------------------------------------


def test_probe_scenes_are_apart_from_games_and_hold_every_label():
    made = [scenes.probe_scene(seed) for seed in range(4000)]
    assert {scene.seed % 4 for scene in made}.isdisjoint(range(3))
    assert len({scene.seed for scene in made}) == len(made)
    labels = scenes.labels_of(made)
    for head, classes in scenes.HEADS.items():
        assert set(labels[head]) == set(range(len(classes)))
    assert NEW_MOTIONS <= {(scene.character, scene.motion) for scene in made}


@pytest.fixture(scope="module")
def few_clips():
    return scenes.draw_labelled(range(10), workers=1)


@pytest.fixture(scope="module")
def learned(few_clips):
    clips, labels = few_clips
    small = torch.from_numpy(clips[:, :, ::3, ::3])
    return probe_training.train_probes(small, labels, 40, "cpu", seed=1), small.numpy(), labels


def test_probes_learn_a_handful_of_clips_and_come_back_from_their_file(learned, tmp_path):
    net, clips, labels = learned
    assert min(probe_training.probe_accuracy(net, clips, labels).values()) >= 0.9
    assert not all(check.blind for check in probes.chance_checks(probes.recognise(net, clips), labels).values())
    probes.save_probes(net, tmp_path, {"clips": 10})
    again = probes.load_probes(tmp_path)
    frames = torch.from_numpy(clips[:2]).permute(0, 1, 4, 2, 3)
    for name, logits in net(frames).items():
        assert torch.allclose(logits, again(frames)[name], atol=0.1)
    assert probes.read_card(tmp_path)["facts"] == {"clips": 10}


def test_noise_and_shuffled_labels_leave_probes_blind(learned, few_clips, tmp_path):
    truth = np.array([0] * 60 + [1] * 40)
    assert probes.is_at_chance(truth == 0, truth) and not probes.is_at_chance(truth == truth, truth)
    many = scenes.labels_of([scenes.probe_scene(seed) for seed in range(40)])
    assert all(check.blind for check in probes.noise_check(learned[0], many).values())
    clips, labels = few_clips
    small = clips[:, :, ::4, ::4]
    held_out = small[:6], {head: classes[:6] for head, classes in labels.items()}
    checks = probe_training.shuffled_check(torch.from_numpy(small), labels, held_out, 1, "cpu")
    assert set(checks) == set(scenes.HEADS)
    with pytest.raises(ValueError, match="no probes"):
        probes.load_probes(tmp_path)


# games --------------------------------------------------------------------------------------------------------------


def test_games_recall_as_a_player_does(tiny_engine):
    """Also turns whose representations a session has dropped."""
    plain = "Character: Miko; Motion: gently run; Background: day beach."
    named, asked = plain.replace("run", "run with a red scarf"), plain.replace("run", "run with the scarf")
    lines = (named, *[plain] * (CACHED_TURNS + 1), asked)
    scripts = [Script(lines), Script((named,))]  # the second ends earlier
    (turns, _), (last, _) = (
        play_games(tiny_engine, scripts, 4, memory) for memory in (Memory("recall"), Memory("recent"))
    )
    assert [turn.recalled for turn in turns if turn.recalled] == [(1,)] and not any(turn.recalled for turn in last)
    alone = tiny_engine.predict([turns[number - 1] for number in (1, *range(len(turns) - 3, len(turns)))], asked)
    assert torch.allclose(alone.representation, turns[-1].state.representation, atol=1e-4)
    assert (alone.motion, alone.change) == (turns[-1].state.motion, turns[-1].state.change)
    assert not torch.allclose(alone.representation, last[-1].state.representation, atol=1e-4)


@given(st.integers(0, 10_000), st.sampled_from([2, 4]), st.booleans())
def test_remembered_turns_are_in_reach(seed, window, opened):
    game = (opening_game if opened else sample_game)(seed, split="heldout")
    shown = [number for number, scene in enumerate(game.scenes, 1) if scene.prop]
    introduced = 0 if opened else shown[0]
    every = acceptance.remembered_turns(game, 0)
    assert every == [number for number in shown if number > introduced]
    for number in acceptance.remembered_turns(game, window):
        assert number in every
        assert any(earlier in (introduced, *shown) for earlier in range(number - window, number))
    assert not any(game.scenes[number - 1].prop_told for number in every)


# table --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_world(tmp_path_factory):
    return save_judged_world(tmp_path_factory.mktemp("world"))


def test_every_row_runs_and_repeats(tiny_world):
    rows = ["probes", "vae", "shots", "motion", "override", "games", "colour", "memory", "new"]

    def measured(rows):
        heard = []
        run = EvalRun(EvalContext(open_world(tiny_world), workers=1), SMALLEST, seed=3)
        report = acceptance.accept(run, rows, heard.append)
        assert [len(part.to_come) for part in heard] == [*range(len(rows))][::-1]
        assert heard[-1] == report and not report.failed
        return report

    first, second = measured(rows), measured(["override"])
    assert list(dict.fromkeys(line.row for line in first.lines)) == rows
    assert [line for line in first.lines if line.row == "override"] == second.lines
    assert all(line.estimate.count > 0 for line in first.lines) and first.short
    assert set(first.pictures) == {"vae", "shots", "game-from-text", "game-from-a-picture"}


def test_the_rows_of_the_harder_games(tiny_world):
    run = EvalRun(EvalContext(open_world(tiny_world), workers=1), replace(SMALLEST, references=2), seed=3)
    run.shots = run.reconstructions[:5]  # the tiny decoder's own are smaller than true clips
    run.shoot_states = lambda states, offset: np.resize(run.shots, (len(states), *run.shots.shape[1:]))
    rows = ("motion", "likeness", "new", "switch", "takes", "two-sample", "references")
    report = acceptance.accept(run, rows)
    lines = {line.name: line for line in report.lines}
    assert lines["ACC-F, uncalibrated"].target == Target(0.73)
    assert lines["shots, level 3: PSNR"].target == Target(26) and lines["new couple: partner, of shots with two"]
    assert {f"new {split}: motion" for split in NOVELTIES} < set(lines)
    assert sum(lines[f"VAE, level {level}: worst frame"].estimate.count for level in range(1, 6)) == 5
    assert sum(lines[f"AUC, level {level}"].estimate.count for level in range(1, 6)) == 3
    assert lines["the first again"].estimate.count == 4 and lines["one of another film"].estimate.count == 0
    assert lines["difference of two takes, of that of two true clips"].estimate.count == 5
    asked = [line for line in report.lines if line.row == "references" and "chance" in line.name]
    assert len(asked) == 2 * len(REFERENCES) and sum(line.estimate.count for line in asked) > 0


def test_a_picture_is_believed_and_not_words_that_give_its_prop_another_colour():
    run = EvalRun(EvalContext(open_world("toybox"), workers=1), replace(SMALLEST, conflicts=2))
    lines = {line.name: line.estimate for line in acceptance.accept(run, ["conflict"]).lines}
    for shot in ("the picture's own shot", "the next turn"):
        assert lines[f"{shot}: the colour of the picture"].value == 1
        assert lines[f"{shot}: the colour of the words"].value == 0
    assert {line.count for line in lines.values()} == {2}


@pytest.fixture
def command(tiny_world, tmp_path):
    """Runs `evaluate toybox` with these rows; returns its exit status, and its report if there is one."""

    def run(*rows):
        words = ["evaluate", "toybox", "--world", str(tiny_world), "--device", "cpu", "--workers", "1", "--limit", "1"]
        status = main([*words, "--out", str(tmp_path / "out"), "--rows", *rows])
        path = tmp_path / "out" / "report.json"
        return status, json.loads(path.read_text()) if path.exists() else None

    return run


def test_the_command_prints_saves_and_exits_one(tiny_world, command, tmp_path, capsys):
    status, report = command("shots", "--preset", "live", "--steps", "1")
    text = capsys.readouterr().out
    assert status == 1 and "PSNR" in text and "short" in text and "few samples" in text
    assert report["fingerprint"] == open_world(tiny_world).fingerprint
    assert report["short"] is True and report["seed"] == 0 and report["machine"]["torch"] != "absent"
    assert report["partial"] is False and report["to_come"] == report["failed"] == []
    assert report["command"].startswith("python -m animegamer_core"), "as it can be typed again"
    assert (tmp_path / "out" / "shots.png").is_file()
    assert (report["sampling"]["preset"], report["sampling"]["steps"]) == ("live", 1)
    line = next(line for line in report["lines"] if line["name"] == "PSNR to the shots of preset exact")
    assert line["unit"] == "dB" and 5 < line["value"] < 60


def test_a_row_that_fails_costs_no_other_and_a_stopped_command_leaves_the_rows_so_far(command, monkeypatch, capsys):
    def fails(run):
        raise RuntimeError("out of memory")

    def stopped(run):
        raise KeyboardInterrupt

    monkeypatch.setitem(acceptance.ROWS, "vae", fails)
    monkeypatch.setitem(acceptance.ROWS, "new", stopped)
    assert command("new") == (130, None)
    status, report = command("probes", "vae", "new", "references")
    assert status == 130 and "has the rows that were measured" in capsys.readouterr().err
    assert report["partial"] is True and report["to_come"] == ["new", "references"]
    assert {line["row"] for line in report["lines"]} == {"probes"} and report["failed"] == ["vae"]
    assert any("row vae could not be measured" in note and "out of memory" in note for note in report["notes"])


def test_a_world_without_measured_edges_is_refused(tiny_world):
    world = replace(open_world(tiny_world), motion_table=replace(TABLE, edges=None))
    with pytest.raises(ValueError, match="no measured edges"):
        EvalContext(world)
