"""A turn, part by part: the engine's prediction, the sampler's steps, the VAE, and the whole turn; ours and stock.

The stock turn uses only diffusers and transformers: stock models, stock scheduler, eager mode. CogVideoX's text
condition (T5 features, which it projects itself) replaces the representation, and there is no motion condition; all
other sizes are the spec's. Both turns leave out text encoders, and reading and writing files.

K past turns, L prompt tokens, H engine width, N state tokens, D state width, W condition width, T latent frames, C
channels, h, w latent size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXDPMScheduler, CogVideoXTransformer3DModel
from torch import Tensor, nn
from transformers import MistralForCausalLM

from ...game.state import GameState, MotionScope, Turn
from ...media.video import to_uint8
from ...model.decoder import ShotDecoder
from ...model.engine import CACHE, GameEngine, additive_mask
from ...model.prompt import GameTokenizer
from ...model.sampler import STOCK_SCHEDULER
from ...spec import PROFILES, ModelSpec, Profile
from ...toybox.world import vocabulary
from ...weights.parts import empty_parameters

Work = Callable[[], object]
INSTRUCTION = "Character: girl; Motion: quickly run; Background: day forest."
PAST = 4  # past turns that the engine reads: the default window
MOTION = 10.0  # px per frame
SEED = 1
REPEATED_NUMBERS = 1 << 20  # how many different random weights `host_models` repeats
NUMBERS_SCALE = 0.02  # their standard deviation
CHOICES = 4  # numbers of a state, one token each


@contextmanager
def torch_defaults(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Create the weights of new modules on this device and with this dtype while the block runs."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def random_models(
    spec: ModelSpec, profile: Profile, device: torch.device, dtype: torch.dtype
) -> tuple[GameEngine, ShotDecoder]:
    """An engine and a decoder of these sizes with random weights; they are as fast and as large as real ones."""
    tokenizer = GameTokenizer.from_words(vocabulary(), spec.state.tokens)
    with torch_defaults(device, dtype):
        engine, decoder = GameEngine(spec, tokenizer, profile), ShotDecoder(spec, profile)
    return engine.eval(), decoder.eval()


def host_models(spec: ModelSpec, profile: Profile, dtype: torch.dtype) -> tuple[GameEngine, ShotDecoder]:
    """Like `random_models`, in host memory. Random numbers repeat, so even 7 billion weights take only seconds."""
    numbers = (NUMBERS_SCALE * torch.randn(REPEATED_NUMBERS, generator=torch.Generator().manual_seed(SEED))).to(dtype)
    with empty_parameters():
        models = random_models(spec, profile, torch.device("cpu"), dtype)
    for model in models:
        for module in model.modules():
            for name, empty in module.named_parameters(recurse=False):
                many = numbers.repeat(-(-empty.numel() // REPEATED_NUMBERS))[: empty.numel()].clone()
                setattr(module, name, nn.Parameter(many.view(empty.shape), requires_grad=False))
    return models


@dataclass(frozen=True)
class OurTurn:
    """Our turn in the middle of a game. sampling: steps (or timesteps), guidance and solver."""

    engine: GameEngine
    decoder: ShotDecoder
    sampling: Mapping[str, Any]

    def parts(self) -> Mapping[str, Work]:
        """The work that each row of the table measures; inputs have the same shapes as in a real turn."""
        past = past_turns(self.engine.spec)
        latents = self._sample(past[0].state.representation, steps=1)  # any will do
        return {
            "engine": partial(self.engine.predict, past, INSTRUCTION),
            "sampler": partial(self._sample, past[0].state.representation),
            "vae": partial(self.decoder.decode_latents, latents),
            "turn": partial(self._whole, past),
        }

    def _whole(self, past: tuple[Turn, ...]) -> None:
        latents = self._sample(self.engine.predict(past, INSTRUCTION).representation)
        to_uint8(self.decoder.decode_latents(latents)[0].cpu())

    def _sample(self, state_ND: torch.Tensor, **others: Any) -> torch.Tensor:
        return self.decoder.sample(state_ND[None], torch.tensor([MOTION]), [SEED], **{**self.sampling, **others})


def past_turns(spec: ModelSpec) -> tuple[Turn, ...]:
    """The past turns that the engine reads, each with the same random representation."""
    generator = torch.Generator().manual_seed(SEED)
    state = GameState(torch.randn(spec.state.tokens, spec.state.width, generator=generator), MotionScope.BRISK)
    return tuple(Turn(number, INSTRUCTION, number, state, {}) for number in range(1, PAST + 1))


def stock_parts(spec: ModelSpec, device: torch.device, dtype: torch.dtype, steps: int) -> Mapping[str, Work]:
    """The same parts of a turn by stock models with a spec's sizes and random weights. steps: of the sampler."""
    ours, decoder = random_models(spec, PROFILES["paper"], torch.device("meta"), dtype)  # for their configs
    length = len(ours.prompt(past_turns(spec), INSTRUCTION).ids_L)
    channels = spec.decoder.vae.latent_channels
    config = {**decoder.transformer.config, "text_embed_dim": spec.encoder.text.width, "out_channels": channels}
    with torch_defaults(device, dtype):
        engine = MistralForCausalLM(ours.llm.config).eval()
        transformer = CogVideoXTransformer3DModel.from_config(config).eval()
        vae = AutoencoderKLCogVideoX.from_config(decoder.vae.config).eval()

    def noise() -> Tensor:
        """(1, T, C, h, w) latents."""
        return torch.randn(1, *spec.decoder.latent_shape).to(device, dtype)

    @torch.inference_mode()
    def predict() -> None:
        """One pass over the prompt, then the state's numbers token by token with the KV cache."""
        embeds_1LH = torch.randn(1, length, engine.config.hidden_size).to(device, dtype)
        mask = additive_mask(torch.zeros(1, length, dtype=torch.bool, device=device), dtype)
        output = engine.model(inputs_embeds=embeds_1LH, attention_mask=mask, use_cache=True)
        for _ in range(CHOICES):
            token = engine.lm_head(output.last_hidden_state[:, -1:]).argmax(-1)
            output = engine.model(input_ids=token, use_cache=True, **{CACHE: getattr(output, CACHE)})
        int(token)  # waits for the device

    @torch.inference_mode()
    def sample() -> Tensor:
        """Guided steps as in CogVideoXPipeline: both guidance passes in one batch, at every step."""
        scheduler = CogVideoXDPMScheduler(**STOCK_SCHEDULER)
        scheduler.set_timesteps(steps, device=device)
        texts_2NW = torch.randn(2, spec.state.tokens, spec.encoder.text.width).to(device, dtype)
        latents, previous = noise(), None
        for index, timestep in enumerate(scheduler.timesteps):
            velocity = transformer(
                latents.repeat(2, 1, 1, 1, 1),
                encoder_hidden_states=texts_2NW,
                timestep=timestep.expand(2),
                return_dict=False,
            )[0].float()
            unconditional, conditional = velocity.chunk(2)
            guided = unconditional + spec.decoder.guidance_scale * (conditional - unconditional)
            last = scheduler.timesteps[index - 1] if index else None
            latents, previous = scheduler.step(guided, previous, timestep, last, latents, return_dict=False)
            latents = latents.to(dtype)
        return latents

    @torch.inference_mode()
    def decode(latents_1TChw: Tensor) -> Tensor:
        return vae.decode(latents_1TChw.permute(0, 2, 1, 3, 4) / vae.config.scaling_factor).sample

    def whole() -> None:
        predict()
        frames = decode(sample())[0].float().clamp(-1, 1)
        ((frames + 1) * 127.5).round().to(torch.uint8).cpu()

    return {"engine": predict, "sampler": sample, "vae": partial(decode, noise()), "turn": whole}
