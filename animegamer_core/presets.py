"""Presets: named answers to how fast a turn has to be, and how much of a card it may take.

A preset is a row of one table: fewer steps, another guidance, ways of `tuning`, weights that stream through the card.
What changes a shot beyond rounding is part of its address in a story. Naming a preset imports no torch.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from .models import LoadedModels, PlaySettings
from .spec import ModelSpec, Profile
from .tuning import COMPILING, approximations, check_names, tune, usable

if typing.TYPE_CHECKING:
    import torch

    from .checkpoint import World
    from .decoder import ShotDecoder
    from .engine import GameEngine
    from .streaming import Card

GIB = 2**30
# Ways that pay and change nothing beyond rounding.
ROUNDS_ONLY = ("fused", "layout", "onednn", "flash3", "gelu", "blocks", "vae")
# Ways that weights can have which pass through a card.
STREAMABLE = ("fused", "layout", "cudnn", "half_vae", "flash3", "gelu")

Say = Callable[[str], object]


@dataclass(frozen=True)
class Preset:
    """One answer. None leaves a choice to the world.

    steps: sampling steps, at most the world's own. guidance, skip_guidance_below: as a profile's. tunings: names of
    `tuning`; `preset_on` leaves out those for other devices. stream_gib: the weights stay in the host's memory and pass
    through the card, of which a turn may take so many GiB; shots are then decoded in tiles. tiled: so are shots of
    weights that stay, which `in_room` decides.
    """

    name: str
    about: str
    steps: int | None = None
    guidance: str | None = None
    skip_guidance_below: float | None = None
    tunings: tuple[str, ...] = ()
    stream_gib: float | None = None
    tiled: bool = False

    def steps_in(self, spec: ModelSpec) -> int:
        """Sampling steps in a world: never more than its own."""
        return min(self.steps or spec.decoder.steps, spec.decoder.steps)

    def guidance_in(self, profile: Profile) -> str:
        """The guidance schedule of a world that is played by this profile."""
        return self.guidance or profile.guidance

    def profile_of(self, profile: Profile) -> Profile:
        """The profile, skipping the unconditional half as the preset does."""
        skip = self.skip_guidance_below
        return profile if skip is None else replace(profile, skip_guidance_below=skip)

    def drawn(self, profile: Profile) -> str:
        """What an address adds to the number format, such as `+first_block`; empty where shots differ in rounding only.

        Steps and guidance are named by addresses anyway.
        """
        means = list(approximations(self.tunings))
        if self.profile_of(profile) != profile:
            means.append(f"skip{self.skip_guidance_below:g}")
        if self.tiled or self.stream_gib is not None:
            means.append("tiled")
        return "".join(f"+{name}" for name in means)


def _low_vram(name: str, card: int, gib: float) -> Preset:
    return Preset(name, f"all steps, on a card of {card} GB", tunings=("fused", "flash3", "gelu"), stream_gib=gib)


PRESETS: dict[str, Preset] = {
    row.name: row
    for row in (
        Preset("exact", "all steps, both halves of guidance in each", skip_guidance_below=0.0, tunings=ROUNDS_ONLY),
        Preset("balanced", "about half the steps", 24, "cosine", 1.05, tunings=ROUNDS_ONLY),
        Preset("live", "about a quarter of the steps", 12, "cosine", 1.05, tunings=ROUNDS_ONLY),
        _low_vram("low_vram", 8, 7.0),
        _low_vram("low_vram_12", 12, 10.5),
        _low_vram("low_vram_16", 16, 14.0),
    )
}


def get_preset(name: str) -> Preset:
    """The named row; ValueError lists the names."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}")
    return PRESETS[name]


def overridden(preset: Preset, **given: object) -> tuple[str, ...]:
    """A sentence for each field of the preset that an explicit option (None: not given) takes the place of."""
    told = [(name, value, getattr(preset, name)) for name, value in given.items() if value is not None]
    return tuple(f"{name} {_said(value)}, in place of the preset's {_said(own)}" for name, value, own in told)


def _said(value: object) -> str:
    if value is None:
        return "none of its own"
    return (", ".join(value) or "none") if isinstance(value, tuple) else str(value)


def preset_on(preset: Preset, device: str, say: Say = lambda line: None, dtype: str = "") -> Preset:
    """The preset as this device can do it, in a number format such as `bfloat16` where that is known; say hears of
    tunings that are left out. ValueError if it cannot at all.
    """
    check_names(preset.tunings)
    if preset.stream_gib is not None and not device.startswith("cuda"):
        raise ValueError(
            f"preset {preset.name} streams weights through a GPU, and the device is {device}; choose exact there"
        )
    able, reasons = usable(preset.tunings, device, dtype)
    for reason in dict.fromkeys(reasons.values()):
        left_out = [name for name, own in reasons.items() if own == reason]
        say(f"preset {preset.name}: {', '.join(left_out)} left out, {reason}")
    return replace(preset, tunings=able)


def in_room(
    preset: Preset, spec: ModelSpec, dtype: torch.dtype, memory_bytes: int, say: Say = lambda line: None
) -> Preset:
    """The preset on a device of so much memory: where no whole shot finds room beside the decoder's weights in this
    format, shots are decoded in tiles, and the VAE is not compiled. say hears of both.

    The device decides, and not what is free of it at the moment: the same request then draws the same shot, at the same
    address, each time.
    """
    from .checkpoint.parts import build_model
    from .decoder import ShotDecoder

    decoder = build_model(lambda: ShotDecoder(spec)).to(dtype)
    needed = sum(tensor.nbytes for tensor in decoder.state_dict().values()) + decoder.working_bytes
    if needed <= memory_bytes:
        return preset
    say(f"a shot would take {needed / 1e9:.1f} of {memory_bytes / 1e9:.1f} GB, so shots are decoded in tiles")
    if "vae" in preset.tunings:
        say(f"preset {preset.name}: vae left out, since tiles have too many shapes to compile their decoding")
    return replace(preset, tiled=True, tunings=tuple(name for name in preset.tunings if name != "vae"))


def check_streaming(preset: Preset) -> None:
    """ValueError for a tuning that weights cannot have which pass through a card."""
    fixed = [name for name in preset.tunings if name not in STREAMABLE]
    if preset.stream_gib is not None and fixed:
        raise ValueError(
            f"preset {preset.name} streams, and tuning {fixed[0]} needs weights that stay where they are; leave it "
            "out, or choose another preset"
        )


def settings_by(preset: Preset, settings: PlaySettings, world: World) -> PlaySettings:
    """The settings with the preset's choices where they leave one to the world."""
    return replace(
        settings,
        steps=settings.steps or preset.steps_in(world.spec),
        guidance=settings.guidance or preset.guidance_in(world.profile),
        drawn=preset.drawn(world.profile),
    )


def prepare(decoder: ShotDecoder, preset: Preset, card: Card | None = None, say: Say = lambda line: None) -> None:
    """Make a loaded decoder draw as the preset says, in place and for good. card: what it streams through, if it does;
    it then lies on the CPU, and say hears of its shares, as of a slow start. ValueError says what a tuning needs, or
    how much a card.
    """
    check_streaming(preset)
    decoder.profile = preset.profile_of(decoder.profile)
    decoder.tiled = preset.tiled
    tune(decoder, preset.tunings)
    if any(name in COMPILING for name in preset.tunings):
        say(f"preset {preset.name}: the first shot compiles, which takes a minute or two")
    if card is not None:
        for share in card.stream(decoder):
            say(share.text)
        decoder.tiled = True  # at every size, so that addresses can say so before anything is loaded


def card_of(preset: Preset, device: str) -> Card | None:
    """The card that a preset's models stream through, taking turns; None if they do not. It caps what torch takes of
    the device from now on.
    """
    if preset.stream_gib is None:
        return None
    import torch

    from .streaming import Card

    return Card(torch.device(device), round(preset.stream_gib * GIB))


class PresetModels(LoadedModels):
    """A world's own models, made ready for a preset when first needed and kept."""

    def __init__(self, world: World, settings: PlaySettings, preset: Preset, say: Say = lambda line: None) -> None:
        """say hears what streams how. ValueError for a preset that streams through one device, with halves on two."""
        super().__init__(world, settings)
        self._say = say
        if preset.stream_gib is not None and settings.halves:
            raise ValueError(
                f"preset {preset.name} streams weights through one device; leave the halves' second one out, or choose "
                "another preset"
            )
        self.preset = preset

    @cached_property
    def _card(self) -> Card | None:
        return card_of(self.preset, self.settings.device)

    def _load_engine(self) -> GameEngine:
        if self.settings.apart or self._card is None:  # in this order: the card is the decoder's thread's to make
            return super()._load_engine()
        engine = self.world.load_engine("cpu", self.settings.dtype or self.world.stored_dtype("engine"))
        for share in self._card.stream(engine):
            self._say(share.text)
        return engine

    def _load_decoder(self) -> ShotDecoder:
        if self._card is None:
            decoder = super()._load_decoder()
        else:
            decoder = self.world.load_decoder("cpu", self.settings.dtype or self.world.stored_dtype("decoder"))
        prepare(decoder, self.preset, self._card, self._say)
        return decoder
