"""What the pack changes in ComfyUI's own responses: the order of its templates, and how long its modules are kept."""

from __future__ import annotations

import json
import re
import typing

from . import comfyui

if typing.TYPE_CHECKING:
    from aiohttp import web

LISTED_AT = ("/workflow_templates", "/api/workflow_templates")
SUFFIX = ".mjs"  # ComfyUI says how long .js and .css are kept, but nothing of these: browsers then guess, up to days


def register() -> None:
    """Let the server list the pack's templates by number, and browsers ask for the pack's modules at each load."""
    comfyui.before_responses(_sort_templates)
    comfyui.before_responses(_ask_again)


def by_number(names: list[str]) -> list[str]:
    """The names, with numbers in them compared as numbers: 2 before 10."""
    return sorted(names, key=lambda name: [(int(part or 0), text) for part, text in re.findall(r"(\d*)(\D*)", name)])


async def _sort_templates(request: web.Request, response: web.StreamResponse) -> None:
    """Sort the pack's names, which ComfyUI lists in disk order, without changing the answer's length."""
    if request.path not in LISTED_AT or response.status != 200 or response.content_type != "application/json":
        return
    listed = json.loads(response.text)
    if ours := listed.get(comfyui.PACK.name):
        response.text = json.dumps(listed | {comfyui.PACK.name: by_number(ours)})


async def _ask_again(request: web.Request, response: web.StreamResponse) -> None:
    """Let a module of the pack be kept, but not used again before the server has said that it is the same."""
    if request.path.startswith(f"/extensions/{comfyui.PACK.name}/") and request.path.endswith(SUFFIX):
        response.headers["Cache-Control"] = "no-cache"
