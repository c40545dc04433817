"""Fits the cameras of `toybox/drawing/draw.py`, so that a clip's measured motion follows its target.

`python tests/measure/cameras.py` draws each motion at five targets, finds the camera's speed at which the measured
motion is the target, and prints gain and power of the line through these speeds, and how well the clips then follow.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

import numpy as np

from animegamer_core.data.workers import parallel_map
from animegamer_core.toybox.drawing import draw
from animegamer_core.toybox.scenes import probe_scene, toybox_motion
from animegamer_core.toybox.world import CHARACTERS, MOTIONS

TARGETS = (0.8, 1.5, 3.0, 6.0, 11.0)
ROUNDS = 4  # corrections of a speed


def clips_of(motion: str, target: float, count: int, first: int = 0) -> list:
    """Probe scenes with this motion and target."""
    found = []
    for seed in range(first, first + 10**6):
        scene = probe_scene(seed)
        partner = next(name for name in CHARACTERS if name != scene.character) if MOTIONS[motion].partner else None
        if seed % 7 == 0:
            found.append(replace(scene, motion=motion, partner=partner, amplitude=target))
        if len(found) == count:
            return found
    return found


def measured(scenes: list, camera: draw.Camera) -> float:
    """The geometric mean of the scenes' motion with this camera."""
    draw.CAMERAS[scenes[0].motion] = camera
    draw._staging.cache_clear()
    return float(np.exp(np.mean(np.log([max(0.05, toybox_motion(draw.draw_shot(scene))) for scene in scenes]))))


def fit(motion: str, count: int) -> tuple[str, float, float, list[float]]:
    """(motion, gain, power, measured motion at the targets with them)."""
    pan, speeds = draw.CAMERAS[motion].pan, []
    for target in TARGETS:
        scenes, speed = clips_of(motion, target, count), 0.5 * target
        for _ in range(ROUNDS):
            value = measured(scenes, draw.Camera(speed, 0.0, pan))
            speed = float(np.clip(speed * (target / value) ** 1.3, 0.05 * target, 2.5 * target))
        speeds.append(speed)
    power, gain = np.polyfit(np.log(TARGETS), np.log(speeds), 1)
    camera = draw.Camera(round(float(np.exp(gain)), 2), round(float(power), 2), pan)
    return (
        motion,
        camera.gain,
        camera.power,
        [measured(clips_of(motion, target, count, 5000), camera) for target in TARGETS],
    )


def main() -> None:
    """Print a line for each motion."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=3, help="clips for each motion and target (default 3)")
    parser.add_argument("--workers", type=int)
    args = parser.parse_args()
    for motion, gain, power, values in parallel_map(
        partial(fit, count=args.clips), list(MOTIONS), args.workers, chunk=1
    ):
        print(f'    "{motion}": Camera({gain}, {power}),  # {" ".join(f"{value:.2f}" for value in values)}', flush=True)


if __name__ == "__main__":
    main()
