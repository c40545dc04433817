"""Rows for hard cases in a Toybox world: sharp shots at every motion, new scenes, words that refer back or far back."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from ...game.recall import MEMORIES, RECALL, Memory
from ...game.state import DEFAULT_WINDOW, GameState, MotionScope
from ...model.decoder import ShotDecoder
from ...model.engine import GameEngine
from ...story.player import Player, PlaySettings
from ...story.story import Story
from ...toybox.games import Game, sample_game, sparse_game
from ...toybox.probes import has_frame_probes
from ...toybox.referring import HEADS as REFERRED
from ...toybox.referring import chance
from ...toybox.scenes import HEADS, labels_of
from ...toybox.world import COLOURS, Scene, instruction
from ..estimates import fraction, mean, psnr, sharpness
from ..report import Line, Outcome, Target, strips
from .context import Clips, EvalContext, Script, TrueShots
from .run import EvalRun, PlayedGames, ScriptedGames, changes_right

LEVELS = tuple(int(level) for level in MotionScope)
RECONSTRUCTED = {5: 30.0}  # dB that reconstructions of a level should reach
RECONSTRUCTED_MEAN = 34.0  # dB, all levels together
LIKENESS = {1: 29.0, 2: 28.0, 3: 26.0}  # dB to the true clip that shots of a level should reach
SHARP = Target(0.95, 1.08)
LEGIBLE = 0.95  # of shots whose worst frame the probes should read
TRUSTED = 0.95  # of pictures whose colour should be drawn, whatever the words say
ON_FRAMES = ("character", "place", "time")  # what one frame shows
FAST, MOST_PICTURED = 4, 40  # number of shots of this level and above in a picture
NEW_TURNS, REFERRING_TURNS = 2, 10
DISTANCES = ((1, 4), (5, 15), (16, 60))  # turns since the prop was last shown
TURNS = 64
MEMORY_OFFSET = 700_000  # of the seeds of these games
ASKED_EVERY = 100  # turns of the long game
COLOUR_TARGET = 0.95
LOSS = 0.01  # of any other figure


def sharp_row(run: EvalRun) -> Outcome:
    """PSNR and sharpness by motion level, of the VAE and of shots drawn from the true representations; then what single
    frames of those shots show.

    Sharpness is the mean absolute difference of neighbouring pixels, as a fraction of the true clip's.
    """
    true, sources = run.true, run.sources
    rebuilt = _by_level("VAE", true, run.reconstructions, RECONSTRUCTED, None)
    everything = mean([psnr(*pair) for pair in zip(run.reconstructions, true.clips, strict=True)])
    lines = [*rebuilt, Line("sharp", "VAE, all levels: PSNR", everything, Target(RECONSTRUCTED_MEAN), "dB")]
    lines += _by_level("shots", sources, run.shots, LIKENESS, SHARP)
    fast = [clip for clip, level in zip(run.shots, sources.levels, strict=True) if level >= FAST][:MOST_PICTURED]
    half = (len(fast) + 1) // 2
    sheet = {"fast": strips([fast[:half], fast[half:]], (f"shots of level {FAST} and above", ""))} if fast else {}
    if not has_frame_probes(run.context.world.folder):
        return Outcome(
            tuple(lines), sheet, ("this world has no probes for single frames, so these rows are not measured",)
        )
    return Outcome((*lines, *_worst_frames(run)), sheet)


def _by_level(
    name: str, true: TrueShots, clips: Clips, likeness: Mapping[int, float], sharp: Target | None
) -> list[Line]:
    """PSNR and sharpness of clips against their true ones, a line for each level."""
    lines = []
    for level in LEVELS:
        rows = [row for row, found in enumerate(true.levels) if found == level]
        target = Target(likeness[level]) if level in likeness else None
        quality = mean([psnr(clips[row], true.clips[row]) for row in rows])
        detail = mean([sharpness(clips[row], true.clips[row]) for row in rows])
        lines.append(Line("sharp", f"{name}, level {level}: PSNR", quality, target, "dB"))
        lines.append(Line("sharp", f"{name}, level {level}: sharpness", detail, sharp, ""))
    return lines


def _worst_frames(run: EvalRun) -> list[Line]:
    """The fraction of shots whose every frame the probes read rightly, by level, and of true clips."""
    sources = run.sources
    shown, true = (_all_frames_right(run, clips, sources.scenes) for clips in (run.shots, sources.clips))
    levels = np.array(sources.levels)
    lines = [
        Line("sharp", f"worst frame, level {level}: {head}", fraction(shown[head][levels == level]), Target(LEGIBLE))
        for level in LEVELS
        for head in ON_FRAMES
    ]
    return lines + [Line("sharp", f"worst frame of true clips: {head}", fraction(true[head])) for head in ON_FRAMES]


def _all_frames_right(run: EvalRun, clips: Clips, scenes: Sequence[Scene]) -> dict[str, NDArray[np.bool_]]:
    seen, truth = run.context.recognise_frames(clips), labels_of(scenes)
    return {head: (seen[head] == truth[head][:, None]).all(axis=1) for head in ON_FRAMES}


def new_row(run: EvalRun) -> Outcome:
    """Games of two turns whose every scene is new in one way, next to games with nothing new; all played from text."""
    edition, lines, sheets = run.edition, [], []
    splits = {"nothing new": "heldout", **{f"new {split}": split for split in edition.new_splits}}
    for name, split in splits.items():
        numbers = range(run.first, run.first + run.plan.unseen)
        games = [sample_game(number, turns=NEW_TURNS, split=split, edition=edition) for number in numbers]
        scripted = run.script(games)
        played = run.play(scripted, DEFAULT_WINDOW, scripted.all_turns)
        seen, truth = run.context.recognise(played.clips), labels_of(played.scenes)
        right = {head: seen[head] == truth[head] for head in ("character", "partner", "motion", "place")}
        couples = np.array([scene.partner is not None for scene in played.scenes])
        lines += [Line("new", f"{name}: {head}", fraction(right[head])) for head in ("character", "motion", "place")]
        lines.append(Line("new", f"{name}: partner, of shots with two", fraction(right["partner"][couples])))
        lines.append(Line("new", f"{name}: state changes, all three right", fraction(_all_changes_right(played))))
        sheets.append(played.clips[:1])
    sheet = strips([np.concatenate(sheets)], (", ".join(splits),))
    return Outcome(tuple(line for line in lines if line.estimate.count), {"new": sheet})


def references_row(run: EvalRun) -> Outcome:
    """Turns whose instruction refers back, with the default window and with none.

    Each line is shown with the score of a uniform guess that knows the words and all rules of the training games.
    """
    edition = run.edition
    if not edition.references:
        return Outcome((), notes=(f"no instruction in the games of edition {edition.number} refers back",))
    numbers = range(run.first, run.first + run.plan.references)
    games = [sample_game(number, turns=REFERRING_TURNS, split="heldout", edition=edition) for number in numbers]
    scripted = run.script(games)
    asked = [
        (index, turn)
        for index, game in enumerate(games)
        for turn, scene in enumerate(game.scenes, start=1)
        if scene.refers is not None
    ]
    lines = []
    for window in (DEFAULT_WINDOW, 0):
        played = run.play(scripted, window, asked)
        seen, truth = run.context.recognise(played.clips), labels_of(played.scenes)
        for kind in edition.reference_kinds:
            rows = np.array([scene.refers == kind for scene in played.scenes], bool)
            right = np.all([seen[head] == truth[head] for head in REFERRED[kind]], axis=0)[rows]
            guess = _mean_chance([scene for scene in played.scenes if scene.refers == kind], run)
            name = f"window {window}, {kind}: {' and '.join(REFERRED[kind])} (chance {guess:.0%})"
            lines.append(Line("references", name, fraction(right)))
        changes = fraction(_all_changes_right(played))
        lines.append(Line("references", f"window {window}: state changes, all three right", changes))
    return Outcome(tuple(lines))


def conflict_row(run: EvalRun) -> Outcome:
    """Opening pictures whose prop has one colour in the picture and another in their instruction: which one is drawn.

    First the shot of the picture's own representation, which is encoded from both. Then that of the next turn, which
    shows the prop again and names no colour. A guess among six colours gives 17 % each.
    """
    seeds = range(run.first, run.first + run.plan.conflicts)
    games = [sparse_game(seed, (1,), turns=1, split="heldout", opening=True, edition=run.edition) for seed in seeds]
    pictured = run.context.draw([game.opening for game in games if game.opening is not None])
    described = replace(pictured, scenes=tuple(map(_in_another_colour, pictured.scenes)))
    states = run.context.encode(described)
    drawn = run.context.shoot(states, described.values, run.seeds(len(states)))
    scripted = run.script([replace(game, opening=None) for game in games])
    scripts = [
        Script(script.instructions, (caption, GameState.of_picture(state)))
        for script, caption, state in zip(scripted.scripts, described.captions, states, strict=True)
    ]
    played = run.play(replace(scripted, scripts=tuple(scripts)), DEFAULT_WINDOW, scripted.all_turns)
    lines = []
    sources = (("picture", pictured.scenes, Target(TRUSTED)), ("words", described.scenes, None))
    for name, clips in {"the picture's own shot": drawn, "the next turn": played.clips}.items():
        seen = run.context.recognise(clips)["colour"]
        for source, scenes, target in sources:
            right = fraction(seen == labels_of(scenes)["colour"])
            lines.append(Line("conflict", f"{name}: the colour of the {source}", right, target))
    return Outcome(tuple(lines))


def _in_another_colour(scene: Scene) -> Scene:
    """The scene with another colour of its prop, which the instruction names."""
    others = [name for name in COLOURS if name != scene.prop_colour]
    return replace(scene, prop_colour=random.Random(f"conflict:{scene.seed}").choice(others), prop_told=True)


def _mean_chance(scenes: Sequence[Scene], run: EvalRun) -> float:
    return float(np.mean([chance(scene, run.edition) for scene in scenes])) if scenes else 0.0


def _all_changes_right(played: PlayedGames) -> list[bool]:
    """Whether all stats of each drawn turn change as its motion says."""
    drawn = zip(played.scenes, played.states, strict=True)
    return [all(changes_right(scene, state).values()) for scene, state in drawn]


def memory_row(run: EvalRun) -> Outcome:
    """Games of 64 turns in which a prop is shown again after a near, a middle and a far distance; and a long game."""
    scripted, asked = _script(run)
    played = {kind: run.play(scripted, DEFAULT_WINDOW, asked, Memory(kind)) for kind in MEMORIES}
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
        seed = run.first + MEMORY_OFFSET + index
        shown = shown_turns(seed)
        games.append(sparse_game(seed, shown, turns=TURNS, split="heldout", edition=run.edition))
        asked += [(index, turn) for turn in shown[1:]]
    levels = tuple(_target_levels(run.context, game) for game in games)
    return ScriptedGames(tuple(games), tuple(map(_script_of, games, levels)), levels), asked


def shown_turns(seed: int) -> tuple[int, ...]:
    """The turns of a game that show its prop: the first describes it, the others follow at a distance of each kind."""
    draw = np.random.default_rng(seed)
    first = int(draw.integers(1, 3))
    near, middle = (int(draw.integers(low, high + 1)) for low, high in DISTANCES[:2])
    low, high = DISTANCES[2]
    far = int(draw.integers(low, min(high, TURNS - first - near - middle) + 1))
    return tuple(itertools.accumulate((first, near, middle, far)))


def _target_levels(context: EvalContext, game: Game) -> tuple[int, ...]:
    """The motion levels of a game's scenes by their target motion, since its thousands of shots are not drawn."""
    return tuple(context.levels(np.array([scene.amplitude for scene in game.scenes])))


def _script_of(game: Game, levels: Sequence[int]) -> Script:
    return Script(tuple(instruction(scene, level) for scene, level in zip(game.scenes, levels, strict=True)))


def _right_changes(played: PlayedGames) -> list[bool]:
    """Whether all stats change as its motion says, for every turn of every game."""
    return [
        all(changes_right(scene, turn.state).values())
        for game, turns in zip(played.scripted.games, played.turns, strict=True)
        for scene, turn in zip(game.scenes, turns, strict=True)
    ]


def _long_game_lines(run: EvalRun) -> list[Line]:
    """One long game from a picture, whose prop is asked for every 100 turns; its story is saved, as in play."""
    turns = run.plan.long_game
    asked = tuple(range(ASKED_EVERY, turns + 1, ASKED_EVERY))
    game = sparse_game(
        run.first + MEMORY_OFFSET, asked, turns=turns, split="heldout", opening=True, edition=run.edition
    )
    states, seconds = _long_game(run, game, asked)
    values = [run.context.world.motion_table.value(state.motion) for state in states]
    clips = run.context.shoot([state.representation for state in states], values, run.seeds(len(states), MEMORY_OFFSET))
    truth = labels_of([game.scenes[turn - 1] for turn in asked])["colour"]
    name = f"recall: colour of the opening's prop, every {ASKED_EVERY} of {turns} turns"
    ratio = float(np.median(seconds[-ASKED_EVERY:]) / np.median(seconds[:ASKED_EVERY]))
    return [
        Line("memory", name, fraction(run.context.recognise(clips)["colour"] == truth), Target(COLOUR_TARGET)),
        Line("memory", f"a turn's time, last {ASKED_EVERY} / first {ASKED_EVERY}", mean([ratio]), unit=""),
    ]


def _long_game(run: EvalRun, game: Game, asked: Sequence[int]) -> tuple[list[GameState], list[float]]:
    """The states of the turns that ask for the prop, and the processor seconds of every turn."""
    context, states, seconds = run.context, [], []
    script = _script_of(game, _target_levels(context, game))
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


class _ContextModels:
    """The context's models, for a player."""

    precision = "float32"

    def __init__(self, context: EvalContext) -> None:
        self._context = context

    def engine(self) -> GameEngine:
        return self._context.engine

    def decoder(self) -> ShotDecoder:
        return self._context.decoder
