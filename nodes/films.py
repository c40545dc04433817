"""ExportGameStory: makes a film of a saved story, to share."""

from __future__ import annotations

import typing

from comfy_api.v0_0_2 import InputImpl, io

from ..animegamer_core.files import check_folder_name
from ..animegamer_core.media.film_writer import FILM_KINDS
from ..animegamer_core.media.soundtrack import FADE, Soundtrack
from ..animegamer_core.story.film import (
    FILMS,
    LARGEST_SCALE,
    SCALINGS,
    SUBTITLES,
    Film,
    FilmOptions,
    export_film,
)
from ..animegamer_core.story.index import check_there
from ..animegamer_core.story.story import Story
from . import comfyui
from .fingerprints import Fingerprints
from .models import PACKAGES
from .saved_stories import story_name, story_ui, story_version
from .widgets import branch_input, choice_input, number_input, schema, story_input, turn_input


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
            search_aliases=("film", "subtitles", "save film", "mp4", "gif"),
            advanced=("line", "scaling"),
            description="Makes a film of a saved story to share: with subtitles, stats, a title card, sound, another "
            "size or frame rate, as mp4, GIF or WebP. Shots are read one by one, so a long mp4 or GIF needs no "
            "more memory than a short one. A WebP is assembled in memory, so a longer one needs more.",
            inputs=[
                story_input(),
                branch_input("The branch of the story to show, such as main or line-2. Empty: the current branch."),
                turn_input("turns", -1, "How many turns to show, from the first. -1: all."),
                io.String.Input(
                    "name", default="film", tooltip="The film's name, a file in output/animegamer/<story>/films."
                ),
                choice_input("format", FILM_KINDS, "mp4", "The kind of file. GIF and WebP have no sound."),
                choice_input(
                    "subtitles",
                    SUBTITLES,
                    "none",
                    "Number and instruction of each turn. burned: drawn into the frames. soft: a subtitle track in "
                    "the mp4 that a player can switch on, plus the same as an .srt file.",
                ),
                io.Boolean.Input("stats", default=False, tooltip="Show motion and stats in a corner."),
                io.String.Input("title", default="", tooltip="The text of a title card in front. Empty: none."),
                number_input(
                    "scale",
                    0,
                    0,
                    LARGEST_SCALE,
                    "Enlarge the frames this many times. 0: as much as text needs to be legible.",
                ),
                choice_input(
                    "scaling", SCALINGS, "lanczos", "How to enlarge: smooth (lanczos) or in blocks (nearest)."
                ),
                io.Float.Input(
                    "fps",
                    default=0.0,
                    min=0.0,
                    max=120.0,
                    step=1.0,
                    tooltip="Frames per second, such as 24. 0: as drawn. Other rates are interpolated along the "
                    "motion, which needs OpenCV.",
                ),
                io.Boolean.Input(
                    "loop_sound",
                    default=True,
                    tooltip="Loop a sound that is shorter than the film. Off: the rest is silent.",
                ),
                io.Float.Input(
                    "fade",
                    default=FADE,
                    min=0.0,
                    max=60.0,
                    step=0.5,
                    tooltip="Seconds over which the sound fades out at the film's end.",
                ),
                io.Audio.Input("audio", optional=True, tooltip="Music or a voice-over, cut to the film's length."),
                io.Boolean.Input(
                    "show_opening",
                    default=False,
                    optional=True,
                    tooltip="Start with the clip of turn 0, if the game has an opening.",
                ),
            ],
            outputs=[
                io.Video.Output("video", display_name="video", tooltip="The film, for core's video nodes; mp4 only."),
                io.String.Output("story_out", display_name="story", tooltip="The story's name."),
            ],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: object) -> str:
        """Changes when the story on disk or the node's film does."""
        return EXPORTED.fingerprint(widgets)

    @classmethod
    def execute(cls, story: str, line: str, turns: int, name: str, format: str, **look: typing.Any) -> io.NodeOutput:
        comfyui.require(*PACKAGES, "av")
        check_there(comfyui.output_folder(), story_name(story))
        saved = Story.read(comfyui.output_folder(), story)
        if line:
            saved.use(line)
        path = saved.folder / FILMS / f"{check_folder_name(name, 'film')}.{format}"
        report = comfyui.NodeProgress()
        with saved.lock():  # nobody may rename or delete it meanwhile
            film = export_film(
                saved, path, _options(**look), turns, lambda done, total: report("writing the film", done, total)
            )
        inputs = {"story": story, "line": line, "turns": turns, "name": name, "format": format, **look}
        EXPORTED.record(inputs, path.relative_to(comfyui.output_folder()).as_posix())
        no_video = comfyui.blocked(f"a .{format} file cannot be passed to other nodes as video; choose format mp4")
        video = InputImpl.VideoFromFile(str(path)) if format == "mp4" else no_video
        return io.NodeOutput(video, story, ui=_film_ui(saved, film))


def _options(
    loop_sound: bool,
    fade: float,
    audio: dict[str, typing.Any] | None = None,
    show_opening: bool = False,
    **look: typing.Any,
) -> FilmOptions:
    """The options of the film from the node's inputs."""
    look["opening"] = show_opening
    if audio is None:
        return FilmOptions(**look)
    samples = audio["waveform"][0, :2].float().cpu().numpy()
    return FilmOptions(**look, sound=Soundtrack(samples, audio["sample_rate"], loop_sound, fade))


def _film_ui(story: Story, film: Film) -> dict[str, list[typing.Any]]:
    """The `ui` value that shows the film, as in core's Save Video, with its size, its files and notes."""
    (width, height), files = film.size, list(film.files)
    facts = f"{width} x {height}, {film.fps:g} frames per second, {film.seconds:.1f} s"
    values = story_ui(story, len(story.entries), files)
    values |= {"images": [comfyui.output_item(files[0])], "animated": [True], "text": [facts]}
    return values | ({"animegamer_notes": list(film.notes)} if film.notes else {})
