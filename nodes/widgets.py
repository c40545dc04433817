"""Widgets that several nodes have, each with one meaning and one range; only what they say differs."""

from __future__ import annotations

from comfy_api.v0_0_2 import io

from . import host

MAX_SEED = 0xFFFFFFFFFFFFFFFF
LAST_TURN = 1_000_000


def world_input(tooltip: str) -> io.Input:
    """Which world."""
    return io.Combo.Input("world", options=host.world_names(), default=host.TOYBOX, tooltip=tooltip)


def seed_input(tooltip: str, default: int = 0) -> io.Input:
    """A seed that stays as it is: one that ComfyUI changes after every queue would rewrite a game's past. A default of
    -1 is allowed as a value, too.
    """
    low = min(default, 0)
    return io.Int.Input("seed", default=default, min=low, max=MAX_SEED, control_after_generate=False, tooltip=tooltip)


def window_input() -> io.Input:
    """How many past turns the engine reads."""
    return io.Int.Input(
        "window",
        default=-1,
        min=-1,
        max=1000,
        tooltip="How many past turns the engine reads for the next one; 0: none, -1: as many as the world was trained "
        "with.",
    )


def window_of(value: int) -> int | None:
    """The value of that widget; None leaves the choice to the world."""
    return None if value < 0 else value


def turn_input(name: str, default: int, tooltip: str) -> io.Input:
    """A turn of a game by its number; 0 is before turn 1, and -1 means none or the last one."""
    return io.Int.Input(name, default=default, min=-1, max=LAST_TURN, tooltip=tooltip)


def line_input(tooltip: str) -> io.Input:
    """A line of a story by its name; empty is the current one."""
    return io.String.Input("line", default="", tooltip=tooltip)
