"""Whether a queued node would only repeat itself. Before a node runs, ComfyUI asks it for a fingerprint, and takes the
cached outputs if that is the old one. A node that writes a story (or a run, or a dataset) changes what its fingerprint
is about; so it gets the old one back as long as the story is as the node left it, and a new one as soon as anything
else has changed it.
"""

from __future__ import annotations

import itertools
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

REMEMBERED = 64  # sets of widgets; one forgotten runs once more


@dataclass
class _Told:
    """The fingerprint that a node got for its widgets. story, left: the story that it wrote, and how it left it.

    called: all that it was called with, linked values too, which are not known before it runs.
    """

    widgets: dict[str, typing.Any]
    fingerprint: str
    story: str = ""
    left: str = ""
    called: dict[str, typing.Any] = field(default_factory=dict)


class Replays:
    """The fingerprints of one kind of node. `now`: a text that tells how a story is, by its name."""

    def __init__(self, now: Callable[[str], str]) -> None:
        self._now = now
        self._told: dict[str, _Told] = {}
        self._numbers = itertools.count()

    def fingerprint(self, widgets: Mapping[str, typing.Any]) -> str:
        """The fingerprint for these widgets; those that are linked are None."""
        typed = {name: value for name, value in widgets.items() if value is not None}
        key = repr(sorted(typed.items()))
        told = self._told.pop(key, None)
        if told is None or (told.left and told.left != self._now(told.story)):
            told = _Told(typed, f"run {next(self._numbers)}")
        self._told[key] = told  # the last one told stands last
        for old in list(self._told)[:-REMEMBERED]:
            del self._told[old]
        return told.fingerprint

    def done(self, called: Mapping[str, typing.Any], story: str, again: bool = False) -> None:
        """The node that was called so has written the story. again: it would do something else if it ran again."""
        plain = {name: value for name, value in called.items() if isinstance(value, str | int | float)}
        for key, told in reversed(self._told.items()):
            if all(plain.get(name) == value for name, value in told.widgets.items()):
                if again or told.called not in ({}, plain):  # other linked values wrote what earlier ones had left
                    del self._told[key]
                else:
                    told.story, told.left, told.called = story, self._now(story), plain
                return
