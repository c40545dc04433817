"""Shots: Decode Shot draws a state, and three nodes read pictures and films; and what all nodes that draw share."""

from __future__ import annotations

import typing
from fractions import Fraction
from pathlib import Path

from comfy_api.v0_0_2 import InputImpl, Types, io

from ..animegamer_core.game.plain import Reading
from ..animegamer_core.game.state import MotionScope
from ..animegamer_core.media.video import write_clip
from ..animegamer_core.spec import GUIDANCE, SOLVERS, step_count
from ..animegamer_core.story.opening import DEFAULT_TEXT, MOST_FPS, film_span, frame_at_second, open_game
from ..animegamer_core.story.turn import address_of, draw_turn, shot_key
from . import comfyui
from .models import GameModel
from .values import (
    WORLD,
    ModelSocket,
    PlayedState,
    Shot,
    ShotSocket,
    StateSocket,
    bytes_of,
    draft_ui,
    frames_of,
    image_of,
    image_of_bytes,
    notes_of,
)
from .widgets import given_to, number_input, schema, seed_input

if typing.TYPE_CHECKING:
    from torch import Tensor

SAMPLING = ("timesteps", "solver")
PREDICTED, CUSTOM = "predicted", "custom"
MOTIONS = (PREDICTED, *(scope.name.lower() for scope in MotionScope), CUSTOM)
LARGEST_FRAME = 1_000_000  # number of a frame of a clip
LARGEST_MOTION = 999.0


class EncodeShot(io.ComfyNode):
    """Encodes a picture as the state of turn 0."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="EncodeShot",
            search_aliases=("image to state", "opening picture", "own picture", "encode image"),
            inputs=[
                ModelSocket.Input("model"),
                io.Image.Input("frames"),
                io.String.Input("motion_text", default=DEFAULT_TEXT),
                number_input("frame", 0, -LARGEST_FRAME, LARGEST_FRAME, optional=True),
                io.Float.Input("clip_fps", default=0.0, min=0.0, max=MOST_FPS, step=1.0, optional=True),
            ],
            outputs=[StateSocket.Output("state")],
        )

    @classmethod
    def execute(
        cls, model: GameModel, frames: Tensor, motion_text: str, frame: int = 0, clip_fps: float = 0.0
    ) -> io.NodeOutput:
        world = model.world

        def frame_at(index: int) -> Tensor:
            return frames_of(frames[index : index + 1])[0]

        session = open_game(model.encoder(), motion_text, frame_at, len(frames), frame, clip_fps)
        text = session.turns[0].instruction
        reading = Reading(text, unknown=world.tokenizer().unknown_words(text))
        moment = PlayedState(session, world.motion_table, reading.unknown)
        return io.NodeOutput(moment, ui=notes_of(moment, reading))


class ReadFilmSpan(io.ComfyNode):
    """Reads the frames of a shot's length from a film."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="ReadFilmSpan",
            search_aliases=("trim video", "video to frames", "clip of a film", "opening clip", "seek"),
            inputs=[
                ModelSocket.Input("model"),
                io.Video.Input("video"),
                io.Float.Input("at", default=0.0, min=0.0, max=1e6, step=0.1),
            ],
            outputs=[io.Image.Output("images"), io.Float.Output("fps"), io.Int.Output("frame")],
        )

    @classmethod
    def execute(cls, model: GameModel, video: typing.Any, at: float) -> io.NodeOutput:
        path, decoder = _whole_file(video), model.world.spec.decoder
        if path is not None:
            images, frame = film_span(path, at, decoder)
            return io.NodeOutput(image_of_bytes(images), float(decoder.fps), frame)
        film = video.get_components()  # its frames are in memory already, or another node has cut it
        fps = float(film.frame_rate)
        return io.NodeOutput(film.images, fps, frame_at_second(len(film.images), fps, at))


def _whole_file(video: typing.Any) -> Path | None:
    """The file of a VIDEO; None if it has none, or only a part of one, which ComfyUI 0.3.64 does not know."""
    if not isinstance(video, InputImpl.VideoFromFile):  # others would first be written to memory
        return None
    source, window = video.get_stream_source(), getattr(video, "get_active_trim_window", None)
    whole = isinstance(source, str) and (window is None or tuple(window()) == (0.0, 0.0))
    return Path(source) if whole else None


class EncodeShotLatent(io.ComfyNode):
    """Encodes a picture or clip as the latent that a shot may start from."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="EncodeShotLatent",
            search_aliases=("image to latent", "VAE encode", "video to latent", "clip to latent"),
            inputs=[ModelSocket.Input("model"), io.Image.Input("frames")],
            outputs=[io.Latent.Output("latent")],
        )

    @classmethod
    def execute(cls, model: GameModel, frames: Tensor) -> io.NodeOutput:
        from ..animegamer_core.model.latents import shot_clip

        clip = shot_clip(frames_of(frames), model.world.spec.decoder)
        latent = model.decoder().encode_vae(clip[None]).float()
        return io.NodeOutput({"samples": latent.to(comfyui.result_device())})


class DecodeShot(io.ComfyNode):
    """Draws a state as a shot. ComfyUI runs async nodes first, so each turn is drawn before the next is predicted."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="DecodeShot",
            search_aliases=("draw shot", "video", "CogVideoX", "decode", "sampler"),
            advanced=("motion_value", "guidance", *SAMPLING),
            essentials=True,
            inputs=[
                ModelSocket.Input("model"),
                StateSocket.Input("state"),
                *shot_inputs(),
                seed_input(default=-1),
                io.Latent.Input("latent", optional=True),
                io.Float.Input("denoise", default=1.0, min=0.0, max=1.0, step=0.01, optional=True),
                *sampling_inputs(),
            ],
            outputs=[
                io.Image.Output("images"),
                io.Float.Output("fps"),
                io.Video.Output("video"),
                ShotSocket.Output("shot"),
                io.Latent.Output("latent_out"),
            ],
        )

    @classmethod
    async def execute(cls, model: GameModel, state: PlayedState, **inputs: typing.Any) -> io.NodeOutput:
        from ..animegamer_core.model.latents import start_latent

        given, start = given_to(cls, inputs), None
        value = motion_condition(given.motion, given.motion_value, state.turn.state.motion, model)
        settings = model.settings(given.steps, given.guidance, given.timesteps, given.solver)
        if given.latent is not None:
            if given.latent.get("noise_mask") is not None:
                raise ValueError("the latent has a noise mask, which shots do not support; connect it without its mask")
            start = start_latent(given.latent.get("samples"), given.denoise, model.world.spec.decoder)
        key = shot_key(model.world, model, settings, state.turn, value, None if given.seed < 0 else given.seed, start)
        decoder, count = model.decoder(), step_count(key.steps)
        report = comfyui.progress(count)
        with comfyui.moving_preview(model.world.spec.decoder.fps) as preview:

            def on_step(done: int, steps: int, clean_BTCHW: Tensor) -> None:
                report(done)
                preview.step(decoder, done, steps, clean_BTCHW)

            latent_BCTHW = draw_turn(decoder, state.turn, key, on_step, start)
            image = image_of(decoder.decode_vae(latent_BCTHW)[0])
            preview.play(bytes_of(image))  # otherwise the page keeps showing the last, unfinished preview
        home, world = comfyui.result_device(), model.world
        shot = Shot(
            moment=state,
            image_FHWC=image.to(home),
            fps=float(world.spec.decoder.fps),
            world=world.spec.name,
            profile=world.profile.name,
            precision=model.precision,
            key=key,
        )
        video, latent_out = video_of(shot.image_FHWC, shot.fps), {"samples": latent_BCTHW.to(home)}
        ui = shot_ui(shot) | draft_ui(key.steps, model.usual.steps)
        return io.NodeOutput(shot.image_FHWC, shot.fps, video, shot, latent_out, ui=ui)


def shot_inputs() -> list[io.Input]:
    """The widgets motion, motion_value, steps and guidance."""
    return [
        io.Combo.Input("motion", options=list(MOTIONS), default=PREDICTED),
        io.Float.Input("motion_value", default=5.0, min=0.0, max=LARGEST_MOTION, step=0.1),
        io.Int.Input("steps", default=0, min=0, max=1000),
        io.Combo.Input("guidance", options=[WORLD, *GUIDANCE], default=WORLD),
    ]


def sampling_inputs() -> list[io.Input]:
    """The widgets timesteps and solver, for LoRA that was taught a few steps elsewhere."""
    return [
        io.String.Input("timesteps", default="", optional=True),
        io.Combo.Input("solver", options=[WORLD, *SOLVERS], default=WORLD, optional=True),
    ]


def motion_condition(motion: str, value: float, predicted: int, model: GameModel) -> float:
    """The decoder's motion condition for the widgets, in pixels per frame at a height of 480 pixels."""
    if motion == CUSTOM:
        if not 0 <= value <= LARGEST_MOTION:  # ComfyUI does not check linked values and NaN
            raise ValueError(f"motion_value is {value}; give 0 to {LARGEST_MOTION:g} pixels per frame")
        return model.world.motion_table.at_least(value)
    return float(model.world.motion_table.value(predicted if motion == PREDICTED else MotionScope.parse(motion)))


def motion_of_turns(motion: str, value: float, turns: range, model: GameModel) -> dict[int, float]:
    """The motion conditions that the widgets choose for these turns; none if they choose the predicted motion."""
    if motion == PREDICTED or not turns:
        return {}
    return dict.fromkeys(turns, motion_condition(motion, value, 0, model))


def shot_ui(shot: Shot) -> dict[str, list[typing.Any]]:
    """The `ui` value that shows a shot as a moving clip, as in core's Save Video."""
    path, item = comfyui.temporary_item(f"{address_of(shot.key)}.mp4")
    if not path.is_file():
        write_clip(path, bytes_of(shot.image_FHWC), shot.fps)
    return {"images": [item], "animated": [True]}


def video_of(image_FHWC: Tensor, fps: float) -> InputImpl.VideoFromComponents:
    """VIDEO of an IMAGE."""
    rate = Fraction(fps).limit_denominator(1001)
    return InputImpl.VideoFromComponents(Types.VideoComponents(images=image_FHWC, audio=None, frame_rate=rate))
