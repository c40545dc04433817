"""The row `takes`: whether the take that the judge picks is better, by scoring models that the judge does not use.

The judge is the probes and the measured motion; the figures are of the Toybox's scoring models, which are trained apart
(toybox/scoring_models.py). At an equal budget of 1, 2 or 4 takes, the picked take is compared with a blind pick.
M shots, K takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...state import DEFAULT_WINDOW
from ...story.takes import Judgement, best_take, take_seeds
from ...toybox.probes import probabilities
from ...toybox.scenes import labels_of
from ...toybox.world import caption
from ..estimates import fraction, mean
from ..judges import MotionRule, probe_parts
from ..report import Line, Outcome
from ..similarity.choose import open_scoring_models
from ..similarity.models import ScoringModels
from ..world.scores import compared_frames, mean_cosine, rowwise_cosine
from .context import Clips, EvalContext
from .run import GAME_OFFSET, EvalRun, PlayedGames

BUDGETS = (1, 2, 4)
WEAK_STEPS = 5
SCORES = {  # by the scoring models
    "true": "DreamSim to the true shot",
    "clip_t": "CLIP-T",
}
GAIN = "gain of"  # in the name of a line: the picked take compared with a blind pick


@dataclass(frozen=True)
class JudgedShots:
    """Takes of M shots. judged (M, K): the judge's scores. scored: name -> (M, K) by the scoring models.

    right, moves (M, K): whether the probes read everything rightly, and whether the measured level is the asked one.
    """

    judged: NDArray[np.float64]
    scored: Mapping[str, NDArray[np.float64]]
    right: NDArray[np.bool_]
    moves: NDArray[np.bool_]

    def picked(self, values: NDArray, count: int) -> NDArray:
        """The values (M,) of the takes that the judge picks among the first `count`."""
        rows = [best_take(list(row[:count])) for row in self.judged]
        return values[np.arange(len(values)), rows]


def takes_row(run: EvalRun) -> Outcome:
    """Takes of played turns, by the world's own decoder and by one weakened to 5 steps."""
    shots = run.scripted.all_turns
    count = min(len(shots), run.plan.takes)
    played = run.play(run.scripted, DEFAULT_WINDOW, [shots[index * len(shots) // count] for index in range(count)])
    weak = run.context.with_sampling(replace(run.context.sampling, steps=WEAK_STEPS))
    models = open_scoring_models("toybox", device=run.context.device)
    true = run.context.draw(played.scenes).clips
    lines = []
    for name, context in (("own steps", run.context), (f"{WEAK_STEPS} steps", weak)):
        lines += _lines(name, _judged(run, context, played, models, true))
    gains = [line.estimate for line in lines if GAIN in line.name]
    surely = sum(gain.low > 0 for gain in gains)
    note = f"{surely} of {len(gains)} gains over a random pick from the same takes are significantly above 0"
    return Outcome(tuple(lines), notes=(note,))


def _lines(name: str, shots: JudgedShots) -> list[Line]:
    """Each score of the picked take; how much better it is than a blind pick of the same takes, and how much better the
    best take is by that very score. Then what the judge says itself.
    """
    lines = []
    for key, label in SCORES.items():
        values = shots.scored[key]
        for count in BUDGETS:
            blind, picked = values[:, :count].mean(axis=1), shots.picked(values, count)
            lines.append(Line("takes", f"{name}: {label}, picked of {count}", mean(picked), unit=""))
            if count > 1:
                lines.append(Line("takes", f"{name}: {label}, {GAIN} {count}", mean(picked - blind), unit=""))
        most = mean(values.max(axis=1) - values.mean(axis=1))
        lines.append(Line("takes", f"{name}: {label}, most that {BUDGETS[-1]} could gain", most, unit=""))
    for label, flags in (("read rightly", shots.right), ("moves as asked", shots.moves)):
        for count in BUDGETS:
            found = fraction(shots.picked(flags, count))
            lines.append(Line("takes", f"{name}: {label}, by the judge, picked of {count}", found))
    return lines


def _judged(run: EvalRun, context: EvalContext, played: PlayedGames, models: ScoringModels, true: Clips) -> JudgedShots:
    """All takes of the played shots, drawn in a context, judged and scored."""
    rule, truth = MotionRule.of(context.world), labels_of(played.scenes)
    values = [context.world.motion_table.value(state.motion) for state in played.states]
    texts = [played.turns[game][number - 1].instruction for game, number in played.shots]
    judged, moves, right, scored = [], [], [], []
    for number in range(max(BUDGETS)):
        clips = _take(run, context, played, values, number)
        seen = probabilities(context.probes, clips, context.batch)
        fits = [rule.fits(*pair) for pair in zip(values, context.measure(clips), strict=True)]
        shown = [{head: rows[index] for head, rows in seen.items()} for index in range(len(clips))]
        parts = (probe_parts(text, one) | {"level": fit} for text, one, fit in zip(texts, shown, fits, strict=True))
        judged.append([Judgement("", row).score for row in parts])
        moves.append([fit == 1 for fit in fits])
        right.append(np.all([seen[head].argmax(-1) == truth[head] for head in truth], axis=0))
        scored.append(_scored(models, clips, true, played))
    by_score = {key: np.stack([row[key] for row in scored], axis=1) for key in SCORES}
    return JudgedShots(np.array(judged).T, by_score, np.array(right).T, np.array(moves).T)


def _take(run: EvalRun, context: EvalContext, played: PlayedGames, values: list[float], number: int) -> Clips:
    """Take `number` of every shot, counted from 0."""
    if number == 0 and context is run.context:
        return played.clips
    seeds = [take_seeds(number + 1, seed)[number] for seed in run.seeds(len(values), GAME_OFFSET)]
    return context.shoot([state.representation for state in played.states], values, seeds)


def _scored(models: ScoringModels, clips: Clips, true: Clips, played: PlayedGames) -> dict[str, NDArray[np.float64]]:
    """The scores (M,) of clips."""
    clip, dreamsim = models.clip, models.dreamsim
    assert dreamsim is not None
    found: dict[str, list[float | None]] = {key: [] for key in SCORES}
    for shot, truth, scene, level in zip(clips, true, played.scenes, played.levels, strict=True):
        found["true"].append(rowwise_cosine(dreamsim.embed_images(shot), dreamsim.embed_images(truth)))
        found["clip_t"].append(
            mean_cosine(clip.embed_images(compared_frames(shot)), clip.embed_texts([caption(scene, level)]))
        )
    return {key: np.array(values, dtype=float) for key, values in found.items()}
