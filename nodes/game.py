"""The nodes of one turn: load a world, tell it, predict, draw, look."""

from __future__ import annotations

from dataclasses import replace

from comfy_api.v0_0_2 import io

from ..animegamer_core.play import state_key
from ..animegamer_core.shelf import address_of, with_opening_address
from ..animegamer_core.spec import PROFILES
from ..animegamer_core.state import (
    CharacterState,
    GameSession,
    Instruction,
    read_instructions,
)
from ..animegamer_core.train.staged import StageFiles, with_stage_files
from . import host
from .models import OFFERED, PLACEMENTS, PRECISIONS, GameModel
from .values import (
    CATEGORY,
    WORLD,
    HistorySocket,
    LoraSocket,
    ModelSocket,
    Moment,
    StateSocket,
    notes_of,
    one_instruction,
    state_item,
)
from .widgets import seed_input, turn_input, window_input, window_of, world_input


class LoadAnimeGamer(io.ComfyNode):
    """A world and how it is played."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="LoadAnimeGamer",
            display_name="Load AnimeGamer",
            category=CATEGORY,
            description="Chooses a world. The Toybox is always there and needs no download; other worlds lie in "
            "models/animegamer. Nothing is loaded before another node needs it.",
            inputs=[
                world_input(
                    "The world to play in: toybox is built in, the others are folders in models/animegamer.",
                ),
                io.Combo.Input(
                    "precision",
                    options=list(PRECISIONS),
                    default="auto",
                    tooltip="Number format of the weights on a GPU; auto: as they are stored. A CPU always uses fp32.",
                ),
                io.Combo.Input(
                    "placement",
                    options=list(PLACEMENTS),
                    default="auto",
                    tooltip="Where the models compute; auto leaves it to ComfyUI. 'engine on cpu' keeps the language "
                    "model out of a small GPU's memory.",
                ),
                io.Combo.Input(
                    "profile",
                    options=[WORLD, *(name for name in PROFILES if name != "as_run")],
                    default=WORLD,
                    tooltip="How turns are told to the engine; world: the way that this world was trained for.",
                ),
                LoraSocket.Input(
                    "lora", optional=True, tooltip="A trained stage from Train LoRA Stage, put on top of the world."
                ),
                io.Float.Input(
                    "lora_strength",
                    default=1.0,
                    min=-2.0,
                    max=2.0,
                    step=0.05,
                    tooltip="How strongly the connected stage is applied; 1 is as trained, 0 leaves it out.",
                ),
                io.Combo.Input(
                    "lora_file",
                    options=host.lora_names(),
                    default=host.NONE,
                    tooltip="A stage file in models/animegamer/loras, put on top of the world and the connected stage.",
                ),
                io.Float.Input(
                    "lora_file_strength",
                    default=1.0,
                    min=-2.0,
                    max=2.0,
                    step=0.05,
                    tooltip="How strongly the chosen file is applied; 1 is as trained, 0 leaves it out.",
                ),
                io.Combo.Input(
                    "preset",
                    options=list(OFFERED),
                    default=WORLD,
                    optional=True,  # and the last one: graphs that were saved before it was there go on as they are
                    tooltip="How fast shots are drawn. world: as the world says; exact: all steps, both halves of "
                    "guidance in each, compiled on a GPU (the first shot of a size takes one to two minutes longer); "
                    "balanced, live: about a half and a quarter of the steps, with guidance cosine, and weakly guided "
                    "steps in one pass.",
                ),
            ],
            outputs=[ModelSocket.Output("model", display_name="model", tooltip="The world, ready to be played.")],
        )

    @classmethod
    def fingerprint_inputs(cls, world: str, lora_file: str, **_: object) -> str:
        """Changes when the world's or the stage file's file on disk does."""
        return host.age_of_world(world) + host.age_of_lora(lora_file)

    @classmethod
    def execute(
        cls,
        world: str,
        precision: str,
        placement: str,
        profile: str,
        lora_strength: float,
        lora_file: str,
        lora_file_strength: float,
        lora: StageFiles | None = None,
        preset: str = WORLD,
    ) -> io.NodeOutput:
        given = {
            "precision": (precision, PRECISIONS),
            "placement": (placement, PLACEMENTS),
            "preset": (preset, OFFERED),
        }
        for name, (value, choices) in given.items():
            if value not in choices:  # older ComfyUI does not look
                raise ValueError(f"{name} is {value!r}; choose {', '.join(choices)}")
        files = [(path, strength * lora_strength) for path, strength in lora or ()]
        if lora_file != host.NONE:
            files.append((str(host.find_lora(lora_file)), lora_file_strength))
        opened = with_stage_files(host.find_world(world), tuple(files), None if profile == WORLD else profile)
        return io.NodeOutput(GameModel(opened, precision, placement, OFFERED[preset]))


class ComposeGameInstruction(io.ComfyNode):
    """Fields, or many lines, to instructions."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        def field(name: str, default: str, tooltip: str) -> io.Input:
            return io.String.Input(name, default=default, tooltip=tooltip)

        return io.Schema(
            node_id="ComposeGameInstruction",
            display_name="Compose Game Instruction",
            category=CATEGORY,
            description="Writes an instruction from its parts, in the form that engines are trained with. A story of "
            "many lines becomes a list, which runs the following nodes once a line.",
            inputs=[
                field("character", "Miko", "Who acts. Several names are separated by commas."),
                field("adverb", "gently", "How it is done. May be empty."),
                field("motion", "wave hello", "What the character does."),
                field("time", "day", "Time of day. May be empty."),
                field("place", "beach", "Where it happens."),
                io.String.Input(
                    "story",
                    default="",
                    multiline=True,
                    tooltip="Whole instructions, one a line; lines that begin with # are left out. Empty: the one "
                    "composed above is the only one.",
                ),
            ],
            outputs=[
                io.String.Output("instruction", display_name="instruction", tooltip="The instruction of the fields."),
                io.String.Output(
                    "instructions",
                    display_name="instructions",
                    is_output_list=True,
                    tooltip="The lines of the story as a list; without a story the composed instruction alone.",
                ),
            ],
        )

    @classmethod
    def execute(cls, character: str, adverb: str, motion: str, time: str, place: str, story: str) -> io.NodeOutput:
        names = tuple(name.strip() for name in character.split(",") if name.strip())
        composed = Instruction(names, motion, place, adverb, time).checked().text
        return io.NodeOutput(composed, list(read_instructions(story)) or [composed])


class GameHistory(io.ComfyNode):
    """A new game, or another view of one."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        def gauge(name: str) -> io.Input:
            return io.Int.Input(
                name, default=50, min=0, max=100, tooltip=f"The character's {name} when a new game starts, 0 to 100."
            )

        return io.Schema(
            node_id="GameHistory",
            display_name="Game History",
            category=CATEGORY,
            description="Starts a game; or takes one and looks at it through another window, or rewinds it. Two of "
            "these on the same history are two futures.",
            inputs=[
                window_input(),
                gauge("stamina"),
                gauge("social"),
                gauge("entertainment"),
                turn_input(
                    "rewind_to",
                    -1,
                    "Go back to after this turn of the connected history; 0: before turn 1, -1: keep all.",
                ),
                HistorySocket.Input("history", optional=True, tooltip="A game to go on with; none: a new one starts."),
                StateSocket.Input(
                    "opening",
                    optional=True,
                    tooltip="A state that the new game opens with, from Encode Shot: your own character or place.",
                ),
            ],
            outputs=[HistorySocket.Output("history_out", display_name="history", tooltip="The game so far.")],
        )

    @classmethod
    def execute(
        cls,
        window: int,
        stamina: int,
        social: int,
        entertainment: int,
        rewind_to: int,
        history: GameSession | None = None,
        opening: Moment | None = None,
    ) -> io.NodeOutput:
        start = GameSession(opening=CharacterState(stamina, social, entertainment))
        session = replace(history or start, window=window_of(window))
        if rewind_to >= 0:
            session = session.rewind(rewind_to)
        if opening is not None:
            session = session.open_with(opening.turn.instruction, opening.turn.state)
        return io.NodeOutput(session)


class PredictNextState(io.ComfyNode):
    """One turn of the game, before it is drawn."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="PredictNextState",
            display_name="Predict Next State",
            category=CATEGORY,
            description="Plays one turn: reads the instruction and the past turns, and predicts what the shot shows, "
            "how much it moves, and how the character's gauges change.",
            inputs=[
                ModelSocket.Input("model", tooltip="The world to play in."),
                HistorySocket.Input("history", tooltip="The game so far, from Game History or the turn before."),
                io.String.Input(
                    "instruction",
                    default="Character: Miko; Motion: gently wave hello; Background: day beach.",
                    multiline=True,
                    tooltip="What happens next. The form 'Character: ...; Motion: ...; Background: ...' is what worlds "
                    "are trained with; line breaks count as spaces.",
                ),
                seed_input(
                    "The turn's noise seed: Decode Shot draws with it unless it has its own. The prediction "
                    "itself is the same for every seed.",
                ),
            ],
            outputs=[
                StateSocket.Output("state", display_name="state", tooltip="The predicted turn, for Decode Shot."),
                HistorySocket.Output("history_out", display_name="history", tooltip="The game with this turn."),
            ],
        )

    @classmethod
    def execute(cls, model: GameModel, history: GameSession, instruction: str, seed: int) -> io.NodeOutput:
        text = one_instruction(instruction)
        engine, world = model.engine(), model.world
        history = with_opening_address(model.fingerprint, history.read_with(world.window))
        key = state_key(model.fingerprint, history, text, world.profile.name, model.precision)
        session = history.step(text, engine.predict(history.past(), text), seed, address_of(key))
        words, warnings = engine.tokenizer.unknown_words(text), world.warnings_for(session.window)
        moment = Moment(session, world.motion_table, words, warnings)
        return io.NodeOutput(moment, session, ui=notes_of(moment, world.spec.name))


class StateDisplay(io.ComfyNode):
    """The game's state as the page draws it."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="StateDisplay",
            display_name="State Display",
            category=CATEGORY,
            description="Shows the gauges with their changes, the motion, the turn's text and the course of the game.",
            inputs=[StateSocket.Input("state", tooltip="The turn to show.")],
            outputs=[StateSocket.Output("state_out", display_name="state", tooltip="The same turn, passed on.")],
            is_output_node=True,
        )

    @classmethod
    def execute(cls, state: Moment) -> io.NodeOutput:
        return io.NodeOutput(state, ui={"animegamer_state": [state_item(state)]})
