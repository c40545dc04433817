"""Batched play: one engine plays many games turn by turn, so that a GPU has a batch to work on.

B games, L prompt tokens, N state tokens, D state width, K past turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ...model.engine import GameEngine
from ...recall import LAST_TURNS, Memory
from ...state import GameSession, GameState, Turn

BATCH_GAMES = 32


@dataclass(frozen=True)
class Script:
    """A player's instructions, and the picture that the game opens with, if any."""

    instructions: tuple[str, ...]
    opening: tuple[str, GameState] | None = None

    def session(self, window: int, memory: Memory = LAST_TURNS) -> GameSession:
        """The game before its first turn."""
        session = GameSession(window=window, memory=memory)
        return session if self.opening is None else session.open_with(*self.opening)


def play_games(
    engine: GameEngine, scripts: Sequence[Script], window: int, memory: Memory = LAST_TURNS
) -> list[tuple[Turn, ...]]:
    """The turns 1, 2 ... of every game, all with representations; all scripts have the same number of instructions."""
    played: list[tuple[Turn, ...]] = []
    for start in range(0, len(scripts), BATCH_GAMES):
        games = [_BatchedGame(script.session(window, memory)) for script in scripts[start : start + BATCH_GAMES]]
        for texts in zip(*(script.instructions for script in scripts[start : start + BATCH_GAMES]), strict=True):
            recalled = [game.session.recall(text, stored=True) for game, text in zip(games, texts, strict=True)]
            pasts = [game.past(numbers) for game, numbers in zip(games, recalled, strict=True)]
            for game, *turn in zip(games, texts, predict_batch(engine, pasts, texts), recalled, strict=True):
                game.step(*turn)
        played += [game.turns for game in games]
    return played


class _BatchedGame:
    """A game in progress that keeps every representation, which its session drops."""

    def __init__(self, session: GameSession) -> None:
        self.session = session
        self._states = {turn.number: turn.state for turn in session.turns}

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Its turns without an opening picture."""
        return tuple(map(self._whole, (turn for turn in self.session.turns if turn.number > 0)))

    def past(self, recalled: tuple[int, ...]) -> list[Turn]:
        """The past turns in the prompt of the next one."""
        return [self._whole(turn) for turn in self.session.past(recalled)]

    def step(self, text: str, state: GameState, recalled: tuple[int, ...]) -> None:
        """Play a turn."""
        self._states[self.session.next_number] = state
        self.session = self.session.step(text, state, recalled=recalled)

    def _whole(self, turn: Turn) -> Turn:
        return replace(turn, state=self._states[turn.number])


@torch.inference_mode()
def predict_batch(engine: GameEngine, pasts: Sequence[Sequence[Turn]], instructions: Sequence[str]) -> list[GameState]:
    """What `engine.predict` returns for each game, up to rounding, from a few forward passes over all games.

    Profiles with a separate pass for text are run game by game.
    """
    if not (engine.profile.shared_prefill and engine.profile.grammar and engine.profile.aligned_queries):
        return [engine.predict(past, text) for past, text in zip(pasts, instructions, strict=True)]
    tokenizer = engine.tokenizer
    prompts = [engine.prompt_of(past, text) for past, text in zip(pasts, instructions, strict=True)]
    known = [engine.past_states(past) for past in pasts]
    chosen: list[tuple[int, ...]] = [()] * len(prompts)
    first_choices: list[tuple[int | None, ...]] = [()] * len(prompts)
    states_BND = None
    for index, choice in enumerate(tokenizer.numbers):
        output = engine(prompts, known)
        states_BND = output.states_BND if states_BND is None else states_BND
        logits_BV = output.logits_BAV[:, -1].float().cpu()
        for game, logits_V in enumerate(logits_BV):
            number, first = engine.choose(choice, logits_V)
            chosen[game], first_choices[game] = (*chosen[game], number), (*first_choices[game], first)
        if index + 1 < len(tokenizer.numbers):
            tags = tokenizer.token(choice.closing), tokenizer.token(tokenizer.numbers[index + 1].opening)
            prompts = [
                prompt.followed_by([tokenizer.strength(chosen[game][-1]), *tags]) for game, prompt in enumerate(prompts)
            ]
    return [engine.state_of(*row) for row in zip(states_BND.float().cpu(), chosen, first_choices, strict=True)]
