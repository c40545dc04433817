"""What a generated film shows, part by part, as its plan and seed decide: scenes, stills, repeats, credits, and cuts.

A part's length is in frames at the film's rate; how many of them a fade takes is stated by the later of the two parts.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from animegamer_core.toybox.games import sample_game
from animegamer_core.toybox.world import AMPLITUDES, CHARACTERS, Scene

BORDERS = {  # name: fractions of the height and of the width that are black on each side
    "none": (0.0, 0.0),
    "letterbox": (0.12, 0.0),
    "pillarbox": (0.0, 0.125),
    "both": (0.08, 0.1),
}
FLASH_KINDS = ("white", "negative", "black")
SAME_FILM = 40  # games among which one with a character of the same film is chosen


@dataclass(frozen=True, kw_only=True)
class FilmPlan:
    """The content of a generated film. The numbers of fades, stills and repeats are limited by `scenes`.

    size: (height, width), even numbers. seconds: the shortest and the longest scene; short: the fraction of scenes
    that last only 0.4 to 1.5 seconds. borders: names of BORDERS, each for an equal number of consecutive scenes.
    similar: fraction of scenes at the place of the one before, with other characters or another motion. wild: fraction
    of scenes with the strongest motion. held: fraction of scenes drawn on twos or threes, like animation: a picture is
    shown for two or three frames. variable: such a picture is stored once, with matching timestamps. grain: standard
    deviation of the film grain, in grey levels.
    """

    seed: int = 0
    scenes: int = 10
    seconds: tuple[float, float] = (2.5, 6.0)
    size: tuple[int, int] = (360, 640)
    fps: float = 24.0
    borders: tuple[str, ...] = ("none",)
    similar: float = 0.3
    wild: float = 0.15
    short: float = 0.1
    held: float = 0.5
    fades: int = 0
    cross_fades: int = 0
    flashes: int = 0
    stills: int = 0
    repeats: int = 0
    credits: bool = False
    dark_opening: bool = False
    variable: bool = False
    grain: float = 1.5


@dataclass(frozen=True)
class Flash:
    """Up to three frames of a part that flash: the same picture is before and after them. kind: one of FLASH_KINDS."""

    first: int
    frames: int
    kind: str


@dataclass(frozen=True)
class Part:
    """One scene of a film, or one card or roll of credits.

    kind is "scene", "still", "dark" or "credits". begins is "start", "cut", "black", "white" or "cross"; a fade takes
    `overlap` frames of this part and as many of the one before, which a cross-fade shows at the same time. rate: speed
    of the motion, not 1, so that it does not repeat with every segment; 0 for a still. drift: where the picture slides
    to, (x, y) in fractions of the margin. step: for how many frames a picture is held. repeats: the number of the part
    whose pictures are shown again. lines, rolls: the text of credits, and whether it moves up.
    """

    kind: str
    frames: int
    begins: str = "cut"
    overlap: int = 0
    border: str = "none"
    scene: Scene | None = None
    rate: float = 1.0
    drift: tuple[float, float] = (0.0, 0.0)
    flashes: tuple[Flash, ...] = ()
    step: int = 1
    repeats: int | None = None
    lines: tuple[str, ...] = field(default=(), repr=False)
    rolls: bool = False


def parts_of(plan: FilmPlan) -> tuple[Part, ...]:
    """The film's parts in order; the same for the same plan."""
    rng = random.Random(f"toybox/film/{plan.seed}")
    parts = _scene_parts(plan, rng)
    for special, count in (("still", plan.stills), ("repeat", plan.repeats)):
        for index in _free(parts, rng, count):
            still = replace(parts[index], kind="still", rate=0.0, drift=(0.0, 0.0))
            parts[index] = still if special == "still" else _repeat(parts, index, rng)
    if plan.dark_opening:
        parts[0] = replace(parts[0], kind="dark", frames=max(parts[0].frames, round(3 * plan.fps)))
    opening, closing = _credits(plan, rng) if plan.credits else ([], [])
    parts = [part if part.repeats is None else replace(part, repeats=part.repeats + len(opening)) for part in parts]
    return tuple(_with_flashes(_joined([*opening, *parts, *closing], plan, rng), plan, rng))


def _scene_parts(plan: FilmPlan, rng: random.Random) -> list[Part]:
    parts = []
    for number, scene in enumerate(itertools.islice(_scenes(plan, rng), plan.scenes)):
        short, held = 0 < number and rng.random() < plan.short, rng.random() < plan.held
        seconds = rng.uniform(0.4, 1.5) if short else rng.uniform(*plan.seconds)
        frames, border = max(8, round(seconds * plan.fps)), plan.borders[number * len(plan.borders) // plan.scenes]
        part = Part("scene", frames, border=border, scene=scene, rate=rng.uniform(0.82, 0.96))
        drift = rng.choice((-1, 1)) * rng.uniform(0.3, 1), rng.uniform(-0.5, 0.5)
        parts.append(replace(part, drift=drift, step=rng.choice((2, 3)) if held else 1))
    return parts


def _scenes(plan: FilmPlan, rng: random.Random) -> Iterator[Scene]:
    """Yield scenes without end; a `similar` one keeps the film, the place and the time of the one before."""
    last: Scene | None = None
    apart = 10**9  # far from the seeds of datasets and benchmarks
    for number in itertools.count():
        first = apart + (plan.seed * 1000 + number) * SAME_FILM
        games = [sample_game(first, turns=1)]
        if last is not None and rng.random() < plan.similar:
            games += [sample_game(first + more, turns=1) for more in range(1, SAME_FILM)]
            same = [game.scenes[0] for game in games if CHARACTERS[game.scenes[0].character].film == last.film]
            scene = replace(same[0], place=last.place, time=last.time)
        else:
            scene = games[0].scenes[0]
        if rng.random() < plan.wild:
            scene = replace(scene, amplitude=rng.uniform(0.7, 1.0) * AMPLITUDES[1])
        last = scene
        yield scene


def _free(parts: list[Part], rng: random.Random, count: int) -> list[int]:
    """Choose parts that become stills or repeats; the first three never do, so that there is something to repeat."""
    return sorted(rng.sample([index for index in range(3, len(parts)) if _is_plain(parts[index])], count))


def _is_plain(part: Part) -> bool:
    return part.kind == "scene" and part.repeats is None


def _repeat(parts: list[Part], index: int, rng: random.Random) -> Part:
    """An earlier scene, shown again from its beginning with the border of part `index`."""
    earlier = [number for number in range(1, index - 1) if _is_plain(parts[number])]
    source = max(rng.sample(earlier, min(2, len(earlier))), key=lambda number: parts[number].frames)
    return replace(parts[source], border=parts[index].border, repeats=source)


def _credits(plan: FilmPlan, rng: random.Random) -> tuple[list[Part], list[Part]]:
    """The opening credits (two cards) and the closing credits (a card and a roll)."""
    cards = [Part("credits", round(rng.uniform(2.2, 3.2) * plan.fps), lines=_lines(rng, count)) for count in (2, 3, 1)]
    roll = Part("credits", round(7 * plan.fps), lines=_lines(rng, 24), rolls=True)
    return cards[:2], [cards[2], roll]


def _lines(rng: random.Random, count: int) -> tuple[str, ...]:
    syllables = ("mi", "ko", "ta", "ro", "yu", "zu", "no", "ri", "be", "ni", "pi", "sa", "ha", "ne")
    duties = ("Directed by", "Story", "Key animation", "Music", "Backgrounds", "Colours", "Editing", "Sound")

    def name() -> str:
        return "".join(rng.choice(syllables) for _ in range(rng.randint(2, 4))).capitalize()

    return tuple(f"{rng.choice(duties)}   {name()} {name()}" for _ in range(count))


def _joined(parts: list[Part], plan: FilmPlan, rng: random.Random) -> list[Part]:
    """Choose which transitions are fades, and make the parts on either side long enough for them."""
    parts[0] = replace(parts[0], begins="start")
    later = list(range(1, len(parts)))
    pairs = {index: (parts[index - 1], parts[index]) for index in later}  # neither credits nor other borders cross-fade
    alike = [n for n, (a, b) in pairs.items() if a.border == b.border and "credits" not in (a.kind, b.kind)]
    crossed = set(rng.sample(alike, min(plan.cross_fades, len(alike))))
    faded = rng.sample([index for index in later if index not in crossed], plan.fades)
    for index in [*sorted(crossed), *sorted(faded)]:
        begins = "cross" if index in crossed else ("black", "white")[faded.index(index) % 2]
        overlap = round(rng.uniform(0.35, 0.8) * plan.fps)
        parts[index] = _longer(replace(parts[index], begins=begins, overlap=overlap, step=1))
        parts[index - 1] = _longer(replace(parts[index - 1], step=1), overlap)
    return parts


def _longer(part: Part, tail: int = 0) -> Part:
    """The part, with at least half of its frames outside of fades. tail: frames of the fade after it."""
    return replace(part, frames=max(part.frames, 2 * (part.overlap + tail)))


def _with_flashes(parts: list[Part], plan: FilmPlan, rng: random.Random) -> list[Part]:
    """Add flashes that are at least half a second away from every cut and fade."""
    away = round(0.5 * plan.fps)
    tails = [*(part.overlap for part in parts[1:]), 0]
    free = {
        index: range(part.overlap + away, part.frames - tail - away)
        for index, (part, tail) in enumerate(zip(parts, tails, strict=True))
        if part.kind == "scene" and part.frames > part.overlap + tail + 2 * away
    }
    for number in range(plan.flashes if free else 0):
        index = rng.choice(sorted(free))
        part = parts[index]
        frames, first = rng.randint(1, 3), rng.choice(free[index])
        first -= first % part.step  # begins with a new drawing
        if all(abs(first - flash.first) > 8 for flash in part.flashes):
            flash = Flash(first, frames, FLASH_KINDS[number % len(FLASH_KINDS)])
            parts[index] = replace(part, flashes=(*part.flashes, flash))
    return parts
