"""The shot decoder D_a: turns a representation and a motion value into a shot.

B batch, N state tokens, D state width, F frames, T latent frames, C channels, H height, W width (of frames or latents).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from diffusers import AutoencoderKLCogVideoX
from diffusers.models.embeddings import TimestepEmbedding, Timesteps
from einops import rearrange
from torch import Tensor, nn

from ..spec import PROFILES, TIME_FACTOR, ModelSpec, Profile, Steps
from .latents import StartLatent
from .refiner import FEATURES, RefinedTransformer, Refiner
from .sampler import Guidance, OnStep, Schedule, partial_steps, solve, sqrt_alpha_cumprod
from .tiny_decoder import TinyDecoder

# Full-size activations in memory at once. Sampling: counted from the layers. Decoding: measured, 17 GB on an H200 for a
# shot of the published size in bf16.
SAMPLING_COPIES = 16
DECODING_COPIES = 22
DECODED_AT_ONCE = 9  # frames in the VAE's first chunk of 3 latent frames
TILED_FRACTION = 4  # tiled decoding needs 1/6 of the memory of a whole shot, or 1/4 with workspaces and fragmentation
UNCONDITIONAL_MOTION = 0.0  # px per frame: the motion value that stands for none; no clip of a dataset has it
TILE_OVERLAP = 1 / 6  # of a tile's side; tile sides are multiples of 6 latents, so seams fall on whole pixels


class ShotDecoder(nn.Module):
    """CogVideoX's transformer and VAE, with states instead of text and a motion value next to the timestep.

    `unconditional_ND` is the encoder's representation of no input; it is stored here so that playing needs no encoder.
    The profile names the guidance. tiled: decode in 3 x 3 overlapping tiles with blended seams, which needs a sixth of
    the memory and changes the picture slightly (36 dB PSNR). fast: decode with the VAE's tiny decoder, if it has one.
    """

    def __init__(self, spec: ModelSpec, profile: Profile = PROFILES["paper"]) -> None:
        super().__init__()
        self.spec = spec
        self.profile = profile
        self.tiled = False
        self.fast = spec.decoder.vae.fast
        self.transformer = _transformer(spec)
        self.vae = _vae(spec)
        self.register_buffer("unconditional_ND", torch.zeros(spec.state.tokens, spec.state.width))

    def velocity(self, latents_BTCHW: Tensor, timesteps_B: Tensor, states_BND: Tensor, motion_B: Tensor) -> Tensor:
        """(B, T, C, H, W) predicted velocity v of noised latents, also where the transformer predicts clean ones.

        A patch of many values is easier to predict clean, since its noise need not pass through the layers (Li and He
        2025, Back to Basics: Let Denoising Generative Models Denoise).
        """
        found = self.transformer(
            latents_BTCHW.to(self.unconditional_ND.dtype),
            encoder_hidden_states=states_BND.to(self.unconditional_ND.dtype),
            timestep=timesteps_B,
            ofs=motion_B.float(),
            return_dict=False,
        )[0]
        if not self.spec.decoder.predicts_clean:
            return found
        sqrt_alpha = sqrt_alpha_cumprod(timesteps_B, found)
        return (sqrt_alpha * latents_BTCHW.float() - found.float()) / (1 - sqrt_alpha**2).sqrt()

    def shoot(
        self,
        state_ND: Tensor,
        motion: float,
        *,
        seed: int,
        steps: Steps | None = None,
        guidance: str | None = None,
        **options: Any,
    ) -> Tensor:
        """(F, 3, H, W) fp32 frames of one state, in [-1, 1] up to the VAE's overshoot.

        motion: the motion value, px per frame at 480 px height. The same seed gives the same noise on every device.
        steps, guidance: None is the world's. options: as of `sample`. ValueError for a state of another world's size,
        or impossible steps.
        """
        motion_B = torch.tensor([motion])
        return self.decode_latents(
            self.sample(state_ND[None], motion_B, [seed], steps=steps, guidance=guidance, **options)
        )[0]

    @torch.inference_mode()
    def sample(
        self,
        states_BND: Tensor,
        motion_B: Tensor,
        seeds: Sequence[int],
        *,
        steps: Steps | None = None,
        guidance: str | None = None,
        solver: str | None = None,
        on_step: OnStep | None = None,
        start: StartLatent | None = None,
        draw: Callable[[], Tensor] | None = None,
    ) -> Tensor:
        """(B, T, C, H, W) fp32 latents of a batch of states; each row is the same as in a batch of one.

        start: the latent that all rows start from, with denoise above 0; None to start from noise. draw: gives the
        first latents, and the noise of every step but the last, instead of the seeds. ValueError as for `shoot`.
        """
        state, shape = self.spec.state, self.spec.decoder.latent_shape
        if states_BND.shape[1:] != (state.tokens, state.width):
            raise ValueError(
                f"a representation of shape {tuple(states_BND.shape[1:])} does not fit this world, which has states "
                f"of shape {(state.tokens, state.width)}; decode it in the world that predicted it"
            )
        device = self.unconditional_ND.device
        states, motion = states_BND.to(device), motion_B.to(device)
        both = torch.cat([self.unconditional_ND.to(states).expand_as(states), states]), motion.repeat(2)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]

        def velocity(latents: Tensor, timestep: int, skip_uncond: bool) -> Tensor:
            conditions = (states, motion) if skip_uncond else both
            rows = latents if skip_uncond else latents.repeat(2, 1, 1, 1, 1)
            timesteps = torch.full((len(rows),), timestep, device=device)
            return self.velocity(rows, timesteps, *conditions)

        def noise() -> Tensor:
            drawn = draw() if draw else torch.stack([torch.randn(shape, generator=own) for own in generators])
            if device.type == "cuda":  # pinned memory makes the copy asynchronous
                drawn = drawn.pin_memory()
            return drawn.to(device, non_blocking=True)

        steps = self.spec.decoder.steps if steps is None else steps
        guidance = self.profile.guidance if guidance is None else guidance
        scaled = Guidance(guidance, self.spec.decoder.guidance_scale, self.profile.skip_guidance_below)
        whole, skipped = (steps, 0) if start is None else partial_steps(steps, start.denoise)
        schedule, first = self.schedule(whole, skipped), noise()
        if start is not None:
            clean = rearrange(start.latent_BCTHW.to(first), "b c t h w -> b t c h w") * self.vae.config.scaling_factor
            first = schedule.noised(clean, first)
        return solve(velocity, first, schedule, scaled, noise, on_step, solver or self.spec.decoder.solver)

    def schedule(self, steps: Steps, first: int = 0) -> Schedule:
        """The schedule by which this decoder draws; as `Schedule.of`."""
        if self.spec.decoder.predicts_clean:  # the released schedule's other amounts of noise would leave some as grain
            steps = Schedule.of(steps).timesteps
        return Schedule.of(steps, self.profile.released_timesteps, first)

    def decode_latents(self, latents_BTCHW: Tensor) -> Tensor:
        """(B, F, 3, H, W) fp32 frames of the transformer's latents."""
        return self.decode_vae(self.to_vae(latents_BTCHW))

    def to_vae(self, latents_BTCHW: Tensor) -> Tensor:
        """(B, C, T, H, W) fp32: the transformer's latents in the VAE's scale and order of axes, rounded to its dtype.

        ComfyUI's LATENT holds latents in this form.
        """
        scaled = latents_BTCHW.to(self.vae.dtype) / self.vae.config.scaling_factor
        return rearrange(scaled, "b t c h w -> b c t h w").float()

    @torch.inference_mode()
    def decode_vae(self, latents_BCTHW: Tensor) -> Tensor:
        """(B, F, 3, H, W) fp32 frames of latents in the VAE's own scale.

        The VAE decodes 3 latent frames, then 2 at a time, which affects the result.
        """
        if self.fast:
            return self._decode_tiny(latents_BCTHW)
        if self.tiled:
            _, _, height, width = self.spec.decoder.latent_shape
            sides = (6 * math.ceil(side / 15) * self.spec.decoder.vae.spatial_factor for side in (height, width))
            self.vae.enable_tiling(*sides, TILE_OVERLAP, TILE_OVERLAP)
        try:
            decoded = self.vae.decode(latents_BCTHW.to(self.unconditional_ND.device, self.vae.dtype)).sample
        finally:
            self.vae.use_tiling = False  # clips are encoded without tiles, by the same VAE
        return rearrange(decoded, "b c f h w -> b f c h w").float()

    def _decode_tiny(self, latents_BCTHW: Tensor) -> Tensor:
        return self.vae.tiny(latents_BCTHW.to(self.unconditional_ND.device, self.vae.dtype)).float()

    @torch.inference_mode()
    def preview(self, latents_BTCHW: Tensor) -> Tensor:
        """(F, 3, H/2, W/2) frames in [-1, 1] of the first row by the tiny decoder, to show while sampling, in a quarter
        of the time that it takes for the shot. Without one, the first frame only, in a twentieth of the VAE's time.

        Pass the clean latents of `on_step`.
        """
        small = nn.functional.avg_pool2d(latents_BTCHW[0].float(), 2)[None]
        if hasattr(self.vae, "tiny"):
            return self._decode_tiny(self.to_vae(small))[0]
        return self.decode_latents(small[:, :1])[0]

    @property
    def working_bytes(self) -> int:
        """Approximate memory in bytes for one guided shot, without the weights: the larger of sampling and decoding."""
        return max(self.sampling_bytes, self._decoding_bytes)

    @property
    def tiled_bytes(self) -> int:
        """Like `working_bytes`, for a shot that is decoded in tiles."""
        return max(self.sampling_bytes, self._decoding_bytes // TILED_FRACTION)

    @property
    def sampling_bytes(self) -> int:
        """Like `working_bytes`, for sampling only."""
        frames, _, height, width = self.spec.decoder.latent_shape
        tokens = self.spec.state.tokens + frames * height * width // self.spec.decoder.patch**2
        return 2 * tokens * self.spec.state.width * SAMPLING_COPIES * self.unconditional_ND.element_size()

    @property
    def _decoding_bytes(self) -> int:
        decoder = self.spec.decoder
        pixels = DECODED_AT_ONCE * decoder.height * decoder.width
        return pixels * decoder.vae.channels[0] * DECODING_COPIES * self.unconditional_ND.element_size()

    @torch.inference_mode()
    def encode_frames(self, frames_BFCHW: Tensor) -> Tensor:
        """(B, T, C, H, W) latents of whole clips in [-1, 1]: the posterior's mean."""
        latents = self.encode_vae(frames_BFCHW)
        return rearrange(latents, "b c t h w -> b t c h w") * self.vae.config.scaling_factor

    @torch.inference_mode()
    def encode_vae(self, frames_BFCHW: Tensor) -> Tensor:
        """(B, C, T, H, W): like `encode_frames`, in the VAE's own scale."""
        clip = rearrange(frames_BFCHW.to(self.unconditional_ND.device, self.vae.dtype), "b f c h w -> b c f h w")
        return self.vae.encode(clip).latent_dist.mode()


class _Patches(nn.Conv2d):
    """A convolution of patches side by side, as a matrix product: oneDNN 3.12 (torch 2.13) gets it wrong in bfloat16 on
    CPUs with AMX, with 16 channels and patches of 4 x 4 or more."""

    def forward(self, latents_BCHW: Tensor) -> Tensor:
        height, width = self.kernel_size
        rows = rearrange(latents_BCHW, "b c (h p) (w q) -> b h w (c p q)", p=height, q=width)
        return rearrange(nn.functional.linear(rows, self.weight.flatten(1), self.bias), "b h w c -> b c h w")


def _transformer(spec: ModelSpec) -> RefinedTransformer:
    """CogVideoX's transformer, with random weights."""
    decoder, width = spec.decoder, spec.state.width
    _, channels, latent_height, latent_width = decoder.latent_shape
    transformer = RefinedTransformer(
        num_attention_heads=decoder.heads,
        attention_head_dim=decoder.head_width,
        in_channels=channels,
        out_channels=channels * (1 + FEATURES if decoder.refiner else 1),
        time_embed_dim=decoder.time_width,
        text_embed_dim=width,
        num_layers=decoder.layers,
        sample_width=latent_width,
        sample_height=latent_height,
        sample_frames=decoder.frames,
        patch_size=decoder.patch,
        temporal_compression_ratio=TIME_FACTOR,
        max_text_seq_length=spec.state.tokens,
        spatial_interpolation_scale=decoder.spatial_scale,
        activation_fn="gelu" if decoder.refiner else "gelu-approximate",  # equal to 5e-4; on a CPU five times as fast
    )
    if decoder.patch > 2:  # the published patches are 2 x 2
        transformer.patch_embed.proj = _Patches(channels, width, decoder.patch, decoder.patch)
    transformer.patch_embed.text_proj = nn.Identity()  # a state has the transformer's width already
    # The stock model adds `ofs`, a second scalar, to the timestep; here it is the motion value.
    transformer.ofs_proj = Timesteps(width, flip_sin_to_cos=True, downscale_freq_shift=0)
    transformer.ofs_embedding = TimestepEmbedding(width, decoder.time_width)
    transformer.refiner = Refiner(channels, decoder.refiner) if decoder.refiner else None
    transformer.norm_out.norm.eps = 1e-6  # as released; 1e-5 changes outputs by 2e-5 (docs/reference.md, decoder)
    return transformer


def _vae(spec: ModelSpec) -> AutoencoderKLCogVideoX:
    vae, decoder = spec.decoder.vae, spec.decoder
    levels = len(vae.channels)
    model = AutoencoderKLCogVideoX(
        block_out_channels=vae.channels,
        down_block_types=("CogVideoXDownBlock3D",) * levels,
        up_block_types=("CogVideoXUpBlock3D",) * levels,
        layers_per_block=vae.layers_per_block,
        latent_channels=vae.latent_channels,
        norm_num_groups=vae.norm_groups,
        sample_height=decoder.height,
        sample_width=decoder.width,
        scaling_factor=vae.scaling_factor,
    )
    if vae.tiny:
        model.tiny = TinyDecoder(vae.latent_channels, vae.tiny)
    # diffusers encodes 9 + 8 frames; the released encoder all 17 at once (docs/reference.md, VAE).
    model.num_sample_frames_batch_size = decoder.frames - 1
    return model
