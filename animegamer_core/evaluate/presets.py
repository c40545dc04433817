"""The task `evaluate presets`: what each preset's speed costs in the Toybox, whose truth is known, in one table.

Every preset draws the same scenes from the same representations and noise seeds. Beside the seconds of a turn stand the
share of subjects that the probes recognise, ACC-F, and the PSNR to the shots of preset exact.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import json
import statistics
import time
import typing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..files import write_text
from ..presets import PRESETS, Preset, get_preset, preset_on
from ..spec import DTYPES, RELEASE, ModelSpec

if typing.TYPE_CHECKING:
    from .acceptance.lab import Clips
    from .acceptance.trial import Trial
    from .figures import Figure

UNTUNED = Preset("none", "as the world says")
REFERENCE = "exact"
REPEATS = 3
READ = 4  # turns that a timed turn follows, the default window
HEAD = (
    f"{'preset':12} {'steps':>5} {'s a turn':>9} {'ratio':>6} {'recognition':>19} {'ACC-F':>19} {'PSNR to exact':>14}"
)


@dataclass(frozen=True)
class PresetScore:
    """One preset. seconds: of each timed turn; none of a preset that streams, since the Toybox fits any card.

    recognised: of each head of the probes. psnr: to preset exact, all pixels taken together; None for exact itself, and
    where not a pixel differs.
    """

    preset: Preset
    steps: int
    guidance: str
    seconds: tuple[float, ...]
    recognised: dict[str, Figure]
    recognition: Figure
    accuracy: Figure
    psnr: float | None

    @property
    def median(self) -> float | None:
        """Seconds of the middle turn, None where none was timed."""
        return statistics.median(self.seconds) if self.seconds else None

    def line(self, exact: PresetScore) -> str:
        """The row as text, differences to exact in points."""
        scored = [_with_points(getattr(self, name), getattr(exact, name)) for name in ("recognition", "accuracy")]
        took = "" if self.median is None else f"{self.median:.3f}"
        times = "" if self.median is None or exact.median is None else f"{exact.median / self.median:.2f}"
        same = "-" if self.preset.name == REFERENCE else "the same"
        near = same if self.psnr is None else f"{self.psnr:.1f} dB"
        return (
            f"{self.preset.name:12} {self.steps:>5} {took or '-':>9} {times or '-':>6}"
            f" {scored[0]:>19} {scored[1]:>19} {near:>14}"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate presets`."""
    add = parser.add_argument
    add("--world", default="toybox", help="toybox, or a Toybox build's folder (default %(default)s)")
    add("--presets", nargs="+", choices=tuple(PRESETS), metavar="NAME", help="besides exact (default: all that can be)")
    add(
        "--in-proportion",
        action="store_true",
        help=f"steps as shares of the {RELEASE.decoder.steps} they are meant for",
    )
    add("--full", action="store_true", help="all samples; always so on a GPU, hours on a CPU")
    add("--limit", type=int, metavar="N", help="as of `evaluate toybox`: a measure of how many shots are drawn")
    add("--seed", type=int, default=0, help="another seed asks other games (default %(default)s)")
    add("--device", default="auto", help="auto, cpu or cuda (default %(default)s)")
    add("--dtype", choices=DTYPES, help="default: bfloat16 on a GPU, float32 elsewhere")
    add("--workers", type=int, help="processes that draw and measure (default: one a core)")
    add("--out", type=Path, default=Path("out/evaluate-presets"), help="for presets.json (default %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Measure, print and save; returns the exit status."""
    from ..play import choose_device
    from .report import command_line, machine

    device = choose_device(args.device)
    trial = _trial(args, device)
    dtype = args.dtype or ("float32" if device == "cpu" else "bfloat16")
    facts = {**_facts(args, trial, device, dtype), "command": command_line(), "machine": machine()}
    print(f"{facts['shots']} shots, and as many for ACC-F; {device}, {dtype}; a timed turn is engine, sampler and VAE")
    print(HEAD)
    scores: list[PresetScore] = []
    exact = None
    for preset in _presets(args, trial.lab.world.spec, device, dtype):
        score, shots = _score(trial, preset, dtype, exact)
        exact = shots if exact is None else exact
        scores.append(score)
        print(score.line(scores[0]), flush=True)
        values = {**facts, "presets": [_values(score) for score in scores]}
        write_text(args.out / "presets.json", json.dumps(values, indent=1, allow_nan=False) + "\n")
    print(args.out / "presets.json")
    return 0


def in_proportion(preset: Preset, spec: ModelSpec) -> Preset:
    """The preset with the same share of a world's steps that it takes of the released worlds' 50."""
    if preset.steps is None:
        return preset
    return replace(preset, steps=max(1, round(preset.steps * spec.decoder.steps / RELEASE.decoder.steps)))


def turn_seconds(trial: Trial, dtype: str) -> tuple[float, ...]:
    """Seconds of whole turns, one after another, in the middle of a game; the first one warms up and is left out."""
    import torch

    from ..state import GameSession
    from ..video import to_uint8

    lab = trial.lab
    engine = lab.world.load_engine(lab.device, getattr(torch, dtype))
    session, typed = GameSession(window=READ), trial.told.instructions
    for number in range(READ):
        session = session.step(typed[number % len(typed)], engine.predict(session.past(), typed[number % len(typed)]))
    seconds = []
    for _ in range(1 + REPEATS):
        begun = time.perf_counter()
        state = engine.predict(session.past(), typed[0])
        motion = lab.world.motion_table.value(state.motion)
        how = {"steps": lab.steps, "guidance": lab.guidance}
        to_uint8(lab.decoder.shoot(state.representation, motion, seed=1, **how).cpu())
        seconds.append(time.perf_counter() - begun)
    return tuple(seconds[1:])


def _presets(args: argparse.Namespace, spec: ModelSpec, device: str, dtype: str) -> list[Preset]:
    """Exact first, then the world as it is, then what was asked for."""
    names = args.presets or [
        name for name, row in PRESETS.items() if row.stream_gib is None or device.startswith("cuda")
    ]
    asked = [get_preset(name) for name in names if name != REFERENCE]
    asked.sort(key=lambda row: row.stream_gib or 0.0)  # those that cap what the process may take come last
    rows = [preset_on(preset, device, print, dtype) for preset in (get_preset(REFERENCE), UNTUNED, *asked)]
    return [in_proportion(row, spec) for row in rows] if args.in_proportion else rows


def _trial(args: argparse.Namespace, device: str) -> Trial:
    from ..checkpoint import open_world
    from .acceptance.lab import Lab
    from .acceptance.trial import Trial, asked_plan

    plan = asked_plan(device, args.full, args.limit, args.seed)
    return Trial(Lab(open_world(args.world), device, args.workers), replace(plan, true=plan.shots), args.seed)


def _score(trial: Trial, preset: Preset, dtype: str, exact: Clips | None) -> tuple[PresetScore, Clips]:
    """The preset's score and its shots. exact: those of preset exact, None while it is the one that is asked."""
    import numpy as np

    from .acceptance.lab import Sampling
    from .acceptance.table import SCORED
    from .figures import motion_accuracy, psnr, share

    drawn = trial.drawn_by(trial.lab.drawing(Sampling(preset=preset, dtype=dtype)))
    seconds = turn_seconds(drawn, dtype) if preset.stream_gib is None else ()
    seen, truth = drawn.lab.see(drawn.shots), drawn.told.labels
    right = {head: seen[head] == truth[head] for head in SCORED}
    near = None if exact is None else psnr(drawn.shots, exact)
    score = PresetScore(
        preset=preset,
        steps=drawn.lab.steps,
        guidance=drawn.lab.guidance,
        seconds=seconds,
        recognised={head: share(flags) for head, flags in right.items()},
        recognition=share(np.concatenate(list(right.values()))),
        accuracy=motion_accuracy(drawn.asked, drawn.answers),
        psnr=near if near is not None and np.isfinite(near) else None,
    )
    return score, drawn.shots


def _facts(args: argparse.Namespace, trial: Trial, device: str, dtype: str) -> dict[str, object]:
    world = trial.lab.world
    return {
        "world": world.spec.name,
        "fingerprint": world.fingerprint,
        "profile": world.profile.name,
        "seed": args.seed,
        "shots": trial.plan.shots,
        "in_proportion": args.in_proportion,
        "device": device,
        "dtype": dtype,
    }


def _values(score: PresetScore) -> dict[str, object]:
    return {**asdict(score), "median": score.median}


def _with_points(figure: Figure, exact: Figure) -> str:
    return f"{100 * figure.value:.1f} % ({100 * (figure.value - exact.value):+.1f})"
