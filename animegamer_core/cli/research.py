"""The verbs `parity` and `bench`, which compare this code with the published code and with stock calls."""
# ruff: noqa: T201

from __future__ import annotations

import typing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from ..runtime.presets import PRESETS, preset_for_device
from ..spec import DTYPES, get_profile, get_spec
from .options import AskedSteps, Device, Guidance, Preset, Profile, Solver, note, one_of, sampling_of

if typing.TYPE_CHECKING:
    from ..evaluate.benchmark.run import BenchmarkPlan


@dataclass(frozen=True, kw_only=True)
class Parity:
    folder: Positional[Path]
    """Folder of golden fixtures."""

    def run(self) -> int:
        """Print the table; 1 if a row is not ok, or if the folder has no part at all."""
        from ..evaluate.parity import parity

        rows, absent = parity(self.folder)
        print(f"{'part':<24}{'cases':>6}{'difference':>12}{'tolerance':>11}")
        for part, cases, difference, tolerance in rows:
            ok = "ok" if difference <= tolerance else "NOT OK"
            print(f"{part:<24}{cases:>6}{difference:>12.3g}{tolerance:>11g}  {ok}")
        if absent:
            print(f"absent: {', '.join(absent)}")
        return 0 if rows and all(difference <= tolerance for _, _, difference, tolerance in rows) else 1


@dataclass(frozen=True, kw_only=True)
class Bench:
    spec: Literal["release", "toybox", "tiny"] | None = None
    """Model sizes, with random weights; unset: toybox."""
    world: str | None = None
    """Use a world's real weights instead of random ones."""
    profile: Profile | None = None
    """How prompts are read; unset: the world's, or paper."""
    preset: Preset | None = None
    """Preset of our turn; the options below override it."""
    guidance: Guidance | None = None
    """Guidance schedule; unset: the preset's, or the profile's."""
    steps: AskedSteps = None
    """Sampling steps, or their timesteps; unset: the preset's, or the spec's."""
    solver: Solver | None = None
    """How a step is taken; unset: the scripts', or DDIM for a world with its own timesteps."""
    optimizations: Annotated[tuple[str, ...] | None, arg(name="with", metavar="NAME ...")] = None
    """Optimizations for our turn."""
    repeats: int = 3
    """Runs of each part."""
    device: Device = "auto"
    dtype: Annotated[str, one_of(DTYPES)] | None = None
    """Number format; unset: bfloat16 on a GPU, float32 elsewhere."""

    def run(self) -> int:
        """Measure and print; returns the exit status."""
        from ..evaluate.benchmark.run import measure_ours, measure_stock

        plan = self._plan()
        plan.check()
        _say(f"stock modules of spec {plan.spec.name}")
        print(measure_ours(plan, measure_stock(plan), _say).text)
        return 0

    def _plan(self) -> BenchmarkPlan:
        import torch

        from ..evaluate.benchmark.run import NO_PRESET, BenchmarkPlan
        from ..runtime.device import choose_device
        from ..weights import open_world

        if self.world and (self.spec or self.profile):
            raise ValueError("--world has its own spec and profile; drop --spec and --profile")
        world, place = open_world(self.world) if self.world else None, choose_device(self.device)
        dtype = self.dtype or ("float32" if place == "cpu" else "bfloat16")
        preset = preset_for_device(PRESETS[self.preset], place, _say, dtype) if self.preset else NO_PRESET
        return BenchmarkPlan(
            spec=world.spec if world else get_spec(self.spec or "toybox"),
            device=torch.device(place),
            dtype=getattr(torch, dtype),
            profile=world.profile if world else get_profile(self.profile or "paper"),
            world=world,
            preset=preset if self.optimizations is None else replace(preset, optimizations=self.optimizations),
            asked=sampling_of(self.steps, self.guidance, self.solver),
            repeats=max(1, self.repeats),
        )


def _say(line: str) -> None:
    note(f"  {line}")
