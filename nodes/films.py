"""ExportGameStory: makes a film of a saved story, to share."""

from __future__ import annotations

import typing

from comfy_api.v0_0_2 import InputImpl, io

from ..animegamer_core.files import check_folder_name
from ..animegamer_core.media.soundtrack import resampled
from ..animegamer_core.story.film import FILMS, Film, export_film
from ..animegamer_core.story.index import check_there
from ..animegamer_core.story.story import Story
from . import comfyui
from .fingerprints import Fingerprints
from .models import PACKAGES
from .saved_stories import story_name, story_ui, story_version
from .widgets import branch_input, schema, story_input, turn_input


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
            description="Makes an mp4 of a saved story to share: its clips in order, with subtitles and sound. Shots "
            "are read one by one, so a long film needs no more memory than a short one.",
            inputs=[
                story_input(),
                branch_input("The branch of the story to show, such as main or branch-2. Empty: the current branch."),
                turn_input("turns", -1, "How many turns to show, from the first. -1: all."),
                io.String.Input(
                    "name", default="film", tooltip="The film's name, a file in output/animegamer/<story>/films."
                ),
                io.Boolean.Input(
                    "subtitles",
                    default=False,
                    tooltip="Number and instruction of each turn: a track that a player can switch on, plus the same "
                    "as an .srt file.",
                ),
                io.Audio.Input(
                    "audio", optional=True, tooltip="Music or a voice-over, repeated or cut to the film's length."
                ),
                io.Boolean.Input(
                    "show_opening",
                    default=False,
                    optional=True,
                    tooltip="Start with the clip of turn 0, if the game has an opening.",
                ),
            ],
            outputs=[
                io.Video.Output("video", display_name="video", tooltip="The film, for core's video nodes."),
                io.String.Output("story_out", display_name="story", tooltip="The story's name."),
            ],
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
