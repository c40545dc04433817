"""Damaged and crafted files end in an error that says something, soon, without much memory and without any harm.

`tests/support/hostile.py` makes them; `--hypothesis-profile hunt` looks for more.
"""

import shutil
import signal
import threading

import psutil
import pytest
import torch
from hostile import damage
from hypothesis import given, settings
from hypothesis import strategies as st
from saved_story import copy_story
from tiny_world import save_tiny_world

from animegamer_core.story.story import Story
from animegamer_core.train.stages import stage_config
from animegamer_core.weights import open_world
from animegamer_core.weights.adapter_files import read_adapter, save_adapter

SECONDS, MEMORY = 15, 400 << 20  # of one case


def load_world(folder):
    world = open_world(folder)
    world.tokenizer()
    for model in (world.load_engine(), world.load_decoder()):
        assert all(tensor.isfinite().all() for tensor in model.parameters()), "weights that are no numbers"


def read_story(folder):
    story = Story.read(folder.parent, folder.name)
    for branch in story.branches():
        story.use(branch)
        session = story.load_session(story.session(len(story.entries), 2))
        assert all(0 <= turn.character["stamina"] <= 100 for turn in session.turns)


READERS = {"world": load_world, "story": read_story, "adapter.safetensors": read_adapter}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One whole example of everything that is read."""
    folder = tmp_path_factory.mktemp("whole")
    save_tiny_world(folder / "world")
    copy_story(folder / "story")
    tensors = {"engine.layer.weight": torch.ones(2, 2)}
    save_adapter(folder / "adapter.safetensors", "joint", stage_config("joint"), tensors, {})
    return folder


@settings(max_examples=settings().max_examples // 2)  # 50, or 1,000 in profile hunt
@given(rng=st.randoms(), name=st.sampled_from(sorted(READERS)))
def test_any_damage_is_read_or_refused(whole, tmp_path_factory, rng, name):
    folder = tmp_path_factory.mktemp("damaged")
    copy, source = folder / name, whole / name
    (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file()) or [copy]
    suffix = rng.choice(sorted({path.suffix for path in files}))
    what = damage(rng.choice([path for path in files if path.suffix == suffix]), rng)
    before, threads = psutil.Process().memory_info().rss, threading.active_count()
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"not read in {SECONDS} s"))
    signal.alarm(SECONDS)
    try:
        READERS[name](copy)
    except (ValueError, OSError) as error:
        assert str(error) and "\x1b" not in str(error), what
    finally:
        signal.alarm(0)
    assert psutil.Process().memory_info().rss - before < MEMORY and threading.active_count() == threads, what
    assert [path.name for path in folder.iterdir()] == [name], f"{what}: wrote outside its folder"
    shutil.rmtree(folder)
