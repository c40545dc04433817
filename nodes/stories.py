"""Saved stories as ComfyUI sees them: their names, their files, a game at work, and what a page is shown of it."""

from __future__ import annotations

import typing
from functools import cached_property, lru_cache
from pathlib import Path

from comfy_api.v0_0_2 import io

from ..animegamer_core.index import LOCK, check_story_name, check_there, story_names
from ..animegamer_core.play import PlayedTurn, Player
from ..animegamer_core.play import export as export_story
from ..animegamer_core.state import GameSession, MotionTable
from ..animegamer_core.story import Story
from ..animegamer_core.video import Clip, read_clip
from . import host
from .drawing import picture_of, step_watcher, video_of
from .models import GameModel
from .values import Moment, image_of_bytes, state_item, unknown_notes

if typing.TYPE_CHECKING:
    from torch import Tensor

    from ..animegamer_core.prompt import GameTokenizer
    from ..animegamer_core.sampler import OnStep

RESERVED = (host.RUNS, host.DATASETS, host.EVALUATIONS, host.LORAS)  # folders beside the stories, for other things
MAX_FRAMES_BYTES = 2 << 30  # of an IMAGE output; of longer games it holds the last turns
TURN_EVENT = "animegamer.turn"


class Game:
    """A player at work for a node: what it shows while it plays, and what it hands out at the end."""

    def __init__(self, player: Player, model: GameModel) -> None:
        self.player = player
        self.model = model
        self.notes = list(model.world.warnings_for(player.session.window))

    @property
    def story(self) -> Story:
        """The story that is played."""
        return self.player.story

    @property
    def moment(self) -> Moment:
        """The game now."""
        session = self.story.held(self.player.session)
        words = self._tokenizer.unknown_words(session.turns[-1].instruction) if session.turns else ()
        return Moment(session, self.model.world.motion_table, words)

    @cached_property
    def _tokenizer(self) -> GameTokenizer:
        return self.model.world.tokenizer()

    def play(self, instructions: tuple[str, ...], node: str) -> None:
        """Play these turns, and tell the page of each in the name of a node; an interrupt leaves those done."""
        steps = self.player.settings.steps or self.model.world.spec.decoder.steps
        report = host.progress(max(1, len(instructions)) * steps)
        for index, instruction in enumerate(instructions):
            played = self.player.step(instruction, self._watcher(report, index * steps))
            report((index + 1) * steps, self._picture(played))
            self._tell(played, node)

    def _picture(self, played: PlayedTurn) -> typing.Any:
        """The shot that was drawn just now; a known one left no unfinished picture on the node."""
        clip = clip_of(self.story, played.turn.number) if played.drawn else None
        return None if clip is None else picture_of(image_of_bytes(clip.frames[:1]))

    def export(self, settle: bool) -> list[Path]:
        """Write the clip of the whole story and its picture; returns all files. With `settle` the line ends here."""
        if settle:
            return self.player.finish()
        self.story.settle(len(self.story.entries))  # its clips are named for people again, whatever line was current
        return export_story(self.story, self.player.session)

    def files(self, after: int) -> list[Path]:
        """The clips of the turns after `after`."""
        last = self.player.session.next_number - 1
        return [clip for number, clip in self.story.clips().items() if after < number <= last]

    def output(self, files: list[Path], after: int) -> io.NodeOutput:
        """The node's outputs, with the frames of the turns after `after`, and what the page shows."""
        moment, last = self.moment, self.player.session.next_number - 1
        images = self._images(after, last)
        fps = float(self.model.world.spec.decoder.fps)
        ui = {**story_ui(self.story, last, files), **clip_ui(self.story, last)}
        if moment.session.turns:
            ui["animegamer_state"] = [state_item(moment)]
        if self.notes:
            ui["animegamer_notes"] = self.notes
        return io.NodeOutput(moment.session, moment, images, fps, video_of(images, fps), self.story.name, ui=ui)

    def _watcher(self, report: typing.Callable[..., None], before: int) -> OnStep:
        watch: list[OnStep] = []

        def on_step(done: int, steps: int, clean_BTCHW: Tensor) -> None:
            if not (self.story.folder / LOCK).exists():  # what was written now would be the ruin of a story
                raise ValueError(f"story {self.story.name!r} was removed from the output folder; begin it anew")
            if not watch:  # the decoder is asked for once it is at work, so that known turns load none
                watch.append(step_watcher(self.model.decoder_at_work(), report, before))
            watch[0](done, steps, clean_BTCHW)

        return on_step

    def _tell(self, played: PlayedTurn, node: str) -> None:
        """Tell the page of a turn, and note the words of it that the world never saw."""
        words = self._tokenizer.unknown_words(played.turn.instruction)
        moment = Moment(self.player.session, self.model.world.motion_table, words)
        self.notes += unknown_notes(moment, self.model.world.spec.name)
        facts = {"node": node, "story": self.story.name, "line": self.story.line, "turn": played.turn.number}
        clip = host.output_item(shot_path(self.story, played.turn.number))
        host.send(TURN_EVENT, {**facts, "clip": clip, "state": state_item(moment)})

    def _images(self, after: int, last: int) -> Tensor:
        """The frames of the turns after `after` up to `last`, of as many of the last ones as memory allows."""
        import torch

        frames, used = [], 0
        for number in range(last, after, -1):
            clip = clip_of(self.story, number)
            if clip is not None:
                used += clip.frames.size * 4
                if frames and used > MAX_FRAMES_BYTES:
                    self.notes.append(f"The frames of turns {after + 1} to {number} are left out; export has them all.")
                    break
                frames.append(image_of_bytes(clip.frames))
        if not frames:
            raise ValueError(f"story {self.story.name!r} has no drawn turn to show; give an instruction to play one")
        return torch.cat(frames[::-1])


def open_story(name: str, world: str, fingerprint: str, must_exist: bool = False) -> Story:
    """The story of a name that a player typed; ValueError if the name is not allowed, or it must exist and does not."""
    root = host.output_folder()
    if must_exist:
        check_there(root, name)
    return Story.open(root, story_name(name), world, fingerprint)


def story_name(name: str) -> str:
    """A name that a player gave, if a story can have it; ValueError otherwise."""
    if check_story_name(name).lower() in RESERVED:
        raise ValueError(f"story name {name!r} is kept for other files of AnimeGamer; choose another name")
    return name


def start(story: Story, after: int, line: str, reading: bool = False) -> int:
    """Turn to the line, and say after which of its turns it is taken up; reading, 0 and -1 both mean the last one."""
    if line:
        story.use(line)
    return len(story.entries) if after < 0 or (reading and after == 0) else after


def opening_of(opening: Moment | None, after: int, line: str) -> GameSession | None:
    """How a new game begins; None: as the line does that is gone on with, or that is named."""
    if opening is not None:
        return GameSession().open_with(opening.turn.instruction, opening.turn.state)
    return None if after or line else GameSession()


def listed() -> list[str]:
    """The stories in output/animegamer, the one played last first."""
    return [name for name in story_names(host.output_folder()) if name.lower() not in RESERVED]


def version(name: str | None) -> str:
    """The version of a story, empty while there is none of that name."""
    root = host.output_folder()
    return Story.read(root, name).version() if name in story_names(root) else ""


def played_world(told: str, played: str) -> tuple[str, MotionTable | None]:
    """(name in the list, motion table) of the world that a story was played in, by the name and the fingerprint that
    the story tells: the one of the same weights, whatever its folder is called by now; where there is none, the one of
    that name, or no table.
    """
    named = None
    for name in dict.fromkeys([told, *host.world_names()]):
        try:
            fingerprint, table = _facts_of(name, host.age_of_world(name))
        except (ValueError, OSError):
            continue  # not installed, not whole, or not readable
        if fingerprint == played:
            return name, table
        if name == told:
            named = table
    return told, named


@lru_cache(maxsize=64)
def _facts_of(name: str, age: str) -> tuple[str, MotionTable]:
    """(fingerprint, motion table) of a world whose files are of that age: to open one takes up to half a second."""
    world = host.find_world(name)
    return world.fingerprint, world.motion_table


def shot_path(story: Story, number: int) -> Path | None:
    """The file of a turn's shot, None if the line has no such turn or it was not drawn."""
    shot = story.entries[number - 1].shot if 0 < number <= len(story.entries) else None
    return None if shot is None else story.shots.path(shot)


def clip_of(story: Story, number: int) -> Clip | None:
    """The clip of a turn of the line, None if it was not drawn."""
    path = shot_path(story, number)
    return None if path is None else read_clip(path)


def story_ui(story: Story, turns: int, files: list[Path]) -> dict[str, list[typing.Any]]:
    """The story, its line and its files, as the page lists them."""
    items = [host.output_item(path) for path in files]
    return {"animegamer_story": [{"story": story.name, "line": story.line, "turns": turns, "files": items}]}


def clip_ui(story: Story, number: int) -> dict[str, list[typing.Any]]:
    """The turn's clip, as core's Save Video shows one. It is the shot itself, which no other take ever replaces."""
    path = shot_path(story, number)
    return {} if path is None else {"images": [host.output_item(path)], "animated": [True]}
