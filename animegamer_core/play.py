"""Playing: instruction -> predicted state -> turn -> shot, with a story on disk that remembers all of it.

What the story knows is read from it, so replaying loads no model, and an interrupted game goes on where it stopped.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from .files import replacing
from .shelf import ShotKey, StateKey, address_of
from .state import DEFAULT_WINDOW, GameSession, Turn, clean_text
from .story import Story

if typing.TYPE_CHECKING:
    import torch
    from PIL import Image

    from .checkpoint import World
    from .decoder import ShotDecoder
    from .engine import GameEngine

SHEET_TURNS = 24  # the last turns of a story that its contact sheet shows; a picture of thousands opens nowhere
SEEDS = 1 << 64  # how many noise seeds torch knows

OnStep = Callable[[int, int], None]  # (sampling steps done, of how many)


@dataclass(frozen=True)
class PlaySettings:
    """How a game is played. None leaves a choice to the world.

    window: past turns that the engine reads. seed: the noise seed of turn 1; turn n has seed + n - 1. steps: sampling
    steps. motion: turn number -> the motion value (px a frame at 480 px height) that its shot gets, whatever was
    predicted; history keeps the prediction. device and dtype are for the models; dtype None is the world's own choice.
    """

    window: int = DEFAULT_WINDOW
    seed: int = 0
    steps: int | None = None
    guidance: str | None = None
    motion: Mapping[int, float] = field(default_factory=dict)
    device: str = "cpu"
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps is {self.steps}; sampling needs 1 step or more")
        if not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed is {self.seed}; seeds run from 0 to 2**64 - 1")
        wrong = [(number, value) for number, value in self.motion.items() if number < 1 or not 0 <= value < 1000]
        if wrong:
            raise ValueError(
                f"motion {wrong[0][0]}={wrong[0][1]}px; turns count from 1, and motion values run from 0 to 999 px"
            )

    @property
    def precision(self) -> str:
        """The number format that decides a result's last digits, as addresses name it."""
        if self.dtype is None:
            return "float32" if self.device == "cpu" else "stored"
        return str(self.dtype).removeprefix("torch.")


@dataclass(frozen=True)
class PlayedTurn:
    """A turn with its clip, None if not drawn. predicted, drawn: whether state and shot were computed now, not read."""

    turn: Turn
    clip: Path | None
    motion: float
    predicted: bool
    drawn: bool


class Player:
    """A game in progress. Engine and decoder are loaded when first needed."""

    def __init__(self, world: World, story: Story, settings: PlaySettings, after: int = 0) -> None:
        """Begin after turn `after` of the story's current line (0: at the beginning)."""
        self.world = world
        self.story = story
        self.settings = settings
        self.session: GameSession = story.session(after, settings.window)

    @cached_property
    def engine(self) -> GameEngine:
        """The world's engine."""
        return self.world.load_engine(self.settings.device, self.settings.dtype)

    @cached_property
    def decoder(self) -> ShotDecoder:
        """The world's decoder."""
        return self.world.load_decoder(self.settings.device, self.settings.dtype)

    def step(self, instruction: str, on_step: OnStep | None = None, draw: bool = True) -> PlayedTurn:
        """Play one turn and keep it in the story; without `draw` only its state."""
        instruction = clean_text(instruction)
        if not instruction:
            raise ValueError("an empty instruction; say who does what, and where")
        key = self._state_key(instruction)
        address = address_of(key)
        state = self.story.find_state(address)
        predicted = state is None
        if state is None:
            past = [self.story.recall(turn) for turn in self.session.past()]
            state = self.engine.predict(past, instruction)
            self.story.put_state(key, state)
        seed = (self.settings.seed + self.session.next_number - 1) % SEEDS
        session = self.session.step(instruction, state, seed, address)
        turn = session.turns[-1]
        shot, drawn = self._shoot(turn, on_step) if draw else (None, False)
        clip = self.story.enter(turn, shot)
        self.session = session
        return PlayedTurn(turn, clip, self._motion(turn), predicted, drawn)

    def play(
        self,
        instructions: Iterable[str],
        on_turn: Callable[[PlayedTurn], None] | None = None,
        on_step: OnStep | None = None,
    ) -> GameSession:
        """Play instructions in order. An exception, also from a callback, leaves all turns so far in the story."""
        for instruction in instructions:
            played = self.step(instruction, on_step)
            if on_turn is not None:
                on_turn(played)
        return self.session

    def rewind(self, number: int) -> None:
        """Go back to after turn `number`; what came later stays in the story as another line."""
        self.session = self.session.rewind(number)
        self.story.settle(number)

    def finish(self) -> list[Path]:
        """End the line here and write `story` (one clip) and `contact-sheet.png`; returns all files, clips first."""
        from .sheet import contact_sheet
        from .video import join_clips, read_clip

        self.story.settle(len(self.session.turns))
        clips = self.story.clips()
        if not clips:
            return []
        paths = list(clips.values())
        whole, picture = self.story.folder / f"story{paths[0].suffix}", self.story.folder / "contact-sheet.png"
        join_clips(paths, whole)
        shown = [turn for turn in self.session.turns if turn.number in clips][-SHEET_TURNS:]
        frames = [read_clip(clips[turn.number]).frames for turn in shown]
        save_picture(contact_sheet(shown, frames, self.story.folder.name), picture)
        return [*paths, whole, picture]

    def _state_key(self, instruction: str) -> StateKey:
        turns, settings = self.session.turns, self.settings
        return StateKey(
            world=self.story.fingerprint,
            parent=turns[-1].address if turns else None,
            instruction=instruction,
            window=settings.window,
            profile=self.world.profile.name,
            precision=settings.precision,
        )

    def _motion(self, turn: Turn) -> float:
        override = self.settings.motion.get(turn.number)
        return float(self.world.motion_table.value(turn.state.motion) if override is None else override)

    def _shoot(self, turn: Turn, on_step: OnStep | None) -> tuple[str, bool]:
        """The address of the turn's shot, and whether it had to be drawn."""
        spec, settings = self.world.spec.decoder, self.settings
        key = ShotKey(
            world=self.story.fingerprint,
            state=turn.address or "",
            seed=turn.seed,
            motion=self._motion(turn),
            steps=settings.steps or spec.steps,
            guidance=settings.guidance or self.world.profile.guidance,
            precision=settings.precision,
        )
        address = address_of(key)
        if self.story.shots.find(address) is not None:
            return address, False
        representation = self.story.recall(turn).state.representation
        report = None if on_step is None else lambda done, steps, _: on_step(done, steps)
        frames = self.decoder.shoot(
            representation, key.motion, seed=key.seed, steps=key.steps, guidance=key.guidance, on_step=report
        )
        self._write_shot(turn, key, frames)
        return address, True

    def _write_shot(self, turn: Turn, key: ShotKey, frames_FCHW: torch.Tensor) -> None:
        from .video import clip_suffix, to_uint8, write_clip

        tags = {
            "title": f"turn {turn.number}",
            "comment": turn.instruction,
            "animegamer": json.dumps({**asdict(key), "turn": turn.number, "instruction": turn.instruction}),
        }
        frames, fps = to_uint8(frames_FCHW), self.world.spec.decoder.fps
        self.story.shots.put(key, clip_suffix(), {}, lambda path: write_clip(path, frames, fps, tags))


def choose_device(name: str) -> str:
    """The torch device of a name such as `auto`, `cpu` or `cuda:1`; ValueError if it is not there."""
    import torch

    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available, "cpu": lambda: True}
    if name == "auto":
        return next(kind for kind, is_there in there.items() if is_there())
    kind = name.partition(":")[0]
    if kind not in there or not there[kind]():
        raise ValueError(f"device {name!r} is not available here; choose auto or cpu")
    return name


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a PNG, replaced at once."""
    with replacing(path) as part:
        picture.save(part, format="PNG")
