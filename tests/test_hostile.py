"""Files that were damaged or crafted: every reader reads them or says in one sentence what is wrong, soon, and writes
nothing outside their folder. Sixty cases in every run, 600 with `-m soak`; `HOSTILE_SEEDS=5000-9000` runs others.
"""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import psutil
import pytest
import torch
from hostile import damage
from hypothesis import given, settings, strategies
from tiny_world import save_tiny_world

from animegamer_core.checkpoint import open_world
from animegamer_core.checkpoint.adapter_files import adapter_facts
from animegamer_core.checkpoint.weight_files import read_state
from animegamer_core.data.benchmark import read_benchmark
from animegamer_core.data.cache import FeatureStore, write_feature
from animegamer_core.data.check import check
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.data.films.film_index import read_film_index, read_scenes
from animegamer_core.data.stats import DatasetFacts
from animegamer_core.evaluate.world.records import GameRecord, TurnRecord, begin_run, read_run
from animegamer_core.state import StateChange, scope_name
from animegamer_core.story.story import Story
from animegamer_core.train.checkpoints import RunState, list_checkpoints, load_checkpoint, save_checkpoint
from animegamer_core.train.log import RunLog, read_log
from animegamer_core.train.stages import stage_config

OLD = Path(__file__).with_name("frozen")
SECONDS, MEMORY, LONGEST = 15, 400 << 20, 4000  # of one case; characters of what it says


def load_world(folder):
    world = open_world(folder / "world")
    world.tokenizer()
    for model in (world.load_engine(), world.load_decoder()):
        assert all(tensor.isfinite().all() for tensor in model.parameters()), "weights that are no numbers"


def read_story(folder):
    story = Story.read(folder, "game")
    for branch in story.branches():
        story.use(branch)
        session = story.load_session(story.session(len(story.entries), 2))
        for turn in session.turns:
            scope_name(turn.state.motion)
            assert 0 <= turn.character.stamina <= 100 and all(abs(level) < 100 for level in turn.state.levels)
    [story.shots.record(entry.shot) for entry in story.entries if entry.shot]


def read_all_of_a_dataset(folder):
    problems = check(folder / "dataset", deep=True)
    for name in read_film_index(folder / "dataset"):
        read_scenes(folder / "dataset", name)
    if not any(problem.serious for problem in problems):
        DatasetFacts.of(opened := DatasetFolder.open(folder / "dataset"))
        assert len(opened.motion_table.values) == 5 if opened.has_motion_table else True
        assert opened.digest(captions=True)
    for problem in problems:
        assert str(problem).isprintable() and len(str(problem)) < LONGEST


def linear_run(seed=0):
    """A run of one small layer, one step old."""
    torch.manual_seed(seed)
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return RunState("joint", stage_config("joint"), dict(layer.named_parameters()), optimizer, {}, step=1)


def resume_run(folder):
    read_log(folder / "run" / "log.jsonl")
    for path in list_checkpoints(folder / "run" / "checkpoints"):
        load_checkpoint(path, linear_run(seed=1))


def read_features(folder):
    store = FeatureStore.open(folder / "features", ("text",))
    assert store.gather(("text",), torch.tensor([0, len(store) - 1]), "cpu")["text"].shape == (2, 4)


def read_played_run(folder):
    for game in read_run(folder / "played").games:
        assert 1 <= len(game.turns) and game.character
        assert json.dumps(game.turns[0].to_json(), allow_nan=False)


READERS = {
    "run": resume_run,
    "features": read_features,
    "played": read_played_run,
    "world": load_world,
    "game": read_story,
    "dataset": read_all_of_a_dataset,
    "adapter.safetensors": lambda folder: adapter_facts(folder / "adapter.safetensors"),
    "weights.pt": lambda folder: read_state(folder / "weights.pt"),
}


def played_turn(number, line):
    scores = {"clip_i": 0.5, "dreamsim": None}
    names = f"turn-{number:02d}.mp4", f"turn-{number:02d}.webp"
    return TurnRecord(number, line, 3, StateChange(1, 0, -1), 2.5, 3, scores, 1.0, number == 1, *names)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One whole example of everything that is read."""
    folder = tmp_path_factory.mktemp("whole")
    save_tiny_world(folder / "world")
    shutil.copytree(OLD / "stories" / "game", folder / "game")
    shutil.copytree(OLD / "dataset", folder / "dataset")
    shutil.copy(OLD / "distill.safetensors", folder / "adapter.safetensors")
    save_checkpoint(folder / "run" / "checkpoints", linear_run())
    RunLog(folder / "run" / "log.jsonl", 0).write(1, {"loss": 0.5})
    write_feature(folder / "features", "text", 6, lambda rows: torch.ones(len(rows), 4), digest="d", shard_bytes=64)
    benchmark = read_benchmark(OLD / "benchmark.txt")
    asked = {"benchmark": {"games": [game.name for game in benchmark]}, "player": {"name": "random"}, "seed": 0}
    begin_run(folder / "played", asked, {"device": "cpu"})
    for game in benchmark:
        turns = tuple(played_turn(number, turn.line) for number, turn in enumerate(game.turns, start=1))
        GameRecord(game.name, "random", 0, 8.0, {"device": "cpu"}, turns).save(folder / "played")
    torch.save({f"layer.{n}": torch.randn(8, 8) for n in range(4)}, folder / "weights.pt")
    return folder


def seeds():
    first, _, last = os.environ.get("HOSTILE_SEEDS", "0-60").partition("-")
    return range(int(first), int(last))


def run_case(whole, rng, tmp_path, seed="none"):
    """Damage one file of one example, and read it. A case that passes leaves no trace."""
    name = rng.choice(list(READERS))
    source, folder = whole / name, tmp_path / "given"
    folder.mkdir()
    copy = folder / name
    if source.is_dir():
        shutil.copytree(source, copy)
        files = sorted(path for path in copy.rglob("*") if path.is_file())
        suffix = rng.choice(sorted({path.suffix for path in files}))
        path = rng.choice([path for path in files if path.suffix == suffix])
    else:
        path = Path(shutil.copy(source, copy))
    what = damage(path, rng)
    process = psutil.Process()
    begun, before = time.monotonic(), process.memory_info().rss
    signal.alarm(SECONDS)
    try:
        READERS[name](folder)
    except (ValueError, OSError) as error:
        text = str(error)
        assert 0 < len(text) < LONGEST, f"seed {seed}: {what}: a message of {len(text)} characters"
        assert all(line.isprintable() for line in text.split("\n")), f"seed {seed}: {what}: {text[:300]!r}"
    except Exception as error:  # noqa: BLE001  whatever else is a defect
        pytest.fail(f"seed {seed}: {what}: {type(error).__name__}: {str(error)[:300]}")
    finally:
        signal.alarm(0)
    grown = process.memory_info().rss - before
    assert grown < MEMORY, f"seed {seed}: {what}: {grown >> 20} MB, {time.monotonic() - begun:.1f} s"
    assert [path.name for path in tmp_path.iterdir()] == ["given"], f"seed {seed}: {what}: wrote outside its folder"
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", READERS)
def test_what_is_whole_is_read(whole, name):
    READERS[name](whole)


def test_a_sample_of_damage_is_read_or_refused_in_a_sentence(whole, tmp_path):
    for seed in seeds():
        run_case(whole, random.Random(seed), tmp_path, seed)


@settings(max_examples=settings().max_examples // 2)  # 50, or 1,000 in profile hunt
@given(rng=strategies.randoms())
def test_any_damage_is_read_or_refused_in_a_sentence(whole, tmp_path_factory, rng):
    """The same, for hypothesis to search and to make small."""
    folder = tmp_path_factory.mktemp("damaged")
    try:
        run_case(whole, rng, folder)
    finally:
        shutil.rmtree(folder)


@pytest.mark.soak
def test_damage_is_read_or_refused_in_a_sentence(whole, tmp_path):
    for seed in range(1000, 1600):
        run_case(whole, random.Random(seed), tmp_path, seed)
