"""Training prompts: each turn is tokenized once, and prompts are put together from those pieces.

A prompt is `<s>`, the past turns of a window and the turn to predict with its answer: `<ML>` to `</TURN>`, `</s>`. The
pieces are the same as in `model.prompt.build_prompt`; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..data.records import ClipRecord
from ..model.engine import GameEngine
from ..model.prompt import TurnPrompt, state_block


class PromptTable:
    """The pieces of all turns of a dataset, for one engine's vocabulary and profile."""

    def __init__(self, engine: GameEngine, turns: Sequence[ClipRecord]) -> None:
        self._tokenizer, self._profile = engine.tokenizer, engine.profile
        self._scenes = [engine.prompt((), turn.instruction) for turn in turns]
        self._blocks = [self._block(turn.levels) for turn in turns]
        zeros = self._block((0, 0, 0, 0))
        self._past_blocks = self._blocks if engine.profile.history_states else [zeros] * len(turns)
        self._end = torch.tensor([engine.tokenizer.token("</s>")])
        # the block's first token, <ML>, already ends the scene; it is given, not predicted
        self.answers = len(self._blocks[0])
        self.choices = tuple(range(0, 12, 3))  # where the four numbers stand among the answers

    def prompt(self, clips: Sequence[int], answered: bool = True) -> TurnPrompt:
        """The prompt whose last clip is the turn to predict; with its answer, or ending in `<ML>` as in play."""
        *past, target = clips
        pieces = [self._scenes[past[0] if past else target].ids_L[:1]]
        slots = [torch.zeros(1, dtype=torch.bool)]
        for clip in past:
            pieces += [self._scenes[clip].ids_L[1:], self._past_blocks[clip][1:]]
            slots += [self._scenes[clip].query_L[1:], torch.zeros(len(self._past_blocks[clip]) - 1, dtype=torch.bool)]
        before = sum(len(piece) for piece in pieces)
        pieces.append(self._scenes[target].ids_L[1:])
        slots.append(self._scenes[target].query_L[1:])
        if answered:
            pieces += [self._blocks[target][1:], self._end]
            slots.append(torch.zeros(self.answers, dtype=torch.bool))
        slot_L = torch.cat(slots)
        is_target_L = torch.arange(len(slot_L)) >= before
        return TurnPrompt(torch.cat(pieces), slot_L & ~is_target_L, slot_L & is_target_L)

    def answer(self, prompt: TurnPrompt) -> Tensor:
        """(A,): the tokens to predict in an answered prompt."""
        return prompt.ids_L[-self.answers :]

    def longest(self, window: int) -> int:
        """The number of tokens of the longest prompt that a window of past turns can give."""
        turns = zip(self._scenes, self._past_blocks, strict=True)
        piece = max(len(scene.ids_L) + len(block) for scene, block in turns)
        return 1 + piece * (window + 1)

    def _block(self, levels: tuple[int, int, int, int]) -> Tensor:
        return torch.tensor(state_block(self._tokenizer, levels, self._profile))
