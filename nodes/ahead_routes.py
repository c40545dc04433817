"""The routes of turns that are drawn ahead.

    POST /animegamer/ahead {world, story, instructions?, seed?, motion?, after?, line?, turns_ahead?, pieces?,
         suggestion_seed?}   draw turns that may come next; ?wait=1 waits for that
    GET  /animegamer/ahead   how much is kept, and how much at most
Drawing is an ordinary prompt, which stops early when another one is waiting in the queue.
"""

from __future__ import annotations

import typing

from ..animegamer_core.json_files import parse_json
from ..animegamer_core.state import clean_text, read_instructions
from ..animegamer_core.story.ahead_store import LARGEST_AHEAD, OLDEST_AHEAD, ahead_bytes
from ..animegamer_core.story.http_requests import AheadRequest
from . import comfyui
from .ahead import DrawTurnsAhead
from .routes import add_route, body_of, motion_widgets, queued, read_with, wants_to_wait, world_prompt
from .routes import ended as when_ended
from .saved_stories import story_name

if typing.TYPE_CHECKING:
    from aiohttp import web

    Json = dict[str, typing.Any]


def register() -> None:
    """Add the routes to the server, once."""
    add_route("POST", "/animegamer/ahead", _draw)
    add_route("GET", "/animegamer/ahead", read_with(_kept))


async def _draw(request: web.Request) -> tuple[int, Json]:
    prompt_id = await queued(parse_json(await body_of(request), AheadRequest, "the request"), ahead_prompt)
    if not wants_to_wait(request):
        return 202, {"prompt_id": prompt_id}
    ((found,),) = await when_ended(prompt_id, "animegamer_ahead")
    return 200, {"prompt_id": prompt_id, **found}


def ahead_prompt(asked: AheadRequest) -> Json:
    """The prompt in API form that draws ahead; ValueError if the request is not valid."""
    lines = [clean_text(line) for line in asked.instructions]
    if read_instructions("\n".join(lines)) != tuple(lines):
        raise ValueError("an instruction is empty or starts with #")
    inputs = {
        "instructions": "\n".join(lines),
        "story": story_name(asked.story),
        "after": asked.after,
        "line": asked.line,
        "seed": asked.seed,
        **motion_widgets(asked.motion),
        "turns_ahead": asked.turns_ahead,
        "pieces": asked.pieces,
        "suggestion_seed": asked.suggestion_seed,
    }
    return world_prompt(asked.world, DrawTurnsAhead, inputs)


def _kept(_: typing.Mapping[str, str]) -> Json:
    return {"bytes": ahead_bytes(comfyui.output_folder()), "most_bytes": LARGEST_AHEAD, "most_seconds": OLDEST_AHEAD}
