"""The same turn, computed only with diffusers and transformers: stock models, stock scheduler, eager mode.

CogVideoX's text condition (T5 features, which it projects itself) replaces the representation, and there is no motion
condition; all other sizes are the spec's. Both turns leave out text encoders, and reading and writing files.

L prompt tokens, H engine width, N condition tokens, W their width, T latent frames, C channels, h, w latent size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXDPMScheduler, CogVideoXTransformer3DModel
from torch import Tensor
from transformers import MistralForCausalLM

from ...model.engine import CACHE, additive_mask
from ...model.sampler import STOCK_SCHEDULER
from ...spec import PROFILES, ModelSpec
from .measure import Work
from .turn import past_turns, prompt_of, random_models, torch_defaults

CHOICES = 4  # numbers of a state, one token each


@dataclass(frozen=True)
class StockTurn:
    """Stock models with random weights. steps: of the sampler. length: of the prompt, in tokens."""

    spec: ModelSpec
    engine: MistralForCausalLM
    transformer: CogVideoXTransformer3DModel
    vae: AutoencoderKLCogVideoX
    steps: int
    length: int

    @classmethod
    def of(cls, spec: ModelSpec, device: torch.device, dtype: torch.dtype, steps: int) -> StockTurn:
        """Stock models with a spec's sizes."""
        engine, decoder = random_models(spec, PROFILES["paper"], torch.device("meta"), dtype)  # for their configs
        config = {**decoder.transformer.config, "text_embed_dim": spec.encoder.text.width}
        length = len(prompt_of(engine, past_turns(spec)).ids_L)
        with torch_defaults(device, dtype):
            return cls(
                spec,
                MistralForCausalLM(engine.llm.config).eval(),
                CogVideoXTransformer3DModel.from_config(config).eval(),
                AutoencoderKLCogVideoX.from_config(decoder.vae.config).eval(),
                steps,
                length,
            )

    def parts(self) -> Mapping[str, Work]:
        """The work that each row of the table measures."""
        latents = self._noise()
        return {
            "engine": self._predict,
            "sampler": self._sample,
            "vae": lambda: self._decode(latents),
            "turn": self._whole,
        }

    @torch.inference_mode()
    def _predict(self) -> None:
        """One pass over the prompt, then the state's numbers token by token with the KV cache."""
        weight = self.engine.lm_head.weight
        embeds_1LH = torch.randn(1, self.length, self.engine.config.hidden_size).to(weight)
        query_1L = torch.zeros(1, self.length, dtype=torch.bool, device=weight.device)
        mask = additive_mask(query_1L, weight.dtype)
        output = self.engine.model(inputs_embeds=embeds_1LH, attention_mask=mask, use_cache=True)
        for _ in range(CHOICES):
            token = self.engine.lm_head(output.last_hidden_state[:, -1:]).argmax(-1)
            output = self.engine.model(input_ids=token, use_cache=True, **{CACHE: getattr(output, CACHE)})
        int(token)  # waits for the device

    @torch.inference_mode()
    def _sample(self) -> Tensor:
        """Guided steps as in CogVideoXPipeline: both guidance passes in one batch, at every step."""
        scheduler = CogVideoXDPMScheduler(**STOCK_SCHEDULER)
        device, dtype = self.transformer.device, self.transformer.dtype
        scheduler.set_timesteps(self.steps, device=device)
        texts_2NW = torch.randn(2, self.spec.state.tokens, self.spec.encoder.text.width).to(device, dtype)
        latents, previous = self._noise(), None
        for index, timestep in enumerate(scheduler.timesteps):
            velocity = self.transformer(
                latents.repeat(2, 1, 1, 1, 1),
                encoder_hidden_states=texts_2NW,
                timestep=timestep.expand(2),
                return_dict=False,
            )[0].float()
            unconditional, conditional = velocity.chunk(2)
            guided = unconditional + self.spec.decoder.guidance_scale * (conditional - unconditional)
            last = scheduler.timesteps[index - 1] if index else None
            latents, previous = scheduler.step(guided, previous, timestep, last, latents, return_dict=False)
            latents = latents.to(dtype)
        return latents

    @torch.inference_mode()
    def _decode(self, latents_1TChw: Tensor) -> Tensor:
        scaled = latents_1TChw.permute(0, 2, 1, 3, 4) / self.vae.config.scaling_factor
        return self.vae.decode(scaled).sample

    def _whole(self) -> None:
        self._predict()
        frames = self._decode(self._sample())[0].float().clamp(-1, 1)
        ((frames + 1) * 127.5).round().to(torch.uint8).cpu()

    def _noise(self) -> Tensor:
        """(1, T, C, h, w) latents."""
        return torch.randn(1, *self.spec.decoder.latent_shape).to(self.transformer.device, self.transformer.dtype)
