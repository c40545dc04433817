"""The schema of a node, and the widgets that several nodes share: the same range and meaning everywhere.

What a node and its inputs are for stands in locales/en, next to the translations.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable, Mapping
from types import SimpleNamespace

from comfy_api.v0_0_2 import io

from ..animegamer_core.game.recall import MEMORIES, RECALL, RECALLED_TURNS, Memory, chosen_memory
from . import worlds
from .comfyui import PACK
from .values import StateSocket

TEXTS = json.loads((PACK / "locales" / "en" / "nodeDefs.json").read_text("utf-8"))
CATEGORY = "AnimeGamer"
MAX_SEED = 0xFFFFFFFFFFFFFFFF
LAST_TURN = 1_000_000
KNOWN_FIELDS = frozenset(getattr(io.Schema, "__dataclass_fields__", ()))
AS_BEFORE = "default"  # a choice of memory: the game's own, or for a new game its world's


def schema(
    *, search_aliases: tuple[str, ...], essentials: bool = False, advanced: tuple[str, ...] = (), **fields: typing.Any
) -> io.Schema:
    """io.Schema with these fields, in the pack's category, with the name, description and tooltips of locales/en.

    search_aliases: other words to find the node by. essentials: it is shown in the tab of essential nodes. ComfyUI
    0.3.64 knows neither, so both are omitted there. advanced: the inputs that a node shows only on request.
    """
    inputs, outputs, texts = fields["inputs"], fields["outputs"], TEXTS[fields["node_id"]]
    for item in inputs:
        item.tooltip = texts["inputs"][item.id]["tooltip"]
        if item.id in advanced:
            item.extra_dict["advanced"] = True  # in every version; the argument `advanced` came after 0.3.64
    for index, item in enumerate(outputs):
        item.tooltip = texts["outputs"][str(index)]["tooltip"]
        item.display_name = item.id.removesuffix("_out")  # the id says that an input has the same name
    newer = {"search_aliases": [CATEGORY, *search_aliases], "essentials_category": CATEGORY if essentials else None}
    known = {name: value for name, value in newer.items() if name in KNOWN_FIELDS}
    named = {name: texts[name] for name in ("display_name", "description")}
    return io.Schema(category=CATEGORY, **named, **fields, **known)


def defaults_of(node: type[io.ComfyNode]) -> dict[str, typing.Any]:
    """The default of each input of a node; None for sockets."""
    return {item.id: getattr(item, "default", None) for item in node.define_schema().inputs}


def given_to(node: type[io.ComfyNode], inputs: Mapping[str, typing.Any]) -> typing.Any:
    """The inputs of a node as attributes; those that a graph does not give have their default."""
    return SimpleNamespace(**{**defaults_of(node), **inputs})


def choice_input(name: str, options: Iterable[str], default: str, optional: bool = False) -> io.Input:
    """A list of choices."""
    return io.Combo.Input(name, options=list(options), default=default, optional=optional)


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """ValueError unless an input has one of its choices, which older ComfyUI does not check."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose {', '.join(choices)}")


def number_input(name: str, default: int, low: int, high: int, optional: bool = False) -> io.Input:
    """A whole number from `low` to `high`. optional: for a node's last inputs, so that older graphs still work."""
    return io.Int.Input(name, default=default, min=low, max=high, optional=optional)


def strength_input(name: str) -> io.Input:
    """The strength of LoRA files."""
    return io.Float.Input(name, default=1.0, min=-2.0, max=2.0, step=0.05)


def world_input() -> io.Input:
    """The name of a world."""
    return io.Combo.Input("world", options=worlds.world_names(), default=worlds.TOYBOX)


def seed_input(name: str = "seed", default: int = 0, optional: bool = False) -> io.Input:
    """A seed that ComfyUI never changes by itself: that would rewrite a game's past. With default -1, -1 is valid."""
    low = min(default, 0)
    return io.Int.Input(name, default=default, min=low, max=MAX_SEED, control_after_generate=False, optional=optional)


def window_input() -> io.Input:
    """The number of past turns that the engine reads."""
    return number_input("window", -1, -1, 1000)


def window_of(value: int) -> int | None:
    """The window from the widget's value; None: the world's own."""
    return None if value < 0 else value


def memory_inputs() -> list[io.Input]:
    """Which past turns the engine reads."""
    return [
        choice_input("memory", [AS_BEFORE, *MEMORIES], AS_BEFORE, optional=True),
        number_input("recalled_turns", RECALLED_TURNS, 1, 100, optional=True),
    ]


def memory_of(kind: str, turns: int) -> Memory | None:
    """The memory from the two widgets; None: the game's own. ValueError for an unknown kind."""
    if kind == AS_BEFORE:
        return None
    return chosen_memory(kind, turns if kind == RECALL else None)


def turn_input(name: str, default: int) -> io.Input:
    """The number of a turn; 0 is before turn 1, -1 means none or the last one."""
    return number_input(name, default, -1, LAST_TURN)


def branch_input() -> io.Input:
    """The name of a branch of a story; empty means the current one."""
    return io.String.Input("branch", default="")


def story_input() -> io.Input:
    """The name of a story."""
    return io.String.Input("story", default="my-game")


def opening_input() -> io.Input:
    """The state that a game starts from."""
    return StateSocket.Input("opening", optional=True)
