"""The two halves of guidance on two devices at once: a second one computes the unconditional half.

B rows of a batch, T latent frames, C channels, H height, W width, N state tokens, D state width.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from .decoder import ShotDecoder


class Halves:
    """A decoder whose batches are computed half on its own device and half by its twin on another, at the same time.

    What comes out is what one device gives, up to rounding. A batch of an odd number of rows, such as one shot's in the
    steps that leave the unconditional half out, stays on the decoder's own device. Two GPUs work at once because each
    is told what to do by a thread of its own.
    """

    def __init__(self, decoder: ShotDecoder, twin: ShotDecoder) -> None:
        self.decoder = decoder
        self.twin: ShotDecoder | None = twin
        self.device = twin.unconditional_ND.device
        self._worker = ThreadPoolExecutor(1, "halves")
        self._known: set[torch.Size] = set()

    def velocity(self, latents_BTCHW: Tensor, timesteps_B: Tensor, states_BND: Tensor, motion_B: Tensor) -> Tensor:
        """(B, T, C, H, W): as the decoder's own `velocity`, the first half of the rows by the twin."""
        assert torch.is_inference_mode_enabled(), "a decoder on two devices is not trained"
        given = latents_BTCHW, timesteps_B, states_BND, motion_B
        here = partial(ShotDecoder.velocity, self.decoder)
        if len(latents_BTCHW) % 2:
            return here(*given)
        first, second = zip(*(rows.chunk(2) for rows in given), strict=True)
        job = self._worker.submit(self._there, [rows.to(self.device) for rows in first])
        try:
            if latents_BTCHW.shape not in self._known:
                wait([job])  # compiling, where a size is new, is nothing for two threads at once
            mine = here(*second)
        finally:
            wait([job])  # also when this half failed: the next step finds the twin idle
        self._known.add(latents_BTCHW.shape)
        return torch.cat([job.result().to(mine.device), mine])

    def undo(self) -> None:
        """Compute on the decoder's own device alone again, and let go of the twin and its memory."""
        vars(self.decoder).pop("velocity")
        self._worker.shutdown()
        self.twin = None

    @torch.inference_mode()  # a thread begins without it
    def _there(self, given: list[Tensor]) -> Tensor:
        assert self.twin is not None
        with _on(self.device):
            return self.twin.velocity(*given)


def split(decoder: ShotDecoder, device: torch.device | str) -> Halves:
    """Compute the decoder's guided steps on two devices from now on: `device` gets a copy of its transformer.

    What else changes how the transformer is computed comes afterwards, and to both `copies`. ValueError: it came
    before, or the decoder lies on that GPU itself.
    """
    device = torch.device(device)
    own = decoder.unconditional_ND.device
    if device.type == "cuda" and device.index in (None, own.index):
        raise ValueError(f"halves on {device} and {own}: name a second GPU, such as cuda:{0 if own.index else 1}")
    if len(copies(decoder)) > 1 or any(_changed(module) for module in decoder.transformer.modules()):
        raise ValueError(
            "halves come before all else that changes how a decoder computes, such as compiling, caching, streaming or "
            "other halves; load the decoder anew"
        )
    with torch.device("meta"):
        twin = ShotDecoder(decoder.spec, decoder.profile)
    twin.transformer = _copied(decoder.transformer, device)
    twin.unconditional_ND = decoder.unconditional_ND.to(device)
    twin.vae = decoder.vae  # decoding has no halves
    halves = Halves(decoder, twin)
    decoder.velocity = halves.velocity
    return halves


def copies(decoder: ShotDecoder) -> tuple[ShotDecoder, ...]:
    """The decoder and, where it is split, its twin, which has the decoder's own VAE."""
    halves = getattr(decoder.velocity, "__self__", None)
    return (decoder, halves.twin) if isinstance(halves, Halves) and halves.twin is not None else (decoder,)


def second_device(decoder: ShotDecoder) -> torch.device:
    """The GPU beside the decoder's own; ValueError where there is none."""
    own, count = decoder.unconditional_ND.device, torch.cuda.device_count()
    if own.type != "cuda" or count < 2:
        raise ValueError(
            f"halves need two GPUs; the decoder is on {own}, and there are {count} GPUs here: leave them out"
        )
    return torch.device("cuda", (own.index + 1) % count)


def _changed(module: nn.Module) -> bool:
    return "forward" in vars(module) or module._compiled_call_impl is not None


def _copied(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy on a device, with nothing of it on the module's own in between."""
    tensors = {
        id(value): nn.Parameter(value.to(device, copy=True), value.requires_grad) for value in module.parameters()
    }
    tensors |= {id(value): value.to(device, copy=True) for value in module.buffers()}
    return copy.deepcopy(module, tensors)


def _on(device: torch.device) -> AbstractContextManager:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
