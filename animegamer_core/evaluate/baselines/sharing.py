"""Consistent self-attention: pictures that are drawn together attend to some of each other's tokens.

Zhou et al. 2024, StoryDiffusion, arXiv 2405.01434, section 3.1. In plain self-attention picture i reads its own tokens
I_i. Here a random sample S_i of the other pictures' tokens is added, P_i = [S_i, I_i]: keys and values come from P_i,
queries only from I_i. No weights change.

Choices that the paper leaves open:
- The sample. A fraction (0.5, the paper's rate) of each picture's tokens is drawn without replacement, again for every
  step and resolution; all other pictures read this sample, in all layers and in both guidance passes.
- Where. The self-attention of the up blocks, at both resolutions of SDXL that have attention; the down and middle
  blocks are unchanged.
- When. From the sixth step on, since the first steps decide the layout; the authors' demo does the same. The demo also
  uses plain attention at random in later steps, which the paper does not mention and this code does not do.
- Memory. All pictures of a game are one batch; the paper slides a window along longer stories.

B pictures drawn together, L tokens, C width, N heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline
    from diffusers.models.attention_processor import Attention

RATE = 0.5  # of a picture's tokens that the others read
AFTER = 5  # steps before pictures read each other


@dataclass
class Sharing:
    """Which tokens the pictures of a batch share while they are drawn. seeds: of the pictures; they decide it."""

    seeds: Sequence[int]
    step: int = 0
    _chosen: dict[int, list[Tensor]] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        return self.step >= AFTER and len(self.seeds) > 1

    def chosen(self, length: int, device: torch.device) -> list[Tensor]:
        """For each picture, the sorted indices of the tokens (of `length`) that it shares in this step."""
        if length not in self._chosen:
            self._chosen[length] = [self._sample(seed, length).to(device) for seed in self.seeds]
        return self._chosen[length]

    def next_step(self, _pipeline: Any, _step: int, _timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        """Go to the next step, which draws new samples; a pipeline calls it at the end of each."""
        self.step += 1
        self._chosen.clear()
        return values

    def _sample(self, seed: int, length: int) -> Tensor:
        mixed = np.random.SeedSequence([seed % 2**64, self.step, length]).generate_state(1, np.uint64)[0]
        order = torch.randperm(length, generator=torch.Generator().manual_seed(int(mixed)))
        return order[: round(RATE * length)].sort().values


class SharedAttention:
    """A diffusers attention processor: self-attention across the pictures of a batch.

    With guidance, a batch holds the pictures twice, without and with text; these two groups do not see each other.
    """

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing

    def __call__(self, attn: Attention, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """(rows, L, C): the output of `attn`, which is self-attention without a mask."""
        rows, length, _ = hidden_states.shape
        query, key, value = (
            layer(hidden_states).unflatten(-1, (attn.heads, -1)).transpose(1, 2)
            for layer in (attn.to_q, attn.to_k, attn.to_v)
        )
        if self._sharing.active:
            pictures = len(self._sharing.seeds)
            query, key, value = (part.unflatten(0, (rows // pictures, pictures)) for part in (query, key, value))
            chosen = self._sharing.chosen(length, query.device)
            seen = shared_attention(query, key, value, chosen).flatten(0, 1)
        else:
            seen = functional.scaled_dot_product_attention(query, key, value)
        joined = seen.transpose(1, 2).flatten(2)
        return attn.to_out[1](attn.to_out[0](joined))


def shared_attention(query: Tensor, key: Tensor, value: Tensor, chosen: Sequence[Tensor]) -> Tensor:
    """(guidance passes, B, N, L, D): attention of each picture to its own tokens and to the chosen ones of others."""
    found = []
    for picture in range(len(chosen)):
        keys, values = (
            torch.cat(
                [part[:, picture], *(part[:, at][:, :, own] for at, own in enumerate(chosen) if at != picture)], dim=2
            )
            for part in (key, value)
        )
        found.append(functional.scaled_dot_product_attention(query[:, picture], keys, values))
    return torch.stack(found, dim=1)


@contextmanager
def shared(pipeline: DiffusionPipeline, seeds: Sequence[int]) -> Iterator[Sharing]:
    """Give the pipeline's up blocks shared self-attention; its steps have to call `next_step` of what this yields."""
    sharing, stock = Sharing(seeds), pipeline.unet.attn_processors
    replaced = [name for name in stock if name.startswith("up_blocks.") and name.endswith(".attn1.processor")]
    pipeline.unet.set_attn_processor({**stock, **dict.fromkeys(replaced, SharedAttention(sharing))})
    try:
        yield sharing
    finally:
        pipeline.unet.set_attn_processor(stock)
