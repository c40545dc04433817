"""Playing: instruction -> predicted state -> turn -> shot, saved in a story on disk.

What the story knows is read from it: replaying loads no model, and an interrupted game goes on where it stopped.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path

from ..files import save_picture
from ..runtime.models import SEEDS, LoadedModels, Models, PlaySettings
from ..state import GameSession, Turn, clean_text
from .content_store import ShotKey, address_of, opening_address
from .director import Proposer
from .story import Story
from .turn import Prediction, draw_turn, predict_turn, shot_key, state_key

if typing.TYPE_CHECKING:
    import numpy as np

    from ..checkpoint import World
    from ..model.engine import GameEngine
    from ..model.sampler import OnStep

SHEET_TURNS = 24  # a contact sheet shows the last turns only; a picture of thousands could not be opened


@dataclass(frozen=True)
class PlayedTurn:
    """A turn with its clip, None if not drawn. predicted, drawn: computed now, not read from the story."""

    turn: Turn
    clip: Path | None
    motion: float
    predicted: bool
    drawn: bool


class Player:
    """A game in progress."""

    def __init__(
        self,
        world: World,
        story: Story,
        settings: PlaySettings,
        after: int = 0,
        models: Models | None = None,
        opening: GameSession | None = None,
    ) -> None:
        """Begin after turn `after` of the story's branch (0: at the beginning).

        models: None loads the world's own when first needed. opening: the stats and picture that the game begins with;
        None keeps the branch's own. ValueError if the branch has turns and began with another opening.
        """
        self.world = world
        self.story = story
        self.settings = settings
        self.models: Models = models or LoadedModels(world, settings)
        memory = settings.memory or story.memory or world.memory
        story.memory, story.rules = story.memory or memory, story.rules or world.life.rules
        self.session: GameSession = story.session(after, settings.window_in(world), memory)
        if opening is None:
            return
        if self.session.next_number == 1:
            self.session = replace(opening, window=self.session.window, memory=memory, rules=story.rules)
        elif opening_address(world.fingerprint, self.session) != opening_address(world.fingerprint, opening):
            raise ValueError(
                f"story {story.name!r} began with another opening; go on without an opening, or begin again after "
                "turn 0"
            )

    def step(
        self, instruction: str, on_step: OnStep | None = None, draw: bool = True, proposed_by: str = ""
    ) -> PlayedTurn:
        """Play one turn and save it in the story; without `draw` only its state. proposed_by: is noted there."""
        instruction = self._begin(instruction)
        prediction = predict_turn(self.world, self.models, self.session, instruction, self.story)
        return self._finish_turn(self._save_state(prediction), prediction, on_step, draw, proposed_by)

    def autoplay(
        self, propose: Proposer, count: int, on_step: OnStep | None = None, draw: bool = True
    ) -> Iterator[PlayedTurn]:
        """Play the first proposal `count` times. A turn is saved when it is yielded, and the caller may stop then."""
        for _ in range(count):
            yield self.step(propose(self.session, 1)[0].instruction, on_step, draw, propose.name)

    def play(
        self,
        instructions: Iterable[str],
        on_turn: Callable[[PlayedTurn], None] | None = None,
        on_step: OnStep | None = None,
        ahead: bool = False,
    ) -> GameSession:
        """Play instructions in order. After an exception, also from a callback, the story has all turns so far.

        ahead: predict the next turn in another thread while a shot is drawn, with the same result. It is faster if the
        engine has a device of its own.
        """
        with ThreadPoolExecutor(1, "ahead") as executor:  # starts no thread before its first task
            turns = (
                self._steps_ahead([clean_text(instruction) for instruction in instructions], executor, on_step)
                if ahead
                else (self.step(instruction, on_step) for instruction in instructions)
            )
            for played in turns:
                if on_turn is not None:
                    on_turn(played)
        return self.session

    def rewind(self, number: int) -> None:
        """Go back to after turn `number`; later turns stay in the story as another branch."""
        self.session = self.session.rewind(number)
        self.story.end_branch(number)

    def finish(self) -> list[Path]:
        """End the branch here and write `story` (one clip) and `contact-sheet.png`; returns all files, clips first."""
        self.story.end_branch(self.session.next_number - 1)
        return export(self.story, self.session)

    def _steps_ahead(
        self, instructions: Sequence[str], executor: ThreadPoolExecutor, on_step: OnStep | None
    ) -> Iterator[PlayedTurn]:
        """The turns of cleaned instructions; each is predicted while the one before is drawn."""

        def predict(session: GameSession, instruction: str) -> Prediction:
            return predict_turn(self.world, self.models, session, instruction, self.story, _check_not_streamed)

        before = future = None
        for instruction, following in zip_longest(instructions, instructions[1:], fillvalue=""):
            self._begin(instruction)
            if future is None or before is not self.session:  # the first turn, or a callback rewound the game
                future = executor.submit(predict, self.session, instruction)
            prediction = future.result()
            before = self._save_state(prediction)
            future = executor.submit(predict, before, following) if following else None
            yield self._finish_turn(before, prediction, on_step)

    def _begin(self, instruction: str) -> str:
        """The cleaned instruction; before turn 1 the opening is saved."""
        instruction = clean_text(instruction)
        if not instruction:
            raise ValueError("an empty instruction; say who does what, and where")
        if self.session.next_number == 1:
            self.session = self.story.put_opening(self.session)
        return instruction

    def _save_state(self, prediction: Prediction) -> GameSession:
        """The session with the predicted turn, whose state is now in the story."""
        if not prediction.known:
            self.story.put_state(prediction.key, prediction.state)
        return prediction.follow(self.session, (self.settings.seed + self.session.next_number - 1) % SEEDS)

    def _finish_turn(
        self,
        session: GameSession,
        prediction: Prediction,
        on_step: OnStep | None,
        draw: bool = True,
        proposed_by: str = "",
    ) -> PlayedTurn:
        """Draw the last turn of a session unless its shot is known, and add the turn to the story."""
        from ..media.video import to_uint8

        turn, shot, drawn = session.turns[-1], None, False
        motion = self.settings.motion.get(turn.number)
        motion = float(self.world.motion_table.value(turn.state.motion) if motion is None else motion)
        if draw:
            key = shot_key(self.world, self.models, self.settings, turn, motion)
            shot = address_of(key)
            drawn = self.story.shots.find(shot) is None
            if drawn:
                frames = draw_turn(self.models, self.story.load_turn(turn), key, on_step)
                put_shot(self.story, turn, key, to_uint8(frames), self.world.spec.decoder.fps)
        clip = self.story.add_turn(turn, shot, words={"proposed_by": proposed_by} if proposed_by else {})
        self.session = session
        return PlayedTurn(turn, clip, motion, not prediction.known, drawn)


def _check_not_streamed(engine: GameEngine) -> None:
    from ..runtime.offloading import is_offloaded

    if is_offloaded(engine):
        raise ValueError(
            "the engine's weights are offloaded and share a device with the decoder, so it cannot predict while a shot "
            "is drawn; give it a device of its own, or play without predicting ahead"
        )


def put_shot(story: Story, turn: Turn, key: ShotKey, frames: np.ndarray, fps: float) -> str:
    """Store the shot of a turn, (F, H, W, 3) uint8, with its key as metadata; returns its address."""
    from ..media.video import clip_suffix, write_clip

    tags = {
        "title": f"turn {turn.number}",
        "comment": turn.instruction,
        "animegamer": json.dumps({**asdict(key), "turn": turn.number, "instruction": turn.instruction}),
    }
    return story.shots.put(key, clip_suffix(), {}, lambda path: write_clip(path, frames, fps, tags))


def save_turn(
    story: Story, session: GameSession, profile: str, precision: str, shot: ShotKey, frames: np.ndarray, fps: float
) -> Path:
    """Save the last turn of a session that was played without a story, with its shot; returns its clip.

    The states of earlier turns are saved too, so the turns of a game may come in any order. profile, precision: those
    of the prediction, by name. shot: the key of the frames, (F, H, W, 3) uint8; its `state` is filled in here.
    ValueError: the opening picture, or a turn that another model predicted.
    """
    if session.next_number == 1:
        raise ValueError("an opening picture is saved with the first turn; give the shot of turn 1 or a later one")
    turns = _save_states(story, session, profile, precision)
    key = replace(shot, state=turns[-1].address or "")
    if story.shots.find(address_of(key)) is None:
        put_shot(story, turns[-1], key, frames, fps)
    for turn in turns[:-1]:
        story.add_turn(turn, None)
    return typing.cast(Path, story.add_turn(turns[-1], address_of(key), keep_later=True))


def _save_states(story: Story, session: GameSession, profile: str, precision: str) -> list[Turn]:
    """The turns of a session with their addresses; states that the story does not know are stored."""
    story.memory, story.rules = story.memory or session.memory, story.rules or session.rules
    before, saved = story.put_opening(session), []
    before = replace(before, turns=before.turns[:1] if session.picture else ())
    for turn in (turn for turn in session.turns if turn.number > 0):
        reading = replace(before, window=turn.window)
        key = state_key(story.fingerprint, reading, turn.instruction, profile, precision, turn.recalled)
        address = turn.address or address_of(key)
        if story.find_state(address) is None:
            if address != address_of(key):
                raise ValueError(
                    f"turn {turn.number} was predicted with another model than the one that drew its shot, and a story "
                    "has one model; give the same model to Predict Next State and Decode Shot"
                )
            if turn.state.representation is None:
                raise ValueError(
                    f"the representation of turn {turn.number} is not in memory, and story {story.name!r} does not "
                    "have it; save each turn when it is played"
                )
            story.put_state(key, turn.state)
        saved.append(replace(turn, address=address))
        before = replace(before, turns=(saved[-1],))
    return saved


def export(story: Story, session: GameSession) -> list[Path]:
    """Write the session's turns as one clip `story` and as `contact-sheet.png`; returns all files, clips first.

    The session must be the beginning of the story's branch. Without a drawn turn nothing is written.
    """
    from ..media.contact_sheet import contact_sheet
    from ..media.video import join_clips, read_clip

    clips = {number: clip for number, clip in story.clips().items() if number < session.next_number}
    if not clips:
        return []
    paths = list(clips.values())
    whole, picture = story.folder / f"story{paths[0].suffix}", story.folder / "contact-sheet.png"
    join_clips(paths, whole)
    shown = [turn for turn in session.turns if turn.number in clips][-SHEET_TURNS:]
    frames = [read_clip(clips[turn.number]).frames for turn in shown]
    save_picture(contact_sheet(shown, frames, story.name), picture)
    return [*paths, whole, picture]
