"""Gradual transitions between scenes: fades through black or white, and dissolves from one scene into the next.

A fade shows as blank frames with the picture going before them and coming after them; a dissolve as frames that lie
between two pictures. Frames have their number in the film. The numbers here were set on the generated films of
tests/data and then checked on others with tests/measure/films.py.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .thumbnails import Thumbnail

RISE = 1.01  # ratio of two standard deviations from which on a picture still appears
PLATEAU = 4  # frames without a further rise end half of a fade
SHORTEST = 3  # frames of half a fade; anything quicker is a flash
EVEN = 0.25  # grey levels: of blank frames that differ by less, the first is the darkest (whitest)
GRADUAL = 0.6  # largest standard deviation beside a blank frame, as a fraction of the scene's own
WINDOWS = (0.4, 0.55, 0.7, 0.85, 1.0, 1.25, 1.5)  # seconds: lengths of dissolve that are tried
SAMPLES = 9  # moments of a window whose pictures are compared
LEAST_SAMPLES = 5  # different pictures among them; fewer are a jump
SAME_TIME = 1e-4  # seconds: times are sums of floats
STEP, BACK = 0.4, 0.06  # largest progress of a dissolve from one sample to the next, forward and backward
ENDS = 0.08  # progress this near to either end may be slow
MIXED = (0.3, 0.7)  # progress between which a frame is a mixture of both pictures
SPAN = (0.03, 0.5, 0.97)  # progress at which a dissolve begins, passes to the next scene, and ends
CHANGING = 0.3  # least fraction of the picture that a dissolve changes

Change = Callable[[Thumbnail, Thumbnail], float]


@dataclass(frozen=True)
class Dissolve:
    """Thresholds that a dissolve has to meet.

    distance: least distance of its first and last picture, in grey levels. dip: a mixture has less contrast than its
    pictures; the largest contrast amid the dissolve, as a fraction of theirs. residue: how far half of the picture may
    lie off the line between the two pictures, as a fraction of their distance; motion causes it. even: the smallest
    step amid the dissolve, as a fraction of the median step; wild motion comes in fits. unmoved: least fraction of the
    change from frame to frame that motion does not explain; it explains most of a pan. Scenes with much motion may
    have more residue, up to `residue_most`, if more contrast is lost (`deeper` for each unit beyond `dip`) and
    `unmoved_most` is unexplained.
    """

    distance: float = 16.0
    dip: float = 0.96
    residue: float = 0.25
    even: float = 0.7
    unmoved: float = 0.75
    deeper: float = 4.0
    residue_most: float = 0.7
    unmoved_most: float = 0.89


@dataclass(frozen=True)
class Transition:
    """How one scene gives way to the next. number: the next scene's first frame.

    kind is "cut" or "fade" (a dissolve too). The frames from `begins` up to, not including, `ends` mix both scenes.
    weight: of two overlapping transitions the heavier is kept.
    """

    number: int
    kind: str
    begins: int
    ends: int
    weight: float = 0.0

    def meets(self, other: Transition) -> bool:
        """Whether the two overlap or lie side by side."""
        return self.begins - 1 <= other.ends and other.begins <= self.ends + 1


def blank_fades(
    blanks: Sequence[str], stds: Sequence[float], longest: int, flashed: Container[int] = ()
) -> list[Transition]:
    """The fades through black or white of a film, in order.

    blanks, stds: Thumbnail.blank and Thumbnail.std of each frame. longest: frames that either half of a fade may take.
    flashed: frames of flashes; blank frames that are all flashes are a fade only if the picture goes and comes
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
    """The fade around the blank frames from `first` on; none if neither side, or for a flash not both, is gradual."""
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
    """How many frames, going away from a blank one, pass until the picture is whole; 0 where it appears at once."""
    if not stds:
        return 0
    most, at = stds[0], 0
    for index, std in enumerate(stds):
        if std > RISE * most:
            most, at = std, index
        elif index - at >= PLATEAU:
            break
    return at if at >= SHORTEST and stds[0] <= GRADUAL * most else 0


def find_dissolves(
    thumbnails: Sequence[Thumbnail], seconds: Sequence[float], limits: Dissolve, change: Change
) -> Iterator[Transition]:
    """Dissolves that may end at the last of the thumbnails, at most one of each length in WINDOWS.

    seconds: when each frame of the film is shown, by its number. change: `thumbnails.change`, cached, since it is
    called for the same frames again and again. Windows are times, not frame counts, since films of variable frame rate
    show some pictures for long.
    """
    now, base = seconds[thumbnails[-1].number], thumbnails[0].number
    for window in WINDOWS:
        if seconds[base] > now - window:
            continue
        times = np.linspace(now - window, now, SAMPLES) + SAME_TIME
        picked = [bisect.bisect_right(seconds, time, lo=base) - 1 - base for time in times]
        way = thumbnails[picked[-1]].tiny - thumbnails[picked[0]].tiny
        squared = float(way @ way)
        if len(set(picked)) < LEAST_SAMPLES or squared < way.size * limits.distance**2:
            continue
        samples = [thumbnails[at] for at in picked]
        steps = np.stack([sample.tiny for sample in samples]) - samples[0].tiny
        progress = steps @ way / squared
        if not _is_steady(progress, limits) or (contrast := _mixed_contrast(samples, progress)) > limits.dip:
            continue
        residue = _residue(steps, progress, way, limits)
        if residue > min(limits.residue + limits.deeper * (limits.dip - contrast), limits.residue_most):
            continue
        least = limits.unmoved if residue <= limits.residue else limits.unmoved_most
        if _unexplained(itertools.islice(thumbnails, picked[0], None), change) >= least:
            rising = np.maximum.accumulate(progress.astype(float))
            begins, middle, ends = (int(np.interp(part, rising, picked)) for part in SPAN)
            yield Transition(base + middle, "fade", base + begins, base + ends + 1, squared)


def _is_steady(progress: NDArray[np.float32], limits: Dissolve) -> bool:
    """Whether the picture goes from first to last without jumps, falls or halts."""
    steps = np.diff(progress)
    amid = steps[(progress[:-1] > ENDS) & (progress[1:] < 1 - ENDS)]
    halts = amid.size and amid.min() < limits.even * np.median(amid)
    return not (steps.max() > STEP or steps.min() < -BACK or halts)


def _mixed_contrast(samples: Sequence[Thumbnail], progress: NDArray[np.float32]) -> float:
    """The least contrast of the mixtures, as a fraction of that of the first and last picture; inf without any.

    Flashes of black or white have no contrast either, and are left out.
    """
    mixed = [
        sample.contrast
        for sample, part in zip(samples, progress, strict=True)
        if not sample.blank and MIXED[0] < part < MIXED[1]
    ]
    whole = (samples[0].contrast + samples[-1].contrast) / 2
    return min(mixed) / whole if mixed and whole else np.inf


def _residue(
    steps: NDArray[np.float32], progress: NDArray[np.float32], way: NDArray[np.float32], limits: Dissolve
) -> float:
    """The median distance of the changing cells from the line between both pictures, as a fraction of their distance.

    inf where too little of the picture changes.
    """
    cells = np.linalg.norm(way.reshape(-1, 3), axis=1)
    changing = cells > limits.distance
    if changing.mean() < CHANGING:
        return np.inf
    off = np.linalg.norm((steps - progress[:, None] * way).reshape(len(steps), -1, 3), axis=2).max(axis=0)
    return float(np.median(off[changing] / cells[changing]))


def _unexplained(thumbnails: Iterable[Thumbnail], change: Change) -> float:
    """The fraction of the change from frame to frame that motion does not explain."""
    pairs = list(itertools.pairwise(thumbnails))
    whole = sum(float(np.abs(one.small_HWC - other.small_HWC).mean()) for one, other in pairs)
    return sum(change(*pair) for pair in pairs) / whole


def strongest(transitions: Sequence[Transition]) -> list[Transition]:
    """The transitions in the order of the film; of those that overlap only the heaviest."""
    chosen: list[Transition] = []
    for transition in sorted(transitions, key=lambda item: -item.weight):
        if not any(transition.meets(other) for other in chosen):
            chosen.append(transition)
    return sorted(chosen, key=lambda item: item.number)
