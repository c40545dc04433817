"""Sorts the pack's templates by number. ComfyUI lists them in disk order."""

from __future__ import annotations

import json
import re
import typing

from . import comfyui

if typing.TYPE_CHECKING:
    from aiohttp import web

LISTED_AT = ("/workflow_templates", "/api/workflow_templates")


def register() -> None:
    """Let the server list the pack's templates by number."""
    comfyui.before_responses(_sort_ours)


def by_number(names: list[str]) -> list[str]:
    """The names, with numbers in them compared as numbers: 2 before 10."""
    return sorted(names, key=lambda name: [(int(part or 0), text) for part, text in re.findall(r"(\d*)(\D*)", name)])


async def _sort_ours(request: web.Request, response: web.StreamResponse) -> None:
    """Sort the pack's names in the list of templates, without changing the answer's length or any other name."""
    if request.path not in LISTED_AT or response.status != 200 or response.content_type != "application/json":
        return
    listed = json.loads(response.text)
    ours = listed.get(comfyui.PACK.name)
    if ours:
        response.text = json.dumps(listed | {comfyui.PACK.name: by_number(ours)})
