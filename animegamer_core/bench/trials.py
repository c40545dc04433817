"""Each way of `tuning` alone: what it saves, and how far it drifts from the untuned computation.

Drift is the root mean square difference of two shots' latents, as a share of the root mean square of the untuned ones.
What the number format itself does, against float32, stands beside it: a way that drifts no further changes nothing that
the format has not changed already.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..decoder import ShotDecoder
from ..tuning import approximations, tune
from .measure import Timing, timed
from .turn import OurTurn, past_turns

DRIFT_STEPS = 10
HEAD = f"{'alone':13} {'sampler s':>10} {'ratio':>6} {'vae s':>8} {'ratio':>6} {'first run s':>12} {'drift':>9}"


@dataclass(frozen=True)
class Trial:
    """One way alone. first: seconds of its first shot, compiling included. against: untuned seconds of each part."""

    name: str
    sampler: Timing
    vae: Timing
    first: float
    drift: float
    against: Mapping[str, float]

    @property
    def line(self) -> str:
        """The row as text."""
        sampler, vae = self.sampler.median, self.vae.median
        name = f"{self.name} ~" if approximations([self.name]) else self.name
        return (
            f"{name:13} {sampler:>10.3f} {self.against['sampler'] / sampler:>6.2f} {vae:>8.3f}"
            f" {self.against['vae'] / vae:>6.2f} {self.first:>12.1f} {self.drift:>9.2e}"
        )


@dataclass(frozen=True)
class Trials:
    """All ways, and the drift of the number format itself; None where that is float32 already."""

    rows: tuple[Trial, ...]
    format_drift: float | None

    @property
    def text(self) -> str:
        """The printed table."""
        told = (
            "" if self.format_drift is None else f"\n(the number format drifts by {self.format_drift:.2e} from float32)"
        )
        if approximations([row.name for row in self.rows]):
            told += "\n(~ approximates: a shot may differ by more than rounding)"
        return "\n".join([HEAD, *(row.line for row in self.rows)]) + told

    def values(self) -> dict[str, Any]:
        """Plain values for a json file."""
        return asdict(self)


def run_trials(
    turn: OurTurn, names: Sequence[str], repeats: int, against: Mapping[str, float], say: Callable[[str], object]
) -> Trials:
    """Measure each named way on a copy of the turn's untuned decoder. against: untuned seconds of sampler and vae."""
    untuned = _latents(turn.decoder)
    device, dtype = turn.decoder.unconditional_ND.device, turn.decoder.unconditional_ND.dtype
    format_drift = None
    if dtype != torch.float32:
        with whole_float32():
            exact = _latents(copy.deepcopy(turn.decoder).float())
        format_drift = drift(untuned, exact)
    rows = []
    for name in names:
        say(f"alone: {name}")
        tuned = replace(turn, decoder=copy.deepcopy(turn.decoder))
        parts = tuned.parts()  # making them takes a step, and the first tuned one is to be timed
        tune(tuned.decoder, [name])
        sampler, vae = (timed(parts[part], device, repeats) for part in ("sampler", "vae"))
        first = sampler.first + vae.first
        rows.append(Trial(name, sampler, vae, first, drift(_latents(tuned.decoder), untuned), dict(against)))
        say(rows[-1].line)
        del tuned, parts
        gc.collect()
    return Trials(tuple(rows), format_drift)


@dataclass(frozen=True)
class Drift:
    """How far a tuned shot is from the untuned one, its latents and, from the same latents, its frames. format_latents,
    format_frames: how far the untuned shot is from float32; None where it is float32.
    """

    latents: float
    frames: float
    format_latents: float | None
    format_frames: float | None

    @property
    def text(self) -> str:
        """One line."""
        told = f"tuned, over {DRIFT_STEPS} steps, latents drift by {self.latents:.2e} and frames by {self.frames:.2e}"
        if self.format_latents is None:
            return f"({told})"
        return f"({told}; the number format itself by {self.format_latents:.2e} and {self.format_frames:.2e})"


class DriftMeter:
    """Remembers a decoder's untuned shot and, where its numbers are not float32, the exact one."""

    def __init__(self, decoder: ShotDecoder) -> None:
        self._given = torch.randn(
            1, *decoder.spec.decoder.latent_shape, generator=torch.Generator().manual_seed(DRIFT_STEPS)
        )
        self._untuned = self._shot(decoder)
        self._exact = None
        if decoder.unconditional_ND.dtype != torch.float32:
            with whole_float32():
                self._exact = self._shot(copy.deepcopy(decoder).float())

    def of(self, decoder: ShotDecoder) -> Drift:
        """The drift of the same decoder, tuned since."""
        latents, frames = map(drift, self._shot(decoder), self._untuned)
        by_format = (None, None) if self._exact is None else tuple(map(drift, self._untuned, self._exact))
        return Drift(latents, frames, *by_format)

    def _shot(self, decoder: ShotDecoder) -> tuple[Tensor, Tensor]:
        given = self._given.to(decoder.unconditional_ND.device)
        return _latents(decoder), decoder.decode_latents(given).cpu()


@contextmanager
def whole_float32() -> Iterator[None]:
    """Convolutions and products in float32 as it is, which a GPU else shortens to TF32."""
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")  # which torchao lowers for the whole process
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before[0]
        torch.set_float32_matmul_precision(before[1])


def drift(latents: Tensor, untuned: Tensor) -> float:
    """The root mean square difference as a share of the untuned latents' root mean square."""
    return float((latents - untuned).pow(2).mean().sqrt() / untuned.pow(2).mean().sqrt())


def _latents(decoder: ShotDecoder) -> Tensor:
    """The latents of a short shot, on the CPU."""
    state = past_turns(decoder.spec)[0].state.representation
    return decoder.sample(state[None], torch.tensor([10.0]), [1], steps=DRIFT_STEPS).cpu()
