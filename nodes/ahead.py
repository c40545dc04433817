"""DrawTurnsAhead: predicts and draws turns that may come next, while nothing else is waiting in the queue."""

from __future__ import annotations

import time
import typing
from dataclasses import dataclass, fields
from functools import partial

from comfy_api.v0_0_2 import io

from ..animegamer_core.state import read_instructions
from ..animegamer_core.story.ahead import Ahead
from ..animegamer_core.story.director import SUGGESTIONS, Proposer
from ..animegamer_core.story.everyday import director_for
from ..animegamer_core.story.http_requests import MOST_OFFERED, MOST_PIECES, MOST_TURNS_AHEAD
from ..animegamer_core.story.player import Player
from . import comfyui
from .drawing import shot_inputs
from .models import PACKAGES
from .play import GameInputs, opening_of, settings_of
from .saved_stories import ahead_store, choose_turn, open_story
from .values import ModelSocket
from .widgets import (
    branch_input,
    memory_inputs,
    number_input,
    opening_input,
    schema,
    seed_input,
    story_input,
    turn_input,
    window_input,
)

GAME_INPUTS = tuple(field.name for field in fields(GameInputs) if field.name != "instructions")


@dataclass(frozen=True, kw_only=True)
class AheadInputs(GameInputs):
    """The inputs of DrawTurnsAhead."""

    turns_ahead: int = 1
    pieces: int = 0
    suggestion_seed: int = 0


class DrawTurnsAhead(io.ComfyNode):
    """Predicts and draws turns that may come next, so that they play at once."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="DrawTurnsAhead",
            display_name="Draw Turns Ahead",
            search_aliases=("precompute", "prefetch", "speculative", "cache turns", "choices"),
            advanced=("line", "window", "guidance", "memory", "recalled_turns", "pieces"),
            description="Predicts and draws turns that may come next: first all states, then the shots. They are kept "
            "for a day in output/animegamer/.ahead, next to the stories. Play Game Story with the same inputs "
            "then plays them at once. The story itself does not change. Stops early when another prompt is "
            "waiting in the queue.",
            inputs=[
                ModelSocket.Input("model", tooltip="The world to play in."),
                io.String.Input(
                    "instructions",
                    default="",
                    multiline=True,
                    tooltip=f"What may happen next, one turn per line, up to {MOST_OFFERED}; the likeliest first. "
                    f"Empty: {SUGGESTIONS} turns that the world proposes.",
                ),
                story_input(),
                turn_input("after", -1, "Draw what may follow this turn. 0: before turn 1; -1: after the last turn."),
                branch_input("The branch of the story to continue, such as main or line-2. Empty: the current branch."),
                window_input(),
                seed_input("As in Play Game Story: the noise seed of turn 1; each later turn adds 1."),
                *shot_inputs(),
                number_input(
                    "turns_ahead",
                    1,
                    1,
                    MOST_TURNS_AHEAD,
                    "How many turns to look ahead. 2 and 3 also draw the turns that would follow the first "
                    "instruction.",
                ),
                number_input(
                    "pieces",
                    0,
                    0,
                    MOST_PIECES,
                    "How many states and shots to make in one run. 0: all that are missing.",
                ),
                seed_input(
                    "Seed of the turns that the world proposes; change it to get other proposals.",
                    name="suggestion_seed",
                ),
                opening_input(),
                *memory_inputs(),
            ],
            hidden=[io.Hidden.prompt, io.Hidden.unique_id],
            outputs=[
                io.Int.Output("drawn", display_name="drawn", tooltip="How many of the instructions have been drawn."),
            ],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **_: object) -> float:
        """Always new, because the node looks up what is on disk."""
        return float("nan")

    @classmethod
    def execute(cls, **inputs: typing.Any) -> io.NodeOutput:
        given, started = AheadInputs(**inputs), time.perf_counter()
        comfyui.require(*PACKAGES)
        world = given.model.world
        story = open_story(given.story, world.spec.name, given.model.fingerprint)
        after = choose_turn(story, given.after, given.line)
        settings = settings_of(given, range(after + 1, after + 1 + given.turns_ahead))
        player = Player(world, story, settings, after, given.model, opening_of(given, after, story))
        ahead, offered = _offered(given, player)
        _draw(ahead, offered, given.pieces, _Waiting(cls.hidden.prompt or {}, str(cls.hidden.unique_id)))
        turns = ahead.look(offered)
        values = {
            "story": story.name,
            "line": story.branch,
            "after": after,
            "more": ahead.next_piece(offered) is not None,
            "seconds": time.perf_counter() - started,
            "turns": [
                {
                    "instruction": turn.instruction,
                    "predicted": turn.predicted,
                    "shot": turn.shot,
                    "clip": None if turn.clip is None else comfyui.output_item(turn.clip),
                }
                for turn in turns
            ],
        }
        return io.NodeOutput(sum(turn.clip is not None for turn in turns), ui={"animegamer_ahead": [values]})


def _offered(given: AheadInputs, player: Player) -> tuple[Ahead, tuple[str, ...]]:
    """What draws ahead, and the instructions that may come next; ValueError if none is given or can be proposed."""
    written, world = read_instructions(given.instructions), player.world
    if len(written) > MOST_OFFERED:
        raise ValueError(f"{len(written)} instructions; at most {MOST_OFFERED} turns can be drawn ahead")
    propose: Proposer | None = None
    if not written or given.turns_ahead > 1:
        propose = director_for(world.life, world.spec.name, player.session, given.suggestion_seed)
    if not written and propose is not None:
        written = tuple(one.instruction for one in propose(player.session, SUGGESTIONS))
    return Ahead(player, ahead_store(world.fingerprint), propose, given.turns_ahead), written


class _Waiting:
    """Tells whether a waiting prompt plays the very turn that is being drawn ahead."""

    def __init__(self, prompt: comfyui.Prompt, node: str) -> None:
        """prompt: the running one; node: the id of its DrawTurnsAhead."""
        self._ours = _game_of(prompt, prompt.get(node, {}))

    def plays(self, prompt: comfyui.Prompt, instructions: tuple[str, ...]) -> bool:
        """Whether a prompt plays one of the instructions first, in our game."""
        games = [node for node in prompt.values() if node["class_type"] == "PlayGameStory"]
        if len(games) != 1 or _game_of(prompt, games[0]) != self._ours:
            return False
        written = games[0]["inputs"].get("instructions")
        return isinstance(written, str) and read_instructions(written)[:1] in [(text,) for text in instructions]


def _game_of(prompt: comfyui.Prompt, node: comfyui.Prompt) -> dict[str, typing.Any]:
    """The inputs of a node that say how a game goes on, as written in the prompt, with links followed."""
    inputs = node.get("inputs", {})
    return {name: _linked(prompt, inputs[name]) for name in GAME_INPUTS if name in inputs}


def _linked(prompt: comfyui.Prompt, value: object) -> object:
    """A value of a prompt; for a link, the linked node, which equals no other if it has links itself."""
    if not isinstance(value, list):
        return value
    node = prompt.get(str(value[0]), {})
    is_whole = bool(node) and not any(isinstance(one, list) for one in node["inputs"].values())
    return (node["class_type"], node["inputs"], value[1:]) if is_whole else object()


def _draw(ahead: Ahead, offered: tuple[str, ...], pieces: int, waiting: _Waiting) -> None:
    """Draw what is missing, at most this many pieces (0: all), until another prompt is waiting in the queue.

    A piece that the waiting prompt needs is finished first, so that it does not have to be drawn again.
    """
    count = 0
    try:
        while (not pieces or count < pieces) and (piece := ahead.next_piece(offered)) is not None:
            with comfyui.giving_way():
                comfyui.stop_if_interrupted()
            wanted = ahead.wanted_by(piece, offered)
            with comfyui.giving_way(partial(waiting.plays, instructions=wanted)):
                ahead.draw(piece, comfyui.stop_if_interrupted)
            count += 1
    except comfyui.OthersWait:
        return
