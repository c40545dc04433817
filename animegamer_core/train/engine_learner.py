"""Next-state prediction: the engine's training, and its predictions for the decoder's adaptation.

B batch, K past turns, N state tokens, D state width, A answer tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.records import ClipRecord
from ..model.engine import GameEngine
from ..model.prompt import Levels, TurnPrompt, state_block
from .learners import Batch, Learner, Losses, compile_for_training
from .losses import cosine_error
from .sampling import MicroBatch, SampleNoise, WindowSampler
from .stages import StageConfig
from .training_data import TrainingData, autocast, weights_digest

TURNS_AT_ONCE = 64  # turns that the engine predicts at a time for decoder adaptation


class EngineLearner(Learner):
    """Trains the engine. Loss: cross-entropy of the state block + alpha MSE + beta (1 - cosine) of the representation.

    This is the supplement's formula 1. The history holds the true
    states and representations, the latter with noise.
    """

    def __init__(self, config: StageConfig, engine: GameEngine, data: TrainingData) -> None:
        super().__init__(config)
        self.engine = engine
        self._table = PromptTable(engine, data.folder.turns)
        longest, room = self._table.longest(config.window), engine.spec.engine.max_positions
        if longest > room:
            raise ValueError(
                f"prompts with window {config.window} reach {longest} tokens; the engine has room for {room}, so use "
                "a smaller window"
            )
        if config.checkpointing:
            # transformers renamed it in version 5; the old name warns
            enable = getattr(engine.llm, "activation_checkpointing_enable", engine.llm.gradient_checkpointing_enable)
            enable({"use_reentrant": False})
        if config.compile:
            compile_for_training(engine.llm.model, dynamic=True)  # prompts differ in length

    def sampler(self, data: TrainingData, held_out: bool = False) -> WindowSampler:
        config = self.settings
        recall = 0.0 if held_out else config.recall  # so that losses on held-out games are comparable
        return WindowSampler(data.games(held_out), config.window, config.batch, config.seed, recall)

    def batch(self, data: TrainingData, rows: Tensor, micro: MicroBatch, device: torch.device) -> Batch:
        config, states = self.settings, _windows(data, "states", rows, device)
        past = states[:, :-1]
        if config.history_noise:  # of a random strength for each
            random = SampleNoise(device, config.seed, micro, len(rows), "history")
            strength = random.uniform(past.shape[1], 1, 1)
            past = past + config.history_noise * strength * random.normal(*past.shape[1:])
        prompts = [self._table.prompt(clips) for clips in rows.tolist()]
        return {
            "prompts": prompts,
            "past": past,
            "states": states[:, -1],
            "answers": torch.stack([self._table.answer(prompt) for prompt in prompts]).to(device, non_blocking=True),
        }

    def states(self, data: TrainingData, rows: Tensor, device: torch.device) -> Tensor:
        games = [game.clips for game in data.folder.games]
        found = []
        for clip in rows.tolist():
            clips = next((clips for clips in games if clip in clips), (clip,))
            at = clips.index(clip)
            run = clips[max(0, at - self.settings.window) : at + 1]
            past = _windows(data, "states", torch.tensor([run[:-1]], dtype=torch.long), device)
            found.append(self.engine([self._table.prompt(run, answered=False)], list(past)).states_BND)
        return torch.cat(found)

    def forward(self, batch: Batch) -> Losses:
        config = self.settings
        output = self.engine(batch["prompts"], list(batch["past"]), self._table.answers)
        logits_BAV = output.logits_BAV.float()
        answers = batch["answers"]
        entropy = F.cross_entropy(logits_BAV.flatten(0, 1), answers.flatten())
        states, wanted = output.states_BND.float(), batch["states"]
        parts = {"entropy": entropy, "mse": F.mse_loss(states, wanted), "cosine": cosine_error(states, wanted)}
        loss = entropy + config.alpha * parts["mse"] + config.beta * parts["cosine"]
        right = (logits_BAV.argmax(-1) == answers)[:, list(self._table.choices)].float().mean(0)
        names = (f"{number.name}_right" for number in self.engine.tokenizer.numbers)
        return {"loss": loss, **parts, **dict(zip(names, right, strict=True))}


def _windows(data: TrainingData, name: str, rows_BK: Tensor, device: torch.device) -> Tensor:
    """(B, K, ...) fp32: a feature of every clip of these windows."""
    values = data.gather(name, rows_BK.flatten(), device).float()
    return values.reshape(*rows_BK.shape, *values.shape[1:])


def add_predictions(data: TrainingData, engine: GameEngine, window: int) -> TrainingData:
    """Add the engine's predicted representation of every clip, `predicted`, for decoder adaptation.

    Each turn is predicted from as many true past turns as in play. Clips that are in no game are predicted without a
    past.
    """
    state, device = engine.spec.state, engine.project_in[0].weight.device
    home = "cpu" if data.cache else device
    table = cache(lambda: PromptTable(engine, data.folder.turns))  # not made if the cache folder has the feature
    windows: dict[int, tuple[int, ...]] = {clip: (clip,) for clip in range(len(data.folder.turns))}
    for game in data.folder.games:
        windows |= {clip: game.clips[max(0, turn - window) : turn + 1] for turn, clip in enumerate(game.clips)}

    @torch.no_grad()
    def predict(part: range) -> Tensor:
        found = torch.empty(len(part), state.tokens, state.width, dtype=torch.half, device=home)
        for length in sorted({len(windows[clip]) for clip in part}):
            same = torch.tensor([windows[clip] for clip in part if len(windows[clip]) == length])
            for rows in same.split(TURNS_AT_ONCE):
                prompts = [table().prompt(clips, answered=False) for clips in rows.tolist()]
                with autocast(device):
                    output = engine(prompts, list(_windows(data, "states", rows[:, :-1], device)))
                found[rows[:, -1].to(found.device) - part.start] = output.states_BND.half().to(home)
        return found

    def depends_on() -> str:
        games, states = [game.clips for game in data.folder.games], data.index("states")
        return weights_digest(engine, engine.profile, window, games, states.digest if states else "")

    return data.with_feature("predicted", predict, 1024, depends_on)


Piece = tuple[Tensor, Tensor]  # (ids, which of them are slots), both (L,)


class PromptTable:
    """The pieces of all turns of a dataset, for one engine's vocabulary and profile."""

    def __init__(self, engine: GameEngine, turns: Sequence[ClipRecord]) -> None:
        self._tokenizer, self._profile = engine.tokenizer, engine.profile
        scenes = [engine.prompt((), turn.instruction) for turn in turns]  # <s>, the scene, and <ML>, which is given
        self._scenes = [(scene.ids_L[1:], scene.query_L[1:]) for scene in scenes]
        self._blocks = [self._block(self._levels(turn)) for turn in turns]
        zeros = self._block((0,) * len(self._tokenizer.numbers))
        self._past_blocks = self._blocks if engine.profile.history_states else [zeros] * len(turns)
        self._start, self._end = (_without_slots([engine.tokenizer.token(name)]) for name in ("<s>", "</s>"))
        self.answers = len(zeros[0]) + 1
        self.choices = tuple(range(0, 3 * len(self._tokenizer.numbers), 3))  # of the numbers among the answers

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

    def _levels(self, turn: ClipRecord) -> tuple[int, ...]:
        """The motion level and the changes of the stats, in the prompt's order; ValueError for other stats."""
        names = [number.name for number in self._tokenizer.numbers[1:]]
        if sorted(turn.stats) != sorted(names):
            raise ValueError(
                f"{turn.clip} states {', '.join(turn.stats)}, but the world's stats are {', '.join(names)}; train a "
                "world that has the dataset's stats"
            )
        return turn.motion_level, *(turn.stats[name] for name in names)

    def _block(self, levels: Levels) -> Piece:
        return _without_slots(state_block(self._tokenizer, levels, self._profile)[1:])


def _without_slots(ids: Sequence[int]) -> Piece:
    return torch.tensor(ids), torch.zeros(len(ids), dtype=torch.bool)
