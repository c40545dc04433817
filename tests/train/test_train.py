"""Training on tiny real models and a small dataset of moving squares."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import pathlib
import re
import shutil
import typing
from unittest import mock

import msgspec
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch.nn.functional import pad, unfold

from animegamer_core.cli.options import parse
from animegamer_core.cli.train import Options
from animegamer_core.data.dataset import ClipRecord, GameRecord
from animegamer_core.game.state import MOTION_TABLES, GameState, Turn
from animegamer_core.media.video import write_clip
from animegamer_core.model.encoder import clip_pixels
from animegamer_core.model.prompt import build_prompt
from animegamer_core.model.sampler import Guidance, solve, sqrt_alpha_cumprod
from animegamer_core.spec import PROFILES, RELEASE, SPECS
from animegamer_core.train.checkpoints import list_checkpoints, step_of
from animegamer_core.train.engine_learner import EngineLearner, PromptTable
from animegamer_core.train.job import short_config, train_adapter
from animegamer_core.train.learners import ContrastiveLearner, DiffusionLearner, VaeLearner
from animegamer_core.train.log import RunProgress, draw_losses, plot_log, read_log
from animegamer_core.train.losses import clean_of, contrastive
from animegamer_core.train.parts import WorldParts, is_trained_lora, set_trainable, world_for_stage
from animegamer_core.train.run import measured_scale, train_stage
from animegamer_core.train.sampling import MicroBatch
from animegamer_core.train.stages import LORA, STAGES, STAGES_IN_ORDER, film_plan, stage_config
from animegamer_core.train.trainer import Trainer, learning_rate
from animegamer_core.train.training_data import TrainingData, add_latents, autocast, clip_frames, weights_digest
from animegamer_core.train.world_setup import words_tokenizer
from animegamer_core.weights import open_world
from animegamer_core.weights.adapter_files import adapter_facts
from animegamer_core.weights.adapters import with_adapters
from animegamer_core.weights.lora import apply_adapter

SMALL = dataclasses.replace(SPECS["tiny"].decoder, height=16, width=24)
TINY = dataclasses.replace(SPECS["tiny"], name="tiny16", decoder=SMALL)
COLOURS = {"Red": (220, 40, 40), "Green": (40, 200, 60), "Blue": (50, 60, 220)}
MOTIONS = {"rest": 0, "walk": 1, "run": 2}
UPDATES = {"lora_targets": LORA["joint"].lora_targets}
JOINT = {"lora_rank": 2, "lr": 1e-3, "trainable": LORA["joint"].trainable, **UPDATES}
FEW = {"timesteps": (999, 600), "pairs": 2, "fake_updates": 1, "collapse": 0.0}  # every turn in six steps
GAME_TURNS = 6
GAMES = 4


def moving_square(colour: tuple[int, int, int], speed: int, start: int) -> np.ndarray:
    """(17, 16, 24, 3) uint8: a square that moves to the right."""
    frames = np.full((17, 16, 24, 3), 230, np.uint8)
    for number in range(17):
        left = (start + speed * number) % 18
        frames[number, 5:11, left : left + 6] = colour
    return frames


def small_world() -> tuple[tuple[ClipRecord, ...], tuple[GameRecord, ...], torch.Tensor]:
    """Turns, games (the last held out) and frames of a dataset, in memory."""
    numbers = np.random.default_rng(0)
    turns, frames = [], []
    for index in range(GAMES * GAME_TURNS):
        name = list(COLOURS)[(index // GAME_TURNS) % 3]
        motion = list(MOTIONS)[int(numbers.integers(3))]
        speed = MOTIONS[motion]
        frames.append(moving_square(COLOURS[name], speed, int(numbers.integers(6))))
        place = {"film": "squares", "start": 2.0 * index, "end": 2.0 * index + 2, "clip": f"clips/{index:04d}.mp4"}
        words = {"character": (name,), "motion": motion, "background": "day field"}
        words |= {"adverb": "slowly" if speed < 2 else "quickly"}
        stats = {"social": 0, "entertainment": int(speed == 2), "stamina": 1 if speed == 0 else -1}
        turns.append(ClipRecord(**place, **words, motion_value=15.0 * speed, motion_level=1 + 2 * speed, stats=stats))
    played = [tuple(range(g * GAME_TURNS, (g + 1) * GAME_TURNS)) for g in range(GAMES)]
    games = tuple(GameRecord(f"game{g}", clips, g == GAMES - 1) for g, clips in enumerate(played))
    return tuple(turns), games, torch.from_numpy(np.stack(frames))


def new_parts(data: TrainingData, seed: int = 0) -> WorldParts:
    return WorldParts.new(TINY, words_tokenizer(data.folder.turns, TINY), PROFILES["paper"], seed)


def tiny_config(stage: str, **changes):
    values = {"steps": 6, "batch": 4, "lr_warmup": 2, "log_every": 1, "save_every": 1000, "validate_every": 0}
    return dataclasses.replace(stage_config(stage, "scratch"), **{**values, **changes})


def run(stage, parts, data, out, options=None, **changes):
    """(what `train_stage` returns, logged lines) of a stage."""
    lines = []
    options = {"on_step": lambda step, steps, values: lines.append(values), **(options or {})}
    return train_stage(stage, tiny_config(stage, **changes), parts, data, out, **options), lines


def stopping(after: int) -> dict[str, typing.Any]:
    """Options that stop a run after so many steps."""
    taken = itertools.count(1)
    return {"should_stop": lambda: next(taken) == after}


def same_tensors(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Whether two adapter files hold the same."""
    left, right = load_file(one), load_file(other)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def train(stage: str, dataset: object, world: object, out: object, options: str, said=lambda line: None) -> int:
    """The command `train`; returns its exit status. said: receives the lines that it prints."""
    places = ["--dataset", str(dataset), "--world", str(world), "--out", str(out)]
    return parse(Options, [stage, *places, *options.split()], "train", "").run(said)


def losses_of(lines) -> list[float]:
    return [line["loss"] for line in lines]


@pytest.mark.parametrize("stage", STAGES_IN_ORDER)
def test_every_stage_learns(stage, ready, tmp_path):
    steps = 6 if stage == "vae" else 30
    rates = {"vae": 3e-3, "towers": 3e-3, "adapt": 3e-3}
    parts = new_parts(ready)
    result, lines = run(stage, parts, ready, tmp_path, steps=steps, batch=8, lr=rates.get(stage, 5e-3), ema=0.0)
    early, late = np.mean(losses_of(lines)[: steps // 6]), np.mean(losses_of(lines)[-steps // 6 :])
    assert not {*STAGES[stage].outdates} & {*result[1].store}, "what it trained has made them outdated"
    assert late < 0.95 * early and (tmp_path / f"{stage}.safetensors").is_file()
    trained = {"vae": parts.decoder.vae, "towers": parts.encoder, "predict": parts.engine}
    assert not any(value.requires_grad for value in trained.get(stage, parts.decoder.transformer).parameters())
    assert json.loads((tmp_path / "result.json").read_text())["steps"] == steps


@pytest.mark.parametrize(
    ("stage", "changes"),
    [
        ("joint", {**JOINT, "lora_dropout": 0.3}),
        ("joint", {"muon": 2.0}),
        ("vae", {"crop": (8, 16)}),
        ("predict", {"history_noise": 0.5, "per_card": 2}),
        ("towers", {"ema": 0.0}),
        ("distill", {"lora_rank": 2, "lr": 1e-3, "trainable": (), **UPDATES}),
        ("distill", {**FEW, "per_card": 2, "ema": 0.0}),
        ("distill", {**FEW, "lora_rank": 2, "trainable": (), **UPDATES}),
    ],
)
def test_a_stopped_run_goes_on_with_the_same_numbers(stage, changes, ready, tmp_path):
    _, unbroken = run(stage, new_parts(ready), ready, tmp_path / "whole", **changes)
    first, before = run(stage, new_parts(ready), ready, tmp_path / "parted", stopping(3), **changes)
    assert first is None and not (tmp_path / "parted" / f"{stage}.safetensors").exists()
    with torch.compiler.set_stance("force_eager"):  # the numbers of compiled code differ by rounding
        _, after = run(stage, new_parts(ready), ready, tmp_path / "parted", compile=True, **changes)
    assert losses_of(before) + losses_of(after) == losses_of(unbroken)
    assert losses_of(read_log(tmp_path / "parted" / "log.jsonl")) == losses_of(unbroken)
    assert after[0]["seconds"] > before[-1]["seconds"], "they count on"
    assert json.loads((tmp_path / "parted/result.json").read_text())["seconds"] >= after[-1]["seconds"], "in all"
    assert same_tensors(*(tmp_path / folder / f"{stage}.safetensors" for folder in ("whole", "parted")))


def test_a_run_is_not_continued_unasked_or_with_other_settings(ready, data, tmp_path):
    run("towers", new_parts(ready), ready, tmp_path, stopping(1))
    with mock.patch("animegamer_core.train.run.prepare", side_effect=AssertionError("hours of work")):
        with pytest.raises(ValueError, match="already holds a run; resume it"):
            run("towers", new_parts(data), data, tmp_path, {"resume": False})
    for changes, sentence in (
        ({"lr": 2e-3}, "lr 0.001, now it is 0.002"),
        ({"per_card": 2}, "per_card 0, now it is 2"),  # a clip is told from those of its part
    ):
        with pytest.raises(ValueError, match=sentence):
            run("towers", new_parts(ready), ready, tmp_path, **changes)
    with pytest.raises(ValueError, match="stage 'towers', not 'joint'"):
        run("joint", new_parts(ready), ready, tmp_path)
    run("joint", new_parts(ready), ready, tmp_path / "joint", stopping(1))
    run("joint", new_parts(ready), ready, tmp_path / "joint", per_card=2)


def test_a_finished_run_continues_with_more_steps(ready, tmp_path):
    first, _ = run("towers", new_parts(ready), ready, tmp_path, lr_warmup=0)
    assert first
    config = tiny_config("towers", steps=9, lr_warmup=3)
    longer, lines = run("towers", new_parts(ready), ready, tmp_path, steps=9, lr_warmup=3)
    assert longer and len(lines) == 3
    course = [learning_rate(dataclasses.replace(config, lr_warmup=0), step) for step in (6, 7, 8)]
    few = dataclasses.replace(config, steps=20, timesteps=(999,), pairs=9, matching_lr=config.lr / 2)
    for each, last in ((config, 0.02), (few, 0.5)):
        rates = [learning_rate(each, step) / config.lr for step in (0, 3, 6, 9)]
        assert rates == pytest.approx([1 / 3, 1, 0.51, last])
    assert [line["lr"] for line in lines] == pytest.approx(course)
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == list(range(1, 10))
    with pytest.raises(ValueError, match="steps 9, now it is 6"):
        run("towers", new_parts(ready), ready, tmp_path, lr_warmup=0)


def test_only_the_last_two_checkpoints_stay_and_a_cut_off_one_falls_back(ready, tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "part-1-step-0000004.safetensors").write_bytes(b"half")
    run("predict", new_parts(ready), ready, tmp_path, save_every=1)
    checkpoints = list_checkpoints(folder)
    assert [step_of(path) for path in checkpoints] == [5, 6] and sorted(folder.iterdir()) == checkpoints
    checkpoints[1].write_bytes(checkpoints[1].read_bytes()[:-100])
    with pytest.warns(UserWarning, match="step-0000006.safetensors is cut off .*; the run continues from step 5"):
        run("predict", new_parts(ready), ready, tmp_path)
    assert list_checkpoints(folder) == checkpoints


@pytest.fixture(scope="module")
def joint(ready, tmp_path_factory):
    """(adapter of stage joint, the parts that were trained)."""
    trained, out = new_parts(ready), tmp_path_factory.mktemp("joint")
    run("joint", trained, ready, out, **JOINT)
    return out / "joint.safetensors", trained


def test_a_stage_file_brings_the_trained_weights_to_other_parts(joint, ready):
    (file, trained), other, plain = joint, new_parts(ready), new_parts(ready).decoder.state_dict()
    apply_adapter(file, "decoder", other.decoder)
    left, right = trained.decoder.state_dict(), other.decoder.state_dict()
    assert left.keys() == right.keys() == plain.keys()
    assert all(torch.allclose(left[name], right[name], atol=1e-6) for name in left)
    name = "transformer.transformer_blocks.0.attn1.to_q.weight"
    assert not torch.equal(left[name], plain[name])
    other.decoder.transformer.transformer_blocks[0].attn1.to_q = torch.nn.Linear(3, 5)
    with pytest.raises(ValueError, match="for another spec"):
        apply_adapter(file, "decoder", other.decoder)


def test_a_tiny_decoder_learns_with_the_vae_or_alone(data, tmp_path):
    vae = dataclasses.replace(TINY.decoder.vae, tiny=(8, 8, 8))
    spec = dataclasses.replace(TINY, decoder=dataclasses.replace(TINY.decoder, vae=vae))
    parts = WorldParts.new(spec, words_tokenizer(data.folder.turns, spec), PROFILES["paper"])
    taught = []
    hook = parts.decoder.vae.tiny.register_forward_pre_hook(lambda _, given: taught.append(given[0].requires_grad))
    (parts, _), lines = run("vae", parts, data, tmp_path / "both", steps=2)
    hook.remove()
    assert taught and not any(taught), "latents do not change for its sake"
    assert {"psnr", "tiny_psnr"} <= lines[-1].keys()
    learner = VaeLearner(tiny_config("vae", crop=(8, 16)), parts.decoder).eval()
    learner._frames = lambda *_: torch.arange(16 * 24, dtype=torch.uint8).view(1, 1, 16, 24, 1).expand(1, 17, -1, -1, 3)
    read = [learner.batch(data, torch.arange(1), MicroBatch(step), torch.device("cpu"))["clip"] for step in range(20)]
    assert len({clip[0, 0, 0, 0, 0].item() for clip in read}) == 4, "every place on the grid"
    parts.decoder.vae.requires_grad_(True)
    noisy = VaeLearner(tiny_config("vae", latent_noise=9.0), parts.decoder).eval()
    batch, read = noisy.batch(data, torch.arange(2), MicroBatch(0), torch.device("cpu")), []
    hook = parts.decoder.vae.tiny.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    noisy(batch)
    hook.remove()
    (one, other), clean = batch["least"].flatten(), parts.decoder.vae.encode(batch["clip"]).latent_dist
    assert 0 < one < 9 and 0 < other < 9 and abs(one - other) > 0.1, "each clip has its own"
    torch.testing.assert_close(read[0], clean.mean + clean.std.clamp(min=batch["least"]) * batch["noise"])
    before = {name: value.clone() for name, value in parts.decoder.vae.state_dict().items()}
    alone = {"trainable": (r"^decoder\.vae\.tiny\.",), "muon": 2.0, "lr": 3e-3}
    (parts, _), lines = run("vae", parts.with_scaling_factor(0.5), data, tmp_path / "alone", steps=25, **alone)
    assert parts.spec.decoder.vae.scaling_factor == 0.5, "latents are as before"
    assert "psnr" not in lines[-1] and lines[-1]["tiny_psnr"] > lines[0]["tiny_psnr"] + 1
    changed = {name for name, value in parts.decoder.vae.state_dict().items() if not torch.equal(value, before[name])}
    assert changed and all(name.startswith("tiny.") for name in changed)


def test_the_vae_stage_scales_latents_to_one_and_its_file_brings_the_scale(data, places, tmp_path):
    parts = new_parts(data)
    parts.decoder.vae.encoder.conv_out.conv.bias.data += 1  # a mean, which the scale leaves out
    (trained, left), [row, *_] = run("vae", parts, data, tmp_path, steps=1, kl=0.5)
    weights = {name: getattr(tiny_config("vae"), name) for name in ("mse", "edge", "motion")} | {"l1": 1, "kl": 0.5}
    assert row["loss"] == pytest.approx(sum(weight * row[name] for name, weight in weights.items()), rel=1e-3)
    factor = trained.spec.decoder.vae.scaling_factor
    assert parts.decoder.vae.config.scaling_factor == factor and parts.decoder.spec is trained.spec
    latents = add_latents(left, trained.decoder).store["latents"]
    assert latents[list(data.clips()), 0].float().std() == pytest.approx(1, rel=0.02)
    assert "latents" not in left.store
    with mock.patch("animegamer_core.train.run.MEASURED_CLIPS", 3):
        with mock.patch("animegamer_core.train.run.clip_frames", wraps=clip_frames) as read:
            measured_scale(trained, data)
    assert read.call_args.args[1] == [0, 6, 12], "clips of the whole dataset"
    other = new_parts(data).with_stage_files([(tmp_path / "vae.safetensors", 1.0)])
    assert other.spec == trained.spec and other.decoder.vae.config.scaling_factor == factor
    world = open_world(places[1])
    loaded = WorldParts.load(world)
    before = weights_digest(loaded.decoder.vae)
    loaded.with_stage_files([(tmp_path / "vae.safetensors", 1.0)])
    assert weights_digest(loaded.decoder.vae) != before, "latents that the world's own made are of no use"
    half = with_adapters(world, ((str(tmp_path / "vae.safetensors"), 0.5),)).load_decoder()
    assert half.vae.config.scaling_factor == pytest.approx((1 + factor) / 2)
    world.refit("decoder", half)
    assert half.vae.config.scaling_factor == 1


def test_the_average_begins_with_nine_tenths_of_the_first_step_and_vectors_do_not_decay(ready, tmp_path):
    begun, files = new_parts(ready).encoder.state_dict(), []
    by_muon = ({"ema": 0.0, "muon": gain} for gain in (1.0, 3.0))
    for changes in ({"ema": 0.0}, {"ema": 0.999}, {"ema": 0.0, "clip": 1e-13, "weight_decay": 10.0}, *by_muon):
        run("towers", new_parts(ready), ready, tmp_path / f"{changes}", steps=1, lr_warmup=0, **changes)
        files.append(load_file(tmp_path / f"{changes}" / "towers.safetensors"))
    moved, (plain, average, clipped, once, thrice) = set(), files
    for name, value in average.items():
        before = begun[name.removeprefix("encoder.")]
        torch.testing.assert_close(value, torch.lerp(before, plain[name], 0.9), atol=1e-6, rtol=1e-6)
        kept = 0.99 if before.dim() > 1 and not torch.equal(before, plain[name]) else 1
        torch.testing.assert_close(clipped[name], before * kept, atol=1e-6, rtol=1e-5)
        gain = 1 if torch.equal(once[name], plain[name]) else 3
        torch.testing.assert_close(thrice[name] - before, gain * (once[name] - before), atol=1e-6, rtol=1e-4)
        moved |= {kept, gain}
    assert moved == {0.99, 1, 3}


def test_towers_read_captions_without_padding_and_learn_each_patch_in_its_place(ready):
    image, config = TINY.encoder.image, tiny_config("towers", pixels=1.0)
    learner = ContrastiveLearner(config, new_parts(ready).encoder.eval(), ready)
    batch = learner.batch(ready, torch.arange(12), MicroBatch(0), torch.device("cpu"))
    batch["ids"] = pad(batch["ids"], (0, 2))
    patches = unfold(clip_pixels(batch["images"], image.image_size), image.patch, stride=image.patch).mT
    with mock.patch.object(learner.heads, "embed", wraps=learner.heads.embed) as embed:
        with mock.patch.object(learner.heads.patches, "forward", return_value=patches):
            losses = learner(batch)
    assert losses["pixels"] == 0
    for scale in (1 / 0.07, 100.0):
        match = contrastive(*learner.heads.embed(*embed.call_args.args), torch.tensor(scale), batch["captions"])
        torch.testing.assert_close(losses["contrastive"], match, rtol=0.01, atol=0)
        learner.heads.log_scale.data.fill_(9)  # of which 100 is left
        losses = learner(batch)
    assert embed.call_args.args[1].all(0).tolist() == [True] * (batch["ids"].shape[1] - 2) + [False] * 2


@pytest.mark.parametrize("stage", ["joint", "adapt", "distill"])
def test_both_conditions_are_dropped_as_often_as_the_stage_says(stage, ready):
    parts, nothing = new_parts(ready), {"text": 0.0, "image": 0.0} if stage == "joint" else {"states": 7.0}
    parts.decoder.unconditional_ND.fill_(7.0)
    mean, deviation = ready.gather("latents", torch.arange(4), torch.device("cpu")).float().unbind(1)
    for chance in (0.0, 1.0):
        config = tiny_config(stage, drop_both=chance, played_steps=chance, true_states=1 - chance)
        learner = DiffusionLearner(config, parts.decoder, parts.encoder if stage == "joint" else None)
        batch = learner.batch(ready, torch.arange(4), MicroBatch(0), torch.device("cpu"))
        for name, value in nothing.items():
            lost = (batch[name] == value).flatten(1).all(1)
            assert lost.all() == lost.any() == (chance == 1)
        assert stage == "joint" or chance or torch.equal(batch["states"], ready.store["states"][:4].float())
        played = [timestep in (249, 499, 749, 999) for timestep in batch["timesteps"].tolist()]
        assert all(played) == any(played) == (chance == 1)
        assert ((batch["clean"] - mean) / deviation).std() == pytest.approx(1, abs=0.1), "a sample, not the mean"
    lost_by = {"drop_text": [], "drop_text_features": ["text"], "drop_image": ["image"]}
    for option, lost in lost_by.items() if stage == "joint" else ():
        learner = DiffusionLearner(tiny_config(stage, drop_both=0.0, **{option: 1.0}), parts.decoder, parts.encoder)
        batch = learner.batch(ready, torch.arange(4), MicroBatch(0), torch.device("cpu"))
        assert [name for name in nothing if not batch[name].any()] == lost
        assert lost or torch.equal(batch["text"], ready.blank_text.float().expand_as(batch["text"])), "the text ''"
        with torch.no_grad():
            learner.states(ready, torch.arange(4), torch.device("cpu"))
        assert torch.equal(parts.decoder.unconditional_ND, parts.encoder.unconditional()), "sheets are drawn with it"
    assert [stage_config(name, "scratch").drop_both for name in ("adapt", "distill")] == [0.1, 0.0]


def test_at_its_end_adaptation_reads_what_the_decoder_drew_as_play_does(ready):
    parts, rows = new_parts(ready), torch.arange(4)
    learner = DiffusionLearner(tiny_config("adapt", steps=100, own_steps=0.2), parts.decoder, None)
    drawn = [learner.batch(ready, rows, MicroBatch(step), torch.device("cpu"))["drawn"] for step in range(100)]
    assert drawn[:80] == [0] * 80 and drawn[80:84] == [0, 1, 2, 3], "of the tiny world's four steps"
    assert not learner.eval().batch(ready, rows, MicroBatch(99), torch.device("cpu"))["drawn"], "validation stays"
    batch = learner.train().batch(ready, rows, MicroBatch(83), torch.device("cpu"))
    read, velocity = [], parts.decoder.velocity

    def record(latents, timesteps, *conditions):
        read.append((latents, timesteps.unique().tolist()))
        return velocity(latents, timesteps, *conditions)

    def play(latents, timestep, skip_uncond):
        return record(latents, torch.full((4,), timestep), batch["states"], batch["motion"])

    schedule = parts.decoder.schedule((999, 749, 499, 249))
    with mock.patch.object(parts.decoder, "velocity", record):
        with torch.no_grad():
            solve(play, batch["noise"], schedule, Guidance("distilled"), lambda: None, solver="ddim")
        found = learner(batch)["loss"]
    assert found.requires_grad and not read[-1][0].requires_grad, "only the last step learns"
    for played, trained in zip(read[:4], read[4:], strict=True):
        torch.testing.assert_close(trained, played, rtol=1e-4, atol=1e-4)
    latents, sqrt_alpha = read[-1][0], sqrt_alpha_cumprod(torch.tensor([249] * 4), batch["clean"])
    clean = clean_of(velocity(latents, torch.tensor([249] * 4), batch["states"], batch["motion"]), latents, sqrt_alpha)
    wanted = ((clean - batch["clean"]) / (1 - sqrt_alpha**2).sqrt()).square().mean()
    assert found.item() == pytest.approx(wanted.item(), rel=1e-3), "it learns the clip, however the decoder drew"


def levels_of(turn):
    return turn.motion_level, *turn.stats.values()


@pytest.mark.parametrize("profile", ["paper", "as_run"])
def test_training_prompts_are_the_prompts_of_play(profile, data):
    turns = data.folder.turns
    engine = WorldParts.new(TINY, words_tokenizer(turns, TINY), PROFILES[profile], models=("engine",)).engine
    table = PromptTable(engine, turns)
    for clips in ((3,), (1, 2), (6, 7, 8, 9, 10)):
        past = [(turns[c].instruction, levels_of(turns[c])) for c in clips[:-1]]
        wanted = build_prompt(engine.tokenizer, TINY.state.tokens, past, turns[clips[-1]].instruction, engine.profile)
        short, whole = table.prompt(clips, answered=False), table.prompt(clips)
        for name in ("ids_L", "past_L", "query_L"):
            assert torch.equal(getattr(short, name), getattr(wanted, name))
            assert torch.equal(getattr(whole, name)[: len(wanted.ids_L)], getattr(wanted, name))
        assert len(whole.ids_L) <= table.longest(len(clips) - 1)
        answer = table.answer(whole)
        assert torch.equal(whole.ids_L[len(wanted.ids_L) :], answer)
        numbers = [engine.tokenizer.strength_of(int(answer[at])) for at in table.choices]
        assert tuple(numbers) == levels_of(turns[clips[-1]])
        assert answer[-1] == engine.tokenizer.token("</s>")


def test_data_that_does_not_fit_ends_before_the_first_step(data, tmp_path):
    parts, folder = new_parts(data), data.folder
    wide = TrainingData(folder, {"frames": torch.zeros(len(folder.turns), 17, 16, 32, 3, dtype=torch.uint8)})
    bare = dataclasses.replace(folder, turns=tuple(msgspec.structs.replace(turn, motion=None) for turn in folder.turns))
    names = ("somersault", "cartwheel", "handstand", "headspin")
    odd = tuple(msgspec.structs.replace(turn, motion=name) for turn, name in zip(folder.turns, names, strict=False))
    unknown = dataclasses.replace(folder, turns=(*odd, *folder.turns[len(names) :]))
    lacking_words = "does not have 'somersault', 'cartwheel', 'handstand', 'headspin' from .*train a new world"
    for stage, given, sentence in (
        ("vae", wide, "24, 3"),
        ("towers", dataclasses.replace(data, folder=bare), "no caption"),
        *((stage, dataclasses.replace(data, folder=unknown), lacking_words) for stage in ("joint", "predict")),
        ("predict", dataclasses.replace(data, folder=dataclasses.replace(folder, games=())), "no game"),
        ("adapt", data, "needs the engine"),
    ):
        lacking = dataclasses.replace(parts, engine=None) if stage == "adapt" else parts
        with pytest.raises(ValueError, match=sentence):
            run(stage, lacking, given, tmp_path)
    assert not (tmp_path / "log.jsonl").exists()
    size = words_tokenizer(folder.turns, TINY).size
    full = dataclasses.replace(TINY, engine=dataclasses.replace(TINY.engine, vocab_size=size))
    assert words_tokenizer(folder.turns, full).size == size
    with pytest.raises(ValueError, match="words is needed, but spec .* has room for"):
        words_tokenizer(unknown.turns, full)


def test_a_torn_last_line_spoils_neither_the_picture_nor_a_resumed_log(ready, tmp_path):
    clock = mock.Mock(monotonic=itertools.count(0, 20).__next__)  # seconds between two looks at it
    log = tmp_path / "log.jsonl"
    for done in ([1, 2], [1, 2, 3, 4]):  # the minutes of each run
        with mock.patch("animegamer_core.train.loop.time", clock):
            run("predict", new_parts(ready), ready, tmp_path, minutes=1.0)
        whole = log.read_text()
        log.write_text(whole + '{"step": 3, "lo')
        assert [line["step"] for line in read_log(log)] == done
    plot_log(log, tmp_path / "loss.png")
    assert draw_losses(read_log(log)).tobytes() == Image.open(tmp_path / "loss.png").tobytes()
    assert draw_losses([{"step": 1, "loss": 0.0}, {"step": 2, "loss": 9.0}]).size == (960, 600)
    run("predict", new_parts(ready), ready, tmp_path)
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [1, 2, 3, 4, 5, 6]
    assert log.read_text().startswith(whole)


def test_progress_is_reported_at_the_start_every_ten_seconds_and_at_the_end():
    said, seconds = [], iter((0, 1, 12, 13))
    progress = RunProgress("joint", said.append)
    with mock.patch("animegamer_core.train.log.time", mock.Mock(monotonic=seconds.__next__)):
        for done in (1, 2, 3, 4):
            progress.feature("latents", done, 4)
    assert said == [f"computing latents of clips: {done} of 4" for done in (1, 3, 4)]
    for step, seconds in ((20, 40.0), (40, 100.0)):
        progress.step(step, 100, {"loss": 0.5, "seconds": seconds})
    assert said[-1] == "joint 40/100  loss 0.5  3 s a step, 3 min left", "at the pace since the line before"


def test_weights_that_are_no_numbers_are_not_saved(ready, tmp_path):
    parts = new_parts(ready)

    def spoil(step, *_):
        if step == 2:
            with torch.no_grad():
                next(value for value in parts.engine.parameters() if value.requires_grad).fill_(float("nan"))

    with pytest.raises(ValueError, match="holds NaN or infinity at step 2, so no checkpoint is written"):
        run("predict", parts, ready, tmp_path, {"on_step": spoil}, save_every=1)
    assert [step_of(path) for path in list_checkpoints(tmp_path / "checkpoints")] == [1]


def test_the_engine_reads_a_past_with_noise_and_is_measured_without_recall(ready):
    config = tiny_config("predict", history_noise=0.5, recall=0.3, alpha=2.0, beta=3.0)
    learner, rows = EngineLearner(config, new_parts(ready).engine, ready), torch.tensor([[0, 1, 2], [6, 7, 8]])
    true = ready.gather("states", rows[:, :-1].flatten(), torch.device("cpu")).float()
    batch = learner.batch(ready, rows, MicroBatch(0), torch.device("cpu"))
    losses, noise = learner(batch), batch["past"].flatten(0, 1) - true
    weighed = losses["entropy"] + 2 * losses["mse"] + 3 * losses["cosine"]
    torch.testing.assert_close(losses["loss"], weighed, msg="the supplement's formula 1")
    sizes = noise.flatten(1).std(1)
    assert sizes.max() < 0.55 and sizes.max() > 1.5 * sizes.min(), "of a random strength for each turn"
    assert [learner.sampler(ready, held_out).recall for held_out in (False, True)] == [0.3, 0.0]


def test_predictions_for_the_decoder_are_those_of_play(ready):
    engine, (clips, window) = new_parts(ready).engine.eval(), (ready.folder.games[1].clips, tiny_config("adapt").window)
    learner = EngineLearner(tiny_config("predict"), engine, ready)  # whose sheets show what it predicts
    states = ready.gather("states", torch.tensor(clips), torch.device("cpu")).float()
    labels = [ready.folder.turns[clip] for clip in clips]
    pasts = [GameState(state, turn.motion_level, turn.stats) for state, turn in zip(states, labels, strict=True)]
    turns = [Turn(1, turn.instruction, 0, state, {}) for turn, state in zip(labels, pasts, strict=True)]
    for number in (0, 2, GAME_TURNS - 1):
        played = engine.predict(turns[max(0, number - window) : number], labels[number].instruction).representation
        given = ready, torch.tensor([clips[number]]), torch.device("cpu")
        torch.testing.assert_close(ready.gather("predicted", *given[1:])[0].float(), played, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(learner.states(*given)[0].detach(), played, atol=1e-3, rtol=1e-3)


def test_games_shorter_than_the_window_state_what_was_trained(ready, tmp_path):
    (parts, _), lines = run("predict", new_parts(ready), ready, tmp_path, window=GAME_TURNS, validate_every=6)
    config = tiny_config("predict", window=GAME_TURNS)
    learner, read = EngineLearner(config, parts.engine, ready), []
    learner.register_forward_pre_hook(lambda _, given: read.append(given[0]["past"].shape[1]))
    averaged = Trainer("predict", config, learner, ready).validate()
    assert sorted(read) == [*range(GAME_TURNS)], "every length as often"
    assert lines[-1]["held_out_loss"] == pytest.approx(averaged["held_out_loss"]), "of the weights that are saved"
    alone = dataclasses.replace(ready, folder=dataclasses.replace(ready.folder, games=ready.games()))
    assert Trainer("predict", config, learner, alone).validate() == {}, "where no game is held out"
    assert adapter_facts(tmp_path / "predict.safetensors").reading.window == GAME_TURNS - 1


def test_a_loss_that_is_no_number_ends_the_run(ready, tmp_path):
    broken = torch.full_like(ready.store["states"], float("nan"))
    spoilt = dataclasses.replace(ready, store={**ready.store, "states": broken})
    with pytest.raises(ValueError, match="loss is nan at step 1"):
        run("predict", new_parts(ready), spoilt, tmp_path)
    assert not list_checkpoints(tmp_path / "checkpoints")


def test_the_recipe_for_published_weights_has_the_papers_settings():
    """As docs/reference.md states them, 2 and 10."""
    rows = {stage: LORA[stage] for stage in ("warmup", "joint", "predict", "adapt")}
    assert [row.steps for row in rows.values()] == [10_000, 80_000, 15_000, 10_000]
    assert [row.lr for row in rows.values()] == [2e-4, 2e-4, 5e-5, 5e-5]
    assert [(row.lora_rank, row.lora_alpha) for row in rows.values()] == [(0, 1), (64, 1), (32, 32), (64, 1)]
    for row in (rows["warmup"], rows["joint"]):
        assert (row.drop_text, row.drop_text_features, row.drop_image, row.drop_both) == (0.05, 0.1, 0.05, 0)
    assert [getattr(rows["predict"], name) for name in ("lora_dropout", "alpha", "beta", "window")] == [0.05, 1, 0, 4]


def test_the_steps_for_one_film_grow_with_its_clips():
    """As docs/film-world.md measured them."""
    for clips, steps, batch in ((8, [1000, 300, 240], 4), (80, [2800, 800, 640], 32), (999, [10_000, 3000, 2400], 64)):
        rows = film_plan(clips)
        assert [row.steps for row in rows.values()] == steps and rows["joint"].batch == rows["adapt"].batch == batch
        assert rows["predict"].batch == min(batch, 16) and {row.validate_every for row in rows.values()} == {0}
        assert {row.precision for row in rows.values()} == {"native"}


@pytest.mark.parametrize(
    ("precision", "native", "computed"),
    [
        ("native", True, torch.bfloat16),
        ("native", False, torch.float32),
        ("bf16", True, torch.float32),
        ("no", True, torch.float32),
    ],
)
def test_a_cpu_trains_in_bfloat16_only_where_that_is_asked_for_and_fast(monkeypatch, precision, native, computed):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": native}, raising=False)
    with autocast("cpu", precision):
        assert torch.nn.Linear(2, 2)(torch.zeros(1, 2)).dtype == computed


LAYERS = 2  # of the 30 and 32, which would take their time


@pytest.fixture(scope="module")
def release(data) -> WorldParts:
    words = words_tokenizer(data.folder.turns, RELEASE)
    decoder = dataclasses.replace(RELEASE.decoder, layers=LAYERS)
    spec = dataclasses.replace(RELEASE, decoder=decoder, engine=dataclasses.replace(RELEASE.engine, layers=LAYERS))
    with torch.device("meta"):
        return WorldParts.new(spec, words, PROFILES["paper"])


@pytest.mark.parametrize("stage", ["warmup", "adapt"])
def test_release_decoder_stages_train_what_the_paper_trains(stage, release):
    decoder, encoder = copy.deepcopy(release.decoder), copy.deepcopy(release.encoder)
    config = dataclasses.replace(LORA[stage], checkpointing=False)
    learner = DiffusionLearner(config, decoder, None if stage == "adapt" else encoder)
    with torch.device("meta"):
        names = set_trainable(learner, LORA[stage])
    lora = [name for name in names if is_trained_lora(name)]
    rest = sorted(set(names) - set(lora))
    kinds = {
        "scope": [name for name in rest if ".ofs_embedding." in name],
        "modulation": [name for name in rest if re.search(r"blocks\.\d+\.norm[12]\.linear\.", name)],
        "mixing": [name for name in rest if name.startswith("encoder.")],
    }
    assert sum(map(len, kinds.values())) == len(rest)
    sizes = {name: value.numel() for name, value in learner.named_parameters()}
    counts = {kind: sum(sizes[name] for name in found) for kind, found in {**kinds, "lora": lora}.items()}
    text, image = 4096 * 1920 + 1920, 768 * 1920 + 1920
    assert counts == {
        "scope": 1920 * 512 + 512 + 512 * 512 + 512,
        "modulation": 0 if stage == "warmup" else LAYERS * 12 * 1920 * 513,
        "mixing": 0 if stage == "adapt" else text + image + 2 * (1920 * 1920 + 1920) + 4 * 1920,
        "lora": 0 if stage == "warmup" else LAYERS * 983_040,
    }


def test_a_job_runs_within_a_program_that_only_infers(joint, places, tmp_path):
    config = short_config(stage_config("adapt", "lora"), steps=4, batch=2, lora_rank=2, lr=1e-3)
    dataset = shutil.copytree(places[0], tmp_path / "dataset")
    folders = {"dataset": dataset, "out": tmp_path / "run", "cache": tmp_path / "features"}
    assert (config.lr_warmup, config.log_every, config.save_every) == (0, 1, 50), "as a short run needs them"
    assert short_config(stage_config("adapt", "lora"), steps=9000).save_every == 500, "but not less often than usual"
    job = {"stage": "adapt", "config": config, "world": open_world(places[1]), "start": [(joint[0], 1.0)], **folders}
    read = [dataclasses.replace(job["world"].with_profile("reference"), trained_window=own) for own in (None, 2)]
    profiles = [world_for_stage("predict", world, ()).profile.name for world in read]
    assert profiles == ["paper", "reference"], "a published engine learns to read as ours do, which go on as they did"
    computed, steps = set(), []
    options = {"on_step": lambda step, *_: steps.append(step), "device": torch.device("cpu")}
    with torch.inference_mode():
        train_adapter(**job, **options, on_progress=lambda name, *_: computed.add(name))
    assert steps == [1, 2, 3, 4] and computed >= {"latents", "text", "image", "states", "predicted"}
    train_adapter(**job, **options)
    assert steps == [1, 2, 3, 4], "a finished job has no step left"
    with pytest.raises(ValueError, match="already holds a run"):
        train_adapter(**job, resume=False)
    other = shutil.copy(tmp_path / "run" / "adapt.safetensors", tmp_path / joint[0].name)
    moved = dataclasses.replace(job["world"], motion_table=MOTION_TABLES["released_app"])
    for change in ({"start": [(joint[0], 0.5)]}, {"start": [(other, 1.0)]}, {"world": moved}):
        with pytest.raises(ValueError, match=f"holds a run with another {next(iter(change))}"):
            train_adapter(**{**job, **change})
    for path in list_checkpoints(tmp_path / "run" / "checkpoints"):
        path.unlink()
    train_adapter(**job, **options, **stopping(1))
    assert not (tmp_path / "run" / "result.json").exists(), "a run that begins again is not finished"
    (dataset / "clips").rename(tmp_path / "away")
    train_adapter(**job, **options)  # with the features that it computed
    (tmp_path / "away").rename(dataset / "clips")
    shutil.copy(*sorted((dataset / "clips").iterdir())[:2])
    with pytest.raises(ValueError, match="holds a run with another clips' content"):
        train_adapter(**job)


def test_a_command_is_not_resumed_with_another_dataset(data, tmp_path):
    folder, said = written_dataset(data, tmp_path / "dataset"), []

    def command(more):
        options = f"--steps 2 --batch 4 --log-every 1 --lr-warmup 1 {more}"
        return train("towers", folder, tmp_path / "world", tmp_path / "run", options, said.append)

    with mock.patch.dict("animegamer_core.spec.SPECS", {"tiny": dataclasses.replace(TINY, name="tiny")}):
        with pytest.raises(ValueError, match="--spec"):
            command("")
        assert command("--spec tiny --minutes 0.000001") == 0 and "--resume continues" in said[-1]
        turns = (folder / "turns.jsonl").read_text()
        (folder / "turns.jsonl").write_text(turns.replace("day field", "night field", 1))
        with pytest.raises(ValueError, match="holds a run with another dataset"):
            command("--resume")
        (folder / "turns.jsonl").write_text(turns)
        assert command("--resume") == 0
    assert "--per-card" not in "".join(said), "a batch whose samples are compared is not split to save memory"
    assert open_world(tmp_path / "world").motion_table.edges == (1.0, 2.0, 3.0, 4.0)
    assert (tmp_path / "run" / "loss.png").read_bytes().startswith(b"\x89PNG")


def written_dataset(data: TrainingData, path) -> pathlib.Path:
    frames = data.store["frames"].numpy()
    (path / "clips").mkdir(parents=True)
    for turn, clip in zip(data.folder.turns, frames, strict=True):
        write_clip(path / turn.clip, clip, 8)
    (path / "turns.jsonl").write_text("".join(turn.to_json() + "\n" for turn in data.folder.turns))
    games = [
        {"game": game.name, "clips": [data.folder.turns[clip].clip for clip in game.clips], "held_out": game.held_out}
        for game in data.folder.games
    ]
    (path / "games.jsonl").write_text("".join(json.dumps(game) + "\n" for game in games))
    motion = {"backend": "dis", "threshold": 0.2, "edges": [1.0, 2.0, 3.0, 4.0], "values": [0.5, 1.5, 2.5, 3.5, 4.5]}
    (path / "dataset.json").write_text(json.dumps({"format": 1, "settings": {"motion": motion}}))
    return path
