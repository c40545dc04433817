"""The values that a new world begins with where no base model has any.

The shot decoder begins as stock CogVideoX told a text of zeros, whatever the representation and the motion scope are:
the norms that end the shot encoder have weight 0 and, as bias, what the stock text projection makes of zeros; the last
layer of the motion scope's embedding is 0. Both have gradients from the first step on, and what lies before them from
the second. The paper's warm-up (supplement 3.1) then trains the encoder against the decoder as it is.
"""

from __future__ import annotations

import hashlib
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from ..spec import ModelSpec
from .keys import Recipe

UNCONDITIONAL = "unconditional_ND"
EMBED, HEAD = "llm.model.embed_tokens.weight", "llm.lm_head.weight"
# The released engine's lineage gives an added token the mean of the old rows, and three times that in the output head.
ROW_SCALES = {EMBED: 1.0, HEAD: 3.0}


class Fresh(typing.NamedTuple):
    """A tensor that no file holds: its shape, its type and what makes it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], torch.Tensor]


@dataclass(frozen=True)
class BaseSource:
    """The tensors of one part: a base model's own, and fresh ones, which take the place of others of their name."""

    path: Path
    half: str
    recipes: Mapping[str, Recipe]
    fresh: Mapping[str, Fresh]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read."""
        steps = [step for recipe in self.recipes.values() for step in recipe.steps.values()]
        return tuple(dict.fromkeys(file for source, _, _ in steps for file in source.files))

    def keys(self) -> Iterable[str]:
        """Our names."""
        return list({**self.recipes, **self.fresh})

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        return (self.fresh.get(key) or self.recipes[key]).shape

    def dtype(self, key: str) -> torch.dtype:
        """The type that `tensor` will have, without making it."""
        return (self.fresh.get(key) or self.recipes[key]).dtype

    def tensor(self, key: str) -> torch.Tensor:
        """One tensor, read or made."""
        return self.fresh[key].make() if key in self.fresh else self.recipes[key].tensor()


def fresh_engine(spec: ModelSpec, recipes: Mapping[str, Recipe], rows: int, seed: int) -> dict[str, Fresh]:
    """The added tokens up to `rows` rows, and the projections between the representation's width and the engine's."""
    width, hidden = spec.state.width, spec.engine.hidden
    made = {name: _grown(recipes[name], rows, scale) for name, scale in ROW_SCALES.items() if name in recipes}
    for name, source, target in (("project_in", width, hidden), ("project_out", hidden, width)):
        made |= _mlp(name, source, target, seed)
    return made


def fresh_decoder(spec: ModelSpec, zeros_D: Fresh, seed: int) -> dict[str, Fresh]:
    """The motion scope's embedding, and the representation of nothing. zeros_D: the stock projection of a zero text."""
    width, time, name = spec.state.width, spec.decoder.time_width, "transformer.ofs_embedding"
    tokens = spec.state.tokens
    nothing = Fresh((tokens, width), zeros_D.dtype, lambda: zeros_D.make().expand(tokens, width))
    return {
        **_linear(f"{name}.linear_1", width, time, seed),
        f"{name}.linear_2.weight": _zeros(time, time),
        f"{name}.linear_2.bias": _zeros(time),
        UNCONDITIONAL: nothing,
    }


def fresh_encoder(spec: ModelSpec, zeros_D: Fresh, seed: int) -> dict[str, Fresh]:
    """The shot encoder's projections and norms: all that it is besides its text and image encoders."""
    width, towers, made = spec.state.width, spec.encoder, {}
    for side, source in (("text", towers.text.width), ("image", towers.image.width)):
        made |= _mlp(f"{side}_proj", source, width, seed)
        made |= {f"{side}_norm.weight": _zeros(width), f"{side}_norm.bias": zeros_D}
    return made


def zero_text(bias: Recipe) -> Fresh:
    """(D,): what the stock text projection makes of zeros, which is its bias."""
    return Fresh(bias.shape, bias.dtype, lambda: bias.tensor().clone())  # both norms store one of their own


def _mlp(name: str, source: int, target: int, seed: int) -> dict[str, Fresh]:
    """Two linear layers with a GELU, which has no values, between them."""
    return {**_linear(f"{name}.0", source, target, seed), **_linear(f"{name}.2", target, target, seed)}


def _linear(name: str, source: int, target: int, seed: int) -> dict[str, Fresh]:
    """Weight and bias uniform within 1 / sqrt(inputs), the scale that torch begins linear layers with."""
    shapes = {f"{name}.weight": (target, source), f"{name}.bias": (target,)}
    return {key: _uniform(key, shape, source**-0.5, seed) for key, shape in shapes.items()}


def _uniform(key: str, shape: tuple[int, ...], bound: float, seed: int) -> Fresh:
    def make() -> torch.Tensor:
        # A generator for each name, so that a tensor is the same in whatever order parts are written.
        digest = hashlib.sha256(f"{seed} {key}".encode()).digest()
        numbers = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        return torch.empty(shape).uniform_(-bound, bound, generator=numbers)

    return Fresh(shape, torch.float32, make)


def _zeros(*shape: int) -> Fresh:
    return Fresh(shape, torch.float32, lambda: torch.zeros(shape))


def _grown(base: Recipe, rows: int, scale: float) -> Fresh:
    """A base matrix with further rows, each the mean of its own ones times `scale`."""

    def make() -> torch.Tensor:
        old = base.tensor()
        new = (scale * old.mean(0, keepdim=True, dtype=torch.float32)).to(old.dtype)
        return torch.cat([old, new.expand(rows - len(old), -1)])

    return Fresh((rows, *base.shape[1:]), base.dtype, make)
