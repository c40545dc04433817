"""Saved stories in output/animegamer: nodes that save a turn, load a game and export a film, and what pages show."""

from __future__ import annotations

import functools
import typing
from dataclasses import dataclass
from pathlib import Path

from comfy_api.v0_0_2 import InputImpl, io

from ..animegamer_core.files import check_folder_name
from ..animegamer_core.game.life import Life
from ..animegamer_core.game.state import MotionTable
from ..animegamer_core.media.soundtrack import resampled
from ..animegamer_core.media.video import Clip, read_clip
from ..animegamer_core.spec import step_count
from ..animegamer_core.story.film import FILMS, export_film
from ..animegamer_core.story.folder import check_story_name, check_there, story_names
from ..animegamer_core.story.player import save_turn
from ..animegamer_core.story.story import Story
from . import comfyui, worlds
from .fingerprints import Fingerprints
from .models import PACKAGES
from .values import HistorySocket, PlayedState, Shot, ShotSocket, StateSocket, bytes_of, image_of_bytes
from .widgets import branch_input, given_to, schema, story_input, turn_input, window_input, window_of

if typing.TYPE_CHECKING:
    from ..animegamer_core.model.prompt import GameTokenizer

RESERVED = (comfyui.RUNS, comfyui.DATASETS, comfyui.EVALUATIONS, worlds.LORAS)  # names of other folders
NO_STORY = "none yet"
# Every save node of a graph changes the story, so its version would run them all again each time.
SAVED = Fingerprints(lambda story: "exists" if story_version(story) else "")


class SaveGameStory(io.ComfyNode):
    """Saves a drawn turn of a graph."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="SaveGameStory",
            search_aliases=("save game", "save story"),
            inputs=[ShotSocket.Input("shot"), story_input()],
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
        saved.file_tags = comfyui.graph_tags(cls.hidden)
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
            raise ValueError("no story is chosen; play one with Play Game Story or Save Game Story, then press R")
        comfyui.require(*PACKAGES)
        saved = Story.read(comfyui.output_folder(), story)
        number = choose_turn(saved, turn, branch)
        session = saved.load_session(saved.session(number, window_of(window)))
        instructions = "\n".join(turn.instruction for turn in session.turns if turn.number > 0)
        facts = played_world(saved.world_name, saved.fingerprint)[1]
        table = None if facts is None else facts.motion_table
        state = PlayedState(session, table) if session.turns else comfyui.blocked("this game has no turn yet")
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
    def execute(cls, **inputs: typing.Any) -> io.NodeOutput:
        given = given_to(cls, inputs)
        comfyui.require(*PACKAGES, "av")
        check_there(comfyui.output_folder(), story_name(given.story))
        saved = Story.read(comfyui.output_folder(), given.story)
        if given.branch:
            saved.use(given.branch)
        saved.file_tags = comfyui.graph_tags(cls.hidden)
        path = saved.folder / FILMS / f"{check_folder_name(given.name, 'film')}.mp4"
        sound = None
        if given.audio is not None:
            sound = resampled(given.audio["waveform"][0, :2].float().cpu().numpy(), given.audio["sample_rate"])
        with saved.lock():  # nobody may rename or delete it meanwhile
            report = functools.partial(comfyui.NodeProgress(), "writing the film")
            film = export_film(saved, path, given.turns, given.subtitles, sound, given.show_opening, report)
        EXPORTED.record(inputs, path.relative_to(comfyui.output_folder()).as_posix())
        (width, height), files = film.size, list(film.files)
        facts = f"{width} x {height}, {film.fps:g} frames per second, {film.seconds:.1f} s"
        values = story_ui(saved, len(saved.entries), files)
        values |= {"images": [comfyui.output_item(files[0])], "animated": [True], "text": [facts]}
        if film.notes:
            values["animegamer_notes"] = list(film.notes)
        return io.NodeOutput(InputImpl.VideoFromFile(str(path)), given.story, ui=values)


def open_story(name: str, world: str, fingerprint: str, must_exist: bool = False) -> Story:
    """The story of this name, new unless it must exist; ValueError if it does not, or if the name is not allowed."""
    root = comfyui.output_folder()
    if must_exist:
        check_there(root, name)
    return Story.open(root, story_name(name), world, fingerprint)


def story_name(name: str) -> str:
    """The name, if a story may have it; ValueError otherwise."""
    if check_story_name(name).lower() in RESERVED:
        raise ValueError(f"story name {name!r} is reserved for other files of AnimeGamer; choose another name")
    return name


def choose_turn(story: Story, after: int, branch: str, reading: bool = False) -> int:
    """Switch to the branch, and return the number of the turn to continue after.

    -1 means the last turn. With `reading`, 0 does too.
    """
    if branch:
        story.use(branch)
    return len(story.entries) if after < 0 or (reading and after == 0) else after


def list_stories() -> list[str]:
    """The stories in output/animegamer, the latest first."""
    return [name for name in story_names(comfyui.output_folder()) if name.lower() not in RESERVED]


def story_version(name: str | None) -> str:
    """The version of a story; empty if there is no story of this name."""
    root = comfyui.output_folder()
    return Story.read(root, name).version() if name in story_names(root) else ""


@dataclass(frozen=True)
class WorldFacts:
    """What stories need to know about an installed world. steps: sampling steps of its shots.

    tokenizer: None if its vocabulary can spell any word. spec_name: of its sizes, as qiqi. life, warnings: as in World.
    """

    fingerprint: str
    motion_table: MotionTable
    steps: int
    tokenizer: GameTokenizer | None
    spec_name: str
    life: Life
    warnings: tuple[str, ...]

    def draft(self, steps: int | None) -> dict[str, int] | None:
        """The steps of a shot and the world's own, if it has fewer and so is only a draft."""
        return {"steps": steps, "of": self.steps} if steps is not None and steps < self.steps else None


def played_world(name: str, fingerprint: str) -> tuple[str, WorldFacts | None]:
    """(name in the list, facts) of the world that a story was played in.

    It is the world with this fingerprint, whatever its folder is called now; otherwise the one of this name, which has
    None for its facts if it is not installed.
    """
    named = None
    for candidate in dict.fromkeys([name, *worlds.world_names()]):
        try:
            facts = world_facts(candidate)
        except (ValueError, OSError):
            continue  # not installed, not complete, or not readable
        if facts.fingerprint == fingerprint:
            return candidate, facts
        if candidate == name:
            named = facts
    return name, named


def world_facts(name: str) -> WorldFacts:
    """The facts of a world in the list; ValueError if it is not installed or not complete."""
    return _world_facts(name, worlds.world_version(name))


@functools.lru_cache(maxsize=64)
def _world_facts(name: str, version: str) -> WorldFacts:
    """The facts of a world. Cached, since opening a world takes up to half a second."""
    from tokenizers.models import WordLevel

    world = worlds.find_world(name)
    spec, tokenizer = world.spec, world.tokenizer()
    words = tokenizer if isinstance(tokenizer.backend.model, WordLevel) else None
    steps = step_count(spec.decoder.steps)
    return WorldFacts(world.fingerprint, world.motion_table, steps, words, spec.name, world.life, world.warnings)


def shot_path(story: Story, number: int) -> Path | None:
    """The file of a turn's shot, 0 for the opening; None if the branch does not have it or it was not drawn."""
    if number == 0:
        return story.opening_clip(story.session(0, 0))
    shot = story.entries[number - 1].shot if 0 < number <= len(story.entries) else None
    return None if shot is None else story.shots.path(shot)


def clip_of(story: Story, number: int) -> Clip | None:
    """The clip of a turn of the branch; None if it was not drawn."""
    path = shot_path(story, number)
    return None if path is None else read_clip(path)


def story_ui(story: Story, turns: int, files: list[Path]) -> dict[str, list[typing.Any]]:
    """The `ui` value with the story, its branch and its files."""
    items = [comfyui.output_item(path) for path in files]
    return {"animegamer_story": [{"story": story.name, "branch": story.branch, "turns": turns, "files": items}]}


def clip_ui(story: Story, number: int) -> dict[str, list[typing.Any]]:
    """The `ui` value that shows a turn's clip, as in core's Save Video. No other take ever replaces this file."""
    path = shot_path(story, number)
    return {} if path is None else {"images": [comfyui.output_item(path)], "animated": [True]}
