"""`train all`: all stages of a recipe by one command, with a plan before the first step, resumable at any step."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import shutil
import signal
from pathlib import Path
from unittest import mock

import pytest
from test_train import TINY, same_tensors, train
from test_train_worlds import ages

from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.data.vocabulary import words_of
from animegamer_core.train.run import stage_file
from animegamer_core.weights import open_world
from animegamer_core.weights.adapter_files import read_adapter
from animegamer_core.weights.adapters import open_with_adapters

STAGES = ("warmup", "joint", "predict", "adapt")
EVERY = "--batch 2 --log-every 1 --lr-warmup 1 --lr 1e-3 --save-every 2"
RANKS = " ".join(f"--set {stage}.lora_rank=2" for stage in STAGES[1:])
LORA = f"--steps 4 {EVERY} --recipe lora {RANKS} --set adapt.lr=2e-3"


@pytest.fixture(scope="module")
def whole(places, tmp_path_factory):
    """(run folder, what was printed) of a run that nothing stopped."""
    out, said = tmp_path_factory.mktemp("whole") / "run", []
    assert train("all", *places, out, LORA, said.append) == 0
    return out, said


def begun_from(out: Path) -> list[str]:
    """The stages whose files a run began from."""
    starts = json.loads((out / "job.json").read_text(encoding="utf-8"))["start"]
    return [name.removesuffix(".safetensors") for name, *_ in starts]


def same_weights(one: Path, other: Path, stages=STAGES) -> bool:
    return all(same_tensors(stage_file(one / stage, stage), stage_file(other / stage, stage)) for stage in stages)


def test_each_stage_begins_from_the_files_of_those_before(whole):
    out, _ = whole
    begun = {stage: begun_from(out / stage) for stage in STAGES}
    assert begun == {stage: list(STAGES[:at]) for at, stage in enumerate(STAGES)}
    settings = [read_adapter(stage_file(out / stage, stage))[0].config for stage in STAGES]
    assert [each["lora_rank"] for each in settings] == [0, 2, 2, 2]
    assert [each["lr"] for each in settings] == [1e-3, 1e-3, 1e-3, 2e-3], "options of a stage win over those of all"


def test_the_last_line_plays_the_world_with_all_that_was_trained(whole, places):
    out, said = whole
    words = shlex.split(said[-1])
    files = [words[at + 1] for at, word in enumerate(words) if word == "--lora"]
    assert words[:6] == ["python", "-m", "animegamer_core", "play", "--world", str(places[1])]
    assert files == [str(stage_file(out / stage, stage)) for stage in STAGES]
    played = open_with_adapters(places[1], files, playing=True)
    assert played.fingerprint != open_world(places[1]).fingerprint
    assert played.load_decoder() is not None and played.load_engine() is not None


def test_a_new_world_is_trained_in_place_through_all_six_stages(places, tmp_path):
    said, world, out = [], tmp_path / "world", tmp_path / "run"
    options = f"--steps 2 {EVERY} --spec tiny --set vae.lr=1e-3"
    with mock.patch.dict("animegamer_core.spec.SPECS", {"tiny": dataclasses.replace(TINY, name="tiny")}):
        assert train("all", places[0], world, out, options, said.append) == 0
        assert f"python -m animegamer_core play --world {world}" == said[-1]
        trained = open_world(world)
        assert not trained.missing() and len(list(out.glob("*/result.json"))) == 6
        assert not (out / "features").exists(), "those of small worlds stay in memory"
        assert trained.life.words == words_of(DatasetFolder.open(places[0])), "so turns can be proposed"
        said.clear()
        assert train("all", places[0], world, out, f"{options} --resume", said.append) == 0
        assert open_world(world).fingerprint == trained.fingerprint and not any(" 1/2 " in line for line in said)
        result = out / "joint" / "result.json"  # of a run that was killed before the world had its weights
        result.write_text(json.dumps(json.loads(result.read_text()) | {"in_world": None}))
        assert train("all", places[0], world, out, f"{options} --resume --plan", said.append) == 0
        assert any(line.startswith("  joint") and "done" not in line for line in said)
        for seed in "12":
            train("vae", places[0], tmp_path / seed, out / seed, f"{EVERY} --spec tiny --steps 1 --seed {seed}")
        one, other = (open_world(tmp_path / seed).load_decoder().transformer.proj_out.weight for seed in "12")
        assert not one.equal(other), "weights that a stage makes and does not train are the seed's"


def test_ctrl_c_keeps_the_stages_that_are_done(whole, places, tmp_path):
    said, out, options = [], tmp_path / "run", f"{LORA} --stages warmup,joint"

    def hear(line: str) -> None:
        said.append(line)
        if line.startswith("joint 2/"):
            signal.raise_signal(signal.SIGINT)

    assert train("all", *places, out, options, hear) == 130
    assert said[-1] == "1 of 2 stages are done; the same command with --resume continues in joint"
    done = ages(out / "warmup")
    assert train("all", *places, out, f"{options} --resume", said.append) == 0
    assert ages(out / "warmup") == done and same_weights(out, whole[0], ["warmup", "joint"])
    for after, ending in ((90_000, "0 of 2 stages are done"), (2000, "python")):  # minutes of all stages together
        with mock.patch("animegamer_core.train.all.time", mock.Mock(**{"monotonic.side_effect": (0, after, after)})):
            assert train("all", *places, tmp_path / "late", f"{options} --resume --minutes 1000", said.append) == 0
        assert said[-1].startswith(ending)


def test_some_stages_alone_go_on_from_the_files_that_are_there(whole, places, tmp_path):
    for name in ("warmup", "joint"):
        shutil.copytree(whole[0] / name, tmp_path / name)
    assert train("all", *places, tmp_path, f"{LORA} --stages predict") == 0
    assert same_weights(tmp_path, whole[0], ["predict"])
    said, last = [], stage_file(whole[0] / "adapt", "adapt")
    train("all", *places, tmp_path / "after", f"{LORA} --stages warmup,joint --plan --start {last}", said.append)
    assert said[-1].endswith("from adapt, warmup")
    (tmp_path / "joint" / "result.json").unlink()
    with pytest.raises(ValueError, match="joint holds an unfinished run; add joint to --stages"):
        train("all", *places, tmp_path, f"{LORA} --stages adapt")
    assert not (tmp_path / "adapt").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--set joint.step=3", "--set joint.step=3: expected STAGE.OPTION=VALUE"),
        ("--set jont.steps=3", "--set jont.steps=3: expected STAGE.OPTION=VALUE"),
        ("--set joint.steps=many", "--set joint.steps=many: Expected `int`"),
        ("--stages joint,vae", "--stages: recipe 'lora' does not run 'vae'; choose from warmup, joint, predict, adapt"),
        ("--set joint.encoder_frame=last", "encoder_frame is 'last'; choose first or random"),
        ("--set predict.lr=1", "lr is 1.0; expected above 0 and below 1"),
        ("--set predict.window=500", "prompts with window 500 reach"),
    ],
)
def test_an_option_that_fits_no_stage_is_refused_before_the_first_step(options, sentence, places, tmp_path):
    with pytest.raises(ValueError, match="^" + re.escape(sentence)) as refused:
        train("all", *places, tmp_path / "run", f"{LORA} {options}")
    assert "\n" not in str(refused.value) and not (tmp_path / "run").exists()
