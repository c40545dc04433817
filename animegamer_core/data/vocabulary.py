"""What a dataset shows, in words that the director and the Play tab propose: who does what, where, when and how."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, product
from statistics import mode

from ..game.life import Act, Life, Rules, Words, time_and_place
from .captions.replies import TIMES
from .dataset import DatasetFolder
from .records import ClipRecord

MOST_WORDS = 50  # of a kind: what a person can look through, and a language model's prompt can hold


def life_of(folder: DatasetFolder) -> Life:
    """The life of a world that is trained on a dataset: its stats, and its words."""
    return Life(Rules(folder.stats), words_of(folder))


def words_of(folder: DatasetFolder) -> Words | None:
    """The words of the clips that are trained on, the most frequent first; None if no clip has a caption.

    An act has the stat changes of most of its clips, and takes company if most of them show more than one character.
    Names in lower case, such as a log that somebody captioned, are listed only if there are no others.
    """
    clips = [folder.turns[index] for index in folder.training_clips]
    clips = [clip for clip in clips if clip.captioned]
    if not clips:
        return None
    names = _frequent(name for clip in clips for name in clip.character)
    times, places = zip(*(time_and_place(clip.background, TIMES) for clip in clips), strict=True)
    words = Words(
        characters=tuple(name for name in names if not name[0].islower()) or names,
        acts=_acts(clips),
        places=_frequent(places),
        times=tuple(time for time in TIMES if time in times),
        adverbs=_adverbs(clips),
    )
    return replace(words, untried=tuple(_untried(clips, words)))


def _frequent(texts: Iterable[str]) -> tuple[str, ...]:
    """Different texts, the most frequent first; none with a semicolon, which separates the parts of an instruction."""
    counts = Counter(text.strip() for text in texts)
    return tuple(text for text, _ in counts.most_common() if text and ";" not in text)[:MOST_WORDS]


def _acts(clips: Sequence[ClipRecord]) -> tuple[Act, ...]:
    showing: dict[str, list[ClipRecord]] = defaultdict(list)
    for clip in clips:
        showing[clip.motion.strip()].append(clip)
    acts = []
    for phrase in _frequent(clip.motion for clip in clips):
        of_act = showing[phrase]
        changes = {name: mode(clip.stats[name] for clip in of_act) for name in of_act[0].stats}
        company = mode(len(clip.character) > 1 for clip in of_act)
        acts.append(Act(phrase, changes, company))
    return tuple(acts)


def _adverbs(clips: Sequence[ClipRecord]) -> tuple[tuple[str, ...], ...]:
    """Each adverb at the motion level of most of its clips, from still to wild."""
    levels: dict[str, Counter[int]] = defaultdict(Counter)
    for clip in clips:
        levels[clip.adverb.strip()][clip.motion_level] += 1
    groups: dict[int, list[str]] = defaultdict(list)
    for adverb in _frequent(clip.adverb for clip in clips):
        groups[levels[adverb].most_common(1)[0][0]].append(adverb)
    return tuple(tuple(groups[level]) for level in sorted(groups))


def _untried(clips: Sequence[ClipRecord], words: Words) -> Iterator[tuple[str, str]]:
    """The pairs of a character, an act and a place that no clip shows together."""
    shown = {
        frozenset(pair)
        for clip in clips
        for pair in combinations(
            (*map(str.strip, clip.character), clip.motion.strip(), time_and_place(clip.background, TIMES)[1]), 2
        )
    }
    acts = [act.phrase for act in words.acts]
    pairs = chain(
        product(words.characters, acts),
        product(words.characters, words.places),
        product(acts, words.places),
        combinations(words.characters, 2),
    )
    return (pair for pair in pairs if frozenset(pair) not in shown)
