"""When a node that writes a story runs again, without a ComfyUI."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stories():
    """Story name -> its version."""
    return {}


@pytest.fixture
def fingerprints(stories, monkeypatch):
    name = "fingerprints_of_the_pack"
    spec = importlib.util.spec_from_file_location(name, ROOT / "nodes" / "fingerprints.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module.Fingerprints(lambda story: stories.get(story, ""))


def run(fingerprints, stories, widgets, linked=None, left="played", again=False):
    """The fingerprint of a node that runs and leaves its story in version `left`."""
    fingerprint = fingerprints.fingerprint(widgets)
    stories["a"] = left
    fingerprints.record({**widgets, **(linked or {}), "model": object()}, "a", again)
    return fingerprint


def test_the_fingerprint_stays_after_the_nodes_own_change_and_after_no_other(fingerprints, stories):
    widgets = {"story": "a", "after": 0}
    first = run(fingerprints, stories, widgets)
    assert fingerprints.fingerprint(widgets) == first == fingerprints.fingerprint(dict(reversed(widgets.items())))
    stories["a"] = "edited"
    second = run(fingerprints, stories, widgets)
    assert second != first and fingerprints.fingerprint(widgets) == second
    assert run(fingerprints, stories, {**widgets, "after": 1}, left="another node's") not in (first, second)
    assert fingerprints.fingerprint(widgets) not in (first, second)


def test_an_interrupted_run_keeps_its_fingerprint(fingerprints, stories):
    widgets = {"story": "a", "after": 0}
    fingerprint = fingerprints.fingerprint(widgets)  # and then it was interrupted, so ComfyUI has no outputs for it
    stories["a"] = "half"
    assert run(fingerprints, stories, widgets) == fingerprint
    assert fingerprints.fingerprint(widgets) == fingerprint


def test_linked_values_are_known_only_when_the_node_runs(fingerprints, stories):
    widgets = {"story": None, "instructions": None, "after": 0}
    first = run(fingerprints, stories, widgets, {"story": "a", "instructions": "run"}, left="ran")
    assert fingerprints.fingerprint(widgets) == first, "the links did not change, or ComfyUI sees to it"
    second = run(fingerprints, stories, widgets, {"story": "a", "instructions": "sleep"}, left="slept")
    third = run(fingerprints, stories, widgets, {"story": "a", "instructions": "run"}, left="ran")
    assert second == first != third, "what was cached for the first text has left the story otherwise"
