"""What each preset's speed costs in the Toybox, where the true scenes are known.

Every preset draws the same scenes from the same representations and noise seeds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..game.state import GameSession
from ..media.video import to_uint8
from ..runtime.presets import PRESETS, Preset, get_preset, preset_for_device
from ..spec import RELEASE, ModelSpec
from .estimates import Estimate, fraction, motion_accuracy, psnr
from .toybox.context import Clips, Sampling
from .toybox.rows import SCORED
from .toybox.run import EvalRun

UNTUNED = Preset("none", "as the world says")
REFERENCE = "exact"
REPEATS = 3
TURNS_BEFORE = 4  # turns before a timed turn, the default window
HEAD = (
    f"{'preset':12} {'steps':>5} {'s a turn':>9} {'ratio':>6} {'recognition':>19} {'ACC-F':>19} {'PSNR to exact':>14}"
)


@dataclass(frozen=True)
class PresetScore:
    """How one preset scores.

    seconds: of each timed turn; empty for a preset that offloads, since the Toybox fits any GPU. recognised: fraction
    of right answers of each probe head. psnr: to preset exact, over all pixels; None for exact itself and for equal
    shots.
    """

    preset: Preset
    steps: int
    guidance: str
    seconds: tuple[float, ...]
    recognised: dict[str, Estimate]
    recognition: Estimate
    accuracy: Estimate
    psnr: float | None

    @property
    def median(self) -> float | None:
        """The median seconds of a turn; None if no turn was timed."""
        return statistics.median(self.seconds) if self.seconds else None

    def line(self, exact: PresetScore) -> str:
        """The row as text; differences to exact are in percentage points."""
        scored = []
        for ours, theirs in ((self.recognition, exact.recognition), (self.accuracy, exact.accuracy)):
            scored.append(f"{100 * ours.value:.1f} % ({100 * (ours.value - theirs.value):+.1f})")
        seconds = "-" if self.median is None else f"{self.median:.3f}"
        ratio = "-" if self.median is None or exact.median is None else f"{exact.median / self.median:.2f}"
        same = "-" if self.preset.name == REFERENCE else "the same"
        likeness = same if self.psnr is None else f"{self.psnr:.1f} dB"
        return (
            f"{self.preset.name:12} {self.steps:>5} {seconds:>9} {ratio:>6}"
            f" {scored[0]:>19} {scored[1]:>19} {likeness:>14}"
        )


def presets_to_score(
    names: Sequence[str] | None, device: str, dtype: str, on_remark: Callable[[str], object]
) -> list[Preset]:
    """Preset exact first, then the world without a preset, then the named ones (None: all that the device can run)."""
    if names is None:
        names = [name for name, row in PRESETS.items() if row.offload_gib is None or device.startswith("cuda")]
    presets = [get_preset(name) for name in names if name != REFERENCE]
    presets.sort(key=lambda row: row.offload_gib or 0.0)  # those that limit the process's memory come last
    return [
        preset_for_device(preset, device, on_remark, dtype) for preset in (get_preset(REFERENCE), UNTUNED, *presets)
    ]


def in_proportion(preset: Preset, spec: ModelSpec) -> Preset:
    """The preset with the same fraction of a world's steps that it takes of the released worlds' 50."""
    if preset.steps is None:
        return preset
    return replace(preset, steps=max(1, round(preset.steps * spec.decoder.steps / RELEASE.decoder.steps)))


def score_preset(run: EvalRun, preset: Preset, dtype: str, exact: Clips | None) -> tuple[PresetScore, Clips]:
    """The preset's score and its shots. exact: the shots of preset exact, None while exact itself is scored."""
    drawn = run.with_context(run.context.with_sampling(Sampling(preset=preset, dtype=dtype)))
    seconds = turn_seconds(drawn, dtype) if preset.offload_gib is None else ()
    seen, truth = drawn.context.recognise(drawn.shots), drawn.sources.labels
    right = {head: seen[head] == truth[head] for head in SCORED}
    likeness = None if exact is None else psnr(drawn.shots, exact)
    score = PresetScore(
        preset=preset,
        **drawn.context.options,
        seconds=seconds,
        recognised={head: fraction(flags) for head, flags in right.items()},
        recognition=fraction(np.concatenate(list(right.values()))),
        accuracy=motion_accuracy(drawn.asked_levels, drawn.measured_levels),
        psnr=likeness if likeness is not None and np.isfinite(likeness) else None,
    )
    return score, drawn.shots


def turn_seconds(run: EvalRun, dtype: str) -> tuple[float, ...]:
    """Seconds of whole turns in the middle of a game, one after another; a first turn warms up and does not count."""
    context = run.context
    engine = context.world.load_engine(context.device, getattr(torch, dtype))
    session, instructions = GameSession(window=TURNS_BEFORE), run.sources.captions
    for number in range(TURNS_BEFORE):
        text = instructions[number % len(instructions)]
        session = session.step(text, engine.predict(session.past(), text))
    seconds = []
    for _ in range(1 + REPEATS):
        begun = time.perf_counter()
        state = engine.predict(session.past(), instructions[0])
        motion = context.world.motion_table.value(state.motion)
        to_uint8(context.decoder.shoot(state.representation, motion, seed=1, **context.options).cpu())
        seconds.append(time.perf_counter() - begun)
    return tuple(seconds[1:])
