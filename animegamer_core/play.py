"""Playing: instruction -> predicted state -> turn -> shot, with a story on disk that remembers all of it.

What the story knows is read from it, so replaying loads no model, and an interrupted game goes on where it stopped.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path

from .files import save_picture
from .models import SEEDS, LoadedModels, Models, PlaySettings
from .shelf import ShotKey, StateKey, address_of, opening_address
from .state import GameSession, GameState, Turn, clean_text
from .story import Story

if typing.TYPE_CHECKING:
    import numpy as np

    from .checkpoint import World
    from .engine import GameEngine
    from .sampler import OnStep

SHEET_TURNS = 24  # the last turns of a story that its contact sheet shows; a picture of thousands opens nowhere


@dataclass(frozen=True)
class PlayedTurn:
    """A turn with its clip, None if not drawn. predicted, drawn: whether state and shot were computed now, not read."""

    turn: Turn
    clip: Path | None
    motion: float
    predicted: bool
    drawn: bool


@dataclass(frozen=True)
class _Predicted:
    """What follows a session. known: the story had it already."""

    key: StateKey
    state: GameState
    known: bool


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
        """Begin after turn `after` of the story's line (0: at the beginning).

        models None: the world's own, which are loaded when first needed. opening: how a game begins at turn 1, with
        its gauges and picture; None keeps the line's own. ValueError: a line that goes on began otherwise.
        """
        self.world = world
        self.story = story
        self.settings = settings
        self.models: Models = models or LoadedModels(world, settings)
        self.session: GameSession = story.session(after, settings.window_in(world))
        if opening is not None:
            self._open(opening)

    def step(self, instruction: str, on_step: OnStep | None = None, draw: bool = True) -> PlayedTurn:
        """Play one turn and keep it in the story; without `draw` only its state."""
        instruction = self._begin(instruction)
        predicted = self._predict(self.session, instruction)
        return self._enter(self._follow(predicted), predicted, on_step, draw)

    def play(
        self,
        instructions: Iterable[str],
        on_turn: Callable[[PlayedTurn], None] | None = None,
        on_step: OnStep | None = None,
        ahead: bool = False,
    ) -> GameSession:
        """Play instructions in order. An exception, also from a callback, leaves all turns so far in the story.

        ahead: while a shot is drawn, another thread reads the next instruction, which pays where the engine has a
        device of its own. What is played is the same; all instructions are asked for at once.
        """
        with ThreadPoolExecutor(1, "ahead") as reader:  # which begins no thread before there is something to read
            turns = (
                self._steps_ahead([clean_text(instruction) for instruction in instructions], reader, on_step)
                if ahead
                else (self.step(instruction, on_step) for instruction in instructions)
            )
            for played in turns:
                if on_turn is not None:
                    on_turn(played)
        return self.session

    def rewind(self, number: int) -> None:
        """Go back to after turn `number`; what came later stays in the story as another line."""
        self.session = self.session.rewind(number)
        self.story.settle(number)

    def finish(self) -> list[Path]:
        """End the line here and write `story` (one clip) and `contact-sheet.png`; returns all files, clips first."""
        self.story.settle(self.session.next_number - 1)
        return export(self.story, self.session)

    def _steps_ahead(
        self, instructions: Sequence[str], reader: ThreadPoolExecutor, on_step: OnStep | None
    ) -> Iterator[PlayedTurn]:
        """The turns of cleaned instructions, each predicted by the reader while the one before is drawn."""
        before = predicting = None
        for instruction, following in zip_longest(instructions, instructions[1:], fillvalue=""):
            self._begin(instruction)
            if predicting is None or before is not self.session:  # at the first turn, and where a callback rewound
                predicting = reader.submit(self._predict, self.session, instruction, True)
            predicted = predicting.result()
            before = self._follow(predicted)
            predicting = reader.submit(self._predict, before, following, True) if following else None
            yield self._enter(before, predicted, on_step)

    def _begin(self, instruction: str) -> str:
        """The instruction as the engine reads it; before turn 1, the story's opening is stored."""
        instruction = clean_text(instruction)
        if not instruction:
            raise ValueError("an empty instruction; say who does what, and where")
        if self.session.next_number == 1:
            self.session = self.story.put_opening(self.session)
        return instruction

    def _predict(self, session: GameSession, instruction: str, aside: bool = False) -> _Predicted:
        """What follows a session, as the story knows it or else as the engine predicts it. Writes nothing.

        aside: in another thread than the one that draws.
        """
        profile = self.world.profile.name
        key = state_key(self.story.fingerprint, session, instruction, profile, self.models.precision)
        state = self.story.find_state(address_of(key))
        if state is not None:
            return _Predicted(key, state, known=True)
        past = [self.story.recall(turn) for turn in session.past()]
        engine = self.models.engine()
        if aside:
            _check_stays(engine)
        return _Predicted(key, engine.predict(past, instruction), known=False)

    def _follow(self, predicted: _Predicted) -> GameSession:
        """The session with one more turn, whose state the story knows from now on."""
        if not predicted.known:
            self.story.put_state(predicted.key, predicted.state)
        seed = (self.settings.seed + self.session.next_number - 1) % SEEDS
        return self.session.step(predicted.key.instruction, predicted.state, seed, address_of(predicted.key))

    def _enter(
        self, session: GameSession, predicted: _Predicted, on_step: OnStep | None, draw: bool = True
    ) -> PlayedTurn:
        """Draw a session's last turn, if asked to, and make it the story's."""
        turn = session.turns[-1]
        shot, drawn = self._shoot(turn, on_step) if draw else (None, False)
        clip = self.story.enter(turn, shot)
        self.session = session
        return PlayedTurn(turn, clip, self._motion(turn), not predicted.known, drawn)

    def _open(self, opening: GameSession) -> None:
        """Begin as `opening` says; ValueError if turns are there that began otherwise."""
        if self.session.next_number == 1:
            self.session = replace(opening, window=self.session.window)
            return
        own, given = (opening_address(self.story.fingerprint, session) for session in (self.session, opening))
        if own != given:
            raise ValueError(
                f"story {self.story.name!r} began with another opening than the one given; go on without an opening, "
                "or begin anew after turn 0"
            )

    def _motion(self, turn: Turn) -> float:
        override = self.settings.motion.get(turn.number)
        return float(self.world.motion_table.value(turn.state.motion) if override is None else override)

    def _shoot(self, turn: Turn, on_step: OnStep | None) -> tuple[str, bool]:
        """The address of the turn's shot, and whether it had to be drawn."""
        from .video import to_uint8

        spec, settings = self.world.spec.decoder, self.settings
        key = ShotKey(
            world=self.story.fingerprint,
            state=turn.address or "",
            seed=turn.seed,
            motion=self._motion(turn),
            steps=settings.steps or spec.steps,
            guidance=settings.guidance or self.world.profile.guidance,
            precision=f"{self.models.precision}{settings.drawn}",
        )
        if self.story.shots.find(address_of(key)) is not None:
            return address_of(key), False
        representation = self.story.recall(turn).state.representation
        frames = self.models.decoder().shoot(
            representation, key.motion, seed=key.seed, steps=key.steps, guidance=key.guidance, on_step=on_step
        )
        return put_shot(self.story, turn, key, to_uint8(frames), spec.fps), True


def _check_stays(engine: GameEngine) -> None:
    from .streaming import is_streamed

    if is_streamed(engine):
        raise ValueError(
            "an engine that streams through the card takes turns there with the decoder, and cannot read ahead while a "
            "shot is drawn; give it a device of its own, or play without reading ahead"
        )


def state_key(fingerprint: str, session: GameSession, instruction: str, profile: str, precision: str) -> StateKey:
    """What decides the turn that follows a session; `instruction` is cleaned as the engine reads it."""
    turns = session.turns
    parent = turns[-1].address if turns and turns[-1].number > 0 else opening_address(fingerprint, session)
    return StateKey(fingerprint, parent, clean_text(instruction), session.window, profile, precision)


def put_shot(story: Story, turn: Turn, key: ShotKey, frames: np.ndarray, fps: float) -> str:
    """Store the shot of a turn, (F, H, W, 3) uint8, with what decided it as metadata; returns its address."""
    from .video import clip_suffix, write_clip

    tags = {
        "title": f"turn {turn.number}",
        "comment": turn.instruction,
        "animegamer": json.dumps({**asdict(key), "turn": turn.number, "instruction": turn.instruction}),
    }
    return story.shots.put(key, clip_suffix(), {}, lambda path: write_clip(path, frames, fps, tags))


def keep_turn(
    story: Story,
    session: GameSession,
    profile: str,
    precision: str,
    shot: ShotKey,
    frames: np.ndarray,
    fps: float,
) -> Path:
    """Enter the last turn of a session that was played elsewhere, with its shot; returns its clip.

    The states of the turns before it are entered too, so the turns of one game may be kept in any order. shot: what
    decided the frames, (F, H, W, 3) uint8; its `state` is filled in here. profile, precision: by name, those that
    predicted.
    ValueError: the opening picture, or a turn that other settings predicted than those of the shot.
    """
    if session.next_number == 1:
        raise ValueError(
            "an opening picture is kept with the game's first turn; give the shot of turn 1 or a later one"
        )
    turns = _keep_states(story, session, profile, precision)
    key = replace(shot, state=turns[-1].address or "")
    if story.shots.find(address_of(key)) is None:
        put_shot(story, turns[-1], key, frames, fps)
    for turn in turns[:-1]:
        story.enter(turn, None)
    return typing.cast(Path, story.enter(turns[-1], address_of(key), keep_later=True))


def _keep_states(story: Story, session: GameSession, profile: str, precision: str) -> list[Turn]:
    """The turns of a session, each with its address in the story; states that it does not know are stored."""
    before, kept = story.put_opening(session), []
    before = replace(before, turns=before.turns[:1] if session.picture else ())
    for turn in (turn for turn in session.turns if turn.number > 0):
        key = state_key(story.fingerprint, replace(before, window=turn.window), turn.instruction, profile, precision)
        address = turn.address or address_of(key)
        if story.find_state(address) is None:
            if address != address_of(key):
                raise ValueError(
                    f"turn {turn.number} was predicted with another model than its shot was drawn with, and a story "
                    "keeps one: give the same model to Predict Next State and Decode Shot"
                )
            if turn.state.representation is None:
                raise ValueError(
                    f"turn {turn.number} let its representation go, and story {story.name!r} does not know it; keep "
                    "each turn when it is played"
                )
            story.put_state(key, turn.state)
        kept.append(replace(turn, address=address))
        before = replace(before, turns=(kept[-1],))
    return kept


def export(story: Story, session: GameSession) -> list[Path]:
    """Write the session's turns as one clip `story` and as `contact-sheet.png`; returns all files, clips first.

    The session is the beginning of the story's line. Nothing was drawn: nothing is written.
    """
    from .sheet import contact_sheet
    from .video import join_clips, read_clip

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


def choose_device(name: str) -> str:
    """The torch device of a name such as `auto`, `cpu` or `cuda:1`; ValueError if it is not there."""
    import torch

    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available, "cpu": lambda: True}
    if name == "auto":
        return next(kind for kind, is_there in there.items() if is_there())
    kind, _, index = name.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    is_one = ":" not in name or (index.isdecimal() and int(index) < count)
    if kind not in there or not there[kind]() or not is_one:
        raise ValueError(f"device {name!r} is not available here; choose auto or cpu")
    return name
