"""One evaluation of a world: how much is measured, and the clips and games that several rows share.

M shots, N state tokens, D state width.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...game.recall import LAST_TURNS, Memory
from ...game.state import DEFAULT_WINDOW, GameState, Turn
from ...toybox.games import Game, opening_game, sample_game
from ...toybox.scenes import HEADS, labels_of
from ...toybox.world import MOTIONS, Scene, instruction
from .context import Clips, EvalContext, Script, TrueShots, play_games

SEED_SPAN = 1_000_000  # seeds of one evaluation; a dataset's held-out games use those from 0 on
GAME_OFFSET = 500_000


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    shots: held-out scenes decoded from their true representation, and as many for the motion row. true: true clips for
    the probes and the VAE. sweeps: states drawn at nine motion values. games: played games of `turns` turns. colours:
    at most so many shots for each window but the default one. unseen: games of two turns, for each kind of new scene.
    switches: games in which somebody else comes once. memory: games of 64 turns. long_game: turns of one more game.
    references: games of 10 turns, some of which refer back. conflicts: opening pictures that are described with another
    colour. steps: of the network that learns to tell shots from reconstructions.
    """

    shots: int = 10
    true: int = 24
    sweeps: int = 1
    games: int = 4
    turns: int = 10
    colours: int = 5
    unseen: int = 3
    switches: int = 4
    memory: int = 2
    long_game: int = 100
    references: int = 4
    conflicts: int = 4
    steps: int = 2

    def limited(self, games: int) -> Plan:
        """The plan for another number of games, with everything else in proportion."""
        if games < 1:
            raise ValueError(f"{games} games cannot be measured; expected 1 or more")
        part = games / self.games
        names = ("shots", "true", "sweeps", "colours", "unseen", "switches", "memory", "references", "conflicts")
        return replace(self, games=games, **{name: max(1, round(getattr(self, name) * part)) for name in names})


QUICK = Plan()
FULL = Plan(
    shots=400,
    true=400,
    sweeps=45,
    games=50,
    colours=10_000,
    unseen=200,
    switches=200,
    memory=50,
    long_game=2000,
    references=200,
    conflicts=240,
    steps=600,
)


@dataclass(frozen=True)
class ScriptedGames:
    """Games with their instructions. levels: the motion level of every scene, turn by turn."""

    games: tuple[Game, ...]
    scripts: tuple[Script, ...]
    levels: tuple[tuple[int, ...], ...]

    @property
    def all_turns(self) -> list[tuple[int, int]]:
        """(game, turn number) of every turn."""
        return [(game, turn) for game, row in enumerate(self.levels) for turn in range(1, len(row) + 1)]


@dataclass(frozen=True)
class PlayedGames:
    """Games that the engine played, and the shots of some of their turns.

    turns[i]: the played turns of game i. shots: (game, turn number) of each of `clips`.
    """

    scripted: ScriptedGames
    turns: tuple[tuple[Turn, ...], ...]
    shots: tuple[tuple[int, int], ...]
    clips: Clips

    @property
    def scenes(self) -> list[Scene]:
        return [self.scripted.games[game].scenes[number - 1] for game, number in self.shots]

    @property
    def levels(self) -> list[int]:
        return [self.scripted.levels[game][number - 1] for game, number in self.shots]

    @property
    def states(self) -> list[GameState]:
        return [self.turns[game][number - 1].state for game, number in self.shots]

    @property
    def changes_right(self) -> list[dict[str, bool]]:
        """For each shot and stat whether the predicted change is that of the scene's motion."""
        return [changes_right(scene, state) for scene, state in zip(self.scenes, self.states, strict=True)]

    def only(self, shots: Sequence[tuple[int, int]]) -> PlayedGames:
        """The same games with only these of their shots."""
        rows = [self.shots.index(shot) for shot in shots]
        return replace(self, shots=tuple(shots), clips=self.clips[rows])


def changes_right(scene: Scene, state: GameState) -> dict[str, bool]:
    """For each stat whether it changes as the scene's motion says."""
    return {stat: units == state.change[stat] for stat, units in MOTIONS[scene.motion].change.items()}


@dataclass(eq=False)
class EvalRun:
    """A world, a plan, and everything that more than one row needs, each made once."""

    context: EvalContext
    plan: Plan
    seed: int = 0

    @property
    def first(self) -> int:
        """The first seed of its games and shots."""
        return (self.seed + 1) * SEED_SPAN

    @cached_property
    def true(self) -> TrueShots:
        """True shots of held-out scenes, each from another game, spread over all turn numbers."""
        count = max(self.plan.true, self.plan.shots)
        games = (sample_game(self.first + index, split="heldout") for index in range(count))
        return self.context.draw([game.scenes[index % len(game.scenes)] for index, game in enumerate(games)])

    @cached_property
    def sources(self) -> TrueShots:
        """The true shots whose representations are decoded."""
        return self.true[: self.plan.shots]

    @cached_property
    def states(self) -> Tensor:
        """(M, N, D) true representations of `sources`."""
        return self.context.encode(self.sources)

    @cached_property
    def shots(self) -> Clips:
        """Shots decoded from the true representations at the measured motion values."""
        return self.context.shoot(self.states, self.sources.values, self.seeds(len(self.sources.scenes)))

    @cached_property
    def reconstructions(self) -> Clips:
        """The true clips through the VAE."""
        return self.context.reconstruct(self.true.clips)

    def right(self, clips: Clips, scenes: Sequence[Scene], present: Collection[str] = ()) -> dict[str, NDArray]:
        """For each head of the probes whether it recognises each scene; present: heads that may not answer "none"."""
        seen, truth = self.context.recognise(clips, present), labels_of(scenes)
        return {head: seen[head] == truth[head] for head in HEADS}

    @cached_property
    def scripted(self) -> ScriptedGames:
        """Held-out games; the second half opens with a picture."""
        first, half = self.first + GAME_OFFSET, (self.plan.games + 1) // 2
        options: dict[str, Any] = {"turns": self.plan.turns, "split": "heldout"}
        games = [sample_game(first + index, **options) for index in range(half)]
        return self.script(games + [opening_game(first + index, **options) for index in range(half, self.plan.games)])

    @cached_property
    def played(self) -> PlayedGames:
        """The scripted games played at the default window, with every turn drawn."""
        return self.play(self.scripted, DEFAULT_WINDOW, self.scripted.all_turns)

    def script(self, games: Sequence[Game]) -> ScriptedGames:
        """The games with their instructions. Adverbs follow the scenes' target motion: no true shots are drawn."""
        levels = [self.context.levels(np.array([scene.amplitude for scene in game.scenes])) for game in games]
        pictured = [game.opening for game in games if game.opening is not None]
        openings: Iterator[tuple[str, GameState]] = iter(())
        if pictured:
            shots = self.context.draw(pictured)
            openings = zip(shots.captions, map(GameState.of_picture, self.context.encode(shots)), strict=True)
        scripts = [
            Script(
                tuple(instruction(scene, level) for scene, level in zip(game.scenes, row, strict=True)),
                None if game.opening is None else next(openings),
            )
            for game, row in zip(games, levels, strict=True)
        ]
        return ScriptedGames(tuple(games), tuple(scripts), tuple(levels))

    def play(
        self, scripted: ScriptedGames, window: int, shots: Sequence[tuple[int, int]], memory: Memory = LAST_TURNS
    ) -> PlayedGames:
        """Play all games, and draw the shots of these (game, turn number) at their predicted motion scopes."""
        turns = tuple(play_games(self.context.engine, scripted.scripts, window, memory))
        clips = self.shoot_states([turns[game][number - 1].state for game, number in shots], GAME_OFFSET)
        return PlayedGames(scripted, turns, tuple(shots), clips)

    def shoot_states(self, states: Sequence[GameState], offset: int) -> Clips:
        """The shots of states with representations, at their motion scopes. offset: of the noise seeds."""
        values = [self.context.world.motion_table.value(state.motion) for state in states]
        return self.context.shoot([state.representation for state in states], values, self.seeds(len(states), offset))

    def seeds(self, count: int, offset: int = 0) -> range:
        """Noise seeds of `count` shots."""
        return range(self.first + offset, self.first + offset + count)
