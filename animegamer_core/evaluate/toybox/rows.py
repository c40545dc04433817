"""The rows of the Toybox's acceptance table: what the embedded world must reach on games that it never saw.

A row is a function of an `EvalRun`; to add one, write a function and list it in ROWS.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from ...data.workers import parallel_map
from ...game.recall import MEMORIES, RECALL, Memory
from ...game.state import DEFAULT_WINDOW, GameState, MotionScope, MotionTable
from ...media.contact_sheet import contact_sheet, strips
from ...runtime.presets import PRESETS, preset_for_device
from ...spec import UNSTATED
from ...toybox.calibration import calibration_remark, uncalibrated_table
from ...toybox.drawing.draw import draw_frame
from ...toybox.games import Game, sample_game, sparse_game
from ...toybox.probes import ChanceCheck, noise_check, read_card
from ...toybox.referring import HEADS as REFERRED
from ...toybox.referring import chance
from ...toybox.scenes import HEADS, figure_boxes, labels_of
from ...toybox.splits import NOVELTIES
from ...toybox.world import AMPLITUDES, CHARACTERS, COLOURS, REFERENCES, Scene
from ..estimates import (
    Estimate,
    chance_above,
    fraction,
    likeness,
    mean,
    motion_accuracy,
    motion_error,
    psnr,
    rank_correlation,
)
from ..report import Line, Outcome, Report, Target, machine
from .context import Script
from .run import FULL, EvalRun, PlayedGames, changes_right
from .two_sample import scores_of_unseen

SWEEP = 9  # motion values that each state is drawn at
WINDOWS = (DEFAULT_WINDOW, 2, 0)  # windows at which a prop's colour is checked
PICTURED = 8  # scenes in a comparison picture
LONGEST_REASON = 500  # characters of the reason why a row could not be measured
SCORED = ("character", "place", "time", "motion")  # heads that the table has targets for
LEVELS = tuple(int(level) for level in MotionScope)
QUALITY = {1: 29.0, 2: 28.0, 3: 26.0}  # dB to the true clip that shots of a level should reach
ALIKE = {1: 0.94, 2: 0.94, 3: 0.92, 4: 0.89, 5: 0.85}  # how alike the figures of a level should be
WORST = {1: 0.90, 2: 0.90, 3: 0.87, 4: 0.83, 5: 0.76}
TRUSTED = 0.95  # of pictures whose colour should be drawn, whatever the words say
NEW = {  # what should be right in scenes that are new in one way
    "motion": {"character": 0.95},
    "couple": {"character": 0.97, "partner": 0.92},
    "partner": {"character": 0.95, "partner": 0.90},
}
NEW_TURNS, REFERRING_TURNS = 2, 10
ALL_RIGHT = 0.9  # of turns all of whose parts should be right
SWITCHED = 0.97  # of shots that should show a character who comes back, or is named after turns of another
LONGEST_TURN = 8  # turns of one character before another comes
TAKES = 0.7  # of the difference of two true clips, that of two takes
TAKES_OFFSET = 600_000  # of the seeds of second takes
SAME_SPLIT = 4  # a step from a scene's seed to another of its split
DISTANCES = ((1, 4), (5, 15), (16, 60))  # turns since the prop was last shown
TURNS = 64
MEMORY_OFFSET = 700_000  # of the seeds of these games
ASKED_EVERY = 100  # turns of the long game
COLOUR_TARGET = 0.95
LOSS = 0.01  # of any other figure


def probes_row(run: EvalRun) -> Outcome:
    """The probes: nearly perfect on true held-out clips, at chance on noise and with shuffled labels."""
    right = run.right(run.true.clips, run.true.scenes)
    lines = _recognised("probes", "true clips: ", right, dict.fromkeys(SCORED, 0.98))
    noise = noise_check(run.context.probes, labels_of(run.true.scenes))
    lines.append(_blind_line("heads at chance on noise frames", noise, len(run.true.scenes)))
    facts = read_card(run.context.world.folder)["facts"]
    checks = {name: ChanceCheck(**values) for name, values in facts["shuffled"].items()}
    lines.append(_blind_line("heads at chance, trained on shuffled labels", checks, facts["recipe"]["held_out"]))
    return Outcome(lines)


def vae_row(run: EvalRun) -> Outcome:
    """Reconstruction: 30 dB, or 28 dB if every probe head is right on 97 % of the reconstructions."""
    pairs = zip(run.reconstructions, run.true.clips, strict=True)
    lines = _recognised("vae", "reconstructions: ", run.right(run.reconstructions, run.true.scenes), {})
    clear = all(line.estimate.value >= 0.97 for line in lines)
    quality = Line("vae", "PSNR", mean([psnr(*pair) for pair in pairs]), Target(28 if clear else 30), "dB")
    return Outcome([quality, *lines], {"vae": strips(run.true.clips[:PICTURED], run.reconstructions[:PICTURED])})


def shots_row(run: EvalRun) -> Outcome:
    """Shots decoded from the true representation at the measured motion value; with a preset, also beside exact's."""
    context, sources = run.context, run.sources
    right = run.right(run.shots, sources.scenes)
    lines = _recognised("shots", "", right, {"character": 0.95, "place": 0.95, "time": 0.98, "motion": 0.85})
    lines.append(Line("shots", "colour of a visible prop", _colours(right, sources.scenes)))
    if context.preset is not None and context.preset.name != "exact":
        preset = preset_for_device(PRESETS["exact"], str(context.device), dtype=context.dtype)
        exact = replace(context, asked=UNSTATED, preset=preset)
        value = psnr(run.shots, exact.shoot(run.states, sources.values, run.seeds(len(run.states))))
        count = len(run.states)
        lines.append(
            Line("shots", "PSNR to the shots of preset exact", Estimate(value, value, value, count), unit="dB")
        )
    return Outcome(lines, {"shots": strips(sources.clips[:PICTURED], run.shots[:PICTURED])})


def motion_row(run: EvalRun) -> Outcome:
    """The requested motion level of a shot against the level measured on it; its representation stays the same.

    With calibrated motion values, as the world is played, and without: on the medians of its training data. The targets
    come from the paper's ablation table, row full (0.729, 0.403), whose shots are drawn without the engine too.

    The ceiling is the score of true clips that are drawn at the middle of each level, or at the nearest amplitude that
    the Toybox can draw: films also have moving cameras, and so higher levels.
    """
    context, world = run.context, run.context.world
    own, before = world.motion_table, uncalibrated_table(world)
    asked = [1 + index % 5 for index in range(len(run.states))]  # all five levels in turn

    def measured(table: MotionTable) -> tuple[int, ...]:
        clips = context.shoot(run.states, [table.value(level) for level in asked], run.seeds(len(asked)))
        return context.levels(context.measure(clips))

    calibrated = measured(own)
    bare = calibrated if before == own else measured(before)
    centres = np.clip(level_centres(own.edges), *AMPLITUDES).tolist()
    wanted = [1 + index % 5 for index in range(len(run.true.scenes))]
    ideal = zip(run.true.scenes, wanted, strict=True)
    drawn = context.draw([replace(scene, amplitude=centres[level - 1]) for scene, level in ideal]).levels
    rebuilt = motion_accuracy(run.true.levels, context.levels(context.measure(run.reconstructions)))
    lines = [
        Line("motion", "ACC-F, uncalibrated", motion_accuracy(asked, bare), Target(0.73), ""),
        Line("motion", "MAE-F, uncalibrated", motion_error(asked, bare), Target(high=0.40), "levels"),
        Line("motion", "ACC-F", motion_accuracy(asked, calibrated), unit=""),
        Line("motion", "MAE-F", motion_error(asked, calibrated), unit="levels"),
        Line("motion", "ceiling: ACC-F of true clips", motion_accuracy(wanted, drawn), Target(0.95), ""),
        Line("motion", "level kept by VAE reconstruction", rebuilt, unit=""),
    ]
    return Outcome(lines, notes=calibration_remark(world))


def override_row(run: EvalRun) -> Outcome:
    """Nine motion values for one state and one noise seed, from the table's smallest to its largest in equal ratios.

    Only states whose true shot moves (above the lowest level) are used.
    """
    context, table = run.context, run.context.world.motion_table.values
    moving = [index for index, level in enumerate(run.sources.levels) if level > 1][: run.plan.sweeps]
    values = np.geomspace(table[0], table[-1], SWEEP)
    rows = [index for index in moving for _ in values]
    clips = context.shoot(run.states[rows], np.tile(values, len(moving)), [run.first + index for index in rows])
    measured = context.measure(clips).reshape(len(moving), SWEEP)
    correlations = [rank_correlation(values, row) for row in measured]
    return Outcome([Line("override", "rank correlation with measured motion", mean(correlations), Target(0.9), "")])


def games_row(run: EvalRun) -> Outcome:
    """Games that the engine plays from text, or from a picture and text, at the default window."""
    played, context = run.played, run.context
    right = run.right(played.clips, played.scenes)
    lines = _recognised("games", "", right, {"character": 0.9, "place": 0.9})
    changes = played.changes_right
    all_right = fraction([all(found.values()) for found in changes])
    shown = np.array([scene.prop_colour is not None for scene in played.scenes])
    parts = np.all([*(found for head, found in right.items() if head != "colour"), right["colour"] | ~shown], axis=0)
    lines.append(Line("games", "all parts of a turn right", fraction(parts), Target(ALL_RIGHT)))
    lines.append(Line("games", "state changes, all three right", all_right, Target(0.95)))
    lines += [Line("games", f"{stat} right", fraction([found[stat] for found in changes])) for stat in changes[0]]
    predicted = [state.motion for state in played.states]
    lines.append(Line("games", "motion level predicted as typed", motion_accuracy(played.levels, predicted)))
    measured = context.levels(context.measure(played.clips))
    lines.append(Line("games", "measured motion level as predicted", motion_accuracy(predicted, measured)))
    sheets: dict[str, Image] = {}  # of the first game from text and of the first from a picture
    for index, game in enumerate(played.scripted.games):
        name = "game-from-text" if game.opening is None else "game-from-a-picture"
        if name not in sheets:
            turns = played.turns[index]
            clips = played.only([(index, turn.number) for turn in turns]).clips
            sheets[name] = contact_sheet(turns, clips, name.replace("-", " "))
    return Outcome(lines, sheets)


def colour_row(run: EvalRun) -> Outcome:
    """A prop's colour after the turn that named it: kept while the prop is in the window, guessed without a window.

    An engine that knows no colour predicts their mean, which is no colour of the six; there the probe may not answer
    "none", so that chance is one in six.
    """
    chance = 1 / len(COLOURS)
    lines = []
    for window in WINDOWS:
        games = enumerate(run.scripted.games)
        due = [(index, number) for index, game in games for number in remembered_turns(game, window)]
        if window == DEFAULT_WINDOW:
            shots = run.played.only(due)
        else:
            evenly = np.linspace(0, len(due) - 1, min(run.plan.colours, len(due)))
            shots = run.play(run.scripted, window, [due[round(index)] for index in evenly])
        target = Target(0.85) if window else Target(chance - 0.1, chance + 0.1)
        name = f"window {window}: prop's colour named once, seen again" if window else "window 0: a guess among six"
        right = run.right(shots.clips, shots.scenes, () if window else ("colour",))
        lines.append(Line("colour", name, _colours(right, shots.scenes), target))
    return Outcome(lines)


def likeness_row(run: EvalRun) -> Outcome:
    """How alike the figures of drawn shots and of reconstructions are to the true ones, by motion level.

    The mean over the frames of each shot, and its worst frame; then PSNR of whole clips. The reconstructions are the
    ceiling.
    """
    sources, levels = run.sources, np.array(run.sources.levels)
    boxes = list(parallel_map(figure_boxes, list(sources.scenes), run.context.workers))
    lines = []
    for name, clips in {"shots": run.shots, "VAE": run.reconstructions[: len(run.shots)]}.items():
        pairs = [(clip, true, box) for clip, true, box in zip(clips, sources.clips, boxes, strict=True)]
        alike = np.stack(list(parallel_map(_likeness, pairs, run.context.workers)))
        quality = np.array([psnr(clip, true) for clip, true, _ in pairs])
        for level in LEVELS:
            rows = alike[levels == level]
            for what, values, targets in (("mean", rows.mean(1), ALIKE), ("worst frame", rows.min(1), WORST)):
                target = Target(targets[level]) if name == "shots" else None
                lines.append(Line("likeness", f"{name}, level {level}: {what}", mean(values), target, ""))
            target = Target(QUALITY[level]) if name == "shots" and level in QUALITY else None
            lines.append(Line("likeness", f"{name}, level {level}: PSNR", mean(quality[levels == level]), target, "dB"))
    return Outcome(lines)


def _likeness(pair: tuple[NDArray, NDArray, NDArray]) -> NDArray[np.float64]:
    return likeness(*pair)


def new_row(run: EvalRun) -> Outcome:
    """Games of two turns whose every scene is new in one way, next to games with nothing new; all played from text."""
    lines = []
    splits = {"nothing new": "heldout", **{f"new {split}": split for split in NOVELTIES}}
    for name, split in splits.items():
        numbers = range(run.first, run.first + run.plan.unseen)
        games = [sample_game(number, turns=NEW_TURNS, split=split) for number in numbers]
        scripted = run.script(games)
        played = run.play(scripted, DEFAULT_WINDOW, scripted.all_turns)
        right = run.right(played.clips, played.scenes)
        couples = [scene.partner is not None for scene in played.scenes]
        targets = {head: Target(low) for head, low in NEW.get(split, {}).items()}
        for head in ("character", "motion", "place"):
            lines.append(Line("new", f"{name}: {head}", fraction(right[head]), targets.get(head)))
        partner = fraction(right["partner"][couples])
        lines.append(Line("new", f"{name}: partner, of shots with two", partner, targets.get("partner")))
        lines.append(_changes_line("new", f"{name}: ", played))
    return Outcome([line for line in lines if line.estimate.count])


def switch_row(run: EvalRun) -> Outcome:
    """Games in which another character, of the same or another film, comes for one turn after 1 to 8 turns of the
    first, who then comes back; all are named.
    """
    games = [switching_game(run.first + index) for index in range(run.plan.switches)]
    scripted = run.script(games)
    asked = [(index, len(game.scenes) - back) for back in (1, 0) for index, game in enumerate(games)]
    played = run.play(scripted, DEFAULT_WINDOW, asked)
    right = run.right(played.clips, played.scenes)["character"]
    others, back = right[: len(games)], right[len(games) :]
    own = np.array([len({CHARACTERS[scene.character].film for scene in game.scenes}) == 1 for game in games])
    lines = {"another of the same film": others[own], "one of another film": others[~own], "the first again": back}
    return Outcome([Line("switch", name, fraction(found), Target(SWITCHED)) for name, found in lines.items()])


def switching_game(seed: int) -> Game:
    """A game with 1 to 8 turns of one character, one of another, and one more of the first."""
    draw, before, same = random.Random(f"switch:{seed}"), 1 + seed % LONGEST_TURN, seed // LONGEST_TURN % 2 == 0
    first = draw.choice(list(CHARACTERS.values()))
    other = draw.choice([row for row in CHARACTERS.values() if row != first and same == (row.film == first.film)])
    who = [*[first.name] * before, other.name, first.name]
    return sample_game(seed, turns=len(who), split="heldout", who=who)


def takes_row(run: EvalRun) -> Outcome:
    """How much the first frames of two takes of a turn differ, as a fraction of two true clips of its caption."""
    played, count = run.played, min(run.plan.shots, len(run.played.shots))
    again, scenes = run.shoot_states(played.states[:count], TAKES_OFFSET), played.scenes[:count]
    others = [replace(scene, seed=scene.seed + SAME_SPLIT) for scene in scenes]
    true, other = (np.array([draw_frame(scene, 0) for scene in row], np.float32) for row in (scenes, others))
    drawn = abs(played.clips[:count, 0] - again[:, 0].astype(np.float32)).mean((1, 2, 3))
    ratio = mean(drawn / abs(true - other).mean())
    return Outcome([Line("takes", "difference of two takes, of that of two true clips", ratio, Target(TAKES), "")])


def two_sample_row(run: EvalRun) -> Outcome:
    """How well a small network tells shots from reconstructions of true ones, by motion level: AUC, 0.5 if it cannot.

    It learns from one half of the scenes and is asked about the other.
    """
    count = len(run.shots)
    kinds = run.shots, run.reconstructions[:count]
    drawn, rebuilt = scores_of_unseen(*kinds, run.plan.steps, run.context.device, run.seed)
    levels = np.array(run.sources.levels[count - len(drawn) :])
    found = {level: chance_above(drawn[levels == level], rebuilt[levels == level]) for level in LEVELS}
    return Outcome([Line("two-sample", f"AUC, level {level}", value, unit="") for level, value in found.items()])


def references_row(run: EvalRun) -> Outcome:
    """Turns whose instruction refers back, with the default window and with none.

    Each line is shown with the score of a uniform guess that knows the words and all rules of the training games.
    """
    numbers = range(run.first, run.first + run.plan.references)
    games = [sample_game(number, turns=REFERRING_TURNS, split="heldout") for number in numbers]
    scripted = run.script(games)
    asked = [(game, turn) for game, turn in scripted.all_turns if games[game].scenes[turn - 1].refers is not None]
    lines = []
    for window in (DEFAULT_WINDOW, 0):
        played = run.play(scripted, window, asked)
        right = run.right(played.clips, played.scenes)
        for kind in REFERENCES:
            rows = [scene.refers == kind for scene in played.scenes]
            guesses = [chance(scene) for scene in played.scenes if scene.refers == kind]
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
    games = [sparse_game(seed, (1,), turns=1, split="heldout", opening=True) for seed in seeds]
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
    first = run.first + MEMORY_OFFSET
    shown = [shown_turns(first + index) for index in range(run.plan.memory)]
    games = [sparse_game(first + index, turns, turns=TURNS, split="heldout") for index, turns in enumerate(shown)]
    scripted = run.script(games)
    asked = [(index, turn) for index, turns in enumerate(shown) for turn in turns[1:]]  # near to far in each game
    lines: list[Line] = []
    recent: dict[str, Estimate] = {}
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


def _long_game_line(run: EvalRun) -> Line:
    """One long game from a picture, whose prop is asked for every 100 turns."""
    turns = run.plan.long_game
    asked = tuple(range(ASKED_EVERY, turns + 1, ASKED_EVERY))
    seed = run.first + MEMORY_OFFSET
    game = sparse_game(seed, asked, turns=turns, split="heldout", opening=True)
    scripted = run.script([game])
    played = run.play(scripted, DEFAULT_WINDOW, [(0, turn) for turn in asked], Memory(RECALL))
    right = fraction(run.right(played.clips, played.scenes)["colour"])
    name = f"recall: colour of the opening's prop, every {ASKED_EVERY} of {turns} turns"
    return Line("memory", name, right, Target(COLOUR_TARGET))


ROWS: Mapping[str, Callable[[EvalRun], Outcome]] = {
    "probes": probes_row,
    "vae": vae_row,
    "shots": shots_row,
    "motion": motion_row,
    "override": override_row,
    "games": games_row,
    "colour": colour_row,
    "memory": memory_row,
    "likeness": likeness_row,
    "new": new_row,
    "switch": switch_row,
    "takes": takes_row,
    "two-sample": two_sample_row,
    "references": references_row,
    "conflict": conflict_row,
}


def accept(
    run: EvalRun,
    rows: Sequence[str] | None = None,
    on_row: Callable[[Report], None] | None = None,
    facts: Mapping[str, object] | None = None,
) -> Report:
    """Measure the named rows, or all, in the table's order; on_row receives the report so far after each.

    With on_row a row that fails (out of memory, disk or a broken process) becomes an outcome that says so, and the next
    row is measured; without on_row the error is raised.
    """
    names = tuple(name for name in ROWS if rows is None or name in rows)
    world = run.context.world
    facts = {
        **(facts or {}),
        "world": world.spec.name,
        "fingerprint": world.fingerprint,
        "profile": world.profile.name,
        "seed": run.seed,
        "plan": asdict(run.plan),
        "sampling": run.context.sampling,
        "device": str(run.context.device),
        "machine": machine(),
    }
    outcomes: list[Outcome] = []
    seconds: dict[str, float] = {}
    few = run.plan.games < FULL.games
    for index, name in enumerate(names, start=1):
        begun = time.perf_counter()
        outcomes.append(ROWS[name](run) if on_row is None else _measured(name, run))
        seconds[name] = round(time.perf_counter() - begun, 1)
        if on_row is not None:
            on_row(Report(tuple(outcomes), few, {**facts, "seconds": {**seconds}}, names[index:]))
    return Report(tuple(outcomes), few, {**facts, "seconds": seconds})


def _measured(name: str, run: EvalRun) -> Outcome:
    """A row's outcome, or one that says why it could not be measured."""
    try:
        return ROWS[name](run)
    except (RuntimeError, OSError) as error:  # torch raises RuntimeError when memory runs out
        why = " ".join(str(error).split())[:LONGEST_REASON]
        return Outcome((), notes=(f"row {name} could not be measured: {type(error).__name__}: {why}",), failed=name)


def remembered_turns(game: Game, window: int) -> list[int]:
    """The later turns that show the prop and, with a window, also had it in one of the last `window` turns.

    The colour is named on the first turn with the prop; an opening picture is turn 0 and shows it.
    """
    shown = {number for number, scene in enumerate(game.scenes, 1) if scene.prop is not None}
    named = min(shown) if game.opening is None else 0
    shown.add(named)
    return [
        number
        for number in sorted(shown)
        if number > named and (window == 0 or shown & set(range(number - window, number)))
    ]


def level_centres(edges: Sequence[float]) -> tuple[float, ...]:
    """The middle of each level on a log scale; the outer two levels are as wide as their neighbours."""
    inner = [math.sqrt(low * high) for low, high in itertools.pairwise(edges)]
    return edges[0] ** 2 / inner[0], *inner, edges[-1] ** 2 / inner[-1]


def _recognised(row: str, prefix: str, right: Mapping[str, NDArray], targets: Mapping[str, float]) -> list[Line]:
    """One line for each head: the fraction of clips that the probes classify rightly."""
    goals = {head: Target(low) for head, low in targets.items()}
    return [Line(row, f"{prefix}{head}", fraction(right[head]), goals.get(head)) for head in HEADS]


def _colours(right: Mapping[str, NDArray], scenes: Sequence[Scene]) -> Estimate:
    """The fraction of shots with a prop whose colour the probes recognise."""
    return fraction(right["colour"][[scene.prop_colour is not None for scene in scenes]])


def _blind_line(name: str, checks: Mapping[str, ChanceCheck], count: int) -> Line:
    """How many heads score no better than chance; all must."""
    blind = sum(check.blind for check in checks.values())
    return Line("probes", name, Estimate(blind, blind, blind, count), Target(len(HEADS)), "heads")
