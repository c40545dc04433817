"""The options of `play` that begin a game with a picture or a part of a film."""

from __future__ import annotations

import typing

from ..state import GameSession
from ..story.endpoint_translation import read_with_endpoint
from ..story.opening import DEFAULT_TEXT, frames_of_bytes, open_game, read_opening
from ..story.player import check_same_opening

if typing.TYPE_CHECKING:
    from ..checkpoint import World
    from ..runtime.models import PlaySettings
    from ..story.story import Story


def check_opening(args: typing.Any) -> None:
    """ValueError for options that do not go together."""
    given = [name for name in ("opening_at", "opening_text") if getattr(args, name) is not None]
    if args.opening is None and given:
        raise ValueError(f"--{given[0].replace('_', '-')} needs --opening FILE, the picture or film that it applies to")


def opening_of(args: typing.Any, world: World, story: Story, settings: PlaySettings) -> GameSession | None:
    """The game that --opening begins; None without it.

    ValueError: the story's turns started with another opening, unless `--branch 0` begins again; the world has no shot
    encoder; no picture or film.
    """
    if args.opening is None:
        return None
    pictures, frame = read_opening(args.opening, args.opening_at, world.spec.decoder)
    encoder = world.load_encoder(settings.device, settings.dtype)
    text = DEFAULT_TEXT if args.opening_text is None else args.opening_text
    text = read_with_endpoint(text, world.life.words, world.spec.name)
    turn = open_game(encoder, text, frames_of_bytes(pictures), len(pictures), frame).turns[0]
    rules = story.rules or world.life.rules
    opening = GameSession(rules=rules).open_with(turn.instruction, turn.state, turn.clip)
    if story.entries and args.branch != 0:
        check_same_opening(story, story.session(0, None), opening)
    return opening
