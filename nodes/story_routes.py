"""The route with which the Play tab renames, duplicates, deletes and restores stories.

    POST /animegamer/stories {do: rename|duplicate, name, to} | {do: delete, name} | {do: restore, ticket}
It answers with the story's name, and after `delete` with the ticket that `restore` takes.
"""

from __future__ import annotations

import asyncio
import typing

from ..animegamer_core.json_files import parse_json
from ..animegamer_core.story.http_requests import StoryRequest
from ..animegamer_core.story.manage import duplicate_story, rename_story, restore_story, trash_story
from . import comfyui
from .routes import add_route, body_of
from .saved_stories import story_name

if typing.TYPE_CHECKING:
    from aiohttp import web


def register() -> None:
    """Add the route to the server, once."""
    add_route("POST", "/animegamer/stories", _manage)


async def _manage(request: web.Request) -> tuple[int, dict[str, str]]:
    asked = parse_json(await body_of(request), StoryRequest, "the request")
    return 200, await asyncio.to_thread(manage, asked)


def manage(asked: StoryRequest) -> dict[str, str]:
    """Carry out the request; ValueError if that is not possible."""
    root = comfyui.output_folder()
    if asked.do == "restore":
        return {"name": restore_story(root, asked.ticket)}
    name = story_name(asked.name)
    if asked.do == "delete":
        return {"name": name, "ticket": trash_story(root, name)}
    new = story_name(asked.to)
    (rename_story if asked.do == "rename" else duplicate_story)(root, name, new)
    return {"name": new}
