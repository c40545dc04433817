"""GameModel: a world with the choices of LoadAnimeGamer. Its models are loaded at first use and freed with it.

ComfyUI caches a GameModel while the node's widgets stay the same. When they change, or the user frees memory, ComfyUI
drops it, and its models are freed. Two GameModels with the same settings share their models.
"""

from __future__ import annotations

import typing
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..animegamer_core.runtime.models import PlaySettings
from ..animegamer_core.runtime.optimizations import compiled_modules
from ..animegamer_core.runtime.presets import (
    PRESETS,
    Preset,
    apply_preset,
    preset_for_device,
    tile_if_needed,
    with_preset,
)
from ..animegamer_core.spec import Sampling, dtype_name, read_timesteps
from ..animegamer_core.weights import World
from . import comfyui
from .values import WORLD

if typing.TYPE_CHECKING:
    import torch
    from torch import nn

    from ..animegamer_core.model.decoder import ShotDecoder
    from ..animegamer_core.model.encoder import ShotEncoder
    from ..animegamer_core.model.engine import GameEngine

PRECISIONS = {"auto": None, "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
PLACEMENTS = ("auto", "cpu", "engine on cpu")
AS_WORLD = Preset(WORLD)  # as the world says
# Core's other presets offload weights themselves; here ComfyUI manages the memory.
OFFERED = {row.name: row for row in (AS_WORLD, *(PRESETS[name] for name in ("exact", "balanced", "live", "turbo")))}
MEMORY_FRACTION = 0.9  # of a device's memory; the rest is for the desktop, the driver and other programs
PACKAGES = ("diffusers", "transformers", "accelerate", "safetensors", "einops", "tokenizers")


@dataclass(eq=False)
class _Loaded:
    """A model with its ModelPatcher. fitted: fingerprint of the world whose LoRA files are applied now."""

    patcher: typing.Any
    working_bytes: int
    fitted: str


_SHARED: weakref.WeakValueDictionary[tuple, _Loaded] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class GameModel:
    """Settings only, until `engine`, `decoder` or `encoder` loads a model. Each call puts that model on its device and
    may offload the others, so call it before every use and do not keep the result.

    number_type: a key of PRECISIONS. placement: one of PLACEMENTS. preset: how shots are drawn; one of OFFERED.
    """

    world: World
    number_type: str = "auto"
    placement: str = "auto"
    preset: Preset = AS_WORLD
    _held: dict[str, _Loaded] = field(default_factory=dict, repr=False)

    @cached_property
    def precision(self) -> str:
        """The number types of engine and decoder, as stories name them in their keys."""
        names = (dtype_name(self._dtype(kind)) for kind in ("engine", "decoder"))
        return "+".join(dict.fromkeys(names))

    @cached_property
    def usual(self) -> PlaySettings:
        """How shots are drawn if no widget says otherwise: as the preset says, or else the world."""
        return with_preset(self._drawing, PlaySettings(), self.world)

    def settings(
        self, steps: int, guidance: str, timesteps: str = "", solver: str = WORLD, **others: typing.Any
    ) -> PlaySettings:
        """How shots are drawn, from widgets: steps 0, no timesteps, and `world` mean the usual ones.

        others: further fields of PlaySettings.
        """
        chosen = Sampling(
            steps=read_timesteps(timesteps) if timesteps.strip() else steps or None,
            guidance=None if guidance == WORLD else guidance,
            solver=None if solver == WORLD else solver,
        )
        return replace(self.usual, **chosen.stated(), **others)

    def engine(self) -> GameEngine:
        """The world's game engine, on its device."""
        return self._ready("engine", self.world.load_engine)

    def decoder(self) -> ShotDecoder:
        """The world's shot decoder with its VAE, on its device; it decodes in tiles if a whole shot does not fit."""
        return self._ready("decoder", self.world.load_decoder)

    def encoder(self) -> ShotEncoder:
        """The world's shot encoder, on its device; ValueError if the world has none."""
        return self._ready("encoder", self.world.load_encoder)

    def decoder_at_work(self) -> ShotDecoder:
        """The decoder while it draws. It is not placed again, which would free memory for a second shot."""
        return self._held["decoder"].patcher.model

    @property
    def patcher(self) -> typing.Any:
        """The ModelPatcher of a loaded model, or None; if memory is short, ComfyUI drops cached values with one."""
        return next((loaded.patcher for loaded in self._held.values()), None)

    def _ready(self, kind: str, load: Callable[..., nn.Module]) -> typing.Any:
        if kind not in self._held:
            preset = self._drawing if kind == "decoder" else None
            # Worlds that differ only in LoRA files share a model, which is refitted for each, so that another strength
            # does not load it again. An optimized decoder has other layers and cannot be refitted.
            world = self.world.fingerprint if preset and preset.optimizations else self.world.base.fingerprint
            key = (world, kind, self._dtype(kind), self.placement, preset)
            loaded = _SHARED.get(key)
            if loaded is None:
                comfyui.require(*PACKAGES)
                loaded = _SHARED[key] = self._load(kind, load)
            self._held[kind] = loaded
        loaded = self._held[kind]
        if loaded.fitted != self.world.fingerprint:
            self.world.refit(kind, loaded.patcher.model)
            if kind == "decoder":
                loaded.patcher.model.profile = self._drawing.adapt_profile(self.world.profile)
            loaded.fitted = self.world.fingerprint
        return comfyui.place(loaded.patcher, loaded.working_bytes)

    def _load(self, kind: str, load: Callable[..., nn.Module]) -> _Loaded:
        devices = self._devices(kind)
        model = load(devices[1], self._dtype(kind))
        compiled = self._apply_preset(model) if kind == "decoder" else []
        comfyui.make_interruptible(model, compiled)
        size = sum(tensor.nbytes for tensor in model.state_dict().values())
        working = model.working_bytes if kind == "decoder" else size // 8
        return _Loaded(comfyui.wrap(model, devices), working, self.world.fingerprint)

    def _apply_preset(self, decoder: ShotDecoder) -> list[nn.Module]:
        """Apply the preset to a decoder; returns the modules that torch compiles. The log says what is left out."""
        device, name = self._devices("decoder")[0], dtype_name(self._dtype("decoder"))
        preset = preset_for_device(self._drawing, str(device), comfyui.log, name)
        apply_preset(decoder, preset, say=comfyui.log)
        return compiled_modules(decoder, preset.optimizations)

    @cached_property
    def _drawing(self) -> Preset:
        """The preset, adapted to the memory of the decoder's device."""
        comfyui.require(*PACKAGES)  # a turn of a loaded story may be drawn without the engine
        memory = comfyui.memory_bytes(self._devices("decoder")[0]) * MEMORY_FRACTION
        return tile_if_needed(self.preset, self.world.spec, self._dtype("decoder"), round(memory), comfyui.log)

    def _devices(self, kind: str) -> tuple[torch.device, torch.device]:
        on_cpu = self.placement == "cpu" or (self.placement == "engine on cpu" and kind != "decoder")
        return comfyui.device_for(kind, on_cpu)

    def _dtype(self, kind: str) -> torch.dtype:
        import torch

        if self._devices(kind)[0].type == "cpu":  # the choice is ignored there: many are slower with 16-bit numbers
            return self.world.cpu_dtype(kind)
        chosen = PRECISIONS[self.number_type]
        return self.world.stored_dtype(kind) if chosen is None else getattr(torch, chosen)
