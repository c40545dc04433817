"""The nodes of a game in a graph: a world, an instruction, the game so far, a predicted turn and its values."""

from __future__ import annotations

import typing
from dataclasses import replace

from comfy_api.v0_0_2 import io

from ..animegamer_core.game.life import STATS
from ..animegamer_core.game.state import GameSession, Instruction, read_instruction, read_instructions, scope_name
from ..animegamer_core.spec import PROFILES
from ..animegamer_core.story.turn import predict_turn, read_typed, with_opening_address
from ..animegamer_core.weights.adapters import with_adapters
from . import worlds
from .models import OFFERED, PLACEMENTS, PRECISIONS, GameModel
from .values import NONE, WORLD, HistorySocket, LoraSocket, ModelSocket, PlayedState, StateSocket, notes_of, state_item
from .widgets import (
    check_choice,
    choice_input,
    given_to,
    memory_inputs,
    memory_of,
    number_input,
    opening_input,
    schema,
    seed_input,
    strength_input,
    turn_input,
    window_input,
    window_of,
    world_input,
)


class LoadAnimeGamer(io.ComfyNode):
    """Chooses a world and how it is played."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="LoadAnimeGamer",
            search_aliases=("anime world", "game model", "checkpoint", "Toybox", "loader"),
            advanced=("precision", "placement", "profile"),
            essentials=True,
            inputs=[
                world_input(),
                choice_input("precision", PRECISIONS, "auto"),
                choice_input("placement", PLACEMENTS, "auto"),
                choice_input("profile", [WORLD, *(name for name in PROFILES if name != "as_run")], WORLD),
                LoraSocket.Input("lora", optional=True),
                strength_input("lora_strength"),
                choice_input("lora_file", worlds.lora_names(), NONE),
                strength_input("lora_file_strength"),
                choice_input("preset", OFFERED, WORLD, optional=True),
            ],
            outputs=[ModelSocket.Output("model")],
        )

    @classmethod
    def fingerprint_inputs(cls, world: str, lora_file: str, **_: object) -> str:
        """Changes when the world or the LoRA file on disk does."""
        return worlds.world_version(world) + worlds.lora_version(lora_file)

    @classmethod
    def execute(cls, **inputs: typing.Any) -> io.NodeOutput:
        given = given_to(cls, inputs)
        for name, choices in (("precision", PRECISIONS), ("placement", PLACEMENTS), ("preset", OFFERED)):
            check_choice(name, getattr(given, name), choices)
        files = [(path, strength * given.lora_strength) for path, strength in given.lora or ()]
        if given.lora_file != NONE:
            files.append((str(worlds.find_lora(given.lora_file)), given.lora_file_strength))
        profile = None if given.profile == WORLD else given.profile
        opened = with_adapters(worlds.find_world(given.world), tuple(files), profile)
        return io.NodeOutput(GameModel(opened, given.precision, given.placement, OFFERED[given.preset]))


class ComposeGameInstruction(io.ComfyNode):
    """Composes an instruction from fields, or splits a story into instructions."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        fields = {"character": "Miko", "adverb": "gently", "motion": "wave hello", "time": "day", "place": "beach"}
        return schema(
            node_id="ComposeGameInstruction",
            search_aliases=("prompt", "game prompt", "instruction", "character", "text"),
            inputs=[
                *(io.String.Input(name, default=default) for name, default in fields.items()),
                io.String.Input("story", default="", multiline=True),
            ],
            outputs=[io.String.Output("instruction"), io.String.Output("instructions", is_output_list=True)],
        )

    @classmethod
    def execute(cls, character: str, adverb: str, motion: str, time: str, place: str, story: str) -> io.NodeOutput:
        names = tuple(name.strip() for name in character.split(",") if name.strip())
        composed = Instruction(names, motion, place, adverb, time).checked().text
        return io.NodeOutput(composed, list(read_instructions(story)) or [composed])


class GameHistory(io.ComfyNode):
    """Starts a game, or rewinds one."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="GameHistory",
            search_aliases=("new game", "start", "memory", "context window", "rewind"),
            advanced=("window", "memory", "recalled_turns"),
            inputs=[
                window_input(),
                *(number_input(row.name, 50, 0, 100) for row in STATS),
                turn_input("rewind_to", -1),
                HistorySocket.Input("history", optional=True),
                opening_input(),
                *memory_inputs(),
            ],
            outputs=[HistorySocket.Output("history_out")],
        )

    @classmethod
    def execute(cls, **inputs: typing.Any) -> io.NodeOutput:
        given = given_to(cls, inputs)
        start = GameSession(opening={row.name: getattr(given, row.name) for row in STATS}, memory=None, rules=None)
        session = replace(given.history or start, window=window_of(given.window))
        session = replace(session, memory=memory_of(given.memory, given.recalled_turns) or session.memory)
        if given.rewind_to >= 0:
            session = session.rewind(given.rewind_to)
        if given.opening is not None:
            turn = given.opening.turn
            session = session.open_with(turn.instruction, turn.state, turn.clip)
        return io.NodeOutput(session)


class PredictNextState(io.ComfyNode):
    """Plays one turn of the game without drawing it."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="PredictNextState",
            search_aliases=("next turn", "play turn", "game state", "world model", "LLM"),
            essentials=True,
            inputs=[
                ModelSocket.Input("model"),
                HistorySocket.Input("history"),
                io.String.Input(
                    "instruction",
                    default="Character: Miko; Motion: gently wave hello; Background: day beach.",
                    multiline=True,
                ),
                seed_input(),
            ],
            outputs=[StateSocket.Output("state"), HistorySocket.Output("history_out")],
        )

    @classmethod
    def execute(cls, model: GameModel, history: GameSession, instruction: str, seed: int) -> io.NodeOutput:
        world = model.world
        text = read_instruction(instruction)
        history = history.with_defaults(world.window, world.memory, world.life.rules)
        history = with_opening_address(model.world.fingerprint, history)
        reading = read_typed(world.life, model.engine().tokenizer, history, text)
        session = predict_turn(world, model, history, reading.instruction).follow(history, seed)
        moment = PlayedState(session, world.motion_table, reading.unknown, world.warnings_for(session.window))
        return io.NodeOutput(moment, session, ui=notes_of(moment, reading))


class StateDisplay(io.ComfyNode):
    """Shows a turn on the page."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="StateDisplay",
            search_aliases=("stats", "stamina", "show state", "status"),
            inputs=[StateSocket.Input("state")],
            outputs=[StateSocket.Output("state_out")],
            is_output_node=True,
        )

    @classmethod
    def execute(cls, state: PlayedState) -> io.NodeOutput:
        return io.NodeOutput(state, ui={"animegamer_state": [state_item(state)]})


class GameTurnValues(io.ComfyNode):
    """Gives a turn's values to other nodes."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="GameTurnValues",
            search_aliases=("stats", "stamina", "numbers", "instruction", "convert"),
            inputs=[StateSocket.Input("state")],
            outputs=[
                io.Int.Output("turn"),
                io.String.Output("instruction"),
                io.String.Output("motion"),
                io.Int.Output("motion_level"),
                *(io.Int.Output(row.name) for row in STATS),
            ],
        )

    @classmethod
    def execute(cls, state: PlayedState) -> io.NodeOutput:
        turn = state.turn
        motion, stats = turn.state.motion, (turn.character[row.name] for row in STATS)
        return io.NodeOutput(turn.number, turn.instruction, scope_name(motion), int(motion), *stats)
