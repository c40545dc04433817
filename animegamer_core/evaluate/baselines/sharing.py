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
- Memory. All pictures of a game are one batch. With `batch`, they are drawn in groups that begin with the same identity
  pictures, the first batch // 2 of the game. These see only each other, so every group draws them equally; the others
  see them and their own group. The paper slides a window along the story instead.

B pictures drawn together, L tokens, C width, N heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from diffusers.models.attention_processor import Attention


@dataclass
class Sharing:
    """Which tokens the pictures of a batch share while they are drawn.

    seeds: of the pictures; they also decide which tokens are shared. identity: how many of the first pictures see only
    each other; 0: every picture sees all others. rate: the fraction of shared tokens. after: steps before sharing
    starts.
    """

    seeds: Sequence[int]
    identity: int
    rate: float
    after: int
    step: int = 0
    _chosen: dict[int, list[Tensor]] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        return self.rate > 0 and self.step >= self.after and len(self.seeds) > 1

    def seen_by(self, picture: int) -> list[int]:
        last = self.identity if picture < self.identity else len(self.seeds)
        return [other for other in range(last) if other != picture]

    def chosen(self, length: int, device: torch.device) -> list[Tensor]:
        """For each picture, the sorted indices of the tokens (of `length`) that it shares in this step."""
        if length not in self._chosen:
            self._chosen[length] = [self._sample(seed, length).to(device) for seed in self.seeds]
        return self._chosen[length]

    def next_step(self) -> None:
        """Go to the next step, which draws new samples."""
        self.step += 1
        self._chosen.clear()

    def _sample(self, seed: int, length: int) -> Tensor:
        mixed = np.random.SeedSequence([seed % 2**64, self.step, length]).generate_state(1, np.uint64)[0]
        order = torch.randperm(length, generator=torch.Generator().manual_seed(int(mixed)))
        return order[: round(self.rate * length)].sort().values


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
            seen = shared_attention(query, key, value, self._sharing).flatten(0, 1)
        else:
            seen = functional.scaled_dot_product_attention(query, key, value)
        joined = seen.transpose(1, 2).flatten(2)
        return attn.to_out[1](attn.to_out[0](joined))


def shared_attention(query: Tensor, key: Tensor, value: Tensor, sharing: Sharing) -> Tensor:
    """(guidance passes, B, N, L, D): attention of each picture to its own tokens and to the shared ones of others."""
    chosen = sharing.chosen(query.shape[3], query.device)
    found = []
    for picture in range(query.shape[1]):
        keys, values = (
            torch.cat(
                [part[:, picture], *(part[:, other][:, :, chosen[other]] for other in sharing.seen_by(picture))], dim=2
            )
            for part in (key, value)
        )
        found.append(functional.scaled_dot_product_attention(query[:, picture], keys, values))
    return torch.stack(found, dim=1)


def groups(count: int, batch: int) -> list[tuple[int, ...]]:
    """The pictures of each batch: all in one, or several of at most `batch` that begin with the same pictures."""
    if not batch or count <= batch:
        return [tuple(range(count))]
    identity = batch // 2
    step = batch - identity
    return [(*range(identity), *range(at, min(at + step, count))) for at in range(identity, count, step)]
