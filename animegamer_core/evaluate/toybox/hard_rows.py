"""Rows for hard cases in a Toybox world: sharp shots at every motion, new scenes, words that refer back or far back."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...game.recall import MEMORIES, RECALL, Memory
from ...game.state import DEFAULT_WINDOW, GameState, MotionScope
from ...toybox.games import Game, sample_game, sparse_game
from ...toybox.probes import has_frame_probes
from ...toybox.referring import HEADS as REFERRED
from ...toybox.referring import chance
from ...toybox.scenes import labels_of
from ...toybox.world import COLOURS, Scene
from ..estimates import fraction, mean, psnr, sharpness
from ..report import Line, Outcome, Target
from .context import Clips, Script, TrueShots
from .run import EvalRun, PlayedGames, changes_right

LEVELS = tuple(int(level) for level in MotionScope)
RECONSTRUCTED = {5: 30.0}  # dB that reconstructions of a level should reach
RECONSTRUCTED_MEAN = 34.0  # dB, all levels together
LIKENESS = {1: 29.0, 2: 28.0, 3: 26.0}  # dB to the true clip that shots of a level should reach
SHARP = Target(0.95, 1.08)
LEGIBLE = 0.95  # of shots whose worst frame the probes should read
TRUSTED = 0.95  # of pictures whose colour should be drawn, whatever the words say
ON_FRAMES = ("character", "place", "time")  # what one frame shows
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
    lines = _by_level("VAE", true, run.reconstructions, RECONSTRUCTED, None)
    everything = mean([psnr(*pair) for pair in zip(run.reconstructions, true.clips, strict=True)])
    lines.append(Line("sharp", "VAE, all levels: PSNR", everything, Target(RECONSTRUCTED_MEAN), "dB"))
    lines += _by_level("shots", sources, run.shots, LIKENESS, SHARP)
    if not has_frame_probes(run.context.world.folder):
        return Outcome(lines, notes=("this world has no probes for single frames, so these rows are not measured",))
    shown, levels = _all_frames_right(run, run.shots, sources.scenes), np.array(sources.levels)
    for level, head in itertools.product(LEVELS, ON_FRAMES):
        right = fraction(shown[head][levels == level])
        lines.append(Line("sharp", f"worst frame, level {level}: {head}", right, Target(LEGIBLE)))
    for head, right in _all_frames_right(run, sources.clips, sources.scenes).items():
        lines.append(Line("sharp", f"worst frame of true clips: {head}", fraction(right)))
    return Outcome(lines)


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


def _all_frames_right(run: EvalRun, clips: Clips, scenes: Sequence[Scene]) -> dict[str, NDArray[np.bool_]]:
    seen, truth = run.context.recognise_frames(clips), labels_of(scenes)
    return {head: (seen[head] == truth[head][:, None]).all(axis=1) for head in ON_FRAMES}


def new_row(run: EvalRun) -> Outcome:
    """Games of two turns whose every scene is new in one way, next to games with nothing new; all played from text."""
    edition, lines = run.edition, []
    splits = {"nothing new": "heldout", **{f"new {split}": split for split in edition.new_splits}}
    for name, split in splits.items():
        numbers = range(run.first, run.first + run.plan.unseen)
        games = [sample_game(number, turns=NEW_TURNS, split=split, edition=edition) for number in numbers]
        scripted = run.script(games)
        played = run.play(scripted, DEFAULT_WINDOW, scripted.all_turns)
        right = run.right(played.clips, played.scenes)
        couples = [scene.partner is not None for scene in played.scenes]
        lines += [Line("new", f"{name}: {head}", fraction(right[head])) for head in ("character", "motion", "place")]
        lines.append(Line("new", f"{name}: partner, of shots with two", fraction(right["partner"][couples])))
        lines.append(_changes_line("new", f"{name}: ", played))
    return Outcome([line for line in lines if line.estimate.count])


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
    asked = [(game, turn) for game, turn in scripted.all_turns if games[game].scenes[turn - 1].refers is not None]
    lines = []
    for window in (DEFAULT_WINDOW, 0):
        played = run.play(scripted, window, asked)
        right = run.right(played.clips, played.scenes)
        for kind in edition.reference_kinds:
            rows = [scene.refers == kind for scene in played.scenes]
            guesses = [chance(scene, edition) for scene in played.scenes if scene.refers == kind]
            guess = float(np.mean(guesses)) if guesses else 0.0
            name = f"window {window}, {kind}: {' and '.join(REFERRED[kind])} (chance {guess:.0%})"
            found = np.all([right[head] for head in REFERRED[kind]], axis=0)
            lines.append(Line("references", name, fraction(found[np.array(rows, bool)])))
        lines.append(_changes_line("references", f"window {window}: ", played))
    return Outcome(lines)


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
        for source, scenes, target in sources:
            right = fraction(run.right(clips, scenes)["colour"])
            lines.append(Line("conflict", f"{name}: the colour of the {source}", right, target))
    return Outcome(lines)


def _in_another_colour(scene: Scene) -> Scene:
    """The scene with another colour of its prop, which the instruction names."""
    others = [name for name in COLOURS if name != scene.prop_colour]
    return replace(scene, prop_colour=random.Random(f"conflict:{scene.seed}").choice(others), prop_told=True)


def _changes_line(row: str, prefix: str, played: PlayedGames) -> Line:
    """The fraction of drawn turns all of whose stats change as the motion says."""
    right = fraction([all(changes.values()) for changes in played.changes_right])
    return Line(row, f"{prefix}state changes, all three right", right)


def memory_row(run: EvalRun) -> Outcome:
    """Games of 64 turns in which a prop is shown again after a near, a middle and a far distance; and a long game."""
    first, edition = run.first + MEMORY_OFFSET, run.edition
    shown = [shown_turns(first + index) for index in range(run.plan.memory)]
    games = [
        sparse_game(first + index, turns, turns=TURNS, split="heldout", edition=edition)
        for index, turns in enumerate(shown)
    ]
    scripted = run.script(games, [_levels(run, game) for game in games])
    asked = [(index, turn) for index, turns in enumerate(shown) for turn in turns[1:]]  # near to far in each game
    lines, recent = [], {}
    for kind in MEMORIES:
        played = run.play(scripted, DEFAULT_WINDOW, asked, Memory(kind))
        right = run.right(played.clips, played.scenes)
        for index, (low, high) in enumerate(DISTANCES):
            name = f"{kind}: colour of a prop that was last shown {low} to {high} turns before"
            target = Target(COLOUR_TARGET) if kind == RECALL else None
            lines.append(Line("memory", name, fraction(right["colour"][index :: len(DISTANCES)]), target))
        figures = {head: fraction(right[head]) for head in ("character", "place", "motion")}
        figures["state changes, all three right"] = fraction(
            [
                all(changes_right(scene, turn.state).values())
                for game, turns in zip(games, played.turns, strict=True)
                for scene, turn in zip(game.scenes, turns, strict=True)
            ]
        )
        for name, found in figures.items():
            # beside the colours, `recall` must not be worse than `recent`, which is played first
            target = Target(recent[name].value - LOSS) if kind == RECALL else None
            lines.append(Line("memory", f"{kind}: {name}", found, target))
        recent = figures
    return Outcome([*lines, _long_game_line(run)])


def shown_turns(seed: int) -> tuple[int, ...]:
    """The turns of a game that show its prop: the first describes it, the others follow at a distance of each kind."""
    draw = np.random.default_rng(seed)
    first = int(draw.integers(1, 3))
    near, middle = (int(draw.integers(low, high + 1)) for low, high in DISTANCES[:2])
    low, high = DISTANCES[2]
    far = int(draw.integers(low, min(high, TURNS - first - near - middle) + 1))
    return tuple(itertools.accumulate((first, near, middle, far)))


def _levels(run: EvalRun, game: Game) -> tuple[int, ...]:
    """The motion levels of a game's scenes by their target motion, since its thousands of shots are not drawn."""
    return run.context.levels(np.array([scene.amplitude for scene in game.scenes]))


def _long_game_line(run: EvalRun) -> Line:
    """One long game from a picture, whose prop is asked for every 100 turns."""
    turns = run.plan.long_game
    asked = tuple(range(ASKED_EVERY, turns + 1, ASKED_EVERY))
    seed = run.first + MEMORY_OFFSET
    game = sparse_game(seed, asked, turns=turns, split="heldout", opening=True, edition=run.edition)
    scripted = run.script([game], [_levels(run, game)])
    played = run.play(scripted, DEFAULT_WINDOW, [(0, turn) for turn in asked], Memory(RECALL))
    right = fraction(run.right(played.clips, played.scenes)["colour"])
    name = f"recall: colour of the opening's prop, every {ASKED_EVERY} of {turns} turns"
    return Line("memory", name, right, Target(COLOUR_TARGET))
