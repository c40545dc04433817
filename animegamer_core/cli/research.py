"""The verbs `parity` and `bench`, which compare this code with the published code and with stock calls."""
# ruff: noqa: T201

from __future__ import annotations

import json
import typing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from ..files import write_text
from ..runtime.presets import Preset as RuntimePreset
from ..runtime.presets import get_preset, preset_for_device
from ..spec import DTYPES, dtype_name, get_profile, get_spec
from .options import Device, Guidance, Preset, Profile, note, one_of

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
    preset: tuple[Preset, ...] = ()
    """Presets, each compared with the same stock turn; the options below override it."""
    guidance: Guidance | None = None
    """Guidance schedule; unset: the preset's, or the profile's."""
    steps: int | None = None
    """Sampling steps; unset: the preset's, or the spec's."""
    optimizations: Annotated[tuple[str, ...] | None, arg(name="with", metavar="NAME ...")] = None
    """Optimizations for our turn."""
    each: tuple[str, ...] = ()
    """Optimizations to measure one by one."""
    repeats: int = 3
    """Runs of each part."""
    device: Device = "auto"
    dtype: Annotated[str, one_of(DTYPES)] | None = None
    """Number format; unset: bfloat16 on a GPU, float32 elsewhere."""
    json: Path | None = None
    """Also write all results to this file."""

    def run(self) -> int:
        """Measure and print; returns the exit status."""
        from ..evaluate.benchmark.run import measure_ours, measure_stock
        from ..evaluate.report import command_line

        plans = self._plans()
        for plan in plans:
            plan.check()
        stock, results = measure_stock(plans[0], _say), []
        for plan in plans:
            results.append(measure_ours(plan, stock, _say))
            print(results[-1].text, flush=True)
            if self.json is not None:  # after each plan, so that its results are kept if a later one fails
                values = {"command": command_line(), "benches": [result.values() for result in results]}
                write_text(self.json, json.dumps(values, indent=1) + "\n")
        if self.json is not None:
            print(self.json)
        return 0

    def _plans(self) -> list[BenchmarkPlan]:
        """One plan for each preset, or one without a preset."""
        import torch

        from ..evaluate.benchmark.run import BenchmarkPlan
        from ..runtime.device import choose_device
        from ..weights import open_world

        for option, value in (("--spec", self.spec), ("--profile", self.profile)):
            if value and self.world:
                raise ValueError(f"{option} and --world are both given, but a world has its own; give only one of them")
        if self.repeats < 1:
            raise ValueError(f"--repeats is {self.repeats}; expected 1 or more")
        world = open_world(self.world) if self.world else None
        device = torch.device(choose_device(self.device))
        plan = BenchmarkPlan(
            spec=world.spec if world else get_spec(self.spec or "toybox"),
            device=device,
            dtype=getattr(torch, self.dtype or ("float32" if device.type == "cpu" else "bfloat16")),
            profile=world.profile if world else get_profile(self.profile or "paper"),
            world=world,
            steps=self.steps,
            guidance=self.guidance,
            repeats=self.repeats,
            each=self.each,
        )
        presets = self._presets(plan) or [plan.preset]
        if self.optimizations is not None:
            presets = [replace(preset, optimizations=self.optimizations) for preset in presets]
        return [replace(plan, preset=preset) for preset in presets]

    def _presets(self, plan: BenchmarkPlan) -> list[RuntimePreset]:
        """The presets for the plan's device; ValueError if one offloads and is not the last."""
        device, dtype = str(plan.device), dtype_name(plan.dtype)
        presets = [preset_for_device(get_preset(name), device, _say, dtype) for name in self.preset]
        for preset in presets[:-1]:
            if preset.offload_gib is not None:
                raise ValueError(
                    f"preset {preset.name} caps this process's GPU memory until it ends; name it last, or run it alone"
                )
        return presets


def _say(line: str) -> None:
    note(f"  {line}")
