"""Saved stories in output/animegamer: their names, their worlds, their clips, and the `ui` values that pages show."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..animegamer_core.game.life import Life
from ..animegamer_core.game.state import MotionTable
from ..animegamer_core.media.video import Clip, read_clip
from ..animegamer_core.story.folder import check_story_name, check_there, story_names
from ..animegamer_core.story.story import Story
from . import comfyui, worlds

if typing.TYPE_CHECKING:
    from ..animegamer_core.model.prompt import GameTokenizer
    from ..animegamer_core.weights import World

RESERVED = (comfyui.RUNS, comfyui.DATASETS, comfyui.EVALUATIONS, worlds.LORAS)  # names of other folders


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

    tokenizer: None if its vocabulary can spell any word. spec_name: of its sizes, such as qiqi. life: as in World.
    """

    fingerprint: str
    motion_table: MotionTable
    steps: int
    tokenizer: GameTokenizer | None
    spec_name: str
    life: Life

    def draft(self, instruction: str, steps: int | None) -> dict[str, typing.Any] | None:
        """Why a shot of this instruction, drawn in this many steps, is only a draft; None if it is not.

        `steps`, `of`: the shot's steps and the world's, if it has fewer. `words`: those that the world does not know.
        """
        few = {"steps": steps, "of": self.steps} if steps is not None and steps < self.steps else {}
        unknown = () if self.tokenizer is None else self.tokenizer.unknown_words(instruction)
        return {**few, "words": list(unknown)} if few or unknown else None


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


@lru_cache(maxsize=64)
def _world_facts(name: str, version: str) -> WorldFacts:
    """The facts of a world. Cached, since opening a world takes up to half a second."""
    world = worlds.find_world(name)
    words, spec = _words_of(world), world.spec
    return WorldFacts(world.fingerprint, world.motion_table, spec.decoder.steps, words, spec.name, world.life)


def _words_of(world: World) -> GameTokenizer | None:
    """The world's tokenizer, if there are words that it does not know."""
    from tokenizers.models import WordLevel

    tokenizer = world.tokenizer()
    return tokenizer if isinstance(tokenizer.backend.model, WordLevel) else None


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
