"""The schema of a node, and the widgets that several nodes share: the same range and meaning everywhere."""

from __future__ import annotations

import typing
from collections.abc import Iterable

from comfy_api.v0_0_2 import io

from ..animegamer_core.game.recall import MEMORIES, RECALL, RECALLED_TURNS, Memory, chosen_memory
from . import worlds
from .values import StateSocket

CATEGORY = "AnimeGamer"
MAX_SEED = 0xFFFFFFFFFFFFFFFF
LAST_TURN = 1_000_000
KNOWN_FIELDS = frozenset(getattr(io.Schema, "__dataclass_fields__", ()))
AS_BEFORE = "default"  # a choice of memory: the game's own, or for a new game its world's


def schema(
    *, search_aliases: tuple[str, ...], essentials: bool = False, advanced: tuple[str, ...] = (), **fields: typing.Any
) -> io.Schema:
    """io.Schema with these fields, in the pack's category.

    search_aliases: other words to find the node by. essentials: it is shown in the tab of essential nodes. ComfyUI
    0.3.64 knows neither, so both are omitted there. advanced: the inputs that a node shows only on request.
    """
    inputs = {field.id: field for field in fields["inputs"]}
    for name in advanced:
        inputs[name].extra_dict["advanced"] = True  # in every version; the argument `advanced` came after 0.3.64
    newer = {"search_aliases": list(search_aliases), "essentials_category": CATEGORY if essentials else None}
    return io.Schema(
        category=CATEGORY, **fields, **{name: value for name, value in newer.items() if name in KNOWN_FIELDS}
    )


def choice_input(name: str, options: Iterable[str], default: str, tooltip: str, optional: bool = False) -> io.Input:
    """A list of choices."""
    return io.Combo.Input(name, options=list(options), default=default, optional=optional, tooltip=tooltip)


def number_input(name: str, default: int, low: int, high: int, tooltip: str) -> io.Input:
    """A whole number from `low` to `high`."""
    return io.Int.Input(name, default=default, min=low, max=high, tooltip=tooltip)


def optional_number_input(name: str, default: int, low: int, high: int, tooltip: str) -> io.Input:
    """As `number_input`; for a node's last inputs, so that older graphs still work."""
    return io.Int.Input(name, default=default, min=low, max=high, optional=True, tooltip=tooltip)


def strength_input(name: str, tooltip: str) -> io.Input:
    """The strength of LoRA files."""
    return io.Float.Input(name, default=1.0, min=-2.0, max=2.0, step=0.05, tooltip=tooltip)


def world_input(tooltip: str) -> io.Input:
    """The name of a world."""
    return io.Combo.Input("world", options=worlds.world_names(), default=worlds.TOYBOX, tooltip=tooltip)


def seed_input(tooltip: str, default: int = 0, name: str = "seed") -> io.Input:
    """A seed that ComfyUI never changes by itself: that would rewrite a game's past. With default -1, -1 is valid."""
    low = min(default, 0)
    return io.Int.Input(name, default=default, min=low, max=MAX_SEED, control_after_generate=False, tooltip=tooltip)


def window_input() -> io.Input:
    """The number of past turns that the engine reads."""
    return io.Int.Input(
        "window",
        default=-1,
        min=-1,
        max=1000,
        tooltip="How many past turns the engine reads to predict the next one. 0: none; -1: as many as the world was "
        "trained with.",
    )


def window_of(value: int) -> int | None:
    """The window from the widget's value; None: the world's own."""
    return None if value < 0 else value


def memory_inputs() -> list[io.Input]:
    """Which past turns the engine reads. Optional, and a node's last ones, so that older graphs still work."""
    return [
        choice_input(
            "memory",
            [AS_BEFORE, *MEMORIES],
            AS_BEFORE,
            "Which past turns the engine reads. recent: the last ones. recall: also earlier ones that show what the "
            "instruction refers to, such as the turn that described 'the scarf'. default: what the game has used so "
            "far; for a new game, what its world was trained with.",
            optional=True,
        ),
        io.Int.Input(
            "recalled_turns",
            default=RECALLED_TURNS,
            min=1,
            max=100,
            optional=True,
            tooltip="How many earlier turns memory recall may read at once. They replace the oldest turns of the "
            "window; the last turn always stays.",
        ),
    ]


def memory_of(kind: str, turns: int) -> Memory | None:
    """The memory from the two widgets; None: the game's own. ValueError for an unknown kind."""
    if kind == AS_BEFORE:
        return None
    return chosen_memory(kind, turns if kind == RECALL else None)


def turn_input(name: str, default: int, tooltip: str) -> io.Input:
    """The number of a turn; 0 is before turn 1, -1 means none or the last one."""
    return io.Int.Input(name, default=default, min=-1, max=LAST_TURN, tooltip=tooltip)


def branch_input(tooltip: str) -> io.Input:
    """The name of a branch of a story; empty means the current one."""
    return io.String.Input("branch", default="", tooltip=tooltip)


def story_input() -> io.Input:
    """The name of a story."""
    return io.String.Input("story", default="my-game", tooltip="The story's name, a folder in output/animegamer.")


def opening_input() -> io.Input:
    """The state that a game starts from."""
    tooltip = "The state to start the game from, from Encode Shot: your own character or place."
    return StateSocket.Input("opening", optional=True, tooltip=tooltip)
