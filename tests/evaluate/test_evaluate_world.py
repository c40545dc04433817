"""The paper's table: figures on hand-computed cases, and whole runs in a tiny world of random weights."""

import hashlib
import json
import pathlib
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from baseline_folders import save_text_to_video
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from table_world import TABLE, TinyModel, save_measured_world, small_games, tiny_models

from animegamer_core.cli import evaluate as cli
from animegamer_core.cli.options import parse
from animegamer_core.data.benchmark import BenchmarkGame, benchmark_text
from animegamer_core.evaluate import estimates, similarity
from animegamer_core.evaluate.players import WorldPlayer
from animegamer_core.evaluate.similarity import ScoringModels
from animegamer_core.evaluate.world import runner
from animegamer_core.evaluate.world.metrics import estimates_of
from animegamer_core.evaluate.world.records import SHOT_SCORES, GameRecord, TurnRecord, game_folder, read_game, read_run
from animegamer_core.evaluate.world.report import table_of
from animegamer_core.evaluate.world.runner import EvaluationJob, open_job, read_games
from animegamer_core.evaluate.world.scores import (
    GameScorer,
    MotionMeter,
    compared_frames,
    flow_of,
    mean_cosine,
    references_of,
    rowwise_cosine,
    scored_text,
)
from animegamer_core.media.video import read_clip, write_clip
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story
from animegamer_core.toybox.calibration import CALIBRATED_VALUES, DATA_VALUES
from animegamer_core.weights import open_world

STILL = np.zeros((3, 16, 16, 3), np.uint8)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return save_measured_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def played(world, tmp_path_factory):
    """The folder of a finished run by one process, with its report."""
    out = tmp_path_factory.mktemp("played") / "out"
    assert cli.carry_out(job_of(world, out)) == 0
    return out


def job_of(world, out, **changes):
    player = WorldPlayer(world, PlaySettings(steps=2))
    return EvaluationJob(
        **{"world": world, "player": player, "models": tiny_models(), "games": small_games(), "out": out} | changes
    )


def numbers(out):
    """All that two runs have to agree in: every game's record but its clock, and the clips."""
    found = {path.relative_to(out): path.read_bytes() for path in out.rglob("*.mp4")}
    for game in small_games():
        turns = read_game(out, game.name).turns
        found[game.name] = [replace(turn, seconds=0.0, warm_up=False) for turn in turns]
    return found


# intervals ----------------------------------------------------------------------------------------------------------


def test_the_bootstrap_draws_whole_games():
    """Two games: a draw is one of both twice (a quarter each) or both, so the interval's ends are the games' means."""
    estimate = estimates.mean_over_games([[0.0, 0.0, 0.0], [1.0]])
    assert (estimate.value, estimate.low, estimate.high, estimate.count) == (0.25, 0.0, 1.0, 4)
    alike_games = estimates.mean_over_games([[0.2, 0.4], [0.4, 0.2], [0.3]])
    assert alike_games.low == pytest.approx(0.3) == alike_games.high, "games that do not differ have no interval"
    one_game = estimates.mean_over_games([[], [0.0, 1.0, 0.0, 1.0], []])
    assert one_game == estimates.Estimate(0.5, 0.0, 1.0, 4), "drawn by its turns"
    assert estimates.mean_over_games([[], []]).count == 0


@given(st.lists(st.lists(st.floats(-10, 10), max_size=4), max_size=5))
def test_a_mean_lies_in_its_interval_whatever_the_games(games):
    estimate = estimates.mean_over_games(games)
    assert estimate.count == sum(map(len, games))
    if estimate.count:
        assert estimate.low <= estimate.value <= estimate.high
        assert estimate == estimates.mean_over_games(games), "the same draws every time"


# rows ---------------------------------------------------------------------------------------------------------------


def turn_of(asked, level=None, change=None, measured=None, seconds=1.0, **scores):
    line = f"<S>Miko</S><MD>run</MD><EV>day beach</EV><ML>{asked}</ML><MA>gently</MA><SC>0</SC><ET>1</ET><ST>-1</ST>"
    by_kind = {name: scores.get(name) for name in SHOT_SCORES}
    motion = (2.0, measured) * 2
    return TurnRecord(1, line, level, change, *motion, by_kind, seconds, seconds > 9, "turn-01.mp4")


def game_of(*turns, name="by-hand"):
    numbered = tuple(replace(turn, number=number) for number, turn in enumerate(turns, 1))
    return GameRecord(name, "by hand", 0, 8.0, numbered)


def test_rows_by_hand():
    right, tired = {"social": 0, "entertainment": 1, "stamina": -1}, {"social": 1, "entertainment": 1, "stamina": 1}
    game = game_of(
        turn_of(1, level=1, change=right, measured=1, seconds=60.0, clip_i=0.5),
        turn_of(2, level=3, change=tired, measured=4, seconds=1.0, clip_i=0.7, clip_i_across=0.9),
        turn_of(5, level=0, change=right, measured=4, seconds=2.0, clip_i=0.9, clip_i_across=0.7),
    )
    found = estimates_of([game])
    value = {key: estimate.value for key, estimate in found.items() if estimate.count}
    assert value["acc_f"] == pytest.approx(1 / 3) and value["mae_f"] == pytest.approx((0 + 2 + 1) / 3)
    assert value["scope"] == pytest.approx(1 / 3), "a reply that could not be read is wrong, not left out"
    assert value["state"] == pytest.approx(2 / 3)
    assert value["seconds"] == 1.5 and found["seconds"].count == 2, "the first turn after loading warms up"
    assert value["clip_i"] == pytest.approx(0.7) and value["clip_i_across"] == pytest.approx(0.8)
    assert found["clip_i_across"].count == 2 and found["dreamsim"].count == 0


def test_fractions_count_measured_turns_and_have_wilsons_interval():
    found = estimates_of([game_of(turn_of(1, measured=2), turn_of(2))])
    assert found["acc_f"].count == 1, "a turn without edges is not counted as wrong"
    games = [game_of(turn_of(1, measured=1), name="one"), game_of(turn_of(1, measured=5), name="two")]
    assert estimates_of(games)["acc_f"] == estimates.fraction([True, False])


# one shot -----------------------------------------------------------------------------------------------------------


def test_frames_words_and_likeness_by_hand():
    clip = np.arange(17, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    assert compared_frames(clip)[:, 0, 0, 0].tolist() == [0, 5, 11, 16]
    assert compared_frames(clip[:2])[:, 0, 0, 0].tolist() == [0, 0, 1, 1]
    turn = small_games()[0].turns[0]
    assert scored_text(turn) == "gently wave hello, day beach"
    assert scored_text(replace(turn, adverb="")) == "wave hello, day beach"
    one = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    other = torch.tensor([[0.6, 0.8], [0.0, 1.0]])
    assert mean_cosine(one, other) == pytest.approx((0.6 + 0 + 0.8 + 1) / 4)
    assert rowwise_cosine(one, other) == pytest.approx((0.6 + 1) / 2)


def test_a_shot_is_scored_against_character_text_and_the_turn_before():
    """With models that see one colour, every score can be computed by hand."""

    class Reds:
        """A picture is the angle that its red says; a text is the angle 0."""

        name, facts = "reds", {}

        def embed_images(self, frames_MHWC):
            angles = torch.from_numpy(frames_MHWC[:, 0, 0, 0].astype(np.float64)) / 100
            return torch.stack([angles.cos(), angles.sin()], -1).float()

        def embed_texts(self, texts):
            return torch.tensor([[1.0, 0.0]] * len(texts))

    turn, picture = small_games(1)[0].turns[0], np.full((4, 6, 3), 20, np.uint8)
    pictures = {turn.characters[0]: (picture, picture + 20)}
    scorer = GameScorer(ScoringModels(Reds(), Reds()), pictures)
    first, second = (scorer.score(turn, np.full((17, 8, 12, 3), red, np.uint8)) for red in (50, 80))
    assert first["clip_i"] == pytest.approx((np.cos(0.3) + np.cos(0.1)) / 2)
    assert first["clip_t"] == pytest.approx(np.cos(0.5))
    assert first["clip_i_across"] is None and second["clip_i_across"] == pytest.approx(np.cos(0.3), abs=1e-6)
    assert second["dreamsim_across"] == second["clip_i_across"] and second["dreamsim"] == second["clip_i"]
    without = GameScorer(ScoringModels(Reds()), pictures).score(turn, np.full((17, 8, 12, 3), 50, np.uint8))
    assert without["dreamsim"] is None, "there is no such model"
    other = scorer.score(replace(turn, characters=("Qiqi", turn.characters[0])), np.full((17, 8, 12, 3), 50, np.uint8))
    assert other["clip_i"] is None, "each shot is compared with its own main character"
    assert other["clip_i_across"] == second["clip_i_across"], "each shot is compared with the one before"


# motion and pictures -------------------------------------------------------------------------------------------------


def test_motion_is_measured_as_the_world_says(world, tmp_path):
    meter = MotionMeter(world, flow_of(world))
    assert meter.edges == TABLE.edges and meter.remarks == [] and meter.facts["backend"] == "dis"
    assert meter.measure(STILL) == (0.0, 1)
    with pytest.raises(ValueError, match="choose dis, not memflow"):
        flow_of(world, "memflow")
    notes = {"motion backend": "memflow", "motion threshold": "0.4", "motion slow_fraction": "0.1"}
    with pytest.raises(ValueError, match="--flow-weights FILE$"):
        flow_of(replace(world, provenance=notes))
    flow = flow_of(replace(world, provenance=notes), weights=pathlib.Path("memflow.pth"))
    assert (flow.threshold, flow.slow_fraction, flow_of(world).slow_fraction) == (0.4, 0.1, 0.0)
    (tmp_path / "memflow.pth").write_bytes(b"weights")
    for content, says in ((b"weights", None), (b"others", "measured by flow weights of sha256 .* give that file$")):
        measured = replace(world, provenance={**notes, "motion sha256": hashlib.sha256(content).hexdigest()})
        with pytest.raises(ValueError, match=says) if says else nullcontext():
            flow_of(measured, weights=tmp_path / "memflow.pth")


def test_without_edges_there_is_no_level_unless_some_are_given(world):
    published = replace(world, motion_table=replace(TABLE, edges=None), provenance={})
    meter = MotionMeter(published, flow_of(published))
    assert meter.measure(STILL) == (0.0, None) and "--motion-edges" in meter.remarks[0]
    meter = MotionMeter(published, flow_of(published), (1.0, 2.0, 3.5, 4.0))
    assert meter.measure(STILL)[1] == 1 and "come from --motion-edges" in meter.remarks[0]
    with pytest.raises(ValueError, match="expected four rising numbers"):
        MotionMeter(published, flow_of(published), (1.0, 2.0, 2.0, 3.0))


def test_pictures_of_a_character_lie_under_their_name(tmp_path):
    folder = tmp_path / "folder"
    (folder / "Zoe\u0308").mkdir(parents=True)
    for name in ("Zoe\u0308/a.PNG", "Zoe\u0308/b.webp", "other.png", "../secret.png"):  # macOS stores accents so
        Image.new("RGB", (6, 4)).save(folder / name)
    (folder / "Zoe\u0308" / "notes.txt").write_text("not a picture")
    references = references_of(["zo\u00eb"], folder)
    assert len(references.pictures["zo\u00eb"]) == 2 and references.remarks == ()
    references = references_of(["../secret"], folder)
    assert references.pictures == {} and "has none" in references.remarks[0], "a name never becomes a path"


def test_the_toybox_draws_its_own_characters_and_nobody_elses():
    names = [game.turns[0].characters[0] for game in small_games()]
    drawn = references_of(names)
    assert set(drawn.pictures) == {"Miko", "Taro", "Yuzu"} and drawn.facts == references_of(names).facts
    other = references_of([*names, "Qiqi"])
    assert other.pictures == {} and "--characters" in other.remarks[0]


# what lies on disk --------------------------------------------------------------------------------------------------


def test_a_record_reads_back_and_what_is_none_is_refused(tmp_path):
    game = game_of(turn_of(3, 2, {"social": 1, "entertainment": 0, "stamina": 1}, 4, clip_i=0.25), turn_of(1))
    game.save(tmp_path)
    assert read_game(tmp_path, "by-hand") == game and read_game(tmp_path, "another") is None
    path = game_folder(tmp_path, "by-hand") / "game.json"
    for field, value in (("clip", "../../secret.mp4"), ("line", "<S>Miko</S>"), ("level", "3")):
        values = json.loads(path.read_text())
        values["turns"][0][field] = value
        path.write_text(json.dumps(values))
        with pytest.raises(ValueError, match="not a played game"):
            read_game(tmp_path, "by-hand")
        game.save(tmp_path)


# runs ---------------------------------------------------------------------------------------------------------------


def test_a_game_depends_only_on_its_name_and_the_seed(world, played, tmp_path):
    """Not on the games before it, nor on the process; prediction is greedy, so another seed changes only the shots."""
    with open_job(job_of(world, tmp_path / "again", games=small_games()[::-1])) as job:
        job.play()
    assert numbers(tmp_path / "again") == numbers(played)
    with open_job(job_of(world, tmp_path / "other", seed=1, limit=1)) as job:
        job.play()
    one, other = (read_game(out, "small-1") for out in (played, tmp_path / "other"))
    assert one.seed != other.seed and one.turns[0].scores != other.turns[0].scores
    assert one.turns[0].level == other.turns[0].level


def test_a_world_plays_a_benchmark_as_it_plays_for_people(world, tmp_path):
    motions = ("wave hello with a red scarf", "run", "run", "run", "dance with the scarf")
    turns = tuple(replace(small_games(1)[0].turns[0], motion=motion) for motion in motions)
    settings = PlaySettings(2, seed=7, steps=2)
    player, story = WorldPlayer(world, settings), Story.open(tmp_path, "story", world.spec.name, world.fingerprint)
    people = Player(world, story, settings)
    for asked, shot in zip(turns, player.play(BenchmarkGame("recalls", turns), 7), strict=True):
        write_clip(tmp_path / "shot.mp4", shot.frames, player.fps)
        shown = read_clip(people.step(asked.instruction).clip).frames
        assert np.array_equal(read_clip(tmp_path / "shot.mp4").frames, shown)
    assert people.session.turns[-1].recalled == (1,), "or this test shows nothing"
    assert "reads 2 past turns, up to 1 of them earlier" in player.remarks[0] and player.facts["memory"]["turns"] == 2


def test_another_runs_folder_is_refused_with_what_differs(world, played, tmp_path):
    before = {path: path.read_bytes() for path in played.rglob("*") if path.is_file()}
    for difference, changes in {"seed": {"seed": 5}, "scoring models": {"models": ScoringModels(TinyModel(9))}}.items():
        with pytest.raises(ValueError, match=f"holds a run that differs in: {difference};"):
            with open_job(job_of(world, played, **changes)):
                pass
    assert {path: path.read_bytes() for path in played.rglob("*") if path.is_file()} == before
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds other files"), open_job(job_of(world, tmp_path)):
        pass
    with open_job(job_of(world, tmp_path / "out")), pytest.raises(ValueError, match="another process is writing"):
        with open_job(job_of(world, tmp_path / "out")):
            pass


# the report ---------------------------------------------------------------------------------------------------------


def test_words_that_the_world_never_saw_are_told(world, tmp_path):
    odd = tuple(replace(turn, motion="juggle \u5343\u5bfb") for turn in small_games(1)[0].turns)
    *_, remark = job_of(world, tmp_path / "out", games=(BenchmarkGame("odd", odd),)).remarks()
    assert remark.endswith("not trained with these words of the benchmark: juggle, \u5343\u5bfb")


def test_a_strangers_name_is_one_cell_of_the_table(played):
    run = read_run(played)
    player = {**run.asked["player"], "name": "a | b <b>\x1b[31m"}
    table = table_of(replace(run, asked={**run.asked, "player": player}))
    assert table.name == "a | b \u2039b\u203a [31m"
    assert len({line.count("|") for line in table.table.splitlines()}) == 1


# the command and the node -------------------------------------------------------------------------------------------


@pytest.fixture
def evaluate(world, tmp_path, monkeypatch):
    """Runs `evaluate world` on these games with tiny scoring models; returns its exit status."""
    monkeypatch.setattr(similarity, "open_scoring_models", lambda **_: tiny_models())

    def run(out, games, *words, name=world.folder):
        file = tmp_path / "games.txt"
        file.write_text(benchmark_text(games))
        base = ["--world", name, "--games", file, "--out", tmp_path / out, "--device", "cpu", *words]
        return parse(cli.World, list(map(str, base)), "evaluate world", "").run()

    return run


def rows_of(out):
    return {row["key"]: row for row in json.loads((out / "report.json").read_text())["rows"]}


def test_the_command_plays_few_games_without_a_gpu_and_goes_on_after_an_interrupt(
    evaluate, tmp_path, monkeypatch, capsys
):
    whole = WorldPlayer.play

    def stopped(self, game, seed):
        if game.name == "small-2":
            raise KeyboardInterrupt
        yield from whole(self, game, seed)

    monkeypatch.setattr(WorldPlayer, "play", stopped)
    with pytest.raises(KeyboardInterrupt):  # of which main makes a sentence
        evaluate("out", small_games(5, 1), "--steps", 2)
    assert "playing the first 4 of 5 games" in capsys.readouterr().out
    monkeypatch.setattr(WorldPlayer, "play", whole)
    assert evaluate("out", small_games(5, 1), "--steps", 2) == 0
    said = capsys.readouterr().out
    assert said.count("  1 turn\n") == 3 and "| CLIP-I  " in said
    assert json.loads((tmp_path / "out" / "report.json").read_text())["command"].startswith("python -m animegamer_core")


def test_a_baseline_plays_in_the_worlds_place_and_predicts_nothing(evaluate, tmp_path, capsys):
    save_text_to_video(tmp_path / "cogvideo", frames=49)
    words = ["--baseline", "gc", "--baseline-video", tmp_path / "cogvideo", "--steps", 2]
    assert evaluate("gc", small_games(), "--limit", 1, *words) == 0
    rows = rows_of(tmp_path / "gc")
    assert rows["acc_f"]["n"] == 2 and rows["clip_i"]["n"] == 2, "by the world's own measure"
    for key in ("acc_f", "mae_f"):
        assert rows[f"{key}_uncalibrated"]["value"] == rows[key]["value"], "nothing of a baseline is calibrated"
    assert not any(rows[key]["n"] for key in ("state", "scope"))
    out = capsys.readouterr().out
    assert "GC shows 17 of 49 frames, at 3 times the speed" in out
    (state,) = (line for line in out.splitlines() if line.startswith("| State accuracy  "))
    assert [cell.strip() for cell in state.split("|")[3:5]] == ["-", "0"]


def test_true_shots_say_what_is_to_be_reached(evaluate, tmp_path):
    game = read_games(None)[0]
    assert evaluate("true", [replace(game, turns=game.turns[:2])], "--true-shots", name="toybox") == 0
    rows = rows_of(tmp_path / "true")
    assert rows["acc_f"]["value"] == 1, "the lines were made so"
    assert rows["state"]["n"] == 0
    with pytest.raises(ValueError, match="small-1 has no true shots"):
        evaluate("other", small_games(1), "--true-shots", name="toybox")


def test_wrong_words_are_answered_in_a_sentence(evaluate, tmp_path):
    for words, sentence in {
        ("--flow", "memflow"): "backends differ",
        ("--limit", "0"): "0 games cannot be played",
        ("--baseline-video", "v"): "needs a baseline",
        ("--characters", str(tmp_path / "absent")): "is not a folder",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            evaluate("out", small_games(), *words)
        assert not (tmp_path / "out" / "run.json").exists()


def test_shots_are_measured_without_calibration_too(world, tmp_path):
    """Each at the noise and from the state of the turn's own shot, conditioned on the median of the data's clips."""
    data = (0.4, 1.2, 2.5, 5.0, 9.5)
    notes = {DATA_VALUES: " ".join(map(str, data)), CALIBRATED_VALUES: " ".join(map(str, TABLE.values))}
    own = replace(world, provenance={**world.provenance, **notes})
    games = []
    for name, one in (("own", own), ("bare", replace(world, motion_table=replace(TABLE, values=data)))):
        with open_job(job_of(one, tmp_path / name, games=small_games(1))) as job:
            job.play()
        games.append(read_game(tmp_path / name, "small-1"))
        assert ("inverting the decoder's own measured response" in " ".join(job.remarks())) == (name == "own")
    for turn, other in zip(games[0].turns, games[1].turns, strict=True):
        assert (turn.uncalibrated_value, turn.uncalibrated_level) == (other.motion_value, other.motion_level)
        assert (other.uncalibrated_value, other.uncalibrated_level) == (other.motion_value, other.motion_level)
        assert turn.uncalibrated_value != turn.motion_value and turn.level == other.level


def test_the_small_table_of_the_node(world, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "read_games", lambda file: small_games())
    heard = []
    player = WorldPlayer(world, PlaySettings(steps=2))
    text, sheet = runner.evaluate_small(player, tmp_path, 1, 0, lambda *words: heard.append(words))
    assert heard == [("turns", number, 2) for number in range(1, 3)]
    (folder,) = tmp_path.iterdir()
    assert "| ACC-F " in text and str(folder) in text and sheet.width > 0
    assert "| CLIP" not in text and text.count("--clip FOLDER") == 1, "no model, no row, and one line that says so"
    again, _ = runner.evaluate_small(player, tmp_path, 1, 0, lambda *words: heard.append(words))
    assert len(heard) == 2 and again == text, "nothing is played twice"
    assert open_world(world.folder).fingerprint[:8] in folder.name
