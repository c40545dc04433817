"""One evaluation of a world: how much is measured, and what the rows share, made once.

M shots, N state tokens, D state width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from ...state import DEFAULT_WINDOW, GameState, MotionTable, Turn
from ...toybox.calibrate import uncalibrated_table
from ...toybox.games import Game, opening_game, sample_game
from ...toybox.world import Scene, instruction
from .lab import Clips, Lab, TrueShots
from .lockstep import Script, play_games

SEED_SPAN = 1_000_000  # seeds of one evaluation; a dataset's own held-out games count from 0
GAME_OFFSET = 500_000


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    shots: held-out scenes decoded from their true representation, and as many asked for a level. true: true clips for
    the probes and the VAE. sweeps: states drawn at nine motion values. games: of `turns` turns. colours: at most so
    many shots for each further window. unseen: games of two turns.
    """

    shots: int = 10
    true: int = 24
    sweeps: int = 1
    games: int = 4
    turns: int = 10
    colours: int = 5
    unseen: int = 3

    def limited(self, games: int) -> Plan:
        """The plan for another number of games, everything else in proportion."""
        if games < 1:
            raise ValueError(f"--limit is {games}; an evaluation plays 1 game or more")
        part = games / self.games
        names = ("shots", "true", "sweeps", "colours", "unseen")
        return replace(self, games=games, **{name: max(1, round(getattr(self, name) * part)) for name in names})


QUICK = Plan()
FULL = Plan(shots=400, true=400, sweeps=45, games=50, colours=10_000, unseen=60)


def asked_plan(device: str, full: bool, limit: int | None, seed: int) -> Plan:
    """How much is measured: everything on a GPU or if `full`, in proportion to `limit` games where that is given.

    ValueError: a seed or a limit that is none.
    """
    if seed < 0:
        raise ValueError(f"--seed is {seed}; seeds count from 0, training has the numbers below")
    plan = FULL if full or device.startswith("cuda") else QUICK
    return plan if limit is None else plan.limited(limit)


@dataclass(frozen=True)
class ScriptedGames:
    """Games and what a player types in them; levels: the measured motion level of every true shot, turn by turn."""

    games: tuple[Game, ...]
    scripts: tuple[Script, ...]
    levels: tuple[tuple[int, ...], ...]

    @property
    def all_turns(self) -> list[tuple[int, int]]:
        """(game, turn number) of every turn."""
        return [(game, turn) for game, row in enumerate(self.levels) for turn in range(1, len(row) + 1)]


@dataclass(frozen=True)
class PlayedGames:
    """What the engine made of games, and some of its turns as shots.

    turns[i]: the turns that game i played. shots: (game, turn number) of each of `clips`.
    """

    scripted: ScriptedGames
    turns: tuple[tuple[Turn, ...], ...]
    shots: tuple[tuple[int, int], ...]
    clips: Clips

    @property
    def scenes(self) -> tuple[Scene, ...]:
        """The true scene of each shot."""
        return tuple(self.scripted.games[game].scenes[number - 1] for game, number in self.shots)

    @property
    def levels(self) -> tuple[int, ...]:
        """The true motion level of each shot."""
        return tuple(self.scripted.levels[game][number - 1] for game, number in self.shots)

    @property
    def states(self) -> tuple[GameState, ...]:
        """The predicted state of each shot."""
        return tuple(self.turns[game][number - 1].state for game, number in self.shots)

    def only(self, shots: Sequence[tuple[int, int]]) -> PlayedGames:
        """The same games with only these of their shots."""
        rows = [self.shots.index(shot) for shot in shots]
        return replace(self, shots=tuple(shots), clips=self.clips[rows])


class Trial:
    """A world in the lab and a plan, with everything that more than one row needs made once."""

    def __init__(self, lab: Lab, plan: Plan, seed: int = 0) -> None:
        self.lab = lab
        self.plan = plan
        self.seed = seed
        self.first = (seed + 1) * SEED_SPAN

    @cached_property
    def true(self) -> TrueShots:
        """True shots of held-out scenes, each of another game, at all turns of a game."""
        count = max(self.plan.true, self.plan.shots)
        games = (sample_game(self.first + index, split="heldout") for index in range(count))
        return self.lab.draw([game.scenes[index % len(game.scenes)] for index, game in enumerate(games)])

    @cached_property
    def told(self) -> TrueShots:
        """Those of the true shots whose representation is decoded."""
        return self.true[: self.plan.shots]

    @cached_property
    def states(self) -> Tensor:
        """(M, N, D) true representations of `told`."""
        return self.lab.encode(self.told)

    @cached_property
    def shots(self) -> Clips:
        """Shots decoded from the true representations at the measured motion values."""
        return self.lab.shoot(self.states, self.told.values, self.seeds(len(self.told.scenes)))

    @property
    def asked(self) -> tuple[int, ...]:
        """All five motion levels in turn, one for each of `told`."""
        return tuple(1 + index % 5 for index in range(len(self.told.scenes)))

    @cached_property
    def answers(self) -> tuple[int, ...]:
        """The level measured on each of as many shots, drawn at the world's motion value of the level asked for."""
        return self._answers(self.lab.world.motion_table)

    @cached_property
    def uncalibrated(self) -> MotionTable | None:
        """The world's motion table as it was before calibration; None where that is not known."""
        return uncalibrated_table(self.lab.world)

    @cached_property
    def uncalibrated_answers(self) -> tuple[int, ...]:
        """As `answers`, drawn without calibration; empty where the values are not known."""
        table = self.uncalibrated
        if table is None or table == self.lab.world.motion_table:
            return () if table is None else self.answers
        return self._answers(table)

    def _answers(self, table: MotionTable) -> tuple[int, ...]:
        values = [table.value(level) for level in self.asked]
        return self.lab.levels(self.lab.measure(self.lab.shoot(self.states, values, self.seeds(len(values)))))

    def drawn_by(self, lab: Lab) -> Trial:
        """The same scenes and states, drawn by another lab."""
        other = Trial(lab, self.plan, self.seed)
        other.true, other.states = self.true, self.states
        return other

    @cached_property
    def rebuilt(self) -> Clips:
        """The true clips through the VAE."""
        return self.lab.rebuild(self.true.clips)

    @cached_property
    def scripted(self) -> ScriptedGames:
        """Held-out games; the second half opens with a picture."""
        numbers = range(self.first + GAME_OFFSET, self.first + GAME_OFFSET + self.plan.games)
        half = (self.plan.games + 1) // 2
        games = [sample_game(number, turns=self.plan.turns, split="heldout") for number in numbers[:half]]
        games += [opening_game(number, turns=self.plan.turns, split="heldout") for number in numbers[half:]]
        return self.script(games)

    @cached_property
    def played(self) -> PlayedGames:
        """Those games at the default window, every turn drawn."""
        return self.play(self.scripted, DEFAULT_WINDOW, self.scripted.all_turns)

    def script(self, games: Sequence[Game]) -> ScriptedGames:
        """The games with their instructions, whose adverbs follow the measured level of each true shot."""
        measured = iter(self.lab.draw([scene for game in games for scene in game.scenes]).levels)
        levels = tuple(tuple(next(measured) for _ in game.scenes) for game in games)
        openings = iter(self._openings([game.opening for game in games if game.opening is not None]))
        scripts = tuple(
            Script(
                tuple(instruction(scene, level) for scene, level in zip(game.scenes, row, strict=True)),
                None if game.opening is None else next(openings),
            )
            for game, row in zip(games, levels, strict=True)
        )
        return ScriptedGames(tuple(games), scripts, levels)

    def _openings(self, scenes: Sequence[Scene]) -> list[tuple[str, GameState]]:
        """Each picture's instruction, which tells no colour, and its encoded state."""
        if not scenes:
            return []
        shots = self.lab.draw(scenes)
        states = (GameState.of_picture(state_ND) for state_ND in self.lab.encode(shots))
        return list(zip(shots.instructions, states, strict=True))

    def play(self, scripted: ScriptedGames, window: int, shots: Sequence[tuple[int, int]]) -> PlayedGames:
        """Play all games and draw the shots of these (game, turn number) at their predicted motion scopes' values."""
        turns = tuple(play_games(self.lab.engine, scripted.scripts, window))
        states = [turns[game][number - 1].state for game, number in shots]
        values = [self.lab.world.motion_table.value(state.motion) for state in states]
        seeds = self.seeds(len(shots), GAME_OFFSET)
        clips = self.lab.shoot([state.representation for state in states], values, seeds)
        return PlayedGames(scripted, turns, tuple(shots), clips)

    def seeds(self, count: int, offset: int = 0) -> range:
        """Noise seeds of `count` shots."""
        return range(self.first + offset, self.first + offset + count)
