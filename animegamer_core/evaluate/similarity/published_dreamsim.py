"""A published DreamSim model from the user's own folder; nothing is downloaded.

M images, E embedding width, H height, W width, C channels.
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

# The files that the `dreamsim` package reads for each of its models. It loads DINO (code and weights) by torch.hub.
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
class PublishedDreamSim:
    """The `dreamsim` package's model with its preprocessing."""

    name: str
    facts: Mapping[str, Any]
    model: nn.Module
    device: torch.device | str

    @torch.inference_mode()
    def embed_images(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """Embed RGB images of one size, resized to 224 x 224 px: (M, E) fp32 unit vectors on the CPU."""
        size = (SIZE, SIZE)
        rows = [self.model.embed(resized(part, size).to(self.device)).float().cpu() for part in in_parts(frames_MHWC)]
        return F.normalize(torch.cat(rows), dim=-1)


def open_dreamsim(folder: Path, device: torch.device | str = "cpu") -> PublishedDreamSim:
    """Open the DreamSim model in a folder; the ensemble if there are several. ValueError if none is complete.

    The package downloads files that it does not find, so it is only called if all are there. It runs the DINO code in
    the folder, so give a folder that you downloaded yourself.
    """
    folder = Path(folder)
    lacking = {kind: missing(folder, (*names, _adapter(names))) for kind, names in FILES.items()}
    kind = next((kind for kind, names in lacking.items() if not names), None)
    if kind is None:
        likely = min(lacking, key=lambda kind: len(lacking[kind]) / len(FILES[kind]))
        raise ValueError(
            f"{folder} has no complete DreamSim model; {likely!r} is missing {', '.join(lacking[likely])}. Download "
            'it yourself on a machine with network access: `python -c "from dreamsim import dreamsim; '
            f"dreamsim(device='cpu', cache_dir='DIR', dreamsim_type='{likely}')\"`, and give DIR "
            "(https://github.com/ssundaram21/dreamsim)"
        )
    dreamsim = package("dreamsim", "dreamsim")
    try:
        with _quietly():
            model, _ = dreamsim.dreamsim(device=str(device), cache_dir=str(folder), dreamsim_type=kind)
    except (RuntimeError, KeyError, OSError) as error:
        raise ValueError(f"{folder}: the dreamsim package cannot read {kind!r} ({error}); fetch it again") from error
    weights = [folder / name for name in FILES[kind] if name.endswith((".pth", ".tar"))]
    adapter = next(folder / name for name in _adapter(FILES[kind]) if (folder / name).is_file())
    return PublishedDreamSim(f"DreamSim {kind}", {"files": file_facts([*weights, adapter])}, model, device)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Hides what the package prints, and restores the torch.hub folder, which it changes."""
    hub = torch.hub.get_dir()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        torch.hub.set_dir(hub)


def _adapter(names: Sequence[str]) -> tuple[str, ...]:
    """The possible names of the file with the fine-tuned weights (LoRA)."""
    folder = next(name for name in names if name.endswith("/adapter_config.json")).rpartition("/")[0]
    return tuple(f"{folder}/{name}" for name in ADAPTERS)
