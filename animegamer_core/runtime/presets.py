"""Presets: named trade-offs between the speed of a turn, the GPU memory that it takes, and exactness.

A preset is a row of a table: fewer steps, another guidance, optimizations, offloaded weights. Everything that changes a
shot by more than rounding is part of its address in a story. Importing this module does not import torch.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from ..spec import UNSTATED, ModelSpec, Profile, Sampling
from ..weights.storage import note_of
from .models import LoadedModels, PlaySettings
from .optimizations import COMPILING, check_names, optimize, supported

if typing.TYPE_CHECKING:
    import torch

    from ..model.decoder import ShotDecoder
    from ..model.engine import GameEngine
    from ..weights import World
    from .offloading import MemoryPlan

GIB = 2**30
# These make a turn faster and only change rounding.
ROUNDING_ONLY = ("fused", "layout", "flash3", "gelu", "blocks", "vae")
# These work with offloaded weights.
OFFLOADABLE = ("fused", "layout", "flash3", "gelu")
LEAN = ("fused", "flash3", "gelu")

Say = Callable[[str], object]


def _ignore(line: str) -> None:
    pass


@dataclass(frozen=True)
class Preset:
    """One row of the table. None leaves a choice to the world.

    steps: sampling steps, at most the world's own. guidance, skip_guidance_below: as in a profile. optimizations: their
    names; `preset_for_device` removes those for other devices. offload_gib: offload the weights to the host's memory,
    decode shots in tiles, and use at most this many GiB of GPU memory. tiled: decode shots in tiles even without
    offloading, see `tile_if_needed`. fast: whether the tiny decoder draws, where a world has one.
    """

    name: str
    steps: int | None = None
    guidance: str | None = None
    skip_guidance_below: float | None = None
    optimizations: tuple[str, ...] = ()
    offload_gib: float | None = None
    tiled: bool = False
    fast: bool | None = None

    def adapt_profile(self, profile: Profile) -> Profile:
        """The profile with the preset's threshold for skipping the unconditional pass."""
        skip = self.skip_guidance_below
        return profile if skip is None else replace(profile, skip_guidance_below=skip)

    def decodes_fast(self, usual: bool, has_tiny: bool) -> bool:
        """Whether the tiny decoder draws a world's shots. usual: whether it does so without a preset."""
        return usual if self.fast is None else self.fast and has_tiny

    def precision_suffix(self, profile: Profile) -> str:
        """What an address appends to the number format, such as `+tiled`; empty if shots only differ by rounding.

        Steps and guidance have their own fields in an address.
        """
        parts = []
        if self.adapt_profile(profile) != profile:
            parts.append(f"skip{self.skip_guidance_below:g}")
        if self.tiled or self.offload_gib is not None:
            parts.append("tiled")
        return "".join(f"+{name}" for name in parts)


PRESETS: dict[str, Preset] = {
    row.name: row
    for row in (
        Preset(
            "exact", skip_guidance_below=0.0, optimizations=ROUNDING_ONLY, fast=False
        ),  # both guidance passes in every step
        Preset("balanced", 24, "cosine", 1.05, optimizations=ROUNDING_ONLY),  # about half the steps
        Preset("live", 12, "cosine", 1.05, optimizations=ROUNDING_ONLY),  # about a quarter of the steps
        Preset("turbo", 4, "distilled", optimizations=ROUNDING_ONLY, fast=True),  # for a decoder taught few steps
        Preset("low_vram", optimizations=LEAN, offload_gib=7.0),  # on a GPU of 8 GB
        Preset("low_vram_12", optimizations=LEAN, offload_gib=10.5),
        Preset("low_vram_16", optimizations=LEAN, offload_gib=14.0),
    )
}


def preset_for_device(preset: Preset, device: str, say: Say = _ignore, dtype: str = "") -> Preset:
    """The preset without the optimizations that do not help on this device; say gets the reasons.

    dtype: the number format, such as `bfloat16`; empty if unknown. ValueError if the device cannot offload.
    """
    check_names(preset.optimizations)
    if preset.offload_gib is not None and not device.startswith("cuda"):
        raise ValueError(f"preset {preset.name} offloads weights from a GPU, but the device is {device}; choose exact")
    names, reasons = supported(preset.optimizations, device, dtype)
    for reason in dict.fromkeys(reasons.values()):
        left_out = [name for name, own in reasons.items() if own == reason]
        say(f"preset {preset.name}: skipped {', '.join(left_out)}: {reason}")
    return replace(preset, optimizations=names)


def tile_if_needed(
    preset: Preset, spec: ModelSpec, dtype: torch.dtype, memory_bytes: int, say: Say = _ignore
) -> Preset:
    """The preset for a device with this much memory in total.

    If decoding a whole shot does not fit there next to the decoder's weights, shots are decoded in tiles and the VAE is
    not compiled; say gets both facts. The total memory counts, not what is free now, so that the same request always
    has the same address.
    """
    from ..model.decoder import ShotDecoder
    from ..weights.parts import build_model

    decoder = build_model(lambda: ShotDecoder(spec)).to(dtype)
    needed = sum(tensor.nbytes for tensor in decoder.state_dict().values()) + decoder.working_bytes
    if needed <= memory_bytes:
        return preset
    say(f"decoding a whole shot takes {needed / 1e9:.1f} of {memory_bytes / 1e9:.1f} GB, so shots are decoded in tiles")
    if "vae" in preset.optimizations:
        say(f"preset {preset.name}: skipped vae: tiles have too many shapes to compile")
    return replace(preset, tiled=True, optimizations=tuple(name for name in preset.optimizations if name != "vae"))


def check_offloading(preset: Preset) -> None:
    """ValueError for an optimization that does not work with offloaded weights."""
    wrong = [name for name in preset.optimizations if name not in OFFLOADABLE]
    if preset.offload_gib is not None and wrong:
        raise ValueError(
            f"optimization {wrong[0]} does not work with offloading, which preset {preset.name} uses; drop it, or "
            "choose another preset"
        )


def resolve_sampling(
    spec: ModelSpec, profile: Profile, asked: Sampling = UNSTATED, preset: Preset | None = None
) -> Sampling:
    """The sampling that is asked for; what it leaves open is the preset's; else the world's (its spec's and its
    profile's).

    A preset never raises the number of steps above the world's, and keeps timesteps, for which a world uses DDIM.
    """
    own = spec.decoder.steps
    usual = Sampling(steps=own, guidance=profile.guidance, solver=spec.decoder.solver)
    if preset is not None:
        steps = min(preset.steps or own, own) if isinstance(own, int) else own
        usual = replace(usual, steps=steps, guidance=preset.guidance or usual.guidance)
    return replace(usual, **asked.stated())


def sampling_in(world: World, asked: Sampling, preset: Preset | None = None) -> Sampling:
    """`resolve_sampling` for a world, whose adapters come after what is asked for and before the preset."""
    asked = replace(world.taught, **asked.stated())
    return resolve_sampling(world.spec, world.profile, asked, preset)


def with_preset(preset: Preset, settings: PlaySettings, world: World) -> PlaySettings:
    """The settings with the preset's sampling, unless they or an adapter state their own, and its precision suffix."""
    suffix, vae, taehv = preset.precision_suffix(world.profile), world.spec.decoder.vae, world.taehv
    if preset.decodes_fast(vae.fast, bool(vae.tiny or taehv)) != vae.fast:
        suffix += "+full" if vae.fast else "+fast"
        suffix += f"-{note_of(taehv).sha256[:12]}" if taehv else ""  # no part of the world's fingerprint
    return replace(settings, **sampling_in(world, settings, preset).stated(), precision_suffix=suffix)


def apply_preset(
    decoder: ShotDecoder, preset: Preset, memory_plan: MemoryPlan | None = None, say: Say = _ignore
) -> None:
    """Change a loaded decoder as the preset says, in place and for good.

    memory_plan: offloads the decoder, which must be on the CPU. say gets the plan, and a warning about a slow start.
    ValueError if an optimization's requirements are missing, or if more GPU memory is needed.
    """
    check_offloading(preset)
    decoder.profile = preset.adapt_profile(decoder.profile)
    decoder.tiled = preset.tiled
    decoder.fast = preset.decodes_fast(decoder.spec.decoder.vae.fast, hasattr(decoder.vae, "tiny"))
    optimize(decoder, preset.optimizations)
    if any(name in COMPILING for name in preset.optimizations):
        say(f"preset {preset.name}: the first shot is compiled, which takes a minute or two")
    if memory_plan is not None:
        for budget in memory_plan.offload(decoder):
            say(budget.text)
        decoder.tiled = True  # for every size, so that addresses are known before anything is loaded


def memory_plan_of(preset: Preset, device: str) -> MemoryPlan | None:
    """The memory plan that a preset's models share; None if it does not offload. It limits torch's memory."""
    if preset.offload_gib is None:
        return None
    import torch

    from .offloading import MemoryPlan

    return MemoryPlan(torch.device(device), round(preset.offload_gib * GIB))


class PresetModels(LoadedModels):
    """A world's models with a preset applied, loaded when first needed and then cached."""

    def __init__(self, world: World, settings: PlaySettings, preset: Preset, say: Say = _ignore) -> None:
        """say: gets memory budgets and warnings. ValueError for a preset that offloads together with CFG parallel."""
        super().__init__(world, settings)
        self._say = say
        if preset.offload_gib is not None and settings.cfg_parallel:
            raise ValueError(
                f"preset {preset.name} offloads weights and works on one device; drop --cfg-parallel, or choose "
                "another preset"
            )
        self.preset = preset

    @cached_property
    def _memory_plan(self) -> MemoryPlan | None:
        return memory_plan_of(self.preset, self.settings.device)

    def _load_engine(self) -> GameEngine:
        if self._memory_plan is None:
            return super()._load_engine()
        engine = self.world.load_engine("cpu", self.settings.dtype or self.world.stored_dtype("engine"))
        for budget in self._memory_plan.offload(engine):
            self._say(budget.text)
        return engine

    def _load_decoder(self) -> ShotDecoder:
        if self._memory_plan is None:
            decoder = super()._load_decoder()
        else:
            decoder = self.world.load_decoder("cpu", self.settings.dtype or self.world.stored_dtype("decoder"))
        apply_preset(decoder, self.preset, self._memory_plan, self._say)
        return decoder
