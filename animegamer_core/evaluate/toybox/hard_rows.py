"""Rows for hard cases in a Toybox world: sharp shots at every motion, new scenes, words that refer back."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...state import DEFAULT_WINDOW, GameState, MotionScope
from ...toybox.games import sample_game, sparse_game
from ...toybox.probes import has_frame_probes
from ...toybox.referring import HEADS as REFERRED
from ...toybox.referring import chance
from ...toybox.scenes import labels_of
from ...toybox.world import COLOURS, Scene
from ..estimates import Estimate, fraction, mean, psnr, sharpness
from ..report import Line, Outcome, Target, strips
from .batched_play import Script
from .context import Clips, TrueShots
from .run import EvalRun, PlayedGames, changes_right

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
    """Whether all three stats of each drawn turn change as its motion says."""
    drawn = zip(played.scenes, played.states, strict=True)
    return [all(changes_right(scene, state).values()) for scene, state in drawn]


def motion_lines(run: EvalRun, own: Sequence[Estimate], uncalibrated: Sequence[Estimate]) -> list[Line]:
    """ACC-F and MAE-F with and without calibration; from edition 2 on, those without come first and have the targets.

    own, uncalibrated: (ACC-F, MAE-F).
    """
    goals = (("ACC-F", Target(0.73), ""), ("MAE-F", Target(high=0.40), "levels"))
    hard = run.edition.number > 1
    bare = [
        Line("motion", f"{name}, uncalibrated", found, target if hard else None, unit)
        for found, (name, target, unit) in zip(uncalibrated, goals, strict=True)
    ]
    fitted = [
        Line("motion", name, found, None if hard else target, unit)
        for found, (name, target, unit) in zip(own, goals, strict=True)
    ]
    return [*bare, *fitted] if hard else [*fitted, *bare]
