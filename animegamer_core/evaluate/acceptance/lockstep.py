"""Many games played by one engine side by side, turn by turn, so that a GPU has a batch to work on.

B games, L prompt tokens, N state tokens, D state width, K past turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...engine import GameEngine
from ...prompt import GRAMMAR, TurnPrompt
from ...state import GameSession, GameState, Turn

LOCKSTEP = 32  # games a batch


@dataclass(frozen=True)
class Script:
    """What a player types, turn by turn, and the picture that the game opens with, if any."""

    instructions: tuple[str, ...]
    opening: tuple[str, GameState] | None = None

    def session(self, window: int) -> GameSession:
        """The game before its first turn."""
        session = GameSession(window=window)
        return session if self.opening is None else session.open_with(*self.opening)


def play_games(engine: GameEngine, scripts: Sequence[Script], window: int) -> list[tuple[Turn, ...]]:
    """The turns 1, 2 ... of every game; all scripts have the same number of instructions."""
    played: list[tuple[Turn, ...]] = []
    for start in range(0, len(scripts), LOCKSTEP):
        played += _play_together(engine, scripts[start : start + LOCKSTEP], window)
    return played


def _play_together(engine: GameEngine, scripts: Sequence[Script], window: int) -> list[tuple[Turn, ...]]:
    sessions = [script.session(window) for script in scripts]
    for typed in zip(*(script.instructions for script in scripts), strict=True):
        states = predict_together(engine, [session.past() for session in sessions], typed)
        steps = zip(sessions, typed, states, strict=True)
        sessions = [session.step(text, state) for session, text, state in steps]
    return [tuple(turn for turn in session.turns if turn.number > 0) for session in sessions]


@torch.inference_mode()
def predict_together(
    engine: GameEngine, pasts: Sequence[Sequence[Turn]], instructions: Sequence[str]
) -> list[GameState]:
    """What `engine.predict` says of each game, up to rounding, from a few passes over all of them.

    Profiles that read text in a pass of their own are asked game by game.
    """
    if not (engine.profile.shared_prefill and engine.profile.grammar and engine.profile.aligned_queries):
        return [engine.predict(past, text) for past, text in zip(pasts, instructions, strict=True)]
    prompts = [
        engine.prompt([(turn.instruction, turn.state.levels) for turn in past], text)
        for past, text in zip(pasts, instructions, strict=True)
    ]
    known = [engine.past_states(past) for past in pasts]
    chosen: list[tuple[int, ...]] = [()] * len(prompts)
    said: list[tuple[int | None, ...]] = [()] * len(prompts)
    states_BND = None
    for index, choice in enumerate(GRAMMAR):
        output = engine(prompts, known)
        states_BND = output.states_BND if states_BND is None else states_BND
        logits_BV = output.logits_BAV[:, -1].float().cpu()
        for game, logits_V in enumerate(logits_BV):
            number, first = engine.choose(choice, logits_V)
            chosen[game], said[game] = (*chosen[game], number), (*said[game], first)
        if index + 1 < len(GRAMMAR):
            prompts = [_with_choice(engine, prompt, index, chosen[game][-1]) for game, prompt in enumerate(prompts)]
    return [engine.state_of(*row) for row in zip(states_BND.float().cpu(), chosen, said, strict=True)]


def _with_choice(engine: GameEngine, prompt: TurnPrompt, index: int, value: int) -> TurnPrompt:
    """The prompt with the number that was chosen, up to the tag of the next one."""
    tags = engine.tokenizer.token(GRAMMAR[index].closing), engine.tokenizer.token(GRAMMAR[index + 1].opening)
    return prompt.followed_by([engine.tokenizer.strength(value), *tags])
