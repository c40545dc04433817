"""The Toybox's acceptance table: what the embedded world must reach on games that its training never saw.

A row is a function of a `Trial`; adding one is a function and its name in ROWS.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
from PIL.Image import Image

from ...presets import PRESETS, preset_on
from ...sheet import contact_sheet
from ...state import DEFAULT_WINDOW
from ...toybox.calibrate import calibration_remark
from ...toybox.games import Game, sample_game
from ...toybox.probes import BlindCheck, noise_check, read_card
from ...toybox.scenes import HEADS, NONE, Labels, labels_of
from ...toybox.world import AMPLITUDES, COLOURS, MOTIONS, Scene
from ...train.staged import StagedWorld
from ..figures import Figure, mean, motion_accuracy, motion_error, psnr, rank_correlation, share
from ..report import Line, Outcome, Report, Target, machine, strips
from .lab import Sampling
from .speed import measure_speed
from .trial import FULL, Trial

SWEEP = 9  # motion values a state is drawn at
WINDOWS = (DEFAULT_WINDOW, 2, 0)  # windows that a prop's colour is asked after
SPEED_TURNS = 3  # the first of them warms the libraries up, and counts
PICTURED = 8  # scenes on a comparison sheet
LONGEST_REASON = 500  # characters of why a row could not be measured
SCORED = ("character", "place", "time", "motion")  # heads that the table has targets for


def probes_row(trial: Trial) -> Outcome:
    """The probes themselves: nearly perfect on true held-out clips, blind on noise and where labels were shuffled."""
    labels = trial.true.labels
    seen = trial.lab.see(trial.true.clips)
    lines = _recognised("probes", "true clips: ", seen, labels, dict.fromkeys(SCORED, 0.98))
    noise = noise_check(trial.lab.probes, labels)
    lines.append(_blind_line("heads at chance on noise frames", noise, len(labels["character"])))
    facts = read_card(trial.lab.world.folder).get("facts", {})
    if "shuffled" not in facts:
        return Outcome(tuple(lines), notes=("the probes' card tells of no training on shuffled labels",))
    checks = {name: BlindCheck(**values) for name, values in facts["shuffled"].items()}
    lines.append(_blind_line("heads at chance, trained on shuffled labels", checks, facts["recipe"]["held_out"]))
    return Outcome(tuple(lines))


def vae_row(trial: Trial) -> Outcome:
    """Reconstruction: 30 dB, or 28 dB where every probe still reads 97 % of the reconstructions rightly."""
    pairs = zip(trial.rebuilt, trial.true.clips, strict=True)
    lines = _recognised("vae", "reconstructions: ", trial.lab.see(trial.rebuilt), trial.true.labels, {})
    clear = all(line.figure.value >= 0.97 for line in lines)
    quality = Line("vae", "PSNR", mean([psnr(*pair) for pair in pairs]), Target(28 if clear else 30), "dB")
    sheet = strips([trial.true.clips[:PICTURED], trial.rebuilt[:PICTURED]], ("true", "reconstructed"))
    return Outcome((quality, *lines), {"vae": sheet})


def shots_row(trial: Trial) -> Outcome:
    """Shots decoded from the true representation at the measured motion value."""
    told, clips = trial.told, trial.shots
    targets = {"character": 0.95, "place": 0.95, "time": 0.98, "motion": 0.85}
    seen = trial.lab.see(clips)
    lines = _recognised("shots", "", seen, told.labels, targets)
    lines.append(_colour_line("shots", "colour of a visible prop", seen, told.scenes))
    if (preset := trial.lab.sampling.preset) is not None and preset.name != "exact":
        lines.append(_likeness_line(trial))
    sheet = strips([told.clips[:PICTURED], clips[:PICTURED]], ("true", "decoded from its representation"))
    return Outcome(tuple(lines), {"shots": sheet})


def motion_row(trial: Trial) -> Outcome:
    """The level that a shot is asked for, its representation as it is, against the level measured on the shot.

    With calibrated motion values, as the world is played, and without: on the medians of its training data. The targets
    are of the paper's ablation table, row full (0.729, 0.403), whose shots are drawn without the engine too.

    The ceiling is what the drawn world itself scores when it is drawn at the middle of each level, or as near as it can
    be drawn: films have cameras that move too, and so livelier levels.
    """
    lab, asked, measured = trial.lab, trial.asked, trial.answers
    centres = np.clip(level_centres(lab.world.motion_table.edges), *AMPLITUDES).tolist()
    wanted = [1 + index % 5 for index in range(len(trial.true.scenes))]
    ideal = zip(trial.true.scenes, wanted, strict=True)
    drawn = lab.draw([replace(scene, amplitude=centres[level - 1]) for scene, level in ideal]).levels
    rebuilt = motion_accuracy(trial.true.levels, lab.levels(lab.measure(trial.rebuilt)))
    bare = trial.uncalibrated_answers
    bare_asked = asked[: len(bare)]
    lines = (
        Line("motion", "ACC-F", motion_accuracy(asked, measured), Target(0.73), ""),
        Line("motion", "MAE-F", motion_error(asked, measured), Target(high=0.40), "levels"),
        Line("motion", "ACC-F, uncalibrated", motion_accuracy(bare_asked, bare), unit=""),
        Line("motion", "MAE-F, uncalibrated", motion_error(bare_asked, bare), unit="levels"),
        Line("motion", "ceiling: ACC-F of true clips", motion_accuracy(wanted, drawn), Target(0.95), ""),
        Line("motion", "level kept by VAE reconstruction", rebuilt, unit=""),
    )
    remark = calibration_remark(lab.world.motion_table, trial.uncalibrated)
    return Outcome(lines, notes=() if remark is None else (remark,))


def override_row(trial: Trial) -> Outcome:
    """Nine motion values for one state, from the table's smallest to its largest in equal ratios, one noise seed.

    States count as moving whose true shot is above the lowest level.
    """
    lab, table = trial.lab, trial.lab.world.motion_table.values
    moving = [index for index, level in enumerate(trial.told.levels) if level > 1][: trial.plan.sweeps]
    values = np.geomspace(table[0], table[-1], SWEEP)
    rows = [index for index in moving for _ in values]
    clips = lab.shoot(trial.states[rows], np.tile(values, len(moving)), [trial.first + index for index in rows])
    measured = lab.measure(clips).reshape(len(moving), SWEEP)
    correlations = [rank_correlation(values, row) for row in measured]
    return Outcome((Line("override", "rank correlation with measured motion", mean(correlations), Target(0.9), ""),))


def games_row(trial: Trial) -> Outcome:
    """Games played by the engine from text, or from a picture and text, at the default window."""
    played, lab = trial.played, trial.lab
    truth = labels_of(played.scenes)
    lines = _recognised("games", "", lab.see(played.clips), truth, {"character": 0.9, "place": 0.9})
    right = {
        gauge: [
            getattr(MOTIONS[scene.motion], gauge) == getattr(state.change, gauge)
            for scene, state in zip(played.scenes, played.states, strict=True)
        ]
        for gauge in ("social", "entertainment", "stamina")
    }
    together = share(np.all(list(right.values()), axis=0))
    lines.append(Line("games", "state changes, all three right", together, Target(0.95)))
    lines += [Line("games", f"{gauge} right", share(flags)) for gauge, flags in right.items()]
    predicted = [state.motion for state in played.states]
    lines.append(Line("games", "motion level predicted as typed", motion_accuracy(played.levels, predicted)))
    measured = lab.levels(lab.measure(played.clips))
    lines.append(Line("games", "measured motion level as predicted", motion_accuracy(predicted, measured)))
    return Outcome(tuple(lines), _game_sheets(trial))


def colour_row(trial: Trial) -> Outcome:
    """A prop's colour on turns after the one that told it: kept with the prop in the window, guessed without one.

    An engine that was told no colour predicts the mean of all, which is none of them; so that chance is one in six,
    the probe then has to name one of the six.
    """
    guess = 1 / len(COLOURS)
    lines = []
    for window in WINDOWS:
        games = enumerate(trial.scripted.games)
        due = [(index, number) for index, game in games for number in remembered_turns(game, window)]
        if window == DEFAULT_WINDOW:
            shots = trial.played.only(due)
        else:
            shots = trial.play(trial.scripted, window, _spread(due, trial.plan.colours))
        target = Target(0.85) if window else Target(guess - 0.1, guess + 0.1)
        name = f"window {window}: prop told once, seen again" if window else "window 0: a guess among six"
        seen = trial.lab.see(shots.clips, () if window else ("colour",))
        lines.append(_colour_line("colour", name, seen, shots.scenes, target))
    return Outcome(tuple(lines))


def unseen_row(trial: Trial) -> Outcome:
    """Characters doing what training never showed them do, played from text."""
    games = [sample_game(trial.first + index, turns=2, split="unseen") for index in range(trial.plan.unseen)]
    scripted = trial.script(games)
    played = trial.play(scripted, DEFAULT_WINDOW, scripted.all_turns)
    seen, truth = trial.lab.see(played.clips), labels_of(played.scenes)
    who, what = (seen[head] == truth[head] for head in ("character", "motion"))
    lines = (
        Line("unseen", "right character doing the right motion", share(who & what), Target(0.7)),
        Line("unseen", "right character", share(who)),
        Line("unseen", "right motion", share(what)),
    )
    return Outcome(lines, {"unseen": strips([played.clips[:PICTURED]], ("pairs never seen in training",))})


def speed_row(trial: Trial) -> Outcome:
    """Seconds and memory of playing on this machine's CPU, in a fresh process with two threads."""
    if trial.lab.device.type != "cpu":
        return Outcome((), notes=("speed is measured on machines without a GPU only",))
    if isinstance(trial.lab.world, StagedWorld):
        return Outcome((), notes=("speed is measured of worlds without stage files only",))
    speed = measure_speed(trial.lab.world.folder, trial.scripted.scripts[0].instructions[:SPEED_TURNS])
    lines = [
        Line("speed", "a turn at default steps, clip written", mean(speed.turns), Target(high=10), "s"),
        Line("speed", "loading after imports", mean([speed.loading]), Target(high=5), "s"),
        Line("speed", "process start to first prediction", mean([speed.first_prediction]), Target(high=20), "s"),
    ]
    if speed.memory is None:
        return Outcome(tuple(lines), notes=("this system does not tell a process's peak memory",))
    return Outcome((*lines, Line("speed", "peak memory", mean([speed.memory / 1000]), Target(high=2), "GB")))


ROWS: Mapping[str, Callable[[Trial], Outcome]] = {
    "probes": probes_row,
    "vae": vae_row,
    "shots": shots_row,
    "motion": motion_row,
    "override": override_row,
    "games": games_row,
    "colour": colour_row,
    "unseen": unseen_row,
    "speed": speed_row,
}


def accept(trial: Trial, rows: Sequence[str] = tuple(ROWS), on_row: Callable[[Report], None] | None = None) -> Report:
    """Measure the named rows, in the table's order; on_row hears the report so far after each.

    With on_row, whose listener keeps what is there, a row that fails for want of memory, of a disk or of a process is
    an outcome that says so, and the next one is measured; without, its error goes on to the caller.
    """
    names = tuple(name for name in ROWS if name in rows)
    report = Report((), trial.plan.games < FULL.games, {**_facts(trial), "seconds": {}}, names)
    for name in names:
        begun = time.perf_counter()
        outcome = ROWS[name](trial) if on_row is None else _measured(name, trial)
        seconds = {**report.facts["seconds"], name: round(time.perf_counter() - begun, 1)}
        report = Report(
            (*report.outcomes, outcome), report.few, {**report.facts, "seconds": seconds}, report.to_come[1:]
        )
        if on_row is not None:
            on_row(report)
    return report


def _measured(name: str, trial: Trial) -> Outcome:
    """A row, or that it could not be measured, and why."""
    try:
        return ROWS[name](trial)
    except (RuntimeError, OSError) as error:  # also torch's, where memory ran out
        why = " ".join(str(error).split())[:LONGEST_REASON]
        return Outcome((), notes=(f"row {name} could not be measured: {type(error).__name__}: {why}",), failed=name)


def _facts(trial: Trial) -> dict[str, object]:
    """What it takes to repeat an evaluation."""
    world = trial.lab.world
    return {
        "world": world.spec.name,
        "fingerprint": world.fingerprint,
        "profile": world.profile.name,
        "seed": trial.seed,
        "plan": asdict(trial.plan),
        "sampling": trial.lab.sampling.facts(),
        "device": str(trial.lab.device),
        "machine": machine(),
    }


def remembered_turns(game: Game, window: int) -> list[int]:
    """The turns after the telling one that show the prop and, with a window, had it in one of the last `window` turns.

    A game's opening picture is turn 0 and tells the colour; in other games the first turn with the prop tells it.
    """
    shown = {number for number, scene in enumerate(game.scenes, 1) if scene.prop is not None}
    told = min(shown) if game.opening is None else 0
    shown.add(told)
    return [
        number
        for number in sorted(shown)
        if number > told and (window == 0 or shown & set(range(number - window, number)))
    ]


def _spread(items: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """At most `most` items, evenly chosen."""
    return [items[round(index)] for index in np.linspace(0, len(items) - 1, min(most, len(items)))]


def level_centres(edges: Sequence[float]) -> tuple[float, ...]:
    """The middle of each level on a log scale; the outer two reach as far beyond their border as their neighbour."""
    inner = [math.sqrt(low * high) for low, high in itertools.pairwise(edges)]
    return edges[0] ** 2 / inner[0], *inner, edges[-1] ** 2 / inner[-1]


def _likeness_line(trial: Trial) -> Line:
    """How near the preset's shots are to those of preset `exact`, all of their pixels taken together."""
    lab = trial.lab
    exact = preset_on(PRESETS["exact"], str(lab.device), dtype=lab.sampling.dtype)
    shots = trial.drawn_by(lab.drawing(Sampling(preset=exact, dtype=lab.sampling.dtype))).shots
    value = psnr(trial.shots, shots)
    return Line("shots", "PSNR to the shots of preset exact", Figure(value, value, value, len(shots)), unit="dB")


def _recognised(row: str, prefix: str, seen: Labels, truth: Labels, targets: Mapping[str, float]) -> list[Line]:
    """One line a head: the share of clips that the probes read rightly."""
    goals = {head: Target(low) for head, low in targets.items()}
    return [Line(row, f"{prefix}{head}", share(seen[head] == truth[head]), goals.get(head)) for head in HEADS]


def _colour_line(row: str, name: str, seen: Labels, scenes: Sequence[Scene], target: Target | None = None) -> Line:
    """The share of shots with a prop on which the probes read its colour."""
    truth = labels_of(scenes)["colour"]
    shown = truth != HEADS["colour"].index(NONE)
    return Line(row, name, share((seen["colour"] == truth)[shown]), target)


def _blind_line(name: str, checks: Mapping[str, BlindCheck], count: int) -> Line:
    """How many heads score no better than a blind guess; all must."""
    blind = sum(check.blind for check in checks.values())
    return Line("probes", name, Figure(blind, blind, blind, count), Target(len(HEADS)), "heads")


def _game_sheets(trial: Trial) -> dict[str, Image]:
    """Contact sheets of the first game that starts from text and of the first that starts from a picture."""
    played, sheets = trial.played, {}
    for index, game in enumerate(played.scripted.games):
        name = "game-from-text" if game.opening is None else "game-from-a-picture"
        if name not in sheets:
            turns = played.turns[index]
            clips = played.only([(index, turn.number) for turn in turns]).clips
            sheets[name] = contact_sheet(turns, clips, name.replace("-", " "))
    return sheets
