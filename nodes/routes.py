"""The pack's HTTP routes on ComfyUI's server: play a turn, list, read and change stories, list the words of a world.

    POST /animegamer/turn {world, story, instruction, seed?, motion?, after?, branch?}   ?wait=1 waits for the turn
    GET  /animegamer/stories      GET /animegamer/story?name=N      GET /animegamer/words?world=W[&story=N]
    POST /animegamer/check {world, instruction, steps?}   what to know of an instruction before it is played
    GET  /animegamer/suggestions?world=W&story=N[&branch=B&after=T&seed=S&count=C&opening=O]   what may happen next
    POST /animegamer/stories {do: rename|duplicate, name, to} | {do: delete, name} | {do: restore, ticket}
    GET  /animegamer/weights?weights=W[&towers=1]   what a download would bring; the download itself is a prompt
    GET  /animegamer/training[?run=R&stage=S]   of module training
    GET  /animegamer/datasets/N/review.html
    POST /animegamer/datasets/N/corrections {corrections: text}   both of module dataset
    GET  /animegamer/about        GET /animegamer/docs?page=P   version and addresses; a page of docs/ as text
A turn is an ordinary prompt with the two nodes that a player would use, so ComfyUI checks, queues, shows and interrupts
it like any other. Names from requests are checked before they become part of a path.
"""

from __future__ import annotations

import asyncio
import functools
import typing
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..animegamer_core.files import DISK_FULL
from ..animegamer_core.game.director import SUGGESTIONS, director_for
from ..animegamer_core.game.life import Life, Words
from ..animegamer_core.game.plain import NotShown, read_plainly
from ..animegamer_core.game.state import GameSession, GameState, MotionScope, Turn, read_instruction, scope_name
from ..animegamer_core.json_files import parse_json
from ..animegamer_core.messages import shortened
from ..animegamer_core.story.folder import duplicate_story, rename_story, restore_story, trash_story
from ..animegamer_core.story.story import Story
from ..animegamer_core.toybox.world import WORDS as TOYBOX_WORDS
from . import comfyui, worlds
from .dataset import review_file, save_review
from .game import LoadAnimeGamer
from .play import PlayGameStory
from .story import WorldFacts, choose_turn, list_stories, played_world, story_name, world_facts
from .training import training
from .values import gauges_of
from .weights import offer
from .widgets import LAST_TURN, defaults_of

if typing.TYPE_CHECKING:
    from aiohttp import web

    Json = dict[str, typing.Any]
    Query = typing.Mapping[str, str]
    Handler = Callable[[web.Request], typing.Awaitable[tuple[int, Json | str | Path]]]

LONGEST_ERROR = 1000  # letters of a sentence, which may name what was asked for
WORLD_NODE, TURN_NODE = "animegamer-world", "animegamer-turn"  # ids that no graph on the page uses
POLL_SECONDS = 0.1
DOCS = "/animegamer/docs"


class TurnRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /animegamer/turn. motion: predicted, the name of a motion scope, or pixels per frame."""

    world: str
    story: str
    instruction: str
    seed: typing.Annotated[int, msgspec.Meta(ge=0)] = 0
    motion: str | typing.Annotated[float, msgspec.Meta(ge=0, le=999)] = "predicted"
    after: typing.Annotated[int, msgspec.Meta(ge=-1, le=LAST_TURN)] = -1
    branch: str = ""


class CheckRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /animegamer/check. past: the last instructions. steps: 0 means the world's own."""

    world: str
    instruction: str
    past: list[str] = []
    steps: typing.Annotated[int, msgspec.Meta(ge=0)] = 0


class StoryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /animegamer/stories. to: the new name; ticket: the answer of `delete`, for `restore`."""

    do: typing.Literal["rename", "duplicate", "delete", "restore"]
    name: str = ""
    to: str = ""
    ticket: str = ""


class Corrections(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /animegamer/datasets/N/corrections: the lines of corrections.jsonl."""

    corrections: str


class SuggestionsRequest(msgspec.Struct):
    """The query of GET /animegamer/suggestions. after: -1 is the last turn; count: how many proposals. opening: what a
    new story's opening shows."""

    story: str
    world: str = ""
    branch: str = ""
    after: typing.Annotated[int, msgspec.Meta(ge=-1, le=LAST_TURN)] = -1
    seed: typing.Annotated[int, msgspec.Meta(ge=0)] = 0
    count: typing.Annotated[int, msgspec.Meta(ge=1, le=10)] = SUGGESTIONS
    opening: str = ""


class Refused(Exception):
    """A request that is answered with an error status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def register() -> None:
    """Add the routes to the server, unless they are there already or there is no server."""
    table = comfyui.routes()
    if table is None or any(getattr(at, "path", "") == "/animegamer/turn" for at in table):
        return
    reading: dict[str, Callable[..., typing.Any]] = {
        "stories": _stories,
        "story": _story,
        "words": _words,
        "suggestions": _suggestions,
        "weights": offer,
        "about": _about,
        "docs": _docs,
        "training": training,
    }
    for path, read in reading.items():
        table.get(f"/animegamer/{path}")(_answering(functools.partial(_read, read)))
    table.get("/animegamer/datasets/{name}/{path:.+}")(_answering(_review))
    table.post("/animegamer/datasets/{name}/corrections")(_answering(_corrections))
    table.post("/animegamer/turn")(_answering(_turn))
    table.post("/animegamer/check")(_answering(_check))
    table.post("/animegamer/stories")(_answering(_manage))


def _answering(handler: Handler) -> Callable[..., typing.Any]:
    """A handler that answers with JSON, plain text or a file; if a request is wrong, with one sentence as `error`."""
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        try:
            _check_host(request.headers)
            status, values = await handler(request)
        except Refused as refused:
            status, values = refused.status, {"error": shortened(refused, LONGEST_ERROR)}
        except NotShown as error:  # the page says it in its language
            status, values = 400, {"error": shortened(error, LONGEST_ERROR), "note": error.note}
        except ValueError as error:
            status, values = 400, {"error": shortened(error, LONGEST_ERROR)}
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)  # a story that was moved or deleted at this moment
            status = 507 if error.errno in DISK_FULL else 409 if gone else 500
            values = {"error": shortened(f"{error.filename or 'the disk'}: {error.strerror or error}")}
        if isinstance(values, Path):
            return web.FileResponse(values, headers={"Cache-Control": "no-cache"})
        return web.Response(text=values) if isinstance(values, str) else web.json_response(values, status=status)

    return answer


def _check_host(headers: typing.Mapping[str, str]) -> None:
    """Refused for a request under a host name that is not this server's.

    Browsers send Sec-Fetch-Site, which no page can set, over https only: there the name was proved by a certificate.
    """
    host = urllib.parse.urlsplit(f"//{headers.get('Host', '')}").hostname or ""
    if "Sec-Fetch-Site" not in headers and not comfyui.answers_to(host):
        raise Refused(
            403,
            f"{shortened(host, 80)} is not a name of this ComfyUI, which listens on this machine only; if it is, start "
            f"ComfyUI with --enable-cors-header https://{shortened(host, 80)}",
        )


async def _read(read: Callable[[Query], Json | str], request: web.Request) -> tuple[int, Json | str]:
    """The answer of a function that reads files, outside the event loop."""
    return 200, await asyncio.to_thread(read, request.query)


async def _turn(request: web.Request) -> tuple[int, Json]:
    asked = parse_json(await _body_of(request), TurnRequest, "the turn")
    status, answer = await comfyui.queue_prompt(await asyncio.to_thread(_prompt, asked))
    if status != 200:
        nodes = answer.get("node_errors") or {}
        error, *_ = [error for node in nodes.values() for error in node["errors"]] or [answer["error"]]
        raise Refused(status, f"{error['message']}: {error['details']}".rstrip(": "))
    if request.query.get("wait", "0") in ("", "0", "false"):
        return 202, {"prompt_id": answer["prompt_id"]}
    shown = await _ended(answer["prompt_id"])
    (state,), (clip,) = shown["animegamer_state"], shown["images"]
    clip = f"/view?{urllib.parse.urlencode(clip)}"
    return 200, {"prompt_id": answer["prompt_id"], "turn": state["turn"], "state": state, "clip": clip}


async def _review(request: web.Request) -> tuple[int, Path]:
    return 200, await asyncio.to_thread(review_file, request.match_info["name"], request.match_info["path"])


async def _corrections(request: web.Request) -> tuple[int, Json]:
    asked = parse_json(await _body_of(request), Corrections, "the corrections")
    return 200, await asyncio.to_thread(save_review, request.match_info["name"], asked.corrections)


async def _body_of(request: web.Request) -> bytes:
    """The body of a request, which ComfyUI's server limits."""
    if request.content_type != "application/json":
        raise Refused(415, "send the request as application/json")
    return await request.read()


def _prompt(asked: TurnRequest) -> Json:
    """The prompt in API form that plays the requested turn; ValueError if the request is not valid."""
    instruction = read_instruction(asked.instruction)
    if instruction.startswith("#"):
        raise ValueError("the instruction starts with #, like a comment")
    name = story_name(asked.story)
    if asked.world not in worlds.world_names():
        raise ValueError(f"world {shortened(asked.world, 80)!r} is not known; choose {', '.join(worlds.world_names())}")
    motion: Json = {"motion": asked.motion}
    if not isinstance(asked.motion, str):
        motion = {"motion": "custom", "motion_value": asked.motion}
    elif asked.motion != "predicted":
        motion = {"motion": MotionScope.parse(asked.motion).name.lower()}
    turn = {"model": [WORLD_NODE, 0], "instructions": instruction, "story": name, "after": asked.after}
    turn |= {"branch": asked.branch, "seed": asked.seed, "export": False, **motion}
    asks: dict[str, tuple[typing.Any, Json]] = {
        WORLD_NODE: (LoadAnimeGamer, {"world": asked.world}),
        TURN_NODE: (PlayGameStory, turn),
    }
    prompt = {}
    for node, (kind, values) in asks.items():
        widgets = {name: default for name, default in defaults_of(kind).items() if default is not None}
        prompt[node] = {"class_type": kind.__name__, "inputs": widgets | values}  # a prompt must contain all widgets
    return prompt


async def _ended(prompt_id: str) -> Json:
    """The turn's `ui` values, once it has ended; Refused if it was removed, interrupted or failed."""
    while True:
        ahead, entry = comfyui.prompt_result(prompt_id)
        if entry is not None:
            break
        if not ahead and comfyui.prompt_result(prompt_id)[1] is None:
            raise Refused(409, "the turn was removed from the queue before it was played")
        await asyncio.sleep(POLL_SECONDS)
    shown = entry["outputs"].get(TURN_NODE, {})
    if "animegamer_state" in shown:
        return shown
    for kind, facts in (entry.get("status") or {}).get("messages", ()):
        if kind == "execution_error":
            raise Refused(422, " ".join(str(facts["exception_message"]).split()))
    raise Refused(409, "the turn was interrupted; the story contains all turns before it")


def _stories(_: Query) -> Json:
    world_of = functools.cache(played_world)  # most stories are of the same few worlds
    return {
        "stories": [_listed(name, world_of) for name in list_stories()],
        "worlds": worlds.world_names(),
        "absent": [name for name in worlds.PUBLISHED if not worlds.world_version(name)],  # listed, but not installed
    }


def _listed(name: str, world_of: Callable[[str, str], tuple[str, WorldFacts | None]]) -> Json:
    """A story in the list, with `error` if it cannot be read. world_of: `played_world`, cached."""
    try:
        story = Story.read(comfyui.output_folder(), name)
    except (ValueError, OSError) as error:
        return {"name": name, "world": "", "branch": "", "turns": 0, "error": shortened(error, LONGEST_ERROR)}
    world, _ = world_of(story.world_name, story.fingerprint)
    drawn = (entry.shot for entry in reversed(story.entries) if entry.shot is not None)
    shots = (story.shots.path(shot) for shot in drawn if story.shots.record(shot) is not None)
    clip = next(map(comfyui.output_item, shots), None)
    return {"name": name, "world": world, "branch": story.branch, "turns": len(story.entries), "clip": clip}


def _story(query: Query) -> Json:
    name = story_name(query.get("name", ""))
    if name not in list_stories():
        raise Refused(404, f"there is no story {name!r} in output/animegamer")
    story = Story.read(comfyui.output_folder(), name)
    (world, facts), current = played_world(story.world_name, story.fingerprint), story.branch
    branches = [{"name": branch, **_branch(story, branch, facts)} for branch in story.branches()]
    return {"name": name, "world": world, "branch": current, "gauges": gauges_of(story.rules), "branches": branches}


def _branch(story: Story, branch: str, facts: WorldFacts | None) -> Json:
    """The turns of a branch, with `error` if they cannot be read."""
    try:
        story.use(branch)
        session = story.session(len(story.entries), 0)
    except ValueError as error:
        return {"turns": [], "error": shortened(error, LONGEST_ERROR)}
    turns = [_turn_of(story, turn, facts) for turn in session.turns if turn.number > 0]
    if session.picture is None:
        return {"turns": turns, "opening": None, "opening_clip": None}
    path = story.opening_clip(session)
    clip = None if path is None else comfyui.output_item(path)
    return {"turns": turns, "opening": session.picture.instruction, "opening_clip": clip}


def _turn_of(story: Story, turn: Turn, facts: WorldFacts | None) -> Json:
    entry = story.entries[turn.number - 1]
    record = None if entry.shot is None else story.shots.record(entry.shot)
    drawn = {} if record is None else record["key"]
    drawn_motion, level = drawn.get("motion"), turn.state.motion
    asked = drawn.get("steps")
    steps = asked if isinstance(asked, int) else None
    return {
        "number": turn.number,
        "instruction": turn.instruction,
        "typed": entry.typed,
        "unknown": entry.unknown,
        "notes": entry.notes,
        "motion": {"scope": scope_name(level), "level": level, "value": drawn_motion},
        "overridden": None not in (drawn_motion, facts) and drawn_motion != facts.motion_table.value(level),
        "seed": turn.seed,
        "window": turn.window,
        "recalled": list(turn.recalled),
        "steps": steps,
        "timesteps": ",".join(map(str, asked)) if isinstance(asked, list) else "",
        "guidance": drawn.get("guidance"),
        "draft": None if facts is None else facts.draft(steps),
        "stats": dict(turn.character),
        "changes": turn.moved,
        "refused": list(turn.refused),
        "state": entry.state,
        "shot": entry.shot,
        "clip": None if record is None else comfyui.output_item(story.shots.path(entry.shot)),
    }


def _words(query: Query) -> Json:
    """Suggestions for the fields of an instruction, empty for a world that states no words.

    With `story`, which a page sends before a new story's first turn: ValueError if a story cannot have that name, or if
    the world cannot be played.
    """
    if "story" in query:
        story_name(query["story"])
        worlds.find_world(query.get("world", ""))
    facts = _facts_or_none(query.get("world", ""))  # of a story, it may be a world that is not installed
    words = _known_words(facts)
    return {
        "characters": words.characters,
        "motions": [act.phrase for act in words.acts],
        "adverbs": [word for level in words.adverbs for word in level],
        "speeds": words.adverbs,
        "times": words.times,
        "places": words.places,
        "things": words.things,
        "looks": words.looks,
        "untried": words.untried,
        "pictured": words.characters == TOYBOX_WORDS.characters,
        "warnings": facts.warnings if facts else (),
    }


async def _check(request: web.Request) -> tuple[int, Json]:
    """How a turn would be read, and what to know of it before it is drawn; an error if it would be refused."""
    asked = parse_json(await _body_of(request), CheckRequest, "the request")
    instruction = read_instruction(asked.instruction)

    def check() -> Json:
        facts = _facts_or_none(asked.world)
        words = _known_words(facts)
        unknown = facts.tokenizer.unknown_words(instruction) if facts and facts.tokenizer else ()
        seen = words.untried_in(asked.past[-1]) if asked.past else []  # the last clip shows what becomes of these
        reading = read_plainly(instruction, facts.life if facts else Life(), asked.past, unknown)
        return {
            "reading": reading.instruction if reading.typed else None,
            "words": reading.unknown,
            "notes": reading.notes,
            "draft": facts and facts.draft(asked.steps or None),
            "nearest": {word: [near for near in words.nearest(word) if near != word] for word in reading.unknown},
            "untried": [pair for pair in words.untried_in(reading.instruction) if pair not in seen],
        }

    return 200, await asyncio.to_thread(check)


def _known_words(facts: WorldFacts | None) -> Words:
    """What a world lists as known; nothing if it lists nothing or is not installed."""
    return (facts and facts.life.words) or Words()


def _facts_or_none(world: str) -> WorldFacts | None:
    """The facts of a world; None if it is not installed."""
    try:
        return world_facts(world)
    except (ValueError, OSError):
        return None


def _about(_: Query) -> Json:
    """The pack's version, and the addresses of its home page and its documentation: those of pyproject.toml, if any."""
    version, urls = comfyui.pack_facts()
    home = urls.get("repository") or urls.get("homepage") or f"{DOCS}?page=README"
    return {"version": version, "home": home, "docs": urls.get("documentation") or f"{DOCS}?page=comfyui"}


def _docs(query: Query) -> str:
    pages = {path.stem: path for path in (comfyui.PACK / "README.md", *sorted((comfyui.PACK / "docs").glob("*.md")))}
    page = query.get("page", "")
    if page not in pages:
        raise Refused(404, f"there is no page {shortened(page, 80)!r}; there are {', '.join(pages)}")
    return pages[page].read_text("utf-8")


def _suggestions(query: Query) -> Json:
    """Proposals for the next turn of a story, or for the first one of a new story; ValueError: a wrong request."""
    asked = msgspec.convert(dict(query), SuggestionsRequest, strict=False)
    if story_name(asked.story) in list_stories():
        story = Story.read(comfyui.output_folder(), asked.story)
        after = choose_turn(story, asked.after, asked.branch)
        world, facts = played_world(story.world_name, story.fingerprint)
        facts, session = facts or world_facts(world), story.session(after, 0)
    else:
        facts = world_facts(asked.world)
        session = GameSession(rules=facts.life.rules)
        if asked.opening:
            session = session.open_with(read_instruction(asked.opening), GameState.of_picture(None))
    director = director_for(facts.life, facts.spec_name, session, asked.seed)
    rules = session.rules or facts.life.rules
    found = [
        {"instruction": one.instruction, "reason": one.reason, "label": rules.label(one.reason) if one.reason else ""}
        for one in director(session, asked.count)
    ]
    return {"suggestions": found, "proposed_by": director.name}


async def _manage(request: web.Request) -> tuple[int, Json]:
    asked = parse_json(await _body_of(request), StoryRequest, "the request")

    def change() -> Json:
        root = comfyui.output_folder()
        if asked.do == "restore":
            return {"name": restore_story(root, asked.ticket)}
        name = story_name(asked.name)
        if asked.do == "delete":
            return {"name": name, "ticket": trash_story(root, name)}
        new = story_name(asked.to)
        (rename_story if asked.do == "rename" else duplicate_story)(root, name, new)
        return {"name": new}

    return 200, await asyncio.to_thread(change)
