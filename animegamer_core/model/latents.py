"""Latents from outside: the latent that a shot starts from, and clips in the shape that the VAE encodes.

B batch, C channels, T latent frames, F frames, H height, W width. Latents here are as in ComfyUI's LATENT: (B, C, T, H,
W) in the VAE's own scale, without the factor by which the transformer's latents are multiplied.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..spec import DecoderSpec
from .encoder import cropped


@dataclass(frozen=True)
class StartLatent:
    """The latent that a shot starts from, instead of pure noise.

    latent_BCTHW: (1, C, T, H, W) fp32 on the CPU. denoise: 0 keeps the latent, 1 replaces all of it.
    """

    latent_BCTHW: Tensor
    denoise: float

    @property
    def digest(self) -> str:
        """64 hex digits: the SHA-256 of the latent's values."""
        return hashlib.sha256(self.latent_BCTHW.numpy().tobytes()).hexdigest()


def start_latent(latent: Any, denoise: float, spec: DecoderSpec) -> StartLatent | None:
    """Check a user's latent and make it the start of a shot; None for denoise 1, which keeps nothing of it.

    ValueError if denoise is not in 0..1, or the latent is not a finite tensor of the spec's shape.
    """
    if not 0 <= denoise <= 1:
        raise ValueError(f"denoise is {denoise}; expected 0 (keep the latent) to 1 (redraw all of it)")
    frames, channels, height, width = spec.latent_shape
    expected = (1, channels, frames, height, width)
    found = tuple(latent.shape) if isinstance(latent, Tensor) and not latent.is_nested else type(latent).__name__
    if found != expected:
        raise ValueError(
            f"the latent has shape {found}, but shots of this world have {expected} (batch, channels, latent frames, "
            "height, width); connect the latent of Decode Shot or Encode Shot Latent of the same world"
        )
    own = latent.detach().to("cpu", torch.float32)
    if not own.isfinite().all():
        raise ValueError("the latent has values that are not finite numbers; encode or draw it again")
    return None if denoise == 1 else StartLatent(own, float(denoise))


def shot_clip(frames_FCHW: Tensor, spec: DecoderSpec) -> Tensor:
    """(F, 3, H, W): a clip of a shot's size from one picture, which is repeated, or from at least F frames.

    Each frame is centre-cropped to the shot's aspect ratio; frames after the first F are left out. ValueError for more
    than one frame, but fewer than F.
    """
    count = len(frames_FCHW)
    if count != 1 and count < spec.frames:
        raise ValueError(
            f"the clip has {count} frames; give one picture, or at least the {spec.frames} frames of a shot"
        )
    return fitted(frames_FCHW[: spec.frames], spec).expand(spec.frames, -1, -1, -1)


def fitted(frames_FCHW: Tensor, spec: DecoderSpec) -> Tensor:
    """Frames in [-1, 1] of any size, centre-cropped to the shot's aspect ratio and resized to the shot's size."""
    frames = cropped(frames_FCHW, spec.width / spec.height)
    if frames.shape[-2:] == (spec.height, spec.width):
        return frames
    return F.interpolate(frames, (spec.height, spec.width), mode="bicubic", antialias=True).clamp(-1, 1)
