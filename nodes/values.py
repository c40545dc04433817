"""What the sockets carry: frozen values, their socket types, and the two layouts of pictures.

F frames, C channels, H height, W width. ComfyUI's IMAGE is (F, H, W, 3) float32 in 0..1; core's frames are
(F, 3, H, W) in [-1, 1].
"""

from __future__ import annotations

import typing
from dataclasses import dataclass

from comfy_api.v0_0_2 import io

from ..animegamer_core.state import CharacterState, GameSession, MotionTable, Turn, clean_text, scope_name

if typing.TYPE_CHECKING:
    from torch import Tensor

ModelSocket = io.Custom("ANIMEGAMER_MODEL")  # models.GameModel
HistorySocket = io.Custom("ANIMEGAMER_HISTORY")  # core's GameSession
StateSocket = io.Custom("ANIMEGAMER_STATE")  # Moment
ShotSocket = io.Custom("ANIMEGAMER_SHOT")  # Shot
LoraSocket = io.Custom("ANIMEGAMER_LORA")  # core's StageFiles
DatasetSocket = io.Custom("ANIMEGAMER_DATASET")  # the path of a dataset folder, a str

CATEGORY = "AnimeGamer"
WORLD = "world"  # in a list of choices: as the world itself has it
GAUGES = ("stamina", "social", "entertainment")
COURSE_TURNS = 200  # the turns that a display gets; longer games show their last part


@dataclass(frozen=True)
class Moment:
    """A game at one of its turns: the last of `session`, which is turn 0 for an encoded opening picture.

    motion_table: of the world that predicted it. unknown_words: of its instruction, which that world never saw.
    warnings: of how it was predicted.
    """

    session: GameSession
    motion_table: MotionTable | None = None
    unknown_words: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def turn(self) -> Turn:
        """The turn that this moment stands at."""
        return self.session.turns[-1]


@dataclass(frozen=True)
class Shot:
    """A drawn turn with all that decided its frames, so that a story can keep it.

    image_FHWC: as ComfyUI's IMAGE. world: its name. fingerprint, precision, drawn: the GameModel's. profile: its name.
    motion: what the decoder was told, px a frame at 480 px height.
    """

    moment: Moment
    image_FHWC: Tensor
    fps: float
    world: str
    fingerprint: str
    profile: str
    precision: str
    drawn: str
    motion: float
    steps: int
    guidance: str
    seed: int


def image_of(frames_FCHW: Tensor) -> Tensor:
    """IMAGE of core's frames; what the VAE overshoots is cut off."""
    unit = ((frames_FCHW.float() + 1) / 2).clamp(0, 1)
    return unit.permute(0, 2, 3, 1).contiguous()


def image_of_bytes(frames_FHWC: typing.Any) -> Tensor:
    """IMAGE of a clip's bytes, a (F, H, W, 3) uint8 array."""
    import torch

    return torch.from_numpy(frames_FHWC).float() / 255


def bytes_of(image_FHWC: Tensor) -> typing.Any:
    """(F, H, W, 3) uint8 array of an IMAGE, truncated as core's own clips are."""
    import torch

    return (image_FHWC.clamp(0, 1) * 255).to(torch.uint8).cpu().contiguous().numpy()


def frames_of(image_FHWC: Tensor) -> Tensor:
    """Core's frames of an IMAGE; a transparent picture's fourth channel is left out."""
    return image_FHWC[..., :3].permute(0, 3, 1, 2).float() * 2 - 1


def state_item(moment: Moment) -> dict[str, typing.Any]:
    """The `animegamer_state` item that the page draws: the last turn, and the course of the whole game."""
    session, turn = moment.session, moment.turn
    before = session.turns[-2].character if len(session.turns) > 1 else session.opening
    table, motion = moment.motion_table, turn.state.motion
    return {
        "turn": turn.number,
        "instruction": turn.instruction,
        "motion": {"scope": scope_name(motion), "level": motion, "value": table.value(motion) if table else None},
        "gauges": _gauges(turn.character),
        "changes": {name: getattr(turn.character, name) - getattr(before, name) for name in GAUGES},
        "course": [_course_item(item) for item in session.turns[-COURSE_TURNS:]],
        "unknown_words": list(moment.unknown_words),
        "said": list(turn.state.said),
    }


def notes_of(moment: Moment, world: str) -> dict[str, list[str]] | None:
    """The `ui` of a node: warnings of how it predicted, and for words that the world never saw; None without any."""
    notes = [*moment.warnings, *unknown_notes(moment, world)]
    return {"animegamer_notes": notes} if notes else None


def unknown_notes(moment: Moment, world: str) -> list[str]:
    """The warning for words that the world never saw; empty where it knows them all."""
    if not moment.unknown_words:
        return []
    words = ", ".join(moment.unknown_words)
    return [f"Turn {moment.turn.number}: {world} never saw {words}; it reads the rest of the instruction."]


def one_instruction(text: str) -> str:
    """A widget's text as one clean line; ValueError if it says nothing."""
    cleaned = clean_text(text)
    if not cleaned:
        raise ValueError("the instruction is empty; say who does what, and where")
    return cleaned


def _course_item(turn: Turn) -> dict[str, typing.Any]:
    words = {"turn": turn.number, "motion": turn.state.motion, "instruction": turn.instruction}
    return {**words, **_gauges(turn.character)}


def _gauges(character: CharacterState) -> dict[str, int]:
    return {name: getattr(character, name) for name in GAUGES}
