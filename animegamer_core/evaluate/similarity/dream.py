"""A published DreamSim model from the user's own folder; nothing is ever downloaded.

M pictures, E embedding width, H height, W width, C channels.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from .files import file_facts, in_parts, missing, package
from .pixels import resized

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

# Where the `dreamsim` package looks for each of its models. Its DINO also comes through torch's hub: code and weights.
_DINO_HUB = ("facebookresearch_dino_main/hubconf.py", "checkpoints/dino_vitbase16_pretrain.pth")
FILES: dict[str, tuple[str, ...]] = {
    "ensemble": (
        "dino_vitb16_pretrain.pth",
        "open_clip_vitb16_pretrain.pth.tar",
        "clip_vitb16_pretrain.pth.tar",
        "ensemble_lora/adapter_config.json",
        *_DINO_HUB,
    ),
    "dino_vitb16": ("dino_vitb16_pretrain.pth", "dino_vitb16_single_lora/adapter_config.json", *_DINO_HUB),
    "open_clip_vitb32": ("open_clip_vitb32_pretrain.pth.tar", "open_clip_vitb32_single_lora/adapter_config.json"),
    "clip_vitb32": ("clip_vitb32_pretrain.pth.tar", "clip_vitb32_single_lora/adapter_config.json"),
}
ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
SIZE = 224


@dataclass(frozen=True)
class DreamSimTower:
    """The `dreamsim` package's model, fed as its own preprocessing does."""

    name: str
    facts: Mapping[str, Any]
    model: nn.Module
    device: torch.device | str

    @torch.inference_mode()
    def pictures(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """(M, E) fp32 unit vectors on the CPU, of RGB pictures of one size, squeezed to 224x224 px."""
        size = (SIZE, SIZE)
        rows = [self.model.embed(resized(part, size).to(self.device)).float().cpu() for part in in_parts(frames_MHWC)]
        return F.normalize(torch.cat(rows), dim=-1)


def open_dreamsim(folder: Path, device: torch.device | str = "cpu") -> DreamSimTower:
    """The DreamSim model whose files a folder holds, the ensemble first; ValueError if it holds none whole.

    The package downloads what it does not find, so it is only called once everything is there. Its DINO runs the code
    that came with it into that folder, so give one that you fetched yourself.
    """
    folder = Path(folder)
    lacks = {kind: missing(folder, (*names, _adapter(names))) for kind, names in FILES.items()}
    kind = next((kind for kind, names in lacks.items() if not names), None)
    if kind is None:
        likely = min(lacks, key=lambda kind: len(lacks[kind]) / len(FILES[kind]))
        raise ValueError(
            f"{folder} holds no whole DreamSim model; of {likely!r} it lacks {', '.join(lacks[likely])}. Fetch it "
            f"yourself where there is a network: `python -c \"from dreamsim import dreamsim; dreamsim(device='cpu', "
            f"cache_dir='DIR', dreamsim_type='{likely}')\"`, and give DIR (https://github.com/ssundaram21/dreamsim)"
        )
    dreamsim = package("dreamsim", "dreamsim")
    try:
        with _quietly():
            model, _ = dreamsim.dreamsim(device=str(device), cache_dir=str(folder), dreamsim_type=kind)
    except (RuntimeError, KeyError, OSError) as error:
        raise ValueError(f"{folder}: the dreamsim package cannot read {kind!r} ({error}); fetch it again") from error
    weights = [folder / name for name in FILES[kind] if name.endswith((".pth", ".tar"))]
    adapter = next(folder / name for name in _adapter(FILES[kind]) if (folder / name).is_file())
    return DreamSimTower(f"DreamSim {kind}", {"files": file_facts([*weights, adapter])}, model, device)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """The package prints where it reads from, and leaves torch's hub pointing there."""
    hub = torch.hub.get_dir()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        torch.hub.set_dir(hub)


def _adapter(names: Sequence[str]) -> tuple[str, ...]:
    """The files of which one holds the fine-tuning."""
    folder = next(name for name in names if name.endswith("/adapter_config.json")).rpartition("/")[0]
    return tuple(f"{folder}/{name}" for name in ADAPTERS)
