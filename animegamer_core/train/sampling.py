"""The samples that a step reads and its random numbers, as pure functions of the seed and the step.

So a stopped run continues with the same numbers, without storing the state of random generators. Numbers are drawn for
a step's whole batch, and each process takes its part, so that any number of processes reads the same samples in the
same order with the same noise.
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
    """A seed below 2^63 that depends only on these values."""
    digest = hashlib.sha256(json.dumps(numbers).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(device: torch.device | str, *numbers: int | str) -> torch.Generator:
    """A generator on `device` whose numbers depend only on `numbers`."""
    return torch.Generator(device).manual_seed(random_seed(*numbers))


@dataclass(frozen=True)
class MicroBatch:
    """A slice of a step's batch: number `index` of the `count` slices of process `rank`."""

    step: int
    rank: int = 0
    processes: int = 1
    index: int = 0
    count: int = 1

    def rows(self, batch: Tensor) -> Tensor:
        """This slice of a step's batch."""
        return batch.chunk(self.processes * self.count)[self.rank * self.count + self.index]


class SampleNoise:
    """Random numbers for the samples of a micro-batch; different purposes get different numbers."""

    def __init__(self, device: torch.device, seed: int, micro: MicroBatch, samples: int, purpose: str) -> None:
        self._micro, self._device = micro, device
        self.batch = samples * micro.processes * micro.count  # samples of the whole step
        self._generator = generator(device, seed, micro.step, purpose)

    def normal(self, *shape: int) -> Tensor:
        """(samples, *shape) from the standard normal distribution."""
        return self._micro.rows(torch.randn(self.batch, *shape, generator=self._generator, device=self._device))

    def uniform(self, *shape: int) -> Tensor:
        """(samples, *shape) from [0, 1)."""
        return self._micro.rows(torch.rand(self.batch, *shape, generator=self._generator, device=self._device))

    def rows(self, values_B: Tensor) -> Tensor:
        """This micro-batch's slice of the whole batch's values, on the device."""
        return self._micro.rows(values_B).to(self._device)


class ClipSampler:
    """Reads all clips once per epoch, in a new random order each time."""

    def __init__(self, clips: Sequence[int], batch: int, seed: int) -> None:
        self.clips, self.size, self.seed = torch.tensor(clips), batch, seed
        self._epochs: dict[int, Tensor] = {}

    def batch(self, step: int) -> Tensor:
        """(B,) clip indices of a step."""
        count = len(self.clips)
        at = torch.arange(step * self.size, (step + 1) * self.size)
        first, last = int(at[0]) // count, int(at[-1]) // count
        for number in {*range(first, last + 1)} - {*self._epochs}:
            order = torch.randperm(count, generator=generator("cpu", self.seed, "order", number))
            self._epochs[number] = self.clips[order]
        self._epochs = {number: self._epochs[number] for number in range(first, last + 1)}
        return torch.cat([self._epochs[number][at[at // count == number] % count] for number in self._epochs])


class WindowSampler:
    """Windows of 1 to window + 1 successive turns of a game. All windows of a step have the same length.

    The lengths take turns, in random order. recall: the probability that the oldest one or two past turns of
    a window are replaced by earlier turns of the game, as in play with memory `recall`.
    """

    def __init__(self, games: Sequence[GameRecord], window: int, batch: int, seed: int, recall: float = 0.0) -> None:
        self.size, self.seed, self.recall = batch, seed, recall
        self._games = [game.clips for game in games]
        self.lengths = min(window, max(map(len, self._games)) - 1) + 1
        self._ends = [
            [(game, end) for game, clips in enumerate(self._games) for end in range(past, len(clips))]
            for past in range(self.lengths)
        ]

    def batch(self, step: int) -> Tensor:
        """(B, K + 1) clip indices of a step: K past turns, oldest first, and the turn to predict."""
        turns = torch.randperm(self.lengths, generator=generator("cpu", self.seed, "lengths", step // self.lengths))
        past = int(turns[step % self.lengths])
        ends = self._ends[past]
        chosen = torch.randint(len(ends), (self.size,), generator=generator("cpu", self.seed, "runs", step))
        random = generator("cpu", self.seed, "recall", step)
        found = (ends[index] for index in chosen.tolist())
        return torch.tensor([self._window(game, end, past, random) for game, end in found])

    def _window(self, game: int, end: int, past: int, random: torch.Generator) -> list[int]:
        """The clips of a window that ends at turn `end` (from 0) of a game."""
        clips = self._games[game]
        if self.recall and past > 1 and float(torch.rand((), generator=random)) < self.recall:
            count = min(past - 1, int(torch.randint(1, 3, (), generator=random)))  # the last turn is never replaced
            earlier = torch.randperm(end - past + count, generator=random)[:count].sort().values
            return [*(clips[turn] for turn in earlier.tolist()), *clips[end - past + count : end + 1]]
        return list(clips[end - past : end + 1])
