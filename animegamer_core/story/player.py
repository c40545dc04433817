"""Playing: instruction -> predicted state -> turn -> shot, saved in a story on disk.

Saved turns are read from the story: replaying loads no model, and an interrupted game continues where it stopped.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from ..files import save_picture
from ..game.director import Director, director_for
from ..game.life import PUBLISHED_RULES
from ..game.plain import Reading
from ..game.state import GameSession, Turn, check_length
from ..runtime.models import SEEDS, LoadedModels, Models, PlaySettings
from ..runtime.presets import sampling_in
from .story import Story
from .turn import ShotKey, address_of, draw_turn, opening_address, predict_turn, read_typed, shot_key, state_key

if typing.TYPE_CHECKING:
    import numpy as np

    from ..model.sampler import OnStep
    from ..weights import World

SHEET_TURNS = 24  # a contact sheet shows the last turns only; a picture of thousands could not be opened


@dataclass(frozen=True)
class PlayedTurn:
    """A turn with its clip. predicted, drawn: computed now, not read from the story. reading: of its instruction."""

    turn: Turn
    clip: Path | None
    motion: float
    predicted: bool
    drawn: bool
    reading: Reading


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
        """Start after turn `after` of the story's branch (0: at the start).

        models: None loads the world's own when first needed. opening: the stats and picture that the game starts with;
        None keeps the branch's own. ValueError if the branch has turns and started with another opening.
        """
        self.world = world
        self.story = story
        self.tokenizer = cache(world.tokenizer)  # its file is read once a game
        self.settings = replace(settings, **sampling_in(world, settings).stated())
        self.models: Models = models or LoadedModels(world, settings)
        memory = settings.memory or story.memory or world.memory
        story.memory, story.rules = story.memory or memory, story.rules or world.life.rules
        self.session: GameSession = story.session(after, settings.window_in(world), memory)
        if opening is None:
            return
        if self.session.next_number == 1:
            self.session = replace(opening, window=self.session.window, memory=memory, rules=story.rules)
        else:
            check_same_opening(story, self.session, opening)

    def step(self, instruction: str | Reading, on_step: OnStep | None = None, proposed_by: str = "") -> PlayedTurn:
        """Play one turn and save it in the story. proposed_by: is noted there.

        instruction: as from `read_instruction`, or how `read` read it.
        """
        from ..media.video import to_uint8

        reading = instruction if isinstance(instruction, Reading) else Reading(instruction)
        number = self.session.next_number
        if number == 1:
            self.session = self.story.put_opening(self.session)
        prediction = predict_turn(self.world, self.models, self.session, reading.instruction, self.story)
        if not prediction.known:
            self.story.put_state(prediction.key, prediction.state)
        session = prediction.follow(self.session, (self.settings.seed + number - 1) % SEEDS)
        turn = session.turns[-1]
        table, asked = self.world.motion_table, self.settings.motion.get(number)
        motion = float(table.value(turn.state.motion)) if asked is None else table.at_least(asked)
        key = shot_key(self.world, self.models, self.settings, turn, motion)
        drawn = self.story.shots.find(address_of(key)) is None
        if drawn:
            decoder = self.models.decoder()
            latent = draw_turn(decoder, self.story.load_turn(turn), key, on_step)
            frames = to_uint8(decoder.decode_vae(latent)[0])
            put_shot(self.story, turn, key, frames, self.world.spec.decoder.fps)
        clip = self.story.add_turn(turn, address_of(key), proposed_by=proposed_by, reading=reading)
        self.session = session
        return PlayedTurn(turn, clip, motion, not prediction.known, drawn, reading)

    def read(self, text: str) -> Reading:
        """What a player typed, cleaned, in the world's words; ValueError if it shows nothing or is too long."""
        check_length(text, len(self.tokenizer().encode_text(text)))
        return read_typed(self.world.life, self.tokenizer(), self.session, text)

    def autoplay(self, propose: Director, count: int, on_step: OnStep | None = None) -> Iterator[PlayedTurn]:
        """Play the first proposal `count` times. A turn is saved when it is yielded, and the caller may stop then."""
        for _ in range(count):
            yield self.step(propose(self.session, 1)[0].instruction, on_step, propose.name)

    def play(
        self,
        instructions: Iterable[str | Reading],
        on_turn: Callable[[PlayedTurn], object] = lambda played: None,
        on_step: OnStep | None = None,
    ) -> GameSession:
        """Play instructions in order. After an exception, also from a callback, the story has all turns so far."""
        for instruction in instructions:
            on_turn(self.step(self.read(instruction) if isinstance(instruction, str) else instruction, on_step))
        return self.session

    def director(self, seed: int) -> Director:
        """Who proposes the next turns; ValueError if nobody in this game has a name."""
        return director_for(self.world.life, self.world.spec.name, self.session, seed)

    def rewind(self, number: int) -> None:
        """Go back to after turn `number`; later turns stay in the story as another branch."""
        self.session = self.session.rewind(number)
        self.story.end_branch(number)

    def finish(self, opening: bool = False) -> list[Path]:
        """End the branch here and write `story` (one clip) and `contact-sheet.png`; returns all files, clips first.

        opening: as in `export`.
        """
        self.story.end_branch(self.session.next_number - 1)
        return export(self.story, self.session, opening)


def check_same_opening(story: Story, session: GameSession, opening: GameSession) -> None:
    """ValueError if a session of the story started with another opening."""
    if opening_address(story.fingerprint, session) != opening_address(story.fingerprint, opening):
        raise ValueError(
            f"story {story.name!r} started with another opening; continue without an opening, or start again after "
            "turn 0"
        )


def put_shot(story: Story, turn: Turn, key: ShotKey, frames: np.ndarray, fps: float) -> str:
    """Store the shot of a turn, (F, H, W, 3) uint8, with its key as metadata; returns its address."""
    from ..media.video import write_clip

    tags = {
        "title": f"turn {turn.number}",
        "comment": turn.instruction,
        "animegamer": json.dumps({**asdict(key), "turn": turn.number, "instruction": turn.instruction}),
        **story.file_tags,
    }
    return story.shots.put(key, {}, lambda path: write_clip(path, frames, fps, tags))


def save_turn(
    story: Story, session: GameSession, profile: str, precision: str, shot: ShotKey, frames: np.ndarray, fps: float
) -> Path:
    """Save the last turn of a session that was played without a story, with its shot; returns its clip.

    The states of earlier turns are saved too, so the turns of a game may come in any order. profile, precision: those
    of the prediction, by name. shot: the key of the frames, (F, H, W, 3) uint8; its `state` is filled in here.
    ValueError: the opening picture, or a turn that another model predicted.
    """
    if session.next_number == 1:
        raise ValueError("an opening picture is saved with the first turn; give the shot of turn 1 or later")
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
                    f"turn {turn.number} was predicted and drawn with different models, but a story has one model; "
                    "connect the same model to Predict Next State and Decode Shot"
                )
            if turn.state.representation is None:
                raise ValueError(
                    f"the representation of turn {turn.number} is not in memory, and story {story.name!r} does not "
                    "have it; save every turn as it is played"
                )
            story.put_state(key, turn.state)
        saved.append(replace(turn, address=address))
        before = replace(before, turns=(saved[-1],))
    return saved


def export(story: Story, session: GameSession, opening: bool = False) -> list[Path]:
    """Write the session's turns as one clip `story` and as `contact-sheet.png`; returns all files, clips first.

    The session must be the start of the story's branch. Without a drawn turn nothing is written. opening: both start
    with the clip of turn 0, if the story has it.
    """
    from ..media.contact_sheet import contact_sheet
    from ..media.video import join_clips, read_clip

    clips = {number: clip for number, clip in story.clips().items() if number < session.next_number}
    if not clips:
        return []
    paths = list(clips.values())
    whole, picture = story.folder / f"story{paths[0].suffix}", story.folder / "contact-sheet.png"
    if opening and (first := story.opening_clip(session)) is not None:
        clips = {0: first, **clips}
    join_clips(list(clips.values()), whole, story.file_tags)
    shown = [turn for turn in session.turns if turn.number in clips][-SHEET_TURNS:]
    frames = [read_clip(clips[turn.number]).frames for turn in shown]
    save_picture(contact_sheet(shown, frames, story.name, (session.rules or PUBLISHED_RULES).stats), picture)
    return [*paths, whole, picture]
