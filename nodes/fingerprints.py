"""Fingerprints for nodes that write files, so that ComfyUI runs them again only when needed.

Before a node runs, ComfyUI asks for its fingerprint and uses the cached outputs if the fingerprint is unchanged. A node
that writes a story (or a run, or a dataset) changes the files that its fingerprint depends on. So here it gets the old
fingerprint as long as the story is as the node left it, and a new one after any other change.
"""

from __future__ import annotations

import itertools
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass
class _Entry:
    """The fingerprint for one set of widget values, the story that the node then wrote, and its version afterwards.

    inputs: all inputs of that run. Linked ones are not known before a node runs.
    """

    widgets: dict[str, typing.Any]
    fingerprint: str
    story: str = ""
    version: str = ""
    inputs: dict[str, typing.Any] = field(default_factory=dict)


class Fingerprints:
    """The fingerprints of one kind of node. version_of: the version of a story, by its name."""

    def __init__(self, version_of: Callable[[str], str]) -> None:
        self._version_of = version_of
        self._entries: dict[str, _Entry] = {}
        self._numbers = itertools.count()

    def fingerprint(self, widgets: Mapping[str, typing.Any]) -> str:
        """The fingerprint for these widget values; linked inputs are None."""
        typed = {name: value for name, value in widgets.items() if value is not None}
        key = repr(sorted(typed.items()))
        entry = self._entries.pop(key, None)
        if entry is None or (entry.version and entry.version != self._version_of(entry.story)):
            entry = _Entry(typed, f"run {next(self._numbers)}")
        self._entries[key] = entry  # the latest entry is the last
        return entry.fingerprint

    def record(self, inputs: Mapping[str, typing.Any], story: str, run_again: bool = False) -> None:
        """Record that the node ran with these inputs and wrote the story. run_again: the next run would do more."""
        plain = {name: value for name, value in inputs.items() if isinstance(value, str | int | float)}
        for key, entry in reversed(self._entries.items()):
            if all(plain.get(name) == value for name, value in entry.widgets.items()):
                if run_again or entry.inputs not in ({}, plain):  # other linked values have changed the story since
                    del self._entries[key]
                else:
                    entry.story, entry.version, entry.inputs = story, self._version_of(story), plain
                return
