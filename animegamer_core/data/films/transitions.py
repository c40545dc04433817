"""Transitions between scenes: cuts and dissolves from TransNetV2's probabilities, and fades through black or white.

In a fade, the picture disappears into blank frames, or appears after them, or both; the network misses some fades and
takes others for two transitions. Frames are given by their number in the film; N frames.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

RISE = 1.01  # ratio of a standard deviation to the largest before it, if the picture is still appearing
PLATEAU = 4  # frames without a rise after which half of a fade has ended
SHORTEST = 3  # frames of half a fade; anything quicker is a flash
EVEN = 0.25  # grey levels: of blank frames that differ by less, the first is the darkest (whitest)
GRADUAL = 0.6  # largest standard deviation next to a blank frame, as a fraction of the scene's own
LONGEST_CUT = 4  # frames that the network sees a cut in; more are a dissolve or a fade


@dataclass(frozen=True)
class Probabilities:
    """The least of TransNetV2's probabilities at which frames count.

    change: that the shot changes, for a transition. alone: the same, for a cut where the picture does not jump. hint:
    the same, for a cut where it jumps. part: that a frame is part of a dissolve or fade.
    """

    change: float = 0.3
    alone: float = 0.5
    hint: float = 0.06
    part: float = 0.5


@dataclass(frozen=True)
class Transition:
    """How one scene changes to the next. number: the next scene's first frame.

    kind is "cut" or "fade" (a dissolve too). The frames from `begins` up to, not including, `ends` mix both scenes.
    """

    number: int
    kind: str
    begins: int
    ends: int

    def meets(self, other: Transition) -> bool:
        """Whether the two overlap or are adjacent."""
        return self.begins - 1 <= other.ends and other.begins <= self.ends + 1


def network_transitions(
    change_N: NDArray[np.float32], part_N: NDArray[np.float32], jumps: Sequence[int], limits: Probabilities
) -> list[Transition]:
    """Cuts and gradual transitions in order.

    change_N, part_N: the probabilities of TransNet.finish. jumps: frames that differ suddenly from the one before, in
    order.
    """
    parts, found = _runs(part_N >= limits.part), []
    for first, end in _runs(change_N >= limits.change):
        near = [part for part in parts if part[0] <= end and first <= part[1]]
        begins, ends = (min(near)[0], max(near)[1]) if near else (first, end)
        if ends - begins > LONGEST_CUT:
            number = first + int(change_N[first:end].argmax()) + 1
            found.append(Transition(number, "fade", min(begins, number - 1), max(ends, number)))
            continue
        jump = next((jump for jump in reversed(jumps) if first < jump <= end + 1), None)
        if jump is not None or change_N[first:end].max() >= limits.alone:
            number = end if jump is None else jump
            found.append(Transition(number, "cut", number, number))
    for jump in jumps:
        cut = Transition(jump, "cut", jump, jump)
        if change_N[max(0, jump - 2) : jump + 1].max() >= limits.hint and not any(cut.meets(item) for item in found):
            found.append(cut)
    return sorted(found, key=lambda item: item.number)


def join_fades(transitions: Sequence[Transition], stds: Sequence[float], longest: int) -> list[Transition]:
    """The transitions, with a fade to a dark picture and the fade from it joined into one.

    stds: Thumbnail.std of each frame. longest: the most frames between the two.
    """
    joined: list[Transition] = []
    for item in transitions:
        before = joined[-1] if joined else None
        if before and before.kind == item.kind == "fade" and 0 < item.begins - before.ends <= longest:
            goes = stds[before.ends] <= GRADUAL * stds[max(0, before.begins - 1)]
            comes = stds[item.begins - 1] <= GRADUAL * stds[min(item.ends, len(stds) - 1)]
            if goes and comes:
                number = before.ends + int(np.argmin(stds[before.ends : item.begins]))
                joined[-1] = Transition(number, "fade", before.begins, item.ends)
                continue
        joined.append(item)
    return joined


def fitted(fade: Transition, part_N: NDArray[np.float32], limits: Probabilities) -> Transition:
    """A fade through black or white, with the extent that the network gives it on each side where it detected it.

    Contrast alone would count a picture that keeps growing brighter as a part of the fade.
    """
    gradual = [run for run in _runs(part_N >= limits.part) if run[1] - run[0] > LONGEST_CUT]
    near = [(first, end) for first, end in gradual if first < fade.ends and fade.begins < end]
    begins = min((first for first, end in near if first + end < 2 * fade.number), default=fade.begins)
    ends = max((end for first, end in near if first + end >= 2 * fade.number), default=fade.ends)
    return replace(fade, begins=begins, ends=ends)


def _runs(true_N: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(first, end) of each run of true values."""
    edges = np.flatnonzero(np.diff(true_N.astype(np.int8), prepend=0, append=0)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def blank_fades(
    blanks: Sequence[str], stds: Sequence[float], longest: int, flashed: Container[int] = ()
) -> list[Transition]:
    """The fades through black or white of a film, in order.

    blanks, stds: Thumbnail.blank and Thumbnail.std of each frame. longest: frames that either half of a fade may take.
    flashed: frames of flashes; blank frames that are all flashes are a fade only if the picture disappears and appears
    gradually. A film that begins or ends in black has a transition there too, whose number is 0 or the frame count.
    """
    fades, first = [], 0
    for is_picture, run in itertools.groupby(blanks, key=lambda blank: not blank):
        kinds = list(run)
        if not is_picture and set(kinds) & {"black", "white"}:
            flash = all(number in flashed for number in range(first, first + len(kinds)))
            fades += _blank_fade(first, kinds, stds, longest, flash)
        first += len(kinds)
    return fades


def _blank_fade(first: int, kinds: Sequence[str], stds: Sequence[float], longest: int, flash: bool) -> list[Transition]:
    """The fade around the blank frames from `first` on; empty if no side is gradual, or for a flash only one."""
    end = first + len(kinds)
    before = _fade_frames(stds[max(0, first - longest) : first][::-1])
    after = _fade_frames(stds[end : end + longest])
    if (not before and not after) or (flash and not (before and after)):
        return []
    number = 0 if first == 0 else len(stds) if end == len(stds) else end
    if before and after and first < number < len(stds):
        blank = [(std, at) for at, (kind, std) in enumerate(zip(kinds, stds[first:end], strict=True)) if kind != "flat"]
        number = first + next(at for std, at in blank if std <= min(blank)[0] + EVEN)
    elif after and number == end:
        number = first
    return [Transition(number, "fade", first - before, end + after)]


def _fade_frames(stds: Sequence[float]) -> int:
    """How many frames the picture takes to appear, counted from a blank one; 0 if it appears at once."""
    if not stds:
        return 0
    most, at = stds[0], 0
    for index, std in enumerate(stds):
        if std > RISE * most:
            most, at = std, index
        elif index - at >= PLATEAU:
            break
    return at if at >= SHORTEST and stds[0] <= GRADUAL * most else 0
