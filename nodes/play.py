"""Nodes that play: PlayGameStory saves every turn of a list of instructions, PlayGameTakes several takes of each."""

from __future__ import annotations

import typing
from dataclasses import replace
from pathlib import Path

from comfy_api.v0_0_2 import InputImpl, io

from ..animegamer_core.game.state import GameSession, read_instructions
from ..animegamer_core.spec import step_count
from ..animegamer_core.story.player import PlayedTurn, Player, export
from ..animegamer_core.story.takes import MOST_TAKES, play_takes, take_seeds
from . import comfyui
from .drawing import SAMPLING, motion_of_turns, sampling_inputs, shot_inputs, video_of
from .fingerprints import Fingerprints
from .models import PACKAGES, GameModel
from .story import choose_turn, clip_of, clip_ui, open_story, shot_path, story_ui, story_version
from .values import (
    HistorySocket,
    ModelSocket,
    PlayedState,
    StateSocket,
    draft_ui,
    image_of_bytes,
    image_of_picture,
    reading_notes,
    state_item,
)
from .widgets import (
    branch_input,
    given_to,
    memory_inputs,
    memory_of,
    number_input,
    opening_input,
    schema,
    seed_input,
    story_input,
    turn_input,
    window_input,
    window_of,
)

if typing.TYPE_CHECKING:
    from torch import Tensor

    from ..animegamer_core.model.sampler import OnStep
    from ..animegamer_core.runtime.previews import MovingPreview
    from ..animegamer_core.story.story import Story

MOST_AUTOPLAY = 10_000
MAX_FRAMES_BYTES = 2 << 30  # of an IMAGE output; for a longer game it contains the last turns
TWO_TURNS = (  # the text of a new node
    "Character: Miko; Motion: gently wave hello; Background: day beach.\n"
    "Character: Miko; Motion: quickly run; Background: day beach."
)
RARE = ("window", "motion_value", "guidance", *SAMPLING)  # inputs that both nodes show only on request
TURN_EVENT = "animegamer.turn"
PLAYED = Fingerprints(story_version)


class PlayGameStory(io.ComfyNode):
    """Plays a list of instructions and saves every turn."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="PlayGameStory",
            search_aliases=("play", "game", "infinite game", "story", "autoplay"),
            advanced=("branch", *RARE, "memory", "recalled_turns", "autoplay_seed", "show_opening"),
            essentials=True,
            inputs=[
                ModelSocket.Input("model"),
                io.String.Input("instructions", default=TWO_TURNS, multiline=True),
                story_input(),
                turn_input("after", 0),
                branch_input(),
                window_input(),
                seed_input(),
                *shot_inputs(),
                io.Boolean.Input("export", default=True),
                opening_input(),
                *memory_inputs(),
                number_input("autoplay", 0, 0, MOST_AUTOPLAY, optional=True),
                seed_input("autoplay_seed", optional=True),
                io.Boolean.Input("show_opening", default=False, optional=True),
                *sampling_inputs(),
            ],
            outputs=[
                HistorySocket.Output("history"),
                StateSocket.Output("state"),
                io.Image.Output("images"),
                io.Float.Output("fps"),
                io.Video.Output("video"),
                io.String.Output("story_out"),
            ],
            hidden=[io.Hidden.unique_id],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: object) -> str:
        """Changes when the story on disk is changed or deleted by anything but this node."""
        return PLAYED.fingerprint(widgets)

    @classmethod
    def execute(cls, **inputs: typing.Any) -> io.NodeOutput:
        given = given_to(cls, inputs)
        comfyui.require(*PACKAGES)
        instructions = read_instructions(given.instructions)
        model, count = given.model, len(instructions) + given.autoplay
        story = open_story(given.story, model.world.spec.name, model.world.fingerprint, must_exist=not count)
        story.file_tags = comfyui.graph_tags(cls.hidden)
        with story.lock():
            after = choose_turn(story, given.after, given.branch, reading=not count)
            turns = range(after + 1, after + 1 + count)
            settings = model.settings(
                given.steps,
                given.guidance,
                given.timesteps,
                given.solver,
                window=window_of(given.window),
                seed=given.seed,
                motion=motion_of_turns(given.motion, given.motion_value, turns, model),
                memory=memory_of(given.memory, given.recalled_turns),
            )
            player = Player(model.world, story, settings, after, model, _opening(given, after, story))
            game = GameRun(player, model, str(cls.hidden.unique_id))
            game.play(instructions, given.autoplay, given.autoplay_seed)
            first = after if count else 0
            files = [clip for number, clip in story.clips().items() if first < number <= game.last]
            if given.export and count:
                files = player.finish(given.show_opening)
            elif given.export:
                story.end_branch(len(story.entries))  # publishes its clips, whichever branch was current
                files = export(story, player.session, given.show_opening)
            output = game.output(files, first)
            # Turns after the last one: the same inputs would play further turns.
            PLAYED.record(inputs, given.story, run_again=bool(count) and given.after < 0)
            return output


def _opening(given: typing.Any, after: int, story: Story) -> GameSession | None:
    """How a new game starts; None: as the branch that is continued or named. A story keeps its first rules."""
    start = GameSession(rules=story.rules or given.model.world.life.rules)
    if given.opening is not None:
        turn = given.opening.turn
        return start.open_with(turn.instruction, turn.state, turn.clip)
    return None if after or given.branch else start


class PlayGameTakes(io.ComfyNode):
    """Plays a game in several takes, and shows the takes side by side."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="PlayGameTakes",
            search_aliases=("takes", "seeds", "batch", "grid", "compare"),
            advanced=RARE,
            inputs=[
                ModelSocket.Input("model"),
                io.String.Input("text", default=TWO_TURNS, multiline=True),
                story_input(),
                number_input("takes", 4, 1, MOST_TAKES),
                seed_input(),
                window_input(),
                *shot_inputs(),
                *sampling_inputs(),
            ],
            outputs=[io.Image.Output("grid"), io.Video.Output("video")],
            hidden=[io.Hidden.unique_id],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: object) -> str:
        """Changes when the story does."""
        return PLAYED.fingerprint(widgets)

    @classmethod
    def execute(cls, model: GameModel, **inputs: typing.Any) -> io.NodeOutput:
        from ..animegamer_core.data.captions.pictures import open_picture

        comfyui.require(*PACKAGES, "av")
        given, node = given_to(cls, inputs), str(cls.hidden.unique_id)
        seeds, instructions = take_seeds(given.takes, given.seed), read_instructions(given.text)
        if not instructions:
            raise ValueError("text holds no instruction; write one per line")
        opened = open_story(given.story, model.world.spec.name, model.world.fingerprint)
        motion = motion_of_turns(given.motion, given.motion_value, range(1, len(instructions) + 1), model)
        sampling = given.steps, given.guidance, given.timesteps, given.solver
        chosen = model.settings(*sampling, window=window_of(given.window), motion=motion)

        def play(seed: int) -> None:
            player = Player(model.world, opened, replace(chosen, seed=seed), 0, model)
            GameRun(player, model, node).play(instructions)

        opened.file_tags = comfyui.graph_tags(cls.hidden)
        with opened.lock():
            video, picture = play_takes(opened, len(instructions), seeds, play)
        PLAYED.record(inputs, given.story)
        ui = {"images": [comfyui.output_item(video)], "animated": [True]}
        return io.NodeOutput(image_of_picture(open_picture(picture)), InputImpl.VideoFromFile(str(video)), ui=ui)


class GameRun:
    """One run of a node that plays: plays the turns, reports them to the page under a node's id, makes the outputs."""

    def __init__(self, player: Player, model: GameModel, node: str) -> None:
        self.player, self.model, self.node = player, model, node
        self.story = player.story
        self.notes = list(model.world.warnings_for(player.session.window))
        self.readings: list[str] = []  # notes that the Play tab shows beside the clip, in its own language

    @property
    def last(self) -> int:
        """The number of the last turn."""
        return self.player.session.next_number - 1

    def _moment(self, session: GameSession) -> PlayedState:
        words = self.story.entries[self.last - 1].unknown if self.last else ()
        return PlayedState(session, self.model.world.motion_table, words)

    def play(self, instructions: tuple[str, ...], autoplay: int = 0, seed: int = 0) -> None:
        """Play these turns and then proposed ones. An interrupt keeps the finished turns. seed: the director's."""
        player, count = self.player, len(instructions) + autoplay
        steps = step_count(player.settings.steps)
        report = comfyui.progress(max(1, count) * steps)
        with comfyui.moving_preview(self.model.world.spec.decoder.fps) as preview:
            for index in range(count):
                on_step = self._on_step(report, preview, index * steps)
                if index < len(instructions):
                    played = player.step(player.read(instructions[index]), on_step)
                else:
                    played = next(player.autoplay(player.director(seed), 1, on_step))
                # A turn that the story already had left no unfinished picture on the node.
                clip = clip_of(self.story, played.turn.number) if played.drawn else None
                preview.play(None if clip is None else clip.frames)
                report((index + 1) * steps)
                self._send(played)

    def output(self, files: list[Path], after: int) -> io.NodeOutput:
        """The node's outputs, with the frames of the turns after `after`, and its `ui` values."""
        moment = self._moment(self.story.load_session(self.player.session))
        images, fps = self._images(after), float(self.model.world.spec.decoder.fps)
        values = story_ui(self.story, self.last, files) | clip_ui(self.story, self.last)
        if moment.session.turns:
            values["animegamer_state"] = [state_item(moment)]
        values |= {"animegamer_notes": self.notes, "animegamer_readings": self.readings}
        values |= draft_ui(self.player.settings.steps, self.model.usual.steps)
        return io.NodeOutput(moment.session, moment, images, fps, video_of(images, fps), self.story.name, ui=values)

    def _on_step(self, report: typing.Callable[..., None], preview: MovingPreview, before: int) -> OnStep:
        def on_step(done: int, steps: int, clean_BTCHW: Tensor) -> None:
            if not self.story.folder.is_dir():  # anything written now would leave a broken story
                raise ValueError(f"story {self.story.name!r} was removed from the output folder; start it again")
            report(before + done)
            preview.step(self.model.decoder_at_work(), done, steps, clean_BTCHW)

        return on_step

    def _send(self, played: PlayedTurn) -> None:
        """Send the turn to the page, and note how its instruction was read."""
        moment = self._moment(self.player.session)
        self.readings += reading_notes(played.turn.number, played.reading)
        event = {
            "node": self.node,
            "story": self.story.name,
            "branch": self.story.branch,
            "turn": played.turn.number,
            "clip": comfyui.output_item(shot_path(self.story, played.turn.number)),
            "state": state_item(moment),
        }
        comfyui.send(TURN_EVENT, event)

    def _images(self, after: int) -> Tensor:
        """The frames of the turns after `after`; if there are too many, those of the last turns."""
        import torch

        frames: list[Tensor] = []
        used = 0
        for number in range(self.last, after, -1):
            clip = clip_of(self.story, number)
            if clip is not None:
                used += clip.frames.size * 4
                if frames and used > MAX_FRAMES_BYTES:
                    self.notes.append(
                        f"The frames of turns {after + 1} to {number} are not in this output; export has them all."
                    )
                    break
                frames.append(image_of_bytes(clip.frames))
        if not frames:
            raise ValueError(f"story {self.story.name!r} has no drawn turns yet; write an instruction to play one")
        return torch.cat(frames[::-1])
