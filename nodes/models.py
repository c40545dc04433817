"""GameModel: a world with the choices of LoadAnimeGamer. Its models are loaded when first used, and live as long as it.

ComfyUI keeps the value in its cache while the node's widgets stay the same. When they change, or the user frees memory,
the value goes and its models with it; two values of the same facts share theirs.
"""

from __future__ import annotations

import logging
import typing
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from ..animegamer_core.checkpoint import World
from ..animegamer_core.models import PlaySettings
from ..animegamer_core.presets import PRESETS, Preset, in_room, prepare, preset_on, settings_by
from ..animegamer_core.spec import dtype_name
from ..animegamer_core.tuning import compiled_parts
from . import host
from .values import WORLD

if typing.TYPE_CHECKING:
    import torch
    from torch import nn

    from ..animegamer_core.decoder import ShotDecoder
    from ..animegamer_core.encoder import ShotEncoder
    from ..animegamer_core.engine import GameEngine

PRECISIONS = {"auto": None, "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
PLACEMENTS = ("auto", "cpu", "engine on cpu")
AS_WORLD = Preset(WORLD, "as the world says")
# The others of core's stream weights through a small card; here ComfyUI finds room for models.
OFFERED = {row.name: row for row in (AS_WORLD, *(PRESETS[name] for name in ("exact", "balanced", "live")))}
OURS = 0.9  # of a device's memory; the rest is the page's, the driver's and other programs'
PACKAGES = ("diffusers", "transformers", "accelerate", "safetensors", "einops", "tokenizers")


class _Loaded:
    """One model under ComfyUI's management. fitted: the fingerprint of the world whose files on top it has now."""

    def __init__(self, patcher: typing.Any, working_bytes: int, fitted: str) -> None:
        self.patcher = patcher
        self.working_bytes = working_bytes
        self.fitted = fitted


_SHARED: weakref.WeakValueDictionary[tuple, _Loaded] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class GameModel:
    """Facts only, until `engine`, `decoder` or `encoder` is called. Each call puts that model on its device, and may
    move the others away: call it before every use, and keep the result no longer than that.

    number_type: a key of PRECISIONS. placement: one of PLACEMENTS. preset: how shots are drawn; one of OFFERED.
    """

    world: World
    number_type: str = "auto"
    placement: str = "auto"
    preset: Preset = AS_WORLD
    _held: dict[str, _Loaded] = field(default_factory=dict, repr=False)

    @property
    def fingerprint(self) -> str:
        """64 hex digits of all that a turn depends on: the world's own, with the stage files on top of it."""
        return self.world.fingerprint

    @property
    def precision(self) -> str:
        """The number types that engine and decoder compute in, as the addresses of a story name them."""
        names = (dtype_name(self._dtype(kind)) for kind in ("engine", "decoder"))
        return "+".join(dict.fromkeys(names))

    def settings(self, steps: int, guidance: str, **others: typing.Any) -> PlaySettings:
        """How shots are drawn by two widgets' values, which leave 0 and `world` to the preset, and it to the world.
        others: further fields.
        """
        given = PlaySettings(steps=steps or None, guidance=None if guidance == WORLD else guidance, **others)
        return settings_by(self._drawing, given, self.world)

    def engine(self) -> GameEngine:
        """The world's game engine, ready to predict."""
        return self._ready("engine", self.world.load_engine)

    def decoder(self) -> ShotDecoder:
        """The world's shot decoder with its VAE, ready to shoot: in tiles where no whole shot finds room."""
        return self._ready("decoder", self.world.load_decoder)

    def encoder(self) -> ShotEncoder:
        """The world's shot encoder, ready to read a picture; ValueError if the world came without."""
        return self._ready("encoder", self.world.load_encoder)

    def decoder_at_work(self) -> ShotDecoder:
        """The decoder while it shoots, left where it is: to place it again would make room for a second shot."""
        return self._held["decoder"].patcher.model

    @property
    def patcher(self) -> typing.Any:
        """One that holds a model, or None: ComfyUI's cache lets old values with one go first when memory is short."""
        return next((loaded.patcher for loaded in self._held.values()), None)

    def _ready(self, kind: str, load: Callable[..., nn.Module]) -> typing.Any:
        if kind not in self._held:
            preset = self._drawing if kind == "decoder" else None
            # Worlds that differ in files on top share a model, which is fitted anew for each: another strength loads
            # nothing again. An optimized decoder cannot be, since its layers are other ones.
            world = self.fingerprint if preset and preset.tunings else self.world.base.fingerprint
            key = (world, kind, self._dtype(kind), self.placement, preset)
            loaded = _SHARED.get(key)
            if loaded is None:
                host.require(*PACKAGES)
                loaded = _SHARED[key] = self._load(kind, load)
            self._held[kind] = loaded
        loaded = self._held[kind]
        if loaded.fitted != self.fingerprint:
            self.world.refit(kind, loaded.patcher.model)
            if kind == "decoder":
                loaded.patcher.model.profile = self._drawing.profile_of(self.world.profile)
            loaded.fitted = self.fingerprint
        return host.place(loaded.patcher, loaded.working_bytes)

    def _load(self, kind: str, load: Callable[..., nn.Module]) -> _Loaded:
        devices = self._devices(kind)
        model = load(devices[1], self._dtype(kind))
        compiled = self._apply_preset(model) if kind == "decoder" else []
        host.make_interruptible(model, compiled)
        size = _size_of(model)
        working = model.working_bytes if kind == "decoder" else size // 8
        return _Loaded(host.wrap(model, devices), working, self.fingerprint)

    def _apply_preset(self, decoder: ShotDecoder) -> list[nn.Module]:
        """Make a decoder draw as the preset says; returns the modules that torch compiles. The log names what is of no
        use here.
        """
        device, name = self._devices("decoder")[0], dtype_name(self._dtype("decoder"))
        preset = preset_on(self._drawing, str(device), _log, name)
        prepare(decoder, preset, say=_log)
        return compiled_parts(decoder, preset.tunings)

    @cached_property
    def _drawing(self) -> Preset:
        """The preset, as the decoder's device has room for it."""
        host.require(*PACKAGES)  # a turn of a loaded story may be drawn with no engine asked for before
        memory = host.memory_bytes(self._devices("decoder")[0]) * OURS
        return in_room(self.preset, self.world.spec, self._dtype("decoder"), round(memory), _log)

    def _devices(self, kind: str) -> tuple[torch.device, torch.device]:
        on_cpu = self.placement == "cpu" or (self.placement == "engine on cpu" and kind != "decoder")
        return host.device_for(kind, on_cpu)

    def _dtype(self, kind: str) -> torch.dtype:
        import torch

        # 16-bit numbers are slower than float32 on a CPU, so there the choice is none.
        if self._devices(kind)[0].type == "cpu":
            return torch.float32
        chosen = PRECISIONS[self.number_type]
        return self.world.stored_dtype(kind) if chosen is None else getattr(torch, chosen)


def _log(line: str) -> None:
    logging.info("AnimeGamer: %s", line)


def _size_of(model: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in model.state_dict().values())
