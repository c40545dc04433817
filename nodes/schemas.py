"""The schema of a node of this pack, with the fields that only newer versions of ComfyUI know."""

from __future__ import annotations

import typing

from comfy_api.v0_0_2 import io

CATEGORY = "AnimeGamer"
KNOWN = frozenset(getattr(io.Schema, "__dataclass_fields__", ()))


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
    return io.Schema(category=CATEGORY, **fields, **{name: value for name, value in newer.items() if name in KNOWN})
