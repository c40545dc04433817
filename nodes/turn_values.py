"""GameTurnValues: a turn as numbers and text, for nodes of ComfyUI and of other packs."""

from __future__ import annotations

from comfy_api.v0_0_2 import io

from ..animegamer_core.life import STATS
from ..animegamer_core.state import scope_name
from .schemas import schema
from .values import Moment, StateSocket


class GameTurnValues(io.ComfyNode):
    """Gives a turn's values to other nodes."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="GameTurnValues",
            display_name="Turn Values",
            search_aliases=("stats", "stamina", "numbers", "instruction", "convert"),
            description="Gives a turn as numbers and text, for nodes that compare, calculate, switch or write. It "
            "draws nothing.",
            inputs=[StateSocket.Input("state", tooltip="The turn.")],
            outputs=[
                io.Int.Output("turn", display_name="turn", tooltip="The turn's number; 0 for an opening."),
                io.String.Output("instruction", display_name="instruction", tooltip="The turn's instruction."),
                io.String.Output(
                    "motion",
                    display_name="motion",
                    tooltip="How much the shot moves: still, gentle, brisk, fast, wild.",
                ),
                io.Int.Output("motion_level", display_name="motion_level", tooltip="The same as a number, 1 to 5."),
                *(
                    io.Int.Output(name, display_name=name, tooltip=f"The character's {name} after the turn, 0 to 100.")
                    for name in STATS
                ),
            ],
        )

    @classmethod
    def execute(cls, state: Moment) -> io.NodeOutput:
        turn = state.turn
        motion, stats = turn.state.motion, (getattr(turn.character, name) for name in STATS)
        return io.NodeOutput(turn.number, turn.instruction, scope_name(motion), int(motion), *stats)
