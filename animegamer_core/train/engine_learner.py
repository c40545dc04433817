"""Next-state prediction: what the engine learns, and what it then predicts for the decoder to adapt to.

B batch, K past turns, N state tokens, D state width, A answer tokens, V vocabulary.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ..engine import GameEngine
from .learners import Batch, Learner, Losses
from .losses import cosine_error
from .material import TrainingData, autocast, weights_digest
from .order import Place, WindowOrder
from .prompts import PromptTable
from .stages import StageConfig


class EngineLearner(Learner):
    """CE on the state block + alpha MSE + beta (1 - cosine) of the representation (supplement, formula 1).

    History shows true states and true representations, with noise or the engine's own predictions where configured.
    """

    def __init__(self, config: StageConfig, engine: GameEngine, data: TrainingData) -> None:
        super().__init__(config)
        self.engine = engine
        self._table = PromptTable(engine, data.folder.turns)
        self.features = ("states", "predicted") if config.history_own else ("states",)
        longest, room = self._table.longest(config.window), engine.spec.engine.max_positions
        if longest > room:
            raise ValueError(
                f"prompts of window {config.window} reach {longest} tokens; the engine has room for {room}"
            )
        if config.checkpointing:
            # transformers renamed it in version 5; the old name warns
            enable = getattr(engine.llm, "activation_checkpointing_enable", engine.llm.gradient_checkpointing_enable)
            enable({"use_reentrant": False})
        if config.compile:
            engine.llm.model.compile(dynamic=True)  # prompts differ in length

    def order(self, data: TrainingData, held_out: bool = False) -> WindowOrder:
        return WindowOrder(data.games(held_out), self.settings.window, self.settings.batch, self.settings.seed)

    def batch(self, data: TrainingData, rows: Tensor, place: Place, device: torch.device) -> Batch:
        states = _windows(data, "states", rows, device)
        prompts = [self._table.prompt(clips) for clips in rows.tolist()]
        return {
            "prompts": prompts,
            "past": self._history(data, states[:, :-1], rows[:, :-1], place),
            "states": states[:, -1],
            "answers": torch.stack([self._table.answer(prompt) for prompt in prompts]).to(device, non_blocking=True),
        }

    def _history(self, data: TrainingData, true_BKND: Tensor, rows: Tensor, place: Place) -> Tensor:
        """Past representations, some of them the engine's own, with noise of a strength drawn for each."""
        config, numbers = self.settings, self._random(true_BKND.device, place, "history")
        drawn = torch.rand(2, *true_BKND.shape[:2], 1, 1, generator=numbers, device=true_BKND.device)
        past = true_BKND
        if config.history_own and past.shape[1]:
            past = torch.where(drawn[0] < config.history_own, _windows(data, "predicted", rows, past.device), past)
        if config.history_noise:
            noise = torch.randn(past.shape, generator=numbers, device=past.device)
            past = past + config.history_noise * drawn[1] * noise
        return past

    def forward(self, batch: Batch) -> Losses:
        config = self.settings
        output = self.engine(batch["prompts"], list(batch["past"]), self._table.answers)
        logits_BAV = output.logits_BAV.float()
        answers = batch["answers"]
        entropy = F.cross_entropy(logits_BAV.flatten(0, 1), answers.flatten())
        states, wanted = output.states_BND.float(), batch["states"]
        parts = {"entropy": entropy, "mse": F.mse_loss(states, wanted), "cosine": cosine_error(states, wanted)}
        loss = config.cross_entropy * entropy + config.alpha * parts["mse"] + config.beta * parts["cosine"]
        right = (logits_BAV.argmax(-1) == answers)[:, list(self._table.choices)].float().mean(0)
        names = ("motion_right", "social_right", "entertainment_right", "stamina_right")
        return {"loss": loss, **parts, **dict(zip(names, right, strict=True))}


def _windows(data: TrainingData, name: str, rows_BK: Tensor, device: torch.device) -> Tensor:
    """(B, K, ...) fp32: a feature of every clip of some windows."""
    values = data.store.gather([name], rows_BK.flatten(), device)[name].float()
    return (
        values.unflatten(0, rows_BK.shape) if rows_BK.numel() else values.new_zeros(*rows_BK.shape, *values.shape[1:])
    )


def add_predictions(
    data: TrainingData, engine: GameEngine, window: int, free_running: bool = False, rows: int = 64
) -> TrainingData:
    """The engine's representation of every clip of a game, `predicted`, for decoder adaptation.

    Each turn is read with as many past turns as play would show. Their representations are the true ones, or with
    free_running those that the engine predicted before, as in a game. Clips of no game are predicted alone. Told states
    are the true ones.
    """
    engine.eval()
    home = "cpu" if data.cache else engine.project_in[0].weight.device
    predicted = cache(lambda: _predictions(data, engine, window, free_running, rows).to(home))
    digest = lambda: weights_digest(engine, window, free_running)  # noqa: E731
    return data.with_feature("predicted", lambda part: predicted()[part.start : part.stop], 1024, digest)


@torch.no_grad()
def _predictions(data: TrainingData, engine: GameEngine, window: int, free_running: bool, rows: int) -> Tensor:
    """(n, N, D), turn after turn of all games at once."""
    table = PromptTable(engine, data.folder.turns)
    device = engine.project_in[0].weight.device
    predicted = data.store.gather(["states"], torch.arange(len(data.folder.turns)), device)["states"].clone()
    past_states = predicted if free_running else predicted.clone()
    for runs in _by_turn(data, window):
        for part in runs.split(rows):
            prompts = [table.prompt(clips, answered=False) for clips in part.tolist()]
            with autocast(device):
                output = engine(prompts, list(past_states[part[:, :-1].to(device)].float()))
            predicted[part[:, -1].to(device)] = output.states_BND.to(predicted.dtype)
    return predicted


def _by_turn(data: TrainingData, window: int) -> list[Tensor]:
    """Runs (B, K + 1) of clips in the order in which games play them: all first turns, all second turns, ..."""
    played = {clip for game in data.folder.games for clip in game.clips}
    games = [game.clips for game in data.folder.games]
    games += [(clip,) for clip in range(len(data.folder.turns)) if clip not in played]
    return [
        torch.tensor([clips[max(0, turn - window) : turn + 1] for clips in games if turn < len(clips)])
        for turn in range(max(len(clips) for clips in games))
    ]
