"""Whether a node that writes a story is run again, without a ComfyUI."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def stories():
    """Story name -> how it is now."""
    return {}


@pytest.fixture
def replays(stories, monkeypatch):
    name = "replay_of_the_pack"
    spec = importlib.util.spec_from_file_location(name, ROOT / "nodes" / "replay.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module.Replays(lambda story: stories.get(story, ""))


def run(replays, stories, widgets, linked=None, left="played", again=False):
    """The fingerprint of a node that runs and leaves its story so."""
    told = replays.fingerprint(widgets)
    stories["a"] = left
    called = {**widgets, **(linked or {}), "model": object()}
    replays.done(called, "a", again)
    return told


def test_the_same_again_is_known_although_the_node_changed_the_story(replays, stories):
    widgets = {"story": "a", "after": 0}
    first = run(replays, stories, widgets)
    assert replays.fingerprint(widgets) == first == replays.fingerprint(dict(reversed(widgets.items())))


@pytest.mark.parametrize("now", ["edited", ""])
def test_a_story_that_was_edited_or_taken_away_is_played_again(replays, stories, now):
    widgets = {"story": "a", "after": 0}
    first = run(replays, stories, widgets)
    stories["a"] = now
    second = run(replays, stories, widgets)
    assert second != first
    assert replays.fingerprint(widgets) == second


def test_what_another_node_made_of_the_story_is_played_again(replays, stories):
    one, other = {"story": "a", "after": 0}, {"story": "a", "after": 1}
    first = run(replays, stories, one, left="one")
    assert run(replays, stories, other, left="both") != first
    assert replays.fingerprint(one) != first


def test_a_turn_more_is_never_the_same(replays, stories):
    widgets = {"story": "a", "after": -1}
    assert run(replays, stories, widgets, again=True) != run(replays, stories, widgets, again=True)


def test_an_interrupted_run_leaves_nothing_behind(replays, stories):
    widgets = {"story": "a", "after": 0}
    told = replays.fingerprint(widgets)  # and then it was interrupted, so ComfyUI has no outputs for it
    stories["a"] = "half"
    assert run(replays, stories, widgets) == told
    assert replays.fingerprint(widgets) == told


def test_linked_values_are_known_only_when_the_node_runs(replays, stories):
    widgets = {"story": None, "instructions": None, "after": 0}
    first = run(replays, stories, widgets, {"story": "a", "instructions": "run"}, left="ran")
    assert replays.fingerprint(widgets) == first, "the links did not change, or ComfyUI sees to it"
    second = run(replays, stories, widgets, {"story": "a", "instructions": "sleep"}, left="slept")
    third = run(replays, stories, widgets, {"story": "a", "instructions": "run"}, left="ran")
    assert second == first != third, "what was cached for the first text has left the story otherwise"


def test_only_so_many_are_remembered(replays, stories):
    first = run(replays, stories, {"story": "a", "seed": 0})
    for seed in range(1, 200):
        replays.fingerprint({"story": "a", "seed": seed})
    assert len(replays._told) == 64
    assert replays.fingerprint({"story": "a", "seed": 0}) != first
