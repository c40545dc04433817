"""Ablations in miniature: every variant trains and is scored, a kill costs little, and the claims are computed."""

from __future__ import annotations

import json
import re
import shutil
import threading
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from animegamer_core.checkpoint import open_world, save_part, save_world
from animegamer_core.cli import evaluate as cli
from animegamer_core.cli.options import parse
from animegamer_core.evaluate.similarity.models import ScoringModels
from animegamer_core.evaluate.world.paper import ABLATION_TABLE, MAIN_TABLE, TEXT
from animegamer_core.model.decoder import UNCONDITIONAL_MOTION, ShotDecoder
from animegamer_core.model.encoder import ShotEncoder
from animegamer_core.model.engine import GameEngine
from animegamer_core.model.prompt import GameTokenizer
from animegamer_core.research.ablations import table
from animegamer_core.research.ablations.budgets import BUDGETS, Budget
from animegamer_core.research.ablations.run import run_ablations
from animegamer_core.research.ablations.run_dir import Deadline, RunDir
from animegamer_core.research.ablations.scores import Samples, VariantScorer, read_frames
from animegamer_core.research.ablations.seed_runs import SeedRuns
from animegamer_core.research.ablations.seeds import over_seeds
from animegamer_core.research.ablations.variants import (
    BUDGET_NAMES,
    CLAIMS,
    FULL,
    GAMES,
    PRETRAIN,
    RECONSTRUCTION,
    STAGES,
    VARIANTS,
    Claim,
    chosen,
)
from animegamer_core.research.toybox_recipe.calibrate import Response
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.state import MotionTable
from animegamer_core.toybox import probes
from animegamer_core.toybox.dataset import DatasetGames
from animegamer_core.toybox.world import vocabulary
from animegamer_core.train.checkpoints import list_checkpoints
from animegamer_core.train.run import train_stage
from animegamer_core.train.trainable import read_adapter

STEPS = {"steps": 2, "batch": 2, "lr_warmup": 1, "log_every": 1, "validate_every": 0}
TINY = Budget(
    "tiny",
    DatasetGames(games=2, held_out=1, turns=3),
    {stage: STEPS for stage in STAGES[GAMES]},
    clips=2,
    games=1,
    turns=2,
    calibrated_on=1,
)
NEVER = Deadline()


@dataclass(frozen=True)
class MeanColour:
    """A tower that sees nothing but a picture's mean colour, and of a text its length."""

    name: str = "mean colour"
    facts: dict[str, Any] = field(default_factory=lambda: {"files": {"colours.safetensors": "0" * 64}})

    def embed_images(self, frames_MHWC):
        return torch.nn.functional.normalize(torch.from_numpy(frames_MHWC).float().mean((1, 2)) + 1, dim=-1)

    def embed_texts(self, texts):
        return torch.nn.functional.normalize(torch.tensor([[1.0, 1.0, float(len(text))] for text in texts]), dim=-1)


TOWERS = ScoringModels(MeanColour(), MeanColour(), stand_in=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Tiny models of random weights that read and draw clips of the Toybox's size."""
    tiny = SPECS["tiny"]
    spec = replace(tiny, decoder=replace(tiny.decoder, height=96, width=144, patch=4, steps=2))
    folder = tmp_path_factory.mktemp("base")
    tokenizer = GameTokenizer.from_words(vocabulary(), spec.state.tokens)
    torch.manual_seed(8)
    saved = save_world(folder, spec, motion_table=MotionTable("t", (0.8, 1.5, 3.0, 6.0, 12.0), (1.0, 2.0, 4.0, 8.0)))
    models = GameEngine(spec, tokenizer, PROFILES["paper"]), ShotDecoder(spec), ShotEncoder(spec, tokenizer.backend)
    for model in models:
        saved = save_part(saved, model)
    shutil.copytree(open_world("toybox").folder / probes.FOLDER, folder / probes.FOLDER)
    return open_world(folder)


@pytest.fixture(scope="module")
def material(world, tmp_path_factory):
    """A work folder whose clips and features are there, to copy."""
    run_dir = RunDir(tmp_path_factory.mktemp("material"), world, TINY, lambda line: None, workers=1)
    run_dir.begin()
    assert run_dir.training_data(NEVER) is not None
    return run_dir


@pytest.fixture(scope="module")
def examiner(material):
    return VariantScorer(material, TOWERS)


def shop_at(folder, material, said=None) -> RunDir:
    """A new work folder that shares the drawn clips and features."""
    folder.mkdir(exist_ok=True)
    for name in ("dataset", "features"):
        (folder / name).symlink_to(material.folder / name)
    run_dir = replace(material, folder=folder, say=lambda line: None if said is None else said.append(line))
    run_dir.begin()
    return run_dir


@pytest.fixture(scope="module", autouse=True)
def quick_calibration():
    """Two values in place of eight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("animegamer_core.research.toybox_recipe.calibrate.VALUES", 2)
        yield


# One row for each way in which a variant differs from full.
TRAINED = (
    FULL,
    "random_frame",
    "cross_attention",
    "no_warm_up",
    "no_motion_scope",
    "no_adaptation",
    "text_history",
    "cosine_loss",
    "window_0",
)
TWICE = (FULL, "no_warm_up")


@pytest.fixture(scope="module")
def done(material, examiner):
    """Everything trained and scored, full and one variant with a second seed."""
    assert run_ablations(examiner, chosen(TRAINED), [0], NEVER)
    assert run_ablations(examiner, chosen(TWICE), [1], NEVER)
    return SeedRuns(material, 0)


# the rows -----------------------------------------------------------------------------------------------------------


def test_all_variants_of_the_paper_are_there():
    names = {row.name for row in VARIANTS.values()}
    assert {"full", "random_frame", "less_parameters", "addition", "cross_attention", "no_warm_up"} <= names
    assert {"no_motion_scope", "no_adaptation", "cosine_loss", "window_0", "window_1", "window_2", "window_8"} <= names
    assert VARIANTS["full"].window == 4 and VARIANTS["window_8"].window == 8
    given = VARIANTS["random_frame"].published(RECONSTRUCTION)
    assert given.values["dreamsim"] == 0.450 and not VARIANTS["addition"].published(RECONSTRUCTION).values
    assert tuple(BUDGETS) == BUDGET_NAMES
    begun = tuple(("full", stage) for stage in (PRETRAIN, "warmup", "joint"))
    for name in ("cosine_loss", "text_history"):
        assert VARIANTS[name].path(GAMES) == (*begun, (name, "predict"), (name, "adapt"))
    assert VARIANTS["no_adaptation"].path(GAMES) == (*begun, ("full", "predict"), ("no_adaptation", "adapt"))
    assert VARIANTS["no_warm_up"].path(RECONSTRUCTION) == (begun[0], ("no_warm_up", "joint"))


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=lambda budget: budget.name)
def test_rows_differ_from_full_in_what_they_name_alone(budget):
    full = {stage: budget.config(VARIANTS[FULL], stage, 0) for stage in STAGES[GAMES]}
    for row in VARIANTS.values():
        for stage in set(row.own) - {row.prolonged}:
            assert budget.config(row, stage, 0) == replace(full[stage], **row.changes.get(stage, {}))
    longer = budget.config(VARIANTS["no_warm_up"], "joint", 0)
    assert longer == replace(full["joint"], steps=full["warmup"].steps + full["joint"].steps)
    assert budget.config(VARIANTS["no_adaptation"], "adapt", 0).steps == full["adapt"].steps
    assert not any(re.search(pattern, "decoder.transformer.proj_out.weight") for pattern in full["warmup"].trainable)
    assert not full[PRETRAIN].motion_scope and full["joint"].motion_scope
    cosine = budget.config(VARIANTS["cosine_loss"], "predict", 0)
    assert (cosine.alpha, cosine.beta) == (0.5, 0.5) and (full["predict"].alpha, full["predict"].beta) == (1, 0)


@pytest.mark.parametrize(("channels", "patch"), [(8, 4), (16, 2)])
def test_a_token_holds_no_more_than_the_small_decoder_can_read(world, tmp_path, channels, patch):
    """With 16 channels, the shipped world's, 4x4 latents would be as many values as the decoder is wide."""
    shipped = open_world("toybox").spec
    vae = replace(shipped.decoder.vae, latent_channels=channels)
    base = replace(world, spec=replace(shipped, decoder=replace(shipped.decoder, vae=vae)))
    run_dir = RunDir(tmp_path, base, BUDGETS["short"], print)
    assert run_dir.spec(VARIANTS["full"]).decoder.patch == patch and run_dir.spec(VARIANTS["full"]).decoder.layers == 7


def test_decoders_are_compiled_if_asked_and_engines_never(material, tmp_path, monkeypatch):
    asked = {}

    def trained(stage, config, *others):
        asked[stage] = config.compile
        return SimpleNamespace(done=False)

    monkeypatch.setattr("animegamer_core.research.ablations.seed_runs.train_stage", trained)
    monkeypatch.setattr(SeedRuns, "parts", lambda *_: None)
    for compiled in (False, True):
        run_dir = replace(shop_at(tmp_path / str(compiled), material), compile=compiled)
        for stage in ("joint", "predict"):
            assert not SeedRuns(run_dir, 0)._train(FULL, (), stage, NEVER)
        assert asked == {"joint": compiled, "predict": False}


@given(st.integers(1, 20), st.integers(1, 20))
def test_shares_meet_every_variant_once(count, part):
    shares = [chosen(None, f"{number}/{count}") for number in range(1, count + 1)]
    assert sorted(row.name for part in shares for row in part) == sorted(VARIANTS)
    if part > count:
        with pytest.raises(ValueError, match="--share is"):
            chosen(None, f"{part}/{count}")


def test_a_launchers_processes_take_a_share_each_and_their_own_gpu(monkeypatch):
    monkeypatch.setattr("animegamer_core.runtime.device.choose_device", lambda name: {"auto": "cuda"}.get(name, name))
    args = SimpleNamespace(share=None, device="auto")
    environment = {"RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3", "HOME": "/"}
    assert cli.own_part(args, environment) == ("2/3", "cuda:1")
    assert environment == {"HOME": "/"}  # or training would wait for the others
    environment |= {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "2"}
    assert cli.own_part(SimpleNamespace(share=None, device="cpu"), environment) == ("3/3", "cpu")
    assert cli.own_part(SimpleNamespace(share="1/2", device="cpu"), {}) == ("1/2", "cpu")
    with pytest.raises(ValueError, match="cannot be used with a launcher"):
        cli.own_part(SimpleNamespace(share="1/2", device="cpu"), {"RANK": "0", "WORLD_SIZE": "2"})


# training and scoring -----------------------------------------------------------------------------------------------


def test_every_variant_is_trained_and_scored_and_is_what_it_says(done):
    configs = {}
    for row in chosen(TRAINED):
        for family in row.families:
            assert all(done.is_trained(owner, stage) for owner, stage in row.path(family))
            samples = Samples.read(done.scores_file(row.name, family))
            count = TINY.clips if family == RECONSTRUCTION else TINY.games * TINY.turns
            assert {len(column) for column in (samples.groups, *samples.columns.values())} == {count}
            wanted = {"clip_i", "dreamsim", "acc_f", "mae_f", "psnr", "character", "place", "time", "motion"}
            wanted |= {"states_right", "level_right", "clip_t"} if family == GAMES else set()
            assert wanted <= set(samples.columns)
            assert all(-1.001 <= value <= 1.001 for value in samples.columns["clip_i"])
        for stage in row.own:
            _, configs[row.name, stage], tensors = read_adapter(done.stage_file(row.name, stage))
            if row.name == "cross_attention":
                assert any("attention" in name and name.startswith("encoder.") for name in tensors)
    assert configs["random_frame", "joint"].encoder_frame == "random"
    assert not configs["no_motion_scope", "warmup"].motion_scope
    assert configs["no_warm_up", "joint"].steps == 4
    assert not done.stage_dir("no_warm_up", "warmup").exists()
    assert not done.stage_dir("window_0", "adapt").parent.exists()


def test_a_second_command_does_nothing_and_repeating_gives_the_same(done, examiner, tmp_path, monkeypatch):
    before = {path: path.read_bytes() for path in (done.run_dir.folder / "variants").glob("*/*/*.json")}
    monkeypatch.setattr(
        "animegamer_core.research.ablations.seed_runs.train_stage", lambda *args: pytest.fail("trained")
    )
    assert run_ablations(examiner, chosen(TRAINED), [0], NEVER)
    monkeypatch.undo()
    row = VARIANTS["random_frame"]
    again = SeedRuns(shop_at(tmp_path / "again", done.run_dir), 0)
    assert run_ablations(VariantScorer(again.run_dir, TOWERS), [row], [0], NEVER)
    assert (
        again.scores_file(row.name, RECONSTRUCTION).read_bytes() == before[done.scores_file(row.name, RECONSTRUCTION)]
    )


def no_clips(like) -> np.ndarray:
    """Black clips, as many as `like` has rows."""
    return np.zeros((len(like), 17, 96, 144, 3), np.uint8)


def test_a_random_frame_is_another_frame():
    clips = np.zeros((40, 17, 2, 2, 3), np.uint8)
    assert not read_frames(VARIANTS[FULL], clips).any()
    frames = read_frames(VARIANTS["random_frame"], clips)
    assert np.count_nonzero(frames) > 30 and frames.max() <= 16 and len(set(frames.tolist())) > 8
    assert (frames == read_frames(VARIANTS["random_frame"], clips)).all()


def test_the_random_frame_is_what_is_trained_on_and_scored_from(done, examiner, monkeypatch):
    """Training reads the features of a random frame, and scoring encodes one: neither is the first."""
    store = done.run_dir.training_data(NEVER).store
    rows = torch.arange(len(store))
    features = store.gather(["image", "image_random"], rows, "cpu")
    assert not torch.equal(features["image"], features["image_random"])
    seen = {}

    def encode(context, shots):
        seen[len(seen)] = shots.clips[:, 0].copy()
        return torch.zeros(len(shots.clips), context.world.spec.state.tokens, context.world.spec.state.width)

    monkeypatch.setattr("animegamer_core.evaluate.toybox.context.EvalContext.encode", encode)
    monkeypatch.setattr(
        "animegamer_core.evaluate.toybox.context.EvalContext.shoot", lambda context, states, *rest: no_clips(states)
    )
    for name in (FULL, "random_frame"):
        examiner.score(done, VARIANTS[name], RECONSTRUCTION)
    assert len(seen) == 4, "of each variant, the clips it is calibrated on and those it is scored on"
    for place, shots in ((0, examiner.training), (1, examiner.true)):
        chosen_at = read_frames(VARIANTS["random_frame"], shots.clips)
        assert np.array_equal(seen[place], shots.clips[:, 0])
        assert np.array_equal(seen[2 + place], shots.clips[np.arange(len(chosen_at)), chosen_at])
        assert chosen_at.any()


def test_without_motion_scope_no_value_reaches_the_decoder(done, examiner, monkeypatch):
    """Neither in training, whatever the clips show, nor in scoring; full gets the value that makes the clips' own."""
    data = done.run_dir.training_data(NEVER)
    turns = tuple(replace(turn, motion_value=9 * turn.motion_value) for turn in data.folder.turns)
    other = replace(data, folder=replace(data.folder, turns=turns))

    def trained(name, data, out):
        row = VARIANTS[name]
        config = done.run_dir.budget.config(row, "joint", 0)
        result = train_stage("joint", config, done.parts(row, ((FULL, PRETRAIN),)), data, out)
        return read_adapter(result.file)[2]["decoder.transformer.proj_out.weight"]

    folders = iter(done.run_dir.folder / "elsewhere" / str(number) for number in range(4))
    blind = [trained("no_motion_scope", given, next(folders)) for given in (data, other)]
    seeing = [trained(FULL, given, next(folders)) for given in (data, other)]
    assert torch.equal(*blind) and not torch.equal(*seeing)
    given = {}
    answers = Response((1.0, 8.0), (0.5, 4.0))  # a decoder that moves half as much as it is asked to
    monkeypatch.setattr("animegamer_core.research.ablations.scores.decoder_response", lambda *_, **__: answers)

    def shoot(context, states, values, seeds):
        given[len(given)] = np.asarray(values)
        return no_clips(seeds)

    monkeypatch.setattr("animegamer_core.evaluate.toybox.context.EvalContext.shoot", shoot)
    for name in (FULL, "no_motion_scope"):
        examiner.score(done, VARIANTS[name], RECONSTRUCTION)
    assert given[0] == pytest.approx(np.clip(2 * examiner.true.values, 1, 8), rel=1e-3)
    assert set(given[1].tolist()) == {UNCONDITIONAL_MOTION}


def test_a_killed_one_goes_on_to_the_same_weights(done, material, examiner, tmp_path):
    row, said = VARIANTS["no_motion_scope"], []
    runs = SeedRuns(shop_at(tmp_path / "killed", material, said), 0)
    examiner = VariantScorer(runs.run_dir, TOWERS)
    assert not run_ablations(examiner, [row], [0], NEVER, score_only=True) and "not trained yet" in said[-1]
    assert not run_ablations(examiner, [row], [0], Deadline(0)) and "the same command continues" in said[-1]
    assert not runs.stage_dir(row.name, "joint").exists(), "nothing was to be trained, or there was no time"

    class Killed(Exception):
        pass

    def kill(line):
        if "warmup: 1/2" in line:
            raise Killed

    killed = replace(runs.run_dir, say=kill)
    with pytest.raises(Killed):
        run_ablations(VariantScorer(killed, TOWERS), [row], [0], NEVER)
    assert list_checkpoints(runs.stage_dir(row.name, "warmup") / "checkpoints")
    assert not runs.is_trained(row.name, "warmup") and runs.is_trained(FULL, PRETRAIN)
    assert runs.train(row, RECONSTRUCTION, NEVER)
    whole, halves = (read_adapter(place.stage_file(row.name, "joint"))[2] for place in (done, runs))
    assert all(torch.equal(whole[name], halves[name]) for name in whole)


def test_another_process_is_waited_for_until_what_the_lock_is_wanted_for_is_done(material, tmp_path):
    runs, trained = SeedRuns(shop_at(tmp_path / "held", material), 0), threading.Event()
    run_dir, name = runs.run_dir, runs.variant_name(FULL)
    with run_dir.lock(name, NEVER) as mine:
        assert mine
        with run_dir.lock(name, Deadline(0.0)) as second:
            assert not second
        assert not runs.train(VARIANTS[FULL], RECONSTRUCTION, Deadline(0.0))
        for other in (runs.variant_name("addition"), replace(runs, seed=1).variant_name(FULL)):
            with run_dir.lock(other, NEVER) as free:
                assert free
        threading.Timer(0.1, trained.set).start()  # as the holder finishes a stage, and goes on with the next one
        with run_dir.lock(name, NEVER, trained.is_set) as second:
            assert trained.is_set() and not second


def test_a_variant_is_trained_on_while_it_is_scored(done, material, tmp_path, monkeypatch):
    runs = SeedRuns(shop_at(tmp_path / "scored", material), 0)
    shutil.copytree(done.stage_dir(FULL, "joint").parent, runs.stage_dir(FULL, "joint").parent)
    taken, scorer = [], VariantScorer(runs.run_dir, TOWERS)

    def score(runs, variant, family):
        with runs.run_dir.lock(runs.variant_name(variant.name), Deadline(0.0)) as mine:
            taken.append(mine)
        raise KeyboardInterrupt

    monkeypatch.setattr(scorer, "score", score)
    with pytest.raises(KeyboardInterrupt):
        run_ablations(scorer, [VARIANTS[FULL]], [0], NEVER)
    assert taken == [True]


def test_what_another_process_held_until_the_time_was_over_is_not_called_scored(done, tmp_path):
    said = []
    runs = SeedRuns(replace(done.run_dir, folder=tmp_path, say=said.append), 0)
    shutil.copytree(done.run_dir.folder / done.variant_name(FULL), tmp_path / runs.variant_name(FULL))
    runs.scores_file(FULL, GAMES).unlink()
    with runs.run_dir.lock(f"{runs.variant_name(FULL)}/scoring", NEVER):
        assert not run_ablations(VariantScorer(runs.run_dir, TOWERS), [VARIANTS[FULL]], [0], Deadline(0.001))
    assert "full, seed 0: time is up while another process scores its games" in said


def test_a_folder_of_another_job_is_refused(material):
    with pytest.raises(ValueError, match="ablations of another budget"):
        replace(material, budget=BUDGETS["quick"]).begin()


def test_another_seed_is_another_training_of_the_same_recipe(done):
    """Other weights to begin with and to end with; the clips that are scored are the same."""
    other = replace(done, seed=1)
    for stage in (PRETRAIN, "joint"):
        weights = [read_adapter(runs.stage_file(FULL, stage))[2] for runs in (done, other)]
        assert weights[0].keys() == weights[1].keys()
        assert not any(torch.equal(weights[0][name], weights[1][name]) for name in weights[0] if "weight" in name)
    groups = [Samples.read(runs.scores_file(FULL, RECONSTRUCTION)).groups for runs in (done, other)]
    assert groups[0] == groups[1]


def test_training_begins_with_a_decoder_that_can_draw_and_an_encoder_that_knows_nothing(done):
    begun = done.parts(VARIANTS[FULL], ((FULL, PRETRAIN),))
    fresh = done.parts(VARIANTS[FULL], ())
    name = "decoder.transformer.proj_out.weight"
    taught = read_adapter(done.stage_file(FULL, PRETRAIN))[2]
    assert torch.equal(begun.decoder.get_parameter(name.partition(".")[2]), taught[name])
    untrained = {key: value for key, value in taught.items() if key.startswith("encoder.")}
    assert untrained and not any(torch.equal(begun.encoder.state_dict()[key[8:]], untrained[key]) for key in untrained)
    before = [begun, fresh, done.parts(VARIANTS[FULL], ((FULL, PRETRAIN), (FULL, "warmup")))]
    weights = [parts.decoder.get_parameter(name.partition(".")[2]) for parts in before]
    assert torch.equal(weights[0], weights[2]), "warm-up leaves the decoder as it is"
    assert not torch.equal(weights[0], weights[1])


def test_a_history_of_text_hides_the_representations_of_past_turns_from_the_engine(done):
    """Neither trained nor played engines let one through; full's does."""
    for name, told_apart in (("text_history", False), (FULL, True)):
        row = VARIANTS[name]
        engine = done.parts(row, row.path(GAMES)).engine
        states = torch.randn(2, 1, engine.spec.state.tokens, engine.spec.state.width)
        seen = [engine.project_in(state) for state in states]
        assert torch.equal(*seen) != told_apart and bool(seen[0].any()) == told_apart


def test_scores_of_other_scoring_models_are_refused(done):
    for models in (None, replace(TOWERS, dreamsim=None)):
        with pytest.raises(ValueError, match="full.*was scored with other scoring models: .* was .*, now null"):
            run_ablations(VariantScorer(done.run_dir, models), [], [0], NEVER)
    renamed = replace(TOWERS, clip=MeanColour(name="in another folder"))
    assert run_ablations(VariantScorer(done.run_dir, renamed), [], [0], NEVER), "the same files"


def samples(**columns) -> Samples:
    count = len(next(iter(columns.values())))
    return Samples(tuple(str(number) for number in range(count)), columns, {"towers": None})


def thrice(scores: Samples) -> dict[int, Samples]:
    """The same scores from three seeds."""
    return dict.fromkeys(range(3), scores)


@pytest.mark.parametrize(
    ("theirs", "full", "part", "agrees"),
    [
        ([0.1] * 20, [0.9] * 20, 1.0, table.YES),
        ([0.9] * 20, [0.1] * 20, 1.0, table.NO),
        ([0.1, 0.9] * 10, [0.9, 0.1] * 10, 1.0, table.OPEN),
        ([0.6] * 20, [0.9] * 20, 0.5, table.NO),  # lower, but no collapse
        ([0.4] * 20, [0.9] * 20, 0.5, table.YES),
        ([None] * 20, [0.9] * 20, 1.0, table.UNMEASURED),
        ([0.1] * 9, [0.9] * 9, 1.0, table.FEW),
        ([0.1] * 9 + [None] * 9, [0.9] * 18, 1.0, table.FEW),
    ],
)
def test_a_claim_is_judged_by_paired_differences(theirs, full, part, agrees):
    claim = Claim("says", "no_motion_scope", "acc_f", part)
    found = table.check_claim(claim, thrice(samples(acc_f=theirs)), thrice(samples(acc_f=full)))
    assert (found.agrees, found.seeds) == (agrees, 3)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=10, max_size=30))
def test_a_claim_turned_round_is_answered_the_other_way(pairs):
    """Never both, and what cannot be told apart cannot be so from either side."""
    one, other = (samples(clip_i=[float(pair[side]) for pair in pairs]) for side in (0, 1))
    claim = Claim("lowers", "no_adaptation", "clip_i")
    opposite = {table.YES: table.NO, table.NO: table.YES, table.OPEN: table.OPEN}
    found = [table.check_claim(claim, *map(thrice, pair)).agrees for pair in ((one, other), (other, one))]
    assert opposite[found[0]] == found[1]


def test_a_difference_that_other_seeds_turn_round_is_not_counted():
    """By hand: three seeds differ by -0.3, -0.1 and 0.1; their mean is -0.1 +- 4.303 * 0.2 / sqrt(3) = 0.497."""
    claim = Claim("lowers", "no_adaptation", "clip_i")
    full = thrice(samples(clip_i=[0.6] * 12))
    apart = {seed: samples(clip_i=[value] * 12) for seed, value in enumerate((0.3, 0.5, 0.7))}
    found = table.check_claim(claim, apart, full)
    assert found.agrees == table.OPEN
    assert (found.difference.value, found.difference.low) == (pytest.approx(-0.1), pytest.approx(-0.597, abs=1e-3))
    near = {seed: samples(clip_i=[value] * 12) for seed, value in enumerate((0.49, 0.5, 0.51))}
    assert table.check_claim(claim, near, full).agrees == table.YES
    assert table.check_claim(claim, {0: near[0], 1: near[1]}, full).agrees == table.FEW_SEEDS
    other = {seed + 7: row for seed, row in near.items()}
    assert table.check_claim(claim, other, full).agrees == table.UNMEASURED, "no seed that both have"


@given(st.lists(st.lists(st.floats(0, 1), min_size=12, max_size=12), min_size=1, max_size=5))
def test_seeds_only_widen_an_interval_and_equal_ones_do_not(rows):
    found = table.estimate([samples(clip_i=row) for row in rows], "clip_i")
    assert found.low <= found.value <= found.high and found.count == 12 * len(rows)
    games = table.estimate([samples(clip_i=rows[0])], "clip_i")
    assert over_seeds(games, [games.value]) == games
    again = over_seeds(games, [games.value] * 3)
    assert (again.low, again.high) == (pytest.approx(games.low), pytest.approx(games.high))


def test_the_joint_interval_covers_what_it_should():
    """Of 400 made-up experiments of 3 seeds and 12 games with a true mean of 0, the interval holds it in 95 %."""
    rng, held = np.random.default_rng(5), 0
    for _ in range(400):
        values = rng.normal(0, 0.3, (3, 1)) + rng.normal(0, 0.3, (1, 12)) + rng.normal(0, 0.1, (3, 12))
        found = table.estimate([samples(clip_i=row.tolist()) for row in values], "clip_i")
        held += found.low <= 0 <= found.high
    assert 0.93 <= held / 400 <= 0.995


def test_only_decided_claims_are_tallied():
    full, lower = samples(clip_i=[0.9] * 12), samples(clip_i=[0.5] * 12)
    claim = Claim("lowers", "random_frame", "clip_i")
    found = [table.check_claim(claim, thrice(row), thrice(full)) for row in (lower, full)]
    found.append(table.check_claim(claim, {0: lower}, {0: full}))
    assert table.tally(found).startswith(
        "1 of 3 claims agree with the paper, 0 disagree. For 1 there is no clear difference. For 1 there are too few"
    )


@pytest.mark.parametrize(("value", "agrees"), [(0.0, table.YES), (1.0, table.NO)])
def test_claims_follow_the_scores_of_their_own_variant_alone(value, agrees):
    scores = {
        ("no_motion_scope", RECONSTRUCTION): thrice(samples(acc_f=[value] * 12)),
        (FULL, RECONSTRUCTION): thrice(samples(acc_f=[1.0] * 12)),
    }
    first, *others = table.claim_results(scores)
    assert (first.claim, first.agrees) == (CLAIMS[0], agrees)
    assert len(others) == len(CLAIMS) - 1 and {result.agrees for result in others} == {table.UNMEASURED}


def test_the_papers_figures_stand_where_they_belong():
    """Games have the main table's; the ablation table's row full is of clips; the text has adaptation's CLIP-I."""
    games, clips = (VARIANTS[FULL].published(family) for family in (GAMES, RECONSTRUCTION))
    assert (games.table, games.values["clip_i"], games.values["acc_f"]) == (MAIN_TABLE, 0.813, 0.674)
    assert (clips.table, clips.values["clip_i"], clips.values["acc_f"]) == (ABLATION_TABLE, 0.867, 0.729)
    assert not VARIANTS["window_2"].published(GAMES).values
    for claim in CLAIMS:  # each lies in the direction of the paper's own figures, where it gives some
        if claim.published is None:
            assert claim.variant == "text_history"
            continue
        _, theirs, full = claim.published
        assert theirs > full if claim.metric in table.ERRORS else theirs < claim.part * full
    said = {(claim.variant, claim.metric): claim.published for claim in CLAIMS}
    assert said["no_adaptation", "clip_i"] == (TEXT, 0.683, 0.786)
    assert said["no_adaptation", "acc_f"] == (ABLATION_TABLE, 0.365, 0.729)


def test_the_table_has_every_row_and_follows_the_scores(done, tmp_path):
    paths = table.write_table(done.run_dir, tmp_path, "the command")
    report = json.loads(paths[0].read_text())
    assert {(row["variant"], row["family"]) for row in report["rows"]} == {
        (row.name, family) for row in chosen(TRAINED) for family in row.families
    }
    assert {name.partition("/")[0] for name in report["not_scored"]} == set(VARIANTS) - set(TRAINED)
    assert report["command"] == "the command" and report["budget"]["name"] == "tiny"
    assert len(report["claims"]) == len(CLAIMS)
    measured = [
        claim for claim in report["claims"] if claim["metric"] != "remembered"
    ]  # two turns name no colour again
    assert all(bool(claim["here"]) == (claim["variant"] in TRAINED) for claim in measured)
    text = paths[1].read_text()
    assert "CLIP-I (toybox towers)" in text and "[0.182]" in text and "| no_motion_scope |" in text
    kept = json.loads(paths[2].read_text())
    assert len(kept["window_0/games/seed 0"]["states_right"]) == TINY.games * TINY.turns
    assert {claim["agrees"] for claim in report["claims"]} <= {table.FEW, table.FEW_SEEDS, table.UNMEASURED}
    assert report["seeds"] == [0, 1]
    papers = {(row["variant"], row["family"]): row["paper"] for row in report["rows"]}
    assert papers["full", GAMES]["figures"]["clip_i"] == 0.813, "of games, and not the ablation table's 0.867"
    played = text[text.index(table.TITLES[GAMES]) : text.index("## What the paper says")]
    assert "[0.813]" in played and "0.867" not in played and "the paper's main table" in played
    assert report["tally"] in text
    clips, games = (line for line in text.splitlines() if line.startswith("| variant |"))
    assert clips.endswith("| MAE-F | PSNR, dB | character | place | motion | colour |")
    assert games.endswith("| states right | level right | character | place | motion | colour named before |")


def test_the_command_trains_scores_and_stops_in_time(material, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("animegamer_core.research.ablations.budgets.BUDGETS", {**BUDGETS, "quick": TINY})
    shop_at(tmp_path / "work", material)
    words = ["--work", str(tmp_path / "work"), "--world", str(material.world.folder), "--budget", "quick"]
    words += ["--variants", "addition", "--towers", "none", "--device", "cpu", "--workers", "1"]
    assert parse(cli.Ablations, [*words, "--minutes", "0"], "evaluate ablations", "").run() == cli.UNFINISHED
    assert parse(cli.Ablations, words, "evaluate ablations", "").run() == 0
    report = json.loads((tmp_path / "work" / "table" / "ablations.json").read_text())
    assert [(row["variant"], row["family"]) for row in report["rows"]] == [("addition", "reconstruction")]
    assert report["command"].startswith("python -m animegamer_core"), "as it can be typed again"
    assert "full/games" in report["not_scored"] and report["rows"][0]["scored_with"]["0"]["towers"] is None
    assert "ablations.md" in capsys.readouterr().out
