"""Whole games as saved stories: play one, keep a turn of a graph in one, and go on from one."""

from __future__ import annotations

from comfy_api.v0_0_2 import io

from ..animegamer_core.play import Player, keep_turn
from ..animegamer_core.shelf import ShotKey
from ..animegamer_core.state import read_instructions
from ..animegamer_core.story import Story
from . import host
from .drawing import PREDICTED, shot_inputs, told_motion
from .models import PACKAGES, GameModel
from .replay import Replays
from .stories import Game, clip_of, clip_ui, listed, open_story, opening_of, played_world, start, story_ui, version
from .values import (
    CATEGORY,
    HistorySocket,
    ModelSocket,
    Moment,
    Shot,
    ShotSocket,
    StateSocket,
    bytes_of,
    image_of_bytes,
)
from .widgets import line_input, seed_input, turn_input, window_input, window_of

NO_STORY = "none yet"
PLAYED = Replays(version)
KEPT = Replays(lambda story: "kept" if version(story) else "")  # its turns change with every node that keeps one


class PlayGameStory(io.ComfyNode):
    """Many turns as one node."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="PlayGameStory",
            display_name="Play Game Story",
            category=CATEGORY,
            description="Plays a list of instructions turn by turn and saves each turn as soon as it is drawn, in "
            "output/animegamer. Turns that the story knows are read, not computed. Other instructions after the same "
            "turn become another line of the story; nothing is overwritten.",
            inputs=[
                ModelSocket.Input("model", tooltip="The world to play in."),
                io.String.Input(
                    "instructions",
                    default="Character: Miko; Motion: gently wave hello; Background: day beach.\n"
                    "Character: Miko; Motion: quickly run; Background: day beach.",
                    multiline=True,
                    tooltip="What happens, one turn a line; lines that begin with # are left out. Empty: nothing is "
                    "played, the saved story is only read (and exported).",
                ),
                io.String.Input("story", default="my-game", tooltip="The story's name, a folder in output/animegamer."),
                turn_input(
                    "after",
                    0,
                    "Go on after this turn of the line. 0: from the beginning, -1: after its last turn.",
                ),
                line_input(
                    "Which line of the story to go on with, such as main or line-2. Empty: the current one.",
                ),
                window_input(),
                seed_input(
                    "Noise seed of turn 1; each turn counts one on. Another seed draws other takes of the same game.",
                ),
                *shot_inputs(),
                io.Boolean.Input(
                    "export",
                    default=True,
                    tooltip="Also write the whole story as one clip (story.mp4) and as a picture (contact-sheet.png).",
                ),
                StateSocket.Input(
                    "opening",
                    optional=True,
                    tooltip="A state that the game opens with, from Encode Shot: your own character or place.",
                ),
            ],
            outputs=[
                HistorySocket.Output("history", display_name="history", tooltip="The game so far, to go on with."),
                StateSocket.Output("state", display_name="state", tooltip="The last turn."),
                io.Image.Output(
                    "images", display_name="images", tooltip="The frames of the turns of these instructions, in order."
                ),
                io.Float.Output("fps", display_name="fps", tooltip="Frames a second."),
                io.Video.Output("video", display_name="video", tooltip="The same frames as video, for Save Video."),
                io.String.Output("story_out", display_name="story", tooltip="The story's name."),
            ],
            hidden=[io.Hidden.unique_id],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: object) -> str:
        """Changes when anything but this node changes the story on disk, or takes it away."""
        return PLAYED.fingerprint(widgets)

    @classmethod
    def execute(
        cls,
        model: GameModel,
        instructions: str,
        story: str,
        after: int,
        line: str,
        window: int,
        seed: int,
        motion: str,
        motion_value: float,
        steps: int,
        guidance: str,
        export: bool,
        opening: Moment | None = None,
    ) -> io.NodeOutput:
        called = dict(locals())
        host.require(*PACKAGES)
        lines = read_instructions(instructions)
        going_on = bool(lines) and after < 0  # after its last turn, which will be another one
        kept = open_story(story, model.world.spec.name, model.fingerprint, must_exist=not lines)
        with kept.lock():
            after = start(kept, after, line, reading=not lines)
            told = {} if motion == PREDICTED else {after + 1 + n: motion for n in range(len(lines))}
            settings = model.settings(
                steps,
                guidance,
                window=window_of(window),
                seed=seed,
                motion={number: told_motion(word, motion_value, 0, model) for number, word in told.items()},
            )
            game = Game(Player(model.world, kept, settings, after, model, opening_of(opening, after, line)), model)
            game.play(lines, str(cls.hidden.unique_id))
            files = game.export(settle=bool(lines)) if export else game.files(after if lines else 0)
            output = game.output(files, after if lines else 0)
            PLAYED.done(called, story, again=going_on)
            return output


class SaveGameStory(io.ComfyNode):
    """A turn of a graph, kept."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="SaveGameStory",
            display_name="Save Game Story",
            category=CATEGORY,
            description="Keeps a drawn turn in a story in output/animegamer, with the states of the turns before it. "
            "One node a turn, all with the same name, save a whole game. A changed turn becomes another line of the "
            "story; nothing is overwritten.",
            inputs=[
                ShotSocket.Input("shot", tooltip="The turn to keep, from Decode Shot."),
                io.String.Input("story", default="my-game", tooltip="The story's name, a folder in output/animegamer."),
            ],
            outputs=[io.String.Output("story_out", display_name="story", tooltip="The story's name.")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: object) -> str:
        """Changes when the story is taken away, so that it is kept anew."""
        return KEPT.fingerprint(widgets)

    @classmethod
    def execute(cls, shot: Shot, story: str) -> io.NodeOutput:
        kept = open_story(story, shot.world, shot.fingerprint)
        how = shot.precision + shot.drawn
        key = ShotKey(shot.fingerprint, "", shot.seed, shot.motion, shot.steps, shot.guidance, how)
        frames, session = bytes_of(shot.image_FHWC), shot.moment.session
        with kept.lock():
            clip = keep_turn(kept, session, shot.profile, shot.precision, key, frames, shot.fps)
            ui = story_ui(kept, len(kept.entries), [clip])
            KEPT.done({"story": story}, story)
            return io.NodeOutput(story, ui={**ui, **clip_ui(kept, shot.moment.turn.number)})


class LoadGameStory(io.ComfyNode):
    """A saved game, to go on with."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="LoadGameStory",
            display_name="Load Game Story",
            category=CATEGORY,
            description="Reads a saved game as it was after one of its turns. The history goes on from there.",
            inputs=[
                io.Combo.Input(
                    "story",
                    options=listed() or [NO_STORY],
                    tooltip="A story in output/animegamer, the one played last first. Press R to see new ones.",
                ),
                turn_input(
                    "turn",
                    -1,
                    "The turn to load; -1: the last one. 0: before turn 1, an opening picture kept.",
                ),
                line_input(
                    "Which line of the story, such as main or line-2. Empty: the current one.",
                ),
                window_input(),
            ],
            outputs=[
                HistorySocket.Output("history", display_name="history", tooltip="The game, for Predict Next State."),
                StateSocket.Output(
                    "state", display_name="state", tooltip="The turn, for Decode Shot or State Display."
                ),
                io.Image.Output("images", display_name="images", tooltip="The frames of the turn's clip."),
                io.Float.Output("fps", display_name="fps", tooltip="Frames a second."),
                io.String.Output(
                    "instructions", display_name="instructions", tooltip="The instructions so far, one a line."
                ),
            ],
        )

    @classmethod
    def fingerprint_inputs(cls, story: str | None = None, **_: object) -> str:
        """Changes when the story on disk does."""
        return version(story)

    @classmethod
    def execute(cls, story: str, turn: int, line: str, window: int) -> io.NodeOutput:
        if story == NO_STORY:
            if names := listed():
                raise ValueError(f"no story is chosen; choose a story; there are {', '.join(map(repr, names[:10]))}")
            raise ValueError(
                "there is no saved story yet; play one with Play Game Story or Save Game Story, then press R"
            )
        host.require(*PACKAGES)
        kept = Story.read(host.output_folder(), story)
        number = start(kept, turn, line)
        session = kept.held(kept.session(number, window_of(window)))
        told = "\n".join(turn.instruction for turn in session.turns if turn.number > 0)
        clip = clip_of(kept, number)
        absent = host.blocked(f"turn {number} of story {story!r} was saved without a shot")
        table = played_world(kept.world_name, kept.fingerprint)[1]
        state = Moment(session, table) if session.turns else host.blocked("this game has no turn yet")
        images, fps = (absent, absent) if clip is None else (image_of_bytes(clip.frames), clip.fps)
        return io.NodeOutput(session, state, images, fps, told)
