"""Other people's weight files: pickles, which are never executed, safetensors, and folders of them.

torch.load always runs with weights_only=True, which rebuilds tensors and plain values and refuses everything else. The
allow-list adds only what numpy needs to rebuild an array of numbers: DeepSpeed puts a random generator's state next to
the weights (docs/reference.md, files on disk).
"""

from __future__ import annotations

import struct
import threading
import typing
import zipfile
from pathlib import Path
from pickle import UnpicklingError  # the exception only; nothing here unpickles by itself

import numpy
import torch

from ..messages import shortened
from ..model.tiny_decoder import TinyDecoder
from .keys import MappedSource, Rule, map_keys
from .parts import check_names, narrowed
from .storage import CheckpointError, SafetensorsSource, TensorSource, find_safetensors, refuse_pointer

if typing.TYPE_CHECKING:
    from ..model.decoder import ShotDecoder

_NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
_LOAD_ERRORS = (  # of torch's readers, for a file that is cut off, damaged, or of another kind
    RuntimeError, UnpicklingError, EOFError, OSError, ValueError, LookupError, TypeError, AttributeError,
    AssertionError, struct.error,
)  # fmt: skip
_loading = threading.Lock()  # torch keeps one allow-list for all threads: one that ends would take another's away


class PickleSource(TensorSource):
    """The tensors of a file that torch.save wrote."""

    def __init__(self, path: Path, inside: str | None = None) -> None:
        """inside: the entry of the dict that holds the tensors."""
        tensors = _load(path)
        if inside is not None and isinstance(tensors, dict):
            tensors = tensors.get(inside)
        if not isinstance(tensors, dict) or not tensors or not all(map(torch.is_tensor, tensors.values())):
            where = f" under {inside!r}" if inside else ""
            raise CheckpointError(f"{path}: holds something else than tensors{where}; expected named tensors only")
        super().__init__(path, [path], tensors)


TAEHV_WIDTHS = (256, 128, 64, 64)
TAEHV_KEYS = (Rule(r"encoder\..+", None), Rule(r"(decoder\..+)", r"\1"))
_STEMS = ("model", "pytorch_model", "open_clip_model", "open_clip_pytorch_model", "diffusion_pytorch_model")


def open_weights(folder: Path, whose: str) -> TensorSource:
    """The weights in a folder: safetensors, whole or in shards, or a torch file. CheckpointError names `whose`."""
    for stem in _STEMS:
        if files := find_safetensors(folder, stem):
            return SafetensorsSource(*files)
        if (folder / f"{stem}.bin").is_file():
            return PickleSource(folder / f"{stem}.bin")
    raise CheckpointError(f"{folder}: no weights; expected those of {whose} (safetensors or .bin)")


def decoder_file(folder: Path) -> Path:
    """The weights of a VDM_Decoder-* folder: `latest` names the sub-folder, a number or `release`."""
    latest = folder / "latest"
    if not latest.is_file():
        raise CheckpointError(f"{latest}: no such file; expected a text file that names the sub-folder of the weights")
    text = latest.read_text(encoding="utf-8-sig", errors="replace").strip()
    if text != "release" and not text.isdecimal():  # never the path of another folder
        raise CheckpointError(f"{latest}: says {shortened(text, 40)!r}; expected a number or 'release'")
    path = folder / text / "mp_rank_00_model_states.pt"
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file, though {latest.name} says {text!r}; download the whole folder")
    return path


def attach_taehv(decoder: ShotDecoder, path: Path) -> None:
    """Give a VAE the decoder in a file of TAEHV's as its tiny decoder, in place; CheckpointError for another file."""
    found = SafetensorsSource(path) if path.suffix == ".safetensors" else PickleSource(path)
    source = MappedSource(path, "float16", map_keys(found, TAEHV_KEYS))
    tiny, like = TinyDecoder(decoder.spec.decoder.vae.latent_channels, TAEHV_WIDTHS), decoder.vae.dtype
    check_names(source, tiny.state_dict())
    tiny.load_state_dict({name: narrowed(source.tensor(name), like, source.where(name)) for name in source.mapped})
    decoder.vae.tiny = tiny.to(decoder.unconditional_ND.device, like).requires_grad_(False)


def _load(path: Path) -> typing.Any:
    """What torch.save stored; CheckpointError if reading it would run code, or it is damaged."""
    refuse_pointer(path)
    try:
        with _loading, torch.serialization.safe_globals(_numpy_globals()):
            # files from before torch 1.6 are no zip, and cannot be mapped
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except _LOAD_ERRORS as error:
        raise CheckpointError(
            f"{path}: torch cannot load it safely ({shortened(error, 120)}); download again"
        ) from error


def _numpy_globals() -> list[typing.Any]:
    """What rebuilds an array of numbers, under the names of numpy 1 and numpy 2."""
    multiarray = getattr(numpy, "_core", None) or numpy.core
    rebuild = multiarray.multiarray._reconstruct
    names = ("numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct")
    kinds = [type(numpy.dtype(name)) for name in _NUMBERS]
    return [*((rebuild, name) for name in names), numpy.ndarray, numpy.dtype, *kinds]
