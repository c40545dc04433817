"""Drawing ahead: while a player looks at a clip, the turns that may come next are predicted and drawn.

They go into a store next to the stories (ahead_store) under the addresses that they would have in a story, so they then
play at once. The story and the game do not change.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..state import GameSession, GameState, Turn, clean_text
from .ahead_store import AheadStore
from .content_store import address_of, with_opening_address
from .http_requests import MOST_TURNS_AHEAD
from .player import Player, put_shot
from .story import Story
from .turn import draw_turn, known_turn, next_key, predict_turn

if typing.TYPE_CHECKING:
    from ..model.sampler import OnStep
    from .director import Proposer


@dataclass(frozen=True)
class AheadTurn:
    """A turn that may come next. shot, clip: address and file of its shot, None until it is drawn."""

    instruction: str
    predicted: bool
    shot: str | None = None
    clip: Path | None = None


@dataclass(frozen=True)
class Piece:
    """One piece of work. instructions: the turns after the current one; for the last one, the state is predicted, or
    with `draw` the shot drawn.
    """

    instructions: tuple[str, ...]
    draw: bool


class Ahead:
    """Draws ahead of a game, one piece at a time: all states of the proposed instructions, then their shots, then the
    turns after the first one, which is the likeliest.
    """

    def __init__(self, player: Player, store: AheadStore, propose: Proposer | None = None, turns: int = 1) -> None:
        """turns: how far ahead, 1 to 3; beyond the first one, `propose` says which instruction comes next."""
        if not 1 <= turns <= MOST_TURNS_AHEAD:
            raise ValueError(f"turns ahead is {turns}; expected 1 to {MOST_TURNS_AHEAD}")
        self.player = player
        self.store = store
        self.propose = propose
        self.turns = turns
        self._source = _Source(player.story, store)

    def look(self, offered: Sequence[str]) -> tuple[AheadTurn, ...]:
        """The progress of each proposed instruction."""
        return tuple(self._look(instruction) for instruction in offered)

    def next_piece(self, offered: Sequence[str]) -> Piece | None:
        """What to draw next; None if everything is drawn."""
        texts = tuple(text for text in map(self._read, offered) if text)
        return next(self._missing(texts), None)

    def wanted_by(self, piece: Piece, offered: Sequence[str]) -> tuple[str, ...]:
        """The offered instructions that play a piece's turn; none for a turn after theirs."""
        return tuple(text for text in offered if (self._read(text),) == piece.instructions)

    def draw(self, piece: Piece, on_step: OnStep | None = None) -> None:
        """Draw a piece. An exception from on_step stops it and discards the piece."""
        from ..media.video import to_uint8

        player, session = self.player, self._session
        for instruction in piece.instructions:
            prediction = predict_turn(player.world, player.models, session, instruction, self._source)
            if not prediction.known:
                self.store.put_state(prediction.key, prediction.state)
            session = player.follow(session, prediction)
        if piece.draw:
            turn = session.turns[-1]
            key = player.shot_key(turn, player.motion_of(turn))
            frames = draw_turn(player.models, self._source.load_turn(turn), key, on_step)
            put_shot(self.store, turn, key, to_uint8(frames), player.world.spec.decoder.fps)
        self.store.prune()

    @property
    def _session(self) -> GameSession:
        return with_opening_address(self.player.world.fingerprint, self.player.session)

    def _missing(self, offered: Sequence[str]) -> Iterator[Piece]:
        """The missing pieces, in order; call it again after each piece is drawn."""
        paths = [(instruction,) for instruction in offered]
        yield from (Piece(path, False) for path in paths if self._reach(path) is None)
        yield from (Piece(path, True) for path in paths if self._shot(path)[1] is None)
        path = tuple(offered[:1])
        for _ in range(self.turns - 1 if path and self.propose else 0):
            session = self._reach(path)
            assert session is not None and self.propose is not None
            path = (*path, self.propose(session, 1)[0].instruction)
            if self._reach(path) is None:
                yield Piece(path, False)
            if self._shot(path)[1] is None:
                yield Piece(path, True)

    def _reach(self, instructions: Sequence[str]) -> GameSession | None:
        """The game after these turns; None if one of them is not predicted yet."""
        player, session = self.player, self._session
        for instruction in instructions:
            prediction = known_turn(next_key(player.world, player.models, session, instruction), self._source)
            if prediction is None:
                return None
            session = player.follow(session, prediction)
        return session

    def _shot(self, instructions: Sequence[str]) -> tuple[str | None, Path | None]:
        """(address, file) of the last turn's shot: None if the state is not known, None if it is not drawn."""
        session = self._reach(instructions)
        if session is None:
            return None, None
        turn = session.turns[-1]
        shot = address_of(self.player.shot_key(turn, self.player.motion_of(turn)))
        for store in (self.player.story.shots, self.store.shots):
            if store.find(shot) is not None:
                return shot, store.path(shot)
        self.store.has_shot(shot)  # deletes a damaged one
        return shot, None

    def _look(self, instruction: str) -> AheadTurn:
        read = self._read(instruction)
        shot, clip = self._shot((read,)) if read else (None, None)
        return AheadTurn(clean_text(instruction), shot is not None, shot if clip else None, clip)

    def _read(self, instruction: str) -> str:
        """The instruction as the engine reads it; "" if it is not valid, which is reported when it is played."""
        try:
            return self.player.read(instruction)
        except ValueError:
            return ""


@dataclass(frozen=True)
class _Source:
    """The states of a story and of what was drawn ahead."""

    story: Story
    ahead: AheadStore

    def find_state(self, address: str) -> GameState | None:
        """See `Story`."""
        return self.story.find_state(address) or self.ahead.find_state(address)

    def load_turn(self, turn: Turn) -> Turn:
        """See `Story`."""
        if turn.state.representation is not None or turn.address is None or not self.ahead.has_state(turn.address):
            return self.story.load_turn(turn)
        return replace(turn, state=replace(turn.state, representation=self.ahead.read_representation(turn.address)))
