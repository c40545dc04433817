"""TAEHV's decoder for CogVideoX's VAE (https://github.com/madebyollin/taehv, MIT), read from a file of the user's."""

from __future__ import annotations

from pathlib import Path

from ..model.decoder import ShotDecoder
from ..model.tiny_decoder import TinyDecoder
from .keys import MappedSource, Rule, map_keys
from .parts import check_names, narrowed
from .storage import SafetensorsSource
from .weight_files import PickleSource

WIDTHS = (256, 128, 64, 64)
KEYS = (Rule(r"encoder\..+", None), Rule(r"(decoder\..+)", r"\1"))


def attach_taehv(decoder: ShotDecoder, path: Path) -> None:
    """Give a world's VAE the tiny decoder in a file, in place; CheckpointError for another file."""
    found = SafetensorsSource(path) if path.suffix == ".safetensors" else PickleSource(path)
    source = MappedSource(path, "float16", map_keys(found, KEYS))
    tiny, like = TinyDecoder(decoder.spec.decoder.vae.latent_channels, WIDTHS), decoder.vae.dtype
    check_names(source, tiny.state_dict())
    tiny.load_state_dict({name: narrowed(source.tensor(name), like, source.where(name)) for name in source.keys()})  # noqa: SIM118
    decoder.vae.tiny = tiny.to(decoder.unconditional_ND.device, like).requires_grad_(False)
