"""Which samples a step reads, and its random numbers: pure functions of the seed and the step.

So a run that was stopped goes on exactly where it was, without storing the state of any random generator. Numbers are
drawn for a step's whole batch and each process takes its own, so another number of processes reads the same samples in
the same order with the same noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.records import GameRecord


def random_seed(*numbers: int | str) -> int:
    """A seed below 2^63 that follows from the numbers alone."""
    digest = hashlib.sha256(json.dumps(numbers).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(device: torch.device | str, *numbers: int | str) -> torch.Generator:
    """A generator on `device` whose numbers follow from `numbers` alone."""
    return torch.Generator(device).manual_seed(random_seed(*numbers))


@dataclass(frozen=True)
class Place:
    """Where in a run a batch is drawn: the step, this process among all, and the part of its share."""

    step: int
    rank: int = 0
    processes: int = 1
    part: int = 0
    parts: int = 1

    def rows(self, batch: Tensor) -> Tensor:
        """This place's slice of a step's batch."""
        return batch.chunk(self.processes * self.parts)[self.rank * self.parts + self.part]


class Draws:
    """Random numbers for the samples of one place in a run; `what` tells apart those of different uses."""

    def __init__(self, device: torch.device, seed: int, place: Place, count: int, what: str) -> None:
        self._place, self._device = place, device
        self.batch = count * place.processes * place.parts  # samples of the whole step; count of them are here
        self._numbers = generator(device, seed, place.step, what)

    def normal(self, *shape: int) -> Tensor:
        """(count, *shape) from the standard normal distribution."""
        return self._place.rows(torch.randn(self.batch, *shape, generator=self._numbers, device=self._device))

    def uniform(self, *shape: int) -> Tensor:
        """(count, *shape) from [0, 1)."""
        return self._place.rows(torch.rand(self.batch, *shape, generator=self._numbers, device=self._device))

    def own(self, values_B: Tensor) -> Tensor:
        """This place's share of values that the whole batch has."""
        return self._place.rows(values_B).to(self._device)


class ClipOrder:
    """Clips in a new random order each time round."""

    def __init__(self, clips: Sequence[int], batch: int, seed: int) -> None:
        self.clips, self.size, self.seed = torch.tensor(clips), batch, seed
        self._rounds: dict[int, Tensor] = {}

    def batch(self, step: int) -> Tensor:
        """(B,) clip indices of a step."""
        count = len(self.clips)
        at = torch.arange(step * self.size, (step + 1) * self.size)
        first, last = int(at[0]) // count, int(at[-1]) // count
        self._rounds = {number: self._round(number) for number in range(first, last + 1)}
        return torch.cat([self._rounds[number][at[at // count == number] % count] for number in self._rounds])

    def _round(self, number: int) -> Tensor:
        if number in self._rounds:
            return self._rounds[number]
        return self.clips[torch.randperm(len(self.clips), generator=generator("cpu", self.seed, "order", number))]


class WindowOrder:
    """Runs of 1 to window + 1 successive turns of a game. Those of a step have the same length; lengths take turns."""

    def __init__(self, games: Sequence[GameRecord], window: int, batch: int, seed: int) -> None:
        self.size, self.seed = batch, seed
        longest = min(window, max(len(game.clips) for game in games) - 1)
        self._runs = [_runs(games, past) for past in range(longest + 1)]

    def batch(self, step: int) -> Tensor:
        """(B, K + 1) clip indices of a step: K past turns, oldest first, and the turn to predict."""
        lengths = len(self._runs)
        turns = torch.randperm(lengths, generator=generator("cpu", self.seed, "lengths", step // lengths))
        runs = self._runs[int(turns[step % lengths])]
        chosen = torch.randint(len(runs), (self.size,), generator=generator("cpu", self.seed, "runs", step))
        return runs[chosen]


def _runs(games: Sequence[GameRecord], past: int) -> Tensor:
    """(R, past + 1): every run of past + 1 successive clips."""
    return torch.tensor([game.clips[end - past : end + 1] for game in games for end in range(past, len(game.clips))])
