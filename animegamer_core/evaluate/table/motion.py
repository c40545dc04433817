"""How lively a shot is by the measure of its world: that world's own flow backend, threshold and level edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checkpoint import World
from ...data.flow import Flow, FlowSettings, motion_facts, open_flow
from ...data.motion import DEFAULT_THRESHOLD, level_of, motion_value

BACKEND, THRESHOLD = "motion backend", "motion threshold"  # of a world's provenance


@dataclass(frozen=True)
class MotionMeter:
    """An open measure. edges: the four borders between levels, None where the world never measured any.

    facts: which backend it is, its threshold and edges. remarks: what a report has to say of them.
    """

    flow: Flow
    threshold: float
    edges: tuple[float, ...] | None
    facts: Mapping[str, Any]
    remarks: tuple[str, ...] = ()

    def value(self, frames_FHWC: NDArray[np.uint8]) -> float:
        """The motion value of a shot, px a frame at 480 px height."""
        return motion_value(frames_FHWC, backend=self.flow, threshold=self.threshold)

    def level(self, value: float) -> int | None:
        """The level 1..5 of a motion value, None without edges."""
        return None if self.edges is None else level_of(value, self.edges)


def flow_of(world: World, backend: str | None = None, threshold: float | None = None, **given: Any) -> FlowSettings:
    """How the world's motion is measured: as its provenance says, else as people say, else by DIS at 0.2 px.

    given: weights, python and device, as FlowSettings has them. ValueError in one sentence where the world's backend
    was another than asked for, or lacks what opens it.
    """
    own = world.provenance.get(BACKEND)
    wanted = FlowSettings(
        backend=backend or own or "dis", threshold=_threshold(world) if threshold is None else threshold, **given
    )
    if own is not None and own != wanted.backend:
        raise ValueError(
            f"world {world.spec.name!r} was measured by the flow backend {own}, and backends differ by factors; give "
            f"--flow {own}, not {wanted.backend}"
        )
    if wanted.backend != "dis" and wanted.weights is None:
        python = " and --flow-python PYTHON" if wanted.backend == "memflow" else ""
        raise ValueError(
            f"the motion of world {world.spec.name!r} is measured by the flow backend {wanted.backend}; open it with "
            f"--flow-weights FILE{python}"
        )
    return wanted


@contextmanager
def open_meter(world: World, flow: FlowSettings, edges: Sequence[float] | None = None) -> Iterator[MotionMeter]:
    """The world's measure. edges: given by hand, in place of the world's. ValueError where the backend cannot open."""
    borders = world.motion_table.edges if edges is None else _edges(edges)
    remarks = tuple(_remarks(world, flow, edges is not None))
    with open_flow(flow) as opened:
        facts = {**motion_facts(opened, flow.threshold), "edges": None if borders is None else list(borders)}
        yield MotionMeter(opened, flow.threshold, borders, facts, remarks)


def _threshold(world: World) -> float:
    """What the world's provenance says, or the project's own."""
    told = world.provenance.get(THRESHOLD)
    try:
        return DEFAULT_THRESHOLD if told is None else float(told)
    except ValueError as error:
        raise ValueError(f"world.json says {THRESHOLD} {ascii(told[:40])}; expected a number") from error


def _edges(given: Sequence[float]) -> tuple[float, ...]:
    rising = all(low < high for low, high in zip(given, given[1:], strict=False))
    if len(given) != 4 or not rising or not np.isfinite(given).all():
        raise ValueError(f"motion edges {list(given)} part no five levels; give four rising numbers, as 1.2,2.3,4.7,10")
    return tuple(float(edge) for edge in given)


def _remarks(world: World, flow: FlowSettings, by_hand: bool) -> Iterator[str]:
    if by_hand:
        yield "motion levels are parted by the edges that --motion-edges gave, not by ones that the world measured"
    elif world.motion_table.edges is None:
        yield (
            f"world {world.spec.name!r} never measured the edges between its motion levels, so ACC-F and MAE-F are not "
            "given; --motion-edges A,B,C,D gives edges"
        )
    if BACKEND not in world.provenance:
        yield f"world.json does not say which backend measured its motion; {flow.backend} was taken here"
    if flow.threshold != _threshold(world):
        yield f"pixels count as still under {flow.threshold} px, where the world says {_threshold(world)}"
