"""Measures how much a shot moves, with the flow backend, thresholds and level edges of its world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checkpoint import World
from ...data.flow import Flow, FlowSettings, motion_facts, open_flow
from ...data.motion import DEFAULT_THRESHOLD, level_of, motion_value
from ...messages import quoted

BACKEND, THRESHOLD, FRACTION = "motion backend", "motion threshold", "motion slow_fraction"  # provenance keys


@dataclass(frozen=True)
class MotionMeter:
    """Measures motion with an open flow backend.

    threshold: px per frame; slower pixels count as still. slow_fraction: see `data.motion.motion_value`. edges: the
    four borders between levels, None if unknown. facts: the settings, for a report. remarks: what a report should say
    about them.
    """

    flow: Flow
    threshold: float
    slow_fraction: float
    edges: tuple[float, ...] | None
    facts: Mapping[str, Any]
    remarks: tuple[str, ...] = ()

    def value(self, frames_FHWC: NDArray[np.uint8]) -> float:
        """The motion value of a shot, px per frame at 480 px height."""
        return motion_value(frames_FHWC, backend=self.flow, threshold=self.threshold, slow_fraction=self.slow_fraction)

    def level(self, value: float) -> int | None:
        """The level 1..5 of a motion value; None without edges."""
        return None if self.edges is None else level_of(value, self.edges)


def flow_of(world: World, backend: str | None = None, threshold: float | None = None, **given: Any) -> FlowSettings:
    """The flow settings that measure motion as in the world's dataset.

    backend: None for the world's own, or DIS if its provenance names none. threshold: px per frame, None for the
    world's own, or 0.2. given: weights and device of FlowSettings. ValueError if the world was measured by
    another backend than the requested one, or if weights are needed and not given.
    """
    own = world.provenance.get(BACKEND)
    wanted = FlowSettings(
        backend=backend or own or "dis",
        threshold=_number(world, THRESHOLD, DEFAULT_THRESHOLD) if threshold is None else threshold,
        slow_fraction=_number(world, FRACTION, 0.0),
        **given,
    )
    if own is not None and own != wanted.backend:
        raise ValueError(
            f"the motion of world {world.spec.name!r} was measured by the flow backend {own}, and backends differ by "
            f"large factors; choose {own}, not {wanted.backend}"
        )
    if wanted.backend != "dis" and wanted.weights is None:
        raise ValueError(
            f"the motion of world {world.spec.name!r} is measured by the flow backend {wanted.backend}; on the "
            f"command line, give it --flow-weights FILE"
        )
    return wanted


def edges_of(text: str) -> tuple[float, ...]:
    """Parse the borders between motion levels, `A,B,C,D`; ValueError unless they are four rising numbers."""
    try:
        edges = tuple(float(part) for part in text.split(","))
    except ValueError:
        edges = ()
    if len(edges) != 4 or not np.isfinite(edges).all() or any(low >= high for low, high in pairwise(edges)):
        raise ValueError(f"--motion-edges is {text!r}; expected four rising numbers, such as 1.2,2.3,4.7,10")
    return edges


def open_meter(world: World, flow: FlowSettings, edges: tuple[float, ...] | None = None) -> MotionMeter:
    """The world's motion meter. edges: used instead of the world's. ValueError if the backend cannot be opened."""
    borders = world.motion_table.edges if edges is None else edges
    remarks = tuple(_remarks(world, flow, edges is not None))
    opened = open_flow(flow)
    measured = motion_facts(opened, flow.threshold, flow.slow_fraction)
    facts = {**measured, "edges": None if borders is None else list(borders)}
    return MotionMeter(opened, flow.threshold, flow.slow_fraction, borders, facts, remarks)


def _number(world: World, key: str, default: float) -> float:
    """A number of the world's provenance, or the default if it has none; ValueError for any other text."""
    text = world.provenance.get(key)
    try:
        return default if text is None else float(text)
    except ValueError as error:
        raise ValueError(f"world.json says {key} {quoted(text, 40)}; expected a number") from error


def _remarks(world: World, flow: FlowSettings, by_hand: bool) -> Iterator[str]:
    if by_hand:
        yield "the boundaries between motion levels come from --motion-edges, not from the world"
    elif world.motion_table.edges is None:
        yield (
            f"world {world.spec.name!r} has no measured boundaries between motion levels, so ACC-F and MAE-F are "
            "missing; on the command line, give them with --motion-edges A,B,C,D"
        )
    if BACKEND not in world.provenance:
        yield f"world.json does not say which backend measured its motion; {flow.backend} is used here"
    own = _number(world, THRESHOLD, DEFAULT_THRESHOLD)
    if flow.threshold != own:
        yield f"pixels count as still below {flow.threshold} px per frame here, but below {own} in the world's dataset"
