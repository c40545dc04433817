"""The values on the sockets, the socket types, the `ui` values that pages show, and the two image layouts.

F frames, C channels, H height, W width. ComfyUI's IMAGE is (F, H, W, 3) float32 in 0..1; core's frames are
(F, 3, H, W) in [-1, 1].
"""

from __future__ import annotations

import typing
from dataclasses import dataclass

from comfy_api.v0_0_2 import io, ui

from ..animegamer_core.game.life import PUBLISHED_RULES, Rules
from ..animegamer_core.game.plain import Reading
from ..animegamer_core.game.state import GameSession, MotionTable, Turn, scope_name
from ..animegamer_core.spec import Steps, step_count

if typing.TYPE_CHECKING:
    from collections.abc import Iterable

    from PIL import Image
    from torch import Tensor

    from ..animegamer_core.story.turn import ShotKey

ModelSocket = io.Custom("ANIMEGAMER_MODEL")  # models.GameModel
HistorySocket = io.Custom("ANIMEGAMER_HISTORY")  # core's GameSession
StateSocket = io.Custom("ANIMEGAMER_STATE")  # PlayedState
ShotSocket = io.Custom("ANIMEGAMER_SHOT")  # Shot
LoraSocket = io.Custom("ANIMEGAMER_LORA")  # core's Adapters
DatasetSocket = io.Custom("ANIMEGAMER_DATASET")  # the path of a dataset folder, a str

WORLD = "world"  # a choice in lists: the world's own setting
NONE = "none"  # a choice in lists: no file or folder
CHART_TURNS = 200  # turns that a chart on a page shows: the last ones of a longer game


@dataclass(frozen=True)
class PlayedState:
    """A game after one of its turns: the last turn of `session`, which is turn 0 for an encoded opening picture.

    motion_table: of the world that predicted it. unknown_words: words of the instruction that were not in that world's
    training data. warnings: what the user should know about this prediction.
    """

    session: GameSession
    motion_table: MotionTable | None = None
    unknown_words: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def turn(self) -> Turn:
        """The last turn of the session."""
        return self.session.turns[-1]


@dataclass(frozen=True)
class Shot:
    """A drawn turn with every setting that its frames depend on, so that a story can save it.

    image_FHWC: as ComfyUI's IMAGE. world, profile: their names. precision: of the GameModel, which predicted the turn.
    key: every setting that the frames depend on.
    """

    moment: PlayedState
    image_FHWC: Tensor
    fps: float
    world: str
    profile: str
    precision: str
    key: ShotKey


def image_of(frames_FCHW: Tensor) -> Tensor:
    """IMAGE of core's frames, clamped to the valid range."""
    unit = ((frames_FCHW.float() + 1) / 2).clamp(0, 1)
    return unit.permute(0, 2, 3, 1).contiguous()


def image_of_bytes(frames_FHWC: typing.Any) -> Tensor:
    """IMAGE of a (F, H, W, 3) uint8 array, or of a list of frames."""
    import numpy as np
    import torch

    return torch.from_numpy(np.asarray(frames_FHWC)).float() / 255


def bytes_of(image_FHWC: Tensor) -> typing.Any:
    """(F, H, W, 3) uint8 array of an IMAGE, truncated as in core's own clips."""
    import torch

    return (image_FHWC.clamp(0, 1) * 255).to(torch.uint8).cpu().contiguous().numpy()


def image_of_picture(picture: Image.Image) -> Tensor:
    """IMAGE with one frame of a PIL picture."""
    import numpy as np

    return image_of_bytes(np.array(picture.convert("RGB"))[None])


def frames_of(image_FHWC: Tensor) -> Tensor:
    """Core's frames of an IMAGE, without the alpha channel of a transparent picture."""
    return image_FHWC[..., :3].permute(0, 3, 1, 2).float() * 2 - 1


def state_item(moment: PlayedState) -> dict[str, typing.Any]:
    """The `animegamer_state` item that pages show: the last turn, and the stats after each turn."""
    session, turn = moment.session, moment.turn
    table, motion = moment.motion_table, turn.state.motion
    return {
        "turn": turn.number,
        "instruction": turn.instruction,
        "motion": {"scope": scope_name(motion), "level": motion, "value": table.value(motion) if table else None},
        "gauges": gauges_of(session.rules),
        "stats": dict(turn.character),
        "changes": turn.moved,
        "refused": list(turn.refused),
        "recalled": list(turn.recalled),
        "course": [
            {"turn": item.number, "motion": item.state.motion, "instruction": item.instruction, **item.character}
            for item in session.turns[-CHART_TURNS:]
        ],
        "unknown_words": list(moment.unknown_words),
    }


def gauges_of(rules: Rules | None) -> dict[str, dict[str, str]]:
    """How a page shows each stat."""
    return {stat.name: {"label": stat.label, "colour": stat.colour} for stat in (rules or PUBLISHED_RULES).stats}


def notes_of(moment: PlayedState, reading: Reading) -> dict[str, list[str]] | None:
    """The `ui` of a node with its warnings and how the instruction was read; None if there is nothing to say."""
    notes = [*moment.warnings, *reading_notes(moment.turn.number, reading)]
    return {"animegamer_notes": notes} if notes else None


def draft_ui(steps: Steps, usual: Steps) -> dict[str, list[str]]:
    """The `ui` value for a shot with fewer sampling steps than usual; empty otherwise, and for chosen timesteps."""
    all_steps = step_count(usual)
    if not isinstance(steps, int) or steps >= all_steps:
        return {}
    return {
        "animegamer_draft": [
            f"A draft, drawn in {steps} of {all_steps} sampling steps; set steps to 0 to use them all."
        ]
    }


def reading_notes(number: int, reading: Reading) -> list[str]:
    """What to say of a turn whose instruction was not played as it was typed."""
    said = [f'read as "{reading.instruction.rstrip(".")}".'] if reading.typed else []
    said += [f"This world does not know {', '.join(map(repr, reading.unknown))}."] if reading.unknown else []
    lines = " ".join((*said, *reading.sentences))
    return [f"Turn {number}: {lines}"] if lines else []


def report_ui(
    cls: type[io.ComfyNode], image: Tensor | None, text: str, notes: Iterable[str] = ()
) -> dict[str, typing.Any]:
    """The `ui` of a node that reports: its picture if it has one, its report, and notes to the user."""
    values = {} if image is None else ui.PreviewImage(image, cls=cls).as_dict()
    values["text"] = [text]
    if lines := list(notes):
        values["animegamer_notes"] = lines
    return values
