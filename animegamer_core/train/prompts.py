"""Training prompts: each turn is tokenized once, and prompts are assembled from these pieces.

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

Piece = tuple[Tensor, Tensor]  # (ids, which of them are slots), both (L,)


class PromptTable:
    """The pieces of all turns of a dataset, for one engine's vocabulary and profile."""

    def __init__(self, engine: GameEngine, turns: Sequence[ClipRecord]) -> None:
        self._tokenizer, self._profile = engine.tokenizer, engine.profile
        scenes = [engine.prompt((), turn.instruction) for turn in turns]  # <s>, the scene, and <ML>, which is given
        self._scenes = [(scene.ids_L[1:], scene.query_L[1:]) for scene in scenes]
        self._blocks = [self._block(turn.levels) for turn in turns]
        zeros = self._block((0, 0, 0, 0))
        self._past_blocks = self._blocks if engine.profile.history_states else [zeros] * len(turns)
        self._start, self._end = (_without_slots([engine.tokenizer.token(name)]) for name in ("<s>", "</s>"))
        self.answers = len(zeros[0]) + 1
        self.choices = tuple(range(0, 12, 3))  # positions of the four numbers among the answers

    def prompt(self, clips: Sequence[int], answered: bool = True) -> TurnPrompt:
        """The prompt for the last of these clips, given those before; with its answer, or up to `<ML>` as in play."""
        *past, target = clips
        pieces = [self._start]
        for clip in past:
            pieces += [self._scenes[clip], self._past_blocks[clip]]
        before = sum(len(ids_L) for ids_L, _ in pieces)
        pieces.append(self._scenes[target])
        if answered:
            pieces += [self._blocks[target], self._end]
        ids_L, slot_L = (torch.cat(side) for side in zip(*pieces, strict=True))
        is_target_L = torch.arange(len(slot_L)) >= before
        return TurnPrompt(ids_L, slot_L & ~is_target_L, slot_L & is_target_L)

    def answer(self, prompt: TurnPrompt) -> Tensor:
        """(A,): the tokens to predict in an answered prompt."""
        return prompt.ids_L[-self.answers :]

    def longest(self, window: int) -> int:
        """An upper bound for the number of tokens of prompts with this window."""
        turns = zip(self._scenes, self._past_blocks, strict=True)
        return 2 + (window + 1) * max(len(scene) + len(block) for (scene, _), (block, _) in turns)

    def _block(self, levels: tuple[int, int, int, int]) -> Piece:
        return _without_slots(state_block(self._tokenizer, levels, self._profile)[1:])


def _without_slots(ids: Sequence[int]) -> Piece:
    return torch.tensor(ids), torch.zeros(len(ids), dtype=torch.bool)
