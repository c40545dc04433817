"""The rows of the Toybox's acceptance table: what the embedded world must reach on games that it never saw.

A row is a function of an `EvalRun`; to add one, write a function and list it in ROWS.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from ...game.state import DEFAULT_WINDOW, MotionTable
from ...media.contact_sheet import contact_sheet
from ...runtime.presets import PRESETS, preset_for_device
from ...toybox.calibration import calibration_remark, uncalibrated_table
from ...toybox.games import Game
from ...toybox.probes import ChanceCheck, noise_check, read_card
from ...toybox.scenes import HEADS, labels_of
from ...toybox.world import AMPLITUDES, COLOURS, Scene
from ..estimates import Estimate, fraction, mean, motion_accuracy, motion_error, psnr, rank_correlation
from ..report import Line, Outcome, Report, Target, machine, strips
from .hard_rows import conflict_row, memory_row, new_row, references_row, sharp_row
from .run import FULL, EvalRun

SWEEP = 9  # motion values that each state is drawn at
WINDOWS = (DEFAULT_WINDOW, 2, 0)  # windows at which a prop's colour is checked
PICTURED = 8  # scenes in a comparison picture
LONGEST_REASON = 500  # characters of the reason why a row could not be measured
SCORED = ("character", "place", "time", "motion")  # heads that the table has targets for


def probes_row(run: EvalRun) -> Outcome:
    """The probes: nearly perfect on true held-out clips, at chance on noise and with shuffled labels."""
    right = run.right(run.true.clips, run.true.scenes)
    lines = _recognised("probes", "true clips: ", right, dict.fromkeys(SCORED, 0.98))
    noise = noise_check(run.context.probes, labels_of(run.true.scenes))
    lines.append(_blind_line("heads at chance on noise frames", noise, len(run.true.scenes)))
    facts = read_card(run.context.world.folder).get("facts", {})
    if "shuffled" not in facts:
        return Outcome(lines, notes=("the probes' card has no results for training on shuffled labels",))
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
        exact = replace(context, steps=None, guidance=None, preset=preset)
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
    context, own, before = run.context, run.context.world.motion_table, uncalibrated_table(run.context.world)
    asked = [1 + index % 5 for index in range(len(run.states))]  # all five levels in turn

    def measured(table: MotionTable) -> tuple[int, ...]:
        clips = context.shoot(run.states, [table.value(level) for level in asked], run.seeds(len(asked)))
        return context.levels(context.measure(clips))

    calibrated = measured(own)
    bare = () if before is None else calibrated if before == own else measured(before)
    centres = np.clip(level_centres(own.edges), *AMPLITUDES).tolist()
    wanted = [1 + index % 5 for index in range(len(run.true.scenes))]
    ideal = zip(run.true.scenes, wanted, strict=True)
    drawn = context.draw([replace(scene, amplitude=centres[level - 1]) for scene, level in ideal]).levels
    rebuilt = motion_accuracy(run.true.levels, context.levels(context.measure(run.reconstructions)))
    lines = [
        Line("motion", "ACC-F, uncalibrated", motion_accuracy(asked[: len(bare)], bare), Target(0.73), ""),
        Line("motion", "MAE-F, uncalibrated", motion_error(asked[: len(bare)], bare), Target(high=0.40), "levels"),
        Line("motion", "ACC-F", motion_accuracy(asked, calibrated), unit=""),
        Line("motion", "MAE-F", motion_error(asked, calibrated), unit="levels"),
        Line("motion", "ceiling: ACC-F of true clips", motion_accuracy(wanted, drawn), Target(0.95), ""),
        Line("motion", "level kept by VAE reconstruction", rebuilt, unit=""),
    ]
    remark = calibration_remark(own, before)
    return Outcome(lines, notes=() if remark is None else (remark,))


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
    lines = _recognised("games", "", run.right(played.clips, played.scenes), {"character": 0.9, "place": 0.9})
    changes = played.changes_right
    all_right = fraction([all(found.values()) for found in changes])
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


ROWS: Mapping[str, Callable[[EvalRun], Outcome]] = {
    "probes": probes_row,
    "vae": vae_row,
    "shots": shots_row,
    "motion": motion_row,
    "override": override_row,
    "games": games_row,
    "colour": colour_row,
    "memory": memory_row,
    "sharp": sharp_row,
    "new": new_row,
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
