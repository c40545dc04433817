"""The page's own modules: browsers ask for them at each load, so that after an update none is an old one."""

from __future__ import annotations

import typing

from . import comfyui

if typing.TYPE_CHECKING:
    from aiohttp import web

SUFFIX = ".mjs"  # ComfyUI says how long .js and .css are kept, but nothing of these: browsers then guess, up to days


def register() -> None:
    """Let browsers ask for the pack's modules at each load."""
    comfyui.before_responses(_ask_again)


async def _ask_again(request: web.Request, response: web.StreamResponse) -> None:
    """Let a module of the pack be kept, but not used again before the server has said that it is the same."""
    if request.path.startswith(f"/extensions/{comfyui.PACK.name}/") and request.path.endswith(SUFFIX):
        response.headers["Cache-Control"] = "no-cache"
