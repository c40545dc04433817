"""Nodes of saved stories: save a turn of a graph, load a game, and export it as a film."""

from __future__ import annotations

import typing

from comfy_api.v0_0_2 import InputImpl, io

from ..animegamer_core.files import check_folder_name
from ..animegamer_core.media.soundtrack import resampled
from ..animegamer_core.story.film import FILMS, Film, export_film
from ..animegamer_core.story.folder import check_there
from ..animegamer_core.story.player import save_turn
from ..animegamer_core.story.story import Story
from . import comfyui
from .fingerprints import Fingerprints
from .models import PACKAGES
from .saved_stories import (
    choose_turn,
    clip_of,
    clip_ui,
    list_stories,
    open_story,
    played_world,
    story_name,
    story_ui,
    story_version,
)
from .values import HistorySocket, Moment, Shot, ShotSocket, StateSocket, bytes_of, image_of_bytes
from .widgets import branch_input, schema, story_input, turn_input, window_input, window_of

NO_STORY = "none yet"
# Every save node of a graph changes the story, so its version would run them all again each time.
SAVED = Fingerprints(lambda story: "exists" if story_version(story) else "")


class SaveGameStory(io.ComfyNode):
    """Saves a drawn turn of a graph."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="SaveGameStory",
            display_name="Save Game Story",
            search_aliases=("save game", "save story"),
            inputs=[
                ShotSocket.Input("shot"),
                story_input(),
            ],
            outputs=[io.String.Output("story_out")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: object) -> str:
        """Changes when the story is deleted, so that the turn is saved again."""
        return SAVED.fingerprint(widgets)

    @classmethod
    def execute(cls, shot: Shot, story: str) -> io.NodeOutput:
        saved = open_story(story, shot.world, shot.key.world)
        frames, session = bytes_of(shot.image_FHWC), shot.moment.session
        with saved.lock():
            clip = save_turn(saved, session, shot.profile, shot.precision, shot.key, frames, shot.fps)
            values = story_ui(saved, len(saved.entries), [clip])
            SAVED.record({"story": story}, story)
            return io.NodeOutput(story, ui=values | clip_ui(saved, shot.moment.turn.number))


class LoadGameStory(io.ComfyNode):
    """Loads a saved game, to continue it."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="LoadGameStory",
            display_name="Load Game Story",
            search_aliases=("load game", "continue game", "open story"),
            advanced=("branch", "window"),
            inputs=[
                io.Combo.Input("story", options=list_stories() or [NO_STORY]),
                turn_input("turn", -1),
                branch_input(),
                window_input(),
            ],
            outputs=[
                HistorySocket.Output("history"),
                StateSocket.Output("state"),
                io.Image.Output("images"),
                io.Float.Output("fps"),
                io.String.Output("instructions"),
            ],
        )

    @classmethod
    def fingerprint_inputs(cls, story: str | None = None, **_: object) -> str:
        """Changes when the story on disk does."""
        return story_version(story)

    @classmethod
    def execute(cls, story: str, turn: int, branch: str, window: int) -> io.NodeOutput:
        if story == NO_STORY:
            if names := list_stories():
                raise ValueError(f"no story is chosen; choose one of {', '.join(map(repr, names[:10]))}")
            raise ValueError(
                "there is no saved story yet; play one with Play Game Story or Save Game Story, then press R"
            )
        comfyui.require(*PACKAGES)
        saved = Story.read(comfyui.output_folder(), story)
        number = choose_turn(saved, turn, branch)
        session = saved.load_session(saved.session(number, window_of(window)))
        instructions = "\n".join(turn.instruction for turn in session.turns if turn.number > 0)
        facts = played_world(saved.world_name, saved.fingerprint)[1]
        table = None if facts is None else facts.motion_table
        state = Moment(session, table) if session.turns else comfyui.blocked("this game has no turn yet")
        images = fps = comfyui.blocked(f"turn {number} of story {story!r} was saved without a shot")
        if (clip := clip_of(saved, number)) is not None:
            images, fps = image_of_bytes(clip.frames), clip.fps
        return io.NodeOutput(session, state, images, fps, instructions)


def _version(film: str) -> str:
    """The version of a film and of its story. film: its path below the output folder."""
    path = comfyui.output_folder() / film
    written = path.stat().st_mtime_ns if path.exists() else 0
    return f"{story_version(path.parents[1].name)} {path.name}:{written}"


EXPORTED = Fingerprints(_version)


class ExportGameStory(io.ComfyNode):
    """Makes a film of a saved story, to share."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="ExportGameStory",
            display_name="Export Game Story",
            search_aliases=("film", "subtitles", "save film", "mp4"),
            advanced=("branch",),
            inputs=[
                story_input(),
                branch_input(),
                turn_input("turns", -1),
                io.String.Input("name", default="film"),
                io.Boolean.Input("subtitles", default=False),
                io.Audio.Input("audio", optional=True),
                io.Boolean.Input("show_opening", default=False, optional=True),
            ],
            outputs=[io.Video.Output("video"), io.String.Output("story_out")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: object) -> str:
        """Changes when the story on disk or the node's film does."""
        return EXPORTED.fingerprint(widgets)

    @classmethod
    def execute(
        cls,
        story: str,
        branch: str,
        turns: int,
        name: str,
        subtitles: bool,
        audio: dict[str, typing.Any] | None = None,
        show_opening: bool = False,
    ) -> io.NodeOutput:
        comfyui.require(*PACKAGES, "av")
        check_there(comfyui.output_folder(), story_name(story))
        saved = Story.read(comfyui.output_folder(), story)
        if branch:
            saved.use(branch)
        path = saved.folder / FILMS / f"{check_folder_name(name, 'film')}.mp4"
        report = comfyui.NodeProgress()
        sound = None
        if audio is not None:
            sound = resampled(audio["waveform"][0, :2].float().cpu().numpy(), audio["sample_rate"])
        with saved.lock():  # nobody may rename or delete it meanwhile
            film = export_film(
                saved,
                path,
                turns,
                subtitles,
                sound,
                show_opening,
                lambda done, total: report("writing the film", done, total),
            )
        inputs = {"story": story, "branch": branch, "turns": turns, "name": name, "subtitles": subtitles}
        inputs |= {"audio": audio, "show_opening": show_opening}
        EXPORTED.record(inputs, path.relative_to(comfyui.output_folder()).as_posix())
        return io.NodeOutput(InputImpl.VideoFromFile(str(path)), story, ui=_film_ui(saved, film))


def _film_ui(story: Story, film: Film) -> dict[str, list[typing.Any]]:
    """The `ui` value that shows the film, as in core's Save Video, with its size, its files and notes."""
    (width, height), files = film.size, list(film.files)
    facts = f"{width} x {height}, {film.fps:g} frames per second, {film.seconds:.1f} s"
    values = story_ui(story, len(story.entries), files)
    values |= {"images": [comfyui.output_item(files[0])], "animated": [True], "text": [facts]}
    return values | ({"animegamer_notes": list(film.notes)} if film.notes else {})
