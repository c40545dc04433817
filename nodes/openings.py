"""EncodeShot: a picture or clip as the opening of a game. ReadFilmSpan: the part of a film that it starts with."""

from __future__ import annotations

import typing
from pathlib import Path

from comfy_api.v0_0_2 import InputImpl, io

from ..animegamer_core.story.opening import DEFAULT_TEXT, MOST_FPS, film_span, frame_at_second, open_game
from .values import ModelSocket, Moment, StateSocket, frames_of, image_of_bytes, notes_of, one_instruction
from .widgets import number_input, schema

if typing.TYPE_CHECKING:
    from torch import Tensor

    from .models import GameModel

LARGEST_FRAME = 1_000_000  # number of a frame of a clip


class EncodeShot(io.ComfyNode):
    """Encodes a picture as the state of turn 0."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="EncodeShot",
            display_name="Encode Shot",
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
        world, text = model.world, one_instruction(motion_text)

        def frame_at(index: int) -> Tensor:
            return frames_of(frames[index : index + 1])[0]

        session = open_game(model.encoder(), text, frame_at, len(frames), frame, clip_fps)
        moment = Moment(session, world.motion_table, world.tokenizer().unknown_words(text))
        return io.NodeOutput(moment, ui=notes_of(moment, world.spec.name))


class ReadFilmSpan(io.ComfyNode):
    """Reads the frames of a shot's length from a film."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="ReadFilmSpan",
            display_name="Read Film Span",
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
