"""CFG parallel: two devices compute the conditional and the unconditional pass of guidance at the same time.

B rows of a batch, T latent frames, C channels, H height, W width, N state tokens, D state width.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from ..model.decoder import ShotDecoder


class CfgParallel:
    """Splits each batch of a decoder between its own device and a replica on another; both compute at the same time.

    The result equals that of one device up to rounding. A batch with an odd number of rows, such as a single shot in
    steps that skip the unconditional pass, stays on the decoder's own device. The replica has a thread of its own.
    """

    def __init__(self, decoder: ShotDecoder, replica: ShotDecoder) -> None:
        self.decoder = decoder
        self.replica = replica
        self.device = replica.unconditional_ND.device
        self._worker = ThreadPoolExecutor(1, "cfg_parallel")
        self._compiled_shapes: set[torch.Size] = set()

    def velocity(self, latents_BTCHW: Tensor, timesteps_B: Tensor, states_BND: Tensor, motion_B: Tensor) -> Tensor:
        """(B, T, C, H, W): like the decoder's own `velocity`; the replica computes the first half of the rows."""
        assert torch.is_inference_mode_enabled(), "a decoder on two devices cannot be trained"
        inputs = latents_BTCHW, timesteps_B, states_BND, motion_B
        if len(latents_BTCHW) % 2:
            return ShotDecoder.velocity(self.decoder, *inputs)
        first, second = zip(*(rows.chunk(2) for rows in inputs), strict=True)
        job = self._worker.submit(self._replica_velocity, [rows.to(self.device) for rows in first])
        try:
            if latents_BTCHW.shape not in self._compiled_shapes:
                wait([job])  # a new shape may compile, which two threads cannot do at once
            own = ShotDecoder.velocity(self.decoder, *second)
        finally:
            wait([job])  # also after an error above: the next step needs an idle replica
        self._compiled_shapes.add(latents_BTCHW.shape)
        return torch.cat([job.result().to(own.device), own])

    @torch.inference_mode()  # each thread has its own inference mode
    def _replica_velocity(self, inputs: Sequence[Tensor]) -> Tensor:
        with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            return self.replica.velocity(*inputs)


def enable_cfg_parallel(decoder: ShotDecoder, device: torch.device | str) -> CfgParallel:
    """From now on, compute the decoder's guided steps on two devices; `device` gets a replica of its transformer.

    Apply other changes of the transformer afterwards, to all `replicas`; compiled blocks cannot be copied. ValueError
    for a GPU that the decoder itself is on.
    """
    own, other = decoder.unconditional_ND.device, torch.device(device)
    if other.type == "cuda" and other.index in (None, own.index):
        raise ValueError(f"cfg_parallel needs two GPUs; the decoder is on {own} itself: name another one, or drop it")
    with torch.device("meta"):
        replica = ShotDecoder(decoder.spec, decoder.profile)
    replica.transformer = _copy_to(decoder.transformer, other)
    replica.unconditional_ND = decoder.unconditional_ND.to(other)
    replica.vae = decoder.vae  # decoding frames needs no guidance
    parallel = CfgParallel(decoder, replica)
    setattr(decoder, "velocity", parallel.velocity)  # noqa: B010  a method of this decoder only
    return parallel


def replicas(decoder: ShotDecoder) -> tuple[ShotDecoder, ...]:
    """The decoder and, with CFG parallel, its replica, which shares the decoder's VAE."""
    parallel = getattr(decoder.velocity, "__self__", None)
    return (decoder, parallel.replica) if isinstance(parallel, CfgParallel) else (decoder,)


def _copy_to(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy on a device, made without a second copy on the module's own device."""
    tensors = {id(value): value.to(device, copy=True) for value in module.buffers()}
    for value in module.parameters():
        tensors[id(value)] = nn.Parameter(value.to(device, copy=True), value.requires_grad)
    return copy.deepcopy(module, tensors)
