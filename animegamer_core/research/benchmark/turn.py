"""Our turn, part by part: the engine's prediction, the sampler's steps, the VAE, and the whole turn.

K past turns, N state tokens, D state width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from ...checkpoint.parts import build_model
from ...media.video import to_uint8
from ...model.decoder import ShotDecoder
from ...model.engine import GameEngine
from ...model.prompt import GameTokenizer, TurnPrompt
from ...model.sampler import Guidance, guidance_scale
from ...spec import ModelSpec, Profile
from ...state import GameState, MotionScope, Turn
from ...toybox.world import vocabulary
from .measure import Work

INSTRUCTION = "Character: girl; Motion: quickly run; Background: day forest."
PAST = 4  # past turns that the engine reads: the default window
MOTION = 10.0  # px per frame
SEED = 1
REPEATED_NUMBERS = 1 << 20  # how many different random weights `host_models` repeats
NUMBERS_SCALE = 0.02  # their standard deviation


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
    tokenizer = GameTokenizer.from_words(vocabulary(), spec.state.tokens)
    numbers = (NUMBERS_SCALE * torch.randn(REPEATED_NUMBERS, generator=torch.Generator().manual_seed(SEED))).to(dtype)
    with torch_defaults(torch.device("cpu"), dtype):
        engine = build_model(lambda: GameEngine(spec, tokenizer, profile))
        decoder = build_model(lambda: ShotDecoder(spec, profile))
    for model in (engine, decoder):
        for module in model.modules():
            for name, empty in module.named_parameters(recurse=False):
                many = numbers.repeat(-(-empty.numel() // REPEATED_NUMBERS))[: empty.numel()].clone()
                setattr(module, name, nn.Parameter(many.view(empty.shape), requires_grad=False))
    return engine.eval(), decoder.eval()


@dataclass(frozen=True)
class OurTurn:
    """Our turn in the middle of a game. steps, guidance: of the sampler."""

    engine: GameEngine
    decoder: ShotDecoder
    steps: int
    guidance: str

    @property
    def guided_and_unguided_steps(self) -> tuple[int, int]:
        """How many of the sampler's steps compute both guidance passes, and how many only one."""
        schedule, spec = self.decoder.schedule(self.steps), self.decoder.spec.decoder
        scales = [guidance_scale(self.guidance, spec.guidance_scale, step, schedule) for step in range(self.steps)]
        guidance = Guidance(self.guidance, skip_below=self.decoder.profile.skip_guidance_below)
        unguided = sum(guidance.skip_uncond(scale) for scale in scales)
        return self.steps - unguided, unguided

    def parts(self) -> Mapping[str, Work]:
        """The work that each row of the table measures; inputs have the same shapes as in a real turn."""
        past = past_turns(self.engine.spec)
        latents = self._sample(past[0].state.representation, steps=1)
        return {
            "engine": partial(self.engine.predict, past, INSTRUCTION),
            "sampler": partial(self._sample, past[0].state.representation, self.steps),
            "vae": partial(self.decoder.decode_latents, latents),
            "turn": partial(self._whole, past),
        }

    def _whole(self, past: tuple[Turn, ...]) -> None:
        latents = self._sample(self.engine.predict(past, INSTRUCTION).representation, self.steps)
        to_uint8(self.decoder.decode_latents(latents)[0].cpu())

    def _sample(self, state_ND: torch.Tensor, steps: int) -> torch.Tensor:
        return self.decoder.sample(state_ND[None], torch.tensor([MOTION]), [SEED], steps=steps, guidance=self.guidance)


def past_turns(spec: ModelSpec) -> tuple[Turn, ...]:
    """The past turns that the engine reads, each with the same random representation."""
    generator = torch.Generator().manual_seed(SEED)
    state = GameState(torch.randn(spec.state.tokens, spec.state.width, generator=generator), MotionScope.BRISK)
    return tuple(Turn(number, INSTRUCTION, number, state, {}) for number in range(1, PAST + 1))


def prompt_of(engine: GameEngine, past: tuple[Turn, ...]) -> TurnPrompt:
    """The prompt of the turn after these past turns."""
    return engine.prompt_of(past, INSTRUCTION)
