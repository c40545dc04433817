"""The initial weights of a new world for the layers that no base model has.

At first the shot decoder computes what stock CogVideoX computes for a text of zeros, whatever the state and the motion:
the last norms of the shot encoder have weight 0 and, as bias, the stock text projection of zeros; the last layer of the
motion embedding is 0. Both have gradients from the first training step on, and the layers before them from the second.
The paper's warm-up (supplement 3.1) then trains the encoder against the decoder as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

from ..spec import ModelSpec
from .keys import BASE, LazyTensor, Pieces

UNCONDITIONAL = "unconditional_ND"
EMBED, HEAD = "llm.model.embed_tokens.weight", "llm.lm_head.weight"
# The released engine started an added token with the mean of the old rows, and three times that in the output head.
ROW_SCALES = {EMBED: 1.0, HEAD: 3.0}


def initial_engine(spec: ModelSpec, mapped: Mapping[str, Pieces], seed: int) -> dict[str, LazyTensor]:
    """The embedding grown by the game's own tokens, and the projections between the state's width and the engine's."""
    width, hidden = spec.state.width, spec.engine.hidden
    made = {
        name: _grown(mapped[name][BASE], spec.engine.vocab_size, scale)
        for name, scale in ROW_SCALES.items()
        if name in mapped
    }
    for name, source, target in (("project_in", width, hidden), ("project_out", hidden, width)):
        made |= _mlp(name, source, target, seed)
    return made


def initial_decoder(spec: ModelSpec, zeros_D: LazyTensor, seed: int) -> dict[str, LazyTensor]:
    """The motion embedding, and the unconditional state. zeros_D: the stock projection of a zero text."""
    width, time, name = spec.state.width, spec.decoder.time_width, "transformer.ofs_embedding"
    tokens = spec.state.tokens
    nothing = LazyTensor((tokens, width), zeros_D.dtype, lambda: zeros_D.make().expand(tokens, width))
    return {
        **_linear(f"{name}.linear_1", width, time, seed),
        f"{name}.linear_2.weight": _zeros(time, time),
        f"{name}.linear_2.bias": _zeros(time),
        UNCONDITIONAL: nothing,
    }


def initial_encoder(spec: ModelSpec, zeros_D: LazyTensor, seed: int) -> dict[str, LazyTensor]:
    """The shot encoder's projections and norms, which are all of it except its text and image encoders."""
    width, encoder = spec.state.width, spec.encoder
    made: dict[str, LazyTensor] = {}
    for side, source in (("text", encoder.text.width), ("image", encoder.image.width)):
        made |= _mlp(f"{side}_proj", source, width, seed)
        made |= {f"{side}_norm.weight": _zeros(width), f"{side}_norm.bias": zeros_D}
    return made


def zero_text(bias: LazyTensor) -> LazyTensor:
    """(D,): what the stock text projection makes of zeros, which is its bias; both norms store one of their own."""
    return LazyTensor(bias.shape, bias.dtype, lambda: bias.make().clone())


def _mlp(name: str, source: int, target: int, seed: int) -> dict[str, LazyTensor]:
    """Two linear layers with a GELU between them."""
    return {**_linear(f"{name}.0", source, target, seed), **_linear(f"{name}.2", target, target, seed)}


def _linear(name: str, source: int, target: int, seed: int) -> dict[str, LazyTensor]:
    """Weight and bias uniform within 1 / sqrt(inputs), torch's own initialisation."""
    shapes = {f"{name}.weight": (target, source), f"{name}.bias": (target,)}
    return {key: _uniform(key, shape, source**-0.5, seed) for key, shape in shapes.items()}


def _uniform(key: str, shape: tuple[int, ...], bound: float, seed: int) -> LazyTensor:
    def make() -> torch.Tensor:
        # One generator per name, so that a tensor does not depend on the order in which parts are written.
        digest = hashlib.sha256(f"{seed} {key}".encode()).digest()
        numbers = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        return torch.empty(shape).uniform_(-bound, bound, generator=numbers)

    return LazyTensor(shape, torch.float32, make)


def _zeros(*shape: int) -> LazyTensor:
    return LazyTensor(shape, torch.float32, lambda: torch.zeros(shape))


def _grown(base: LazyTensor, rows: int, scale: float) -> LazyTensor:
    """A base matrix with further rows, each the mean of its own ones times `scale`."""

    def make() -> torch.Tensor:
        old = base.make()
        new = (scale * old.mean(0, keepdim=True, dtype=torch.float32)).to(old.dtype)
        return torch.cat([old, new.expand(rows - len(old), -1)])

    return LazyTensor((rows, *base.shape[1:]), base.dtype, make)
