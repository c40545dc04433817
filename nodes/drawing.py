"""Pictures to states and states to shots: the two nodes, and what every node that draws shares with them."""

from __future__ import annotations

import contextlib
import sys
import time
import typing
from collections.abc import Callable
from fractions import Fraction

from comfy_api.v0_0_2 import InputImpl, Types, io

from ..animegamer_core.spec import GUIDANCE_NAMES
from ..animegamer_core.state import GameSession, GameState, MotionScope
from . import host
from .models import GameModel
from .values import (
    CATEGORY,
    WORLD,
    ModelSocket,
    Moment,
    Shot,
    ShotSocket,
    StateSocket,
    bytes_of,
    frames_of,
    image_of,
    notes_of,
    one_instruction,
)
from .widgets import seed_input

if typing.TYPE_CHECKING:
    from torch import Tensor

    from ..animegamer_core.decoder import ShotDecoder

    Report = Callable[..., None]  # host.progress: (done, picture or None)
    OnStep = Callable[[int, int, Tensor], None]

PREDICTED, CUSTOM = "predicted", "custom"
MOTIONS = (PREDICTED, *(scope.name.lower() for scope in MotionScope), CUSTOM)
LARGEST_MOTION = 999.0
PREVIEW_SHARE = 0.05  # of the time so far, that pictures while sampling may take
PREVIEW_FROM = 0.2  # of the steps; the first ones show little but noise
PREVIEW_SIDE = 360  # pixels that a picture's longer side is shown at


class EncodeShot(io.ComfyNode):
    """A player's own picture becomes a state."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="EncodeShot",
            display_name="Encode Shot",
            category=CATEGORY,
            description="Reads a picture (or the first frame of a clip) and what happens in it, as turn 0 of a game.",
            inputs=[
                ModelSocket.Input("model", tooltip="The world that shall read the picture; it needs its encoder."),
                io.Image.Input(
                    "frames",
                    tooltip="A picture, or a clip whose first frame is read. It is cropped to the shot's shape.",
                ),
                io.String.Input(
                    "motion_text",
                    default="stands still",
                    tooltip="What happens in the picture, or a whole instruction (Character: ...; Motion: ...; "
                    "Background: ...).",
                ),
            ],
            outputs=[StateSocket.Output("state", display_name="state", tooltip="Turn 0, for Game History's opening.")],
        )

    @classmethod
    def execute(cls, model: GameModel, frames: Tensor, motion_text: str) -> io.NodeOutput:
        text = one_instruction(motion_text)
        representation = model.encoder().represent(text, frames_of(frames[:1])[0])
        session = GameSession().open_with(text, GameState.of_picture(representation))
        moment = Moment(session, model.world.motion_table, model.world.tokenizer().unknown_words(text))
        return io.NodeOutput(moment, ui=notes_of(moment, model.world.spec.name))


class DecodeShot(io.ComfyNode):
    """A state becomes frames."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="DecodeShot",
            display_name="Decode Shot",
            category=CATEGORY,
            description="Draws a turn. Another motion or seed is another take of the same turn; the prediction stays.",
            inputs=[
                ModelSocket.Input("model", tooltip="The world that predicted the state."),
                StateSocket.Input("state", tooltip="The turn to draw, from Predict Next State or Encode Shot."),
                *shot_inputs(),
                seed_input("Noise seed of this take; -1 takes the turn's own.", default=-1),
            ],
            outputs=[
                io.Image.Output("images", display_name="images", tooltip="The shot's frames."),
                io.Float.Output("fps", display_name="fps", tooltip="Frames a second that the shot is meant for."),
                io.Video.Output("video", display_name="video", tooltip="The shot as video, for Save Video."),
                ShotSocket.Output(
                    "shot", display_name="shot", tooltip="The shot and its settings, for Save Game Story."
                ),
            ],
        )

    @classmethod
    def execute(
        cls,
        model: GameModel,
        state: Moment,
        motion: str,
        motion_value: float,
        steps: int,
        guidance: str,
        seed: int,
    ) -> io.NodeOutput:
        told = told_motion(motion, motion_value, state.turn.state.motion, model)
        shot = draw(model, state, told, steps, guidance, seed)
        return io.NodeOutput(shot.image_FHWC, shot.fps, video_of(shot.image_FHWC, shot.fps), shot)


def shot_inputs() -> list[io.Input]:
    """The widgets motion, motion_value, steps and guidance."""
    return [
        io.Combo.Input(
            "motion",
            options=list(MOTIONS),
            default=PREDICTED,
            tooltip="How much the shot moves: as the engine predicted, one of the five scopes, or custom. It changes "
            "the picture only; the game remembers the prediction.",
        ),
        io.Float.Input(
            "motion_value",
            default=5.0,
            min=0.0,
            max=LARGEST_MOTION,
            step=0.1,
            tooltip="For motion 'custom': pixels a frame, measured at 480 pixels of height.",
        ),
        io.Int.Input(
            "steps",
            default=0,
            min=0,
            max=1000,
            tooltip="Sampling steps; 0 takes the preset's, or else the world's own number (20 in the Toybox, 50 in the "
            "published worlds).",
        ),
        io.Combo.Input(
            "guidance",
            options=[WORLD, *GUIDANCE_NAMES],
            default=WORLD,
            tooltip="How strongly the shot follows the state over the steps; world: the preset's, or else as it was "
            "trained for; distilled: one pass a step, for decoders that stage distill taught.",
        ),
    ]


def told_motion(motion: str, value: float, predicted: int, model: GameModel) -> float:
    """What the decoder is told, px a frame at 480 px height, for the widgets and a predicted scope."""
    if motion == CUSTOM:
        if not 0 <= value <= LARGEST_MOTION:  # a linked value, or a NaN, that ComfyUI lets pass
            raise ValueError(f"motion_value is {value}; give 0 to {LARGEST_MOTION:g} pixels a frame")
        return float(value)
    return float(model.world.motion_table.value(predicted if motion == PREDICTED else MotionScope.parse(motion)))


def draw(model: GameModel, moment: Moment, motion: float, steps: int, guidance: str, seed: int) -> Shot:
    """The shot of a moment, with progress and pictures on the running node. motion: px a frame at 480 px height.

    steps 0 and guidance `world` are the preset's or the world's own, seed -1 is the turn's. ValueError if the state is
    of another size.
    """
    turn, world = moment.turn, model.world
    if turn.state.representation is None:
        raise ValueError(f"turn {turn.number} let its representation go; load it from its story with Load Game Story")
    chosen = model.settings(steps, guidance)
    settings = {
        "steps": chosen.steps,
        "guidance": chosen.guidance,
        "seed": turn.seed if seed < 0 else seed,
    }
    decoder = model.decoder()
    report = host.progress(settings["steps"])
    watch = step_watcher(decoder, report)
    image = image_of(decoder.shoot(turn.state.representation, motion, on_step=watch, **settings))
    report(settings["steps"], picture_of(image))  # else the page keeps showing the last, unfinished one
    return Shot(
        moment=moment,
        image_FHWC=image.to(host.result_device()),
        fps=float(world.spec.decoder.fps),
        world=world.spec.name,
        fingerprint=model.fingerprint,
        profile=world.profile.name,
        precision=model.precision,
        drawn=chosen.drawn,
        motion=motion,
        **settings,
    )


def step_watcher(
    decoder: ShotDecoder, report: Callable[..., None], before: int = 0
) -> Callable[[int, int, Tensor], None]:
    """A callback for `shoot` that reports steps, `before` more than are done, and now and then a picture.

    Pictures take a share of the time at most, so that slow machines and fast ones both can afford them.
    """
    begun, spent = time.monotonic(), 0.0

    def watch(done: int, steps: int, clean_BTCHW: Tensor) -> None:
        nonlocal spent
        now, picture = time.monotonic(), None
        if done >= steps * PREVIEW_FROM and spent <= (now - begun) * PREVIEW_SHARE:
            with _uncompiled():
                picture = picture_of(image_of(decoder.preview(clean_BTCHW)))
            spent += time.monotonic() - now
        report(before + done, picture)

    return watch


def _uncompiled() -> contextlib.AbstractContextManager:
    """Compiled modules compute as they are written: for a picture's size alone it pays to compile nothing."""
    if "torch._dynamo" not in sys.modules:  # torch has compiled nothing yet; to ask it takes seconds
        return contextlib.nullcontext()
    import torch

    return torch.compiler.set_stance("force_eager")


def picture_of(image_FHWC: Tensor) -> typing.Any:
    """The first frame as a PIL picture that fills a node."""
    from PIL import Image

    picture = Image.fromarray(bytes_of(image_FHWC[:1])[0])
    scale = PREVIEW_SIDE / max(picture.size)
    return picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.BICUBIC)


def video_of(image_FHWC: Tensor, fps: float) -> InputImpl.VideoFromComponents:
    """ComfyUI's VIDEO of an IMAGE."""
    rate = Fraction(fps).limit_denominator(1001)
    return InputImpl.VideoFromComponents(Types.VideoComponents(images=image_FHWC, audio=None, frame_rate=rate))
