"""The row `memory`: a prop's colour long after it was described, with memory `recall` next to `recent`.

Instructions get their adverbs from the scenes' target motion, since the thousands of turns in between are not drawn.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory

import numpy as np

from ...model.decoder import ShotDecoder
from ...model.engine import GameEngine
from ...recall import MEMORIES, RECALL, Memory
from ...state import DEFAULT_WINDOW, GameState
from ...story.player import Player, PlaySettings
from ...story.story import Story
from ...toybox.games import Game, sparse_game
from ...toybox.scenes import HEADS, labels_of
from ...toybox.world import Scene, instruction
from ..estimates import fraction, mean
from ..report import Line, Outcome, Target
from .batched_play import Script
from .context import Clips, EvalContext
from .run import EvalRun, PlayedGames, ScriptedGames, changes_right

DISTANCES = ((1, 4), (5, 15), (16, 60))  # turns since the prop was last shown
TURNS = 64
GAME_OFFSET = 700_000  # of the seeds of these games
ASKED_EVERY = 100  # turns of the long game
COLOUR_TARGET = 0.95
LOSS = 0.01  # of any other figure


def memory_row(run: EvalRun) -> Outcome:
    """Games of 64 turns in which a prop is shown again after a near, a middle and a far distance; and a long game."""
    scripted, asked = _script(run)
    played = {kind: _play(run, scripted, asked, kind) for kind in MEMORIES}
    lines = []
    for kind, shots in played.items():
        seen, truth = run.context.recognise(shots.clips), labels_of(shots.scenes)
        right = {head: seen[head] == truth[head] for head in HEADS}
        for index, (low, high) in enumerate(DISTANCES):
            name = f"{kind}: colour of a prop that was last shown {low} to {high} turns before"
            target = Target(COLOUR_TARGET) if kind == RECALL else None
            lines.append(Line("memory", name, fraction(right["colour"][index :: len(DISTANCES)]), target))
        figures = {head: fraction(right[head]) for head in ("character", "place", "motion")}
        figures["state changes, all three right"] = fraction(_right_changes(shots))
        lines += [Line("memory", f"{kind}: {name}", estimate) for name, estimate in figures.items()]
    return Outcome((*_with_targets(lines), *_long_game_lines(run)))


def _with_targets(lines: Sequence[Line]) -> list[Line]:
    """The lines; with `recall`, all except the colours must not be worse than with `recent`."""
    known = {line.name: line.estimate.value for line in lines}
    return [
        line
        if line.target is not None or not line.name.startswith(RECALL)
        else Line(line.row, line.name, line.estimate, Target(known["recent" + line.name.removeprefix(RECALL)] - LOSS))
        for line in lines
    ]


def _script(run: EvalRun) -> tuple[ScriptedGames, list[tuple[int, int]]]:
    """Held-out games with their instructions, and (game, turn) of the shots to look at, near to far in each game."""
    games, asked = [], []
    for index in range(run.plan.memory):
        seed = run.first + GAME_OFFSET + index
        shown = shown_turns(seed)
        games.append(sparse_game(seed, shown, turns=TURNS, split="heldout", edition=run.edition))
        asked += [(index, turn) for turn in shown[1:]]
    levels = tuple(tuple(_levels(run.context, game.scenes)) for game in games)
    return ScriptedGames(tuple(games), tuple(map(_script_of, games, levels)), levels), asked


def shown_turns(seed: int) -> tuple[int, ...]:
    """The turns of a game that show its prop: the first describes it, the others follow at a distance of each kind."""
    draw = np.random.default_rng(seed)
    first = int(draw.integers(1, 3))
    near, middle = (int(draw.integers(low, high + 1)) for low, high in DISTANCES[:2])
    low, high = DISTANCES[2]
    far = int(draw.integers(low, min(high, TURNS - first - near - middle) + 1))
    return tuple(itertools.accumulate((first, near, middle, far)))


def _levels(context: EvalContext, scenes: Sequence[Scene]) -> list[int]:
    return [int(context.world.motion_table.level(scene.amplitude)) for scene in scenes]


def _script_of(game: Game, levels: Sequence[int]) -> Script:
    return Script(tuple(instruction(scene, level) for scene, level in zip(game.scenes, levels, strict=True)))


def _play(run: EvalRun, scripted: ScriptedGames, asked: Sequence[tuple[int, int]], kind: str) -> PlayedGames:
    return run.play(scripted, DEFAULT_WINDOW, asked, Memory(kind))


def _right_changes(played: PlayedGames) -> list[bool]:
    """Whether all three stats of a turn change as its motion says, for every turn of every game."""
    return [
        all(changes_right(scene, turn.state).values())
        for game, turns in zip(played.scripted.games, played.turns, strict=True)
        for scene, turn in zip(game.scenes, turns, strict=True)
    ]


def _long_game_lines(run: EvalRun) -> list[Line]:
    """One long game from a picture, whose prop is asked for every 100 turns; its story is saved, as in play."""
    turns = run.plan.long_game
    asked = tuple(range(ASKED_EVERY, turns + 1, ASKED_EVERY))
    game = sparse_game(run.first + GAME_OFFSET, asked, turns=turns, split="heldout", opening=True, edition=run.edition)
    states, seconds = _long_game(run, game, asked)
    values = [run.context.world.motion_table.value(state.motion) for state in states]
    clips = run.context.shoot([state.representation for state in states], values, run.seeds(len(states), GAME_OFFSET))
    colours = _colours_right(run.context, clips, [game.scenes[turn - 1] for turn in asked])
    name = f"recall: colour of the opening's prop, every {ASKED_EVERY} of {turns} turns"
    ratio = float(np.median(seconds[-ASKED_EVERY:]) / np.median(seconds[:ASKED_EVERY]))
    return [
        Line("memory", name, fraction(colours), Target(COLOUR_TARGET)),
        Line("memory", f"a turn's time, last {ASKED_EVERY} / first {ASKED_EVERY}", mean([ratio]), unit=""),
    ]


def _long_game(run: EvalRun, game: Game, asked: Sequence[int]) -> tuple[list[GameState], list[float]]:
    """The states of the turns that ask for the prop, and the processor seconds of every turn."""
    context, states, seconds = run.context, [], []
    script = _script_of(game, _levels(context, game.scenes))
    opening = Script((), run.opening_of(game)).session(DEFAULT_WINDOW)
    with TemporaryDirectory() as folder:
        story = Story.open(folder, "long", context.world.spec.name, context.world.fingerprint)
        settings = PlaySettings(window=DEFAULT_WINDOW, memory=Memory(RECALL))
        player = Player(context.world, story, settings, models=_ContextModels(context), opening=opening)
        for number, text in enumerate(script.instructions, start=1):
            begun = time.process_time()
            turn = player.step(text, draw=False).turn
            seconds.append(time.process_time() - begun)
            states += [turn.state] if number in asked else []
            context.on_progress("turns of the long game", number, len(game.scenes))
    return states, seconds


def _colours_right(context: EvalContext, clips: Clips, scenes: Sequence[Scene]) -> list[bool]:
    return list(context.recognise(clips)["colour"] == labels_of(scenes)["colour"])


class _ContextModels:
    """The context's models, for a player."""

    precision = "float32"

    def __init__(self, context: EvalContext) -> None:
        self._context = context

    def engine(self) -> GameEngine:
        return self._context.engine

    def decoder(self) -> ShotDecoder:
        return self._context.decoder
