"""The director proposes what happens next, by a simple rule based on the stats and the last turns. Imports no torch.

The rule: for each act that the world knows, it computes the stats after it. Acts that bring low stats back to the
middle are likely: a tired character sleeps, a lonely one meets a friend, a bored one does something entertaining. Acts
of the last turns are unlikely, and an act that filled 3 of the last 20 turns is skipped. A place lasts two or three
turns, then comes the one that was not visited for longest; times of day and friends take turns in the same way. Pairs
that never appear together in the world's training data are not proposed, with two exceptions: where a world acts by
itself, a friend starts an act for two that is new to the main character, and a main character with too few places
visits the others as well. Of several proposals only the last one goes on to another place, and one brings a friend.
Where the main character has too few acts for that, others of the story act, or at its beginning others of the film.

The random generator is seeded with the seed, the turn's number and the last turns, so the same game with the same seed
gets the same proposals. How an act changes the stats is the engine's last prediction for it, or else what the world
states.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .life import PUBLISHED_RULES, Act, Life, Rules, Values, Words
from .recall import OPENING, PUBLISHED, names_of
from .state import GameSession, Instruction, Turn

LOOKS_BACK = 40  # turns that a proposal depends on
SPAN, MOST_OF_SPAN = 20, 3  # an act fills at most 3 of 20 turns, so at most 15 % of a long game
FEWEST_PLACES = math.ceil(SPAN / MOST_OF_SPAN)  # with fewer, one fills more than 15 %
LOW = 40  # a stat below it is given as the reason of a proposal
CALM = 12.0  # points from the middle at which a stat starts to matter
PLACE_TURNS, TIME_TURNS = (2, 3), (3, 5)  # turns that a place and a time of day last
CARRIES = 0.25  # of the turns show a thing
FREE_HANDS = 2  # words of an act that leaves the hands free: "wave hello", not "ride a swing"
REMEMBERED_TURNS = 30  # turns during which a thing is referred to again; then a new one comes
SUGGESTIONS = 3


@dataclass(frozen=True)
class Proposal:
    """A proposed instruction. reason: the low stat that it raises, or an empty string."""

    instruction: str
    reason: str = ""


@dataclass(frozen=True)
class Director:
    """Proposes by the rule. words: what the world knows."""

    words: Words
    seed: int = 0

    def __post_init__(self) -> None:
        lacking = [name for name in ("characters", "acts", "places") if not getattr(self.words, name)]
        if lacking:
            raise ValueError(
                f"this world lists no {lacking[0]}, so no turns can be proposed; add some to `words` of `life` in "
                "world.json, or for characters first play a turn in the form `Character: ...; Motion: ...; Background: "
                "...`"
            )

    @property
    def name(self) -> str:
        """The proposer's name, as recorded in a story."""
        return f"rules, seed {self.seed}"

    def __call__(self, session: GameSession, count: int = 1) -> tuple[Proposal, ...]:
        """Up to `count` proposals with different acts for the next turn; play without a player takes the first."""
        turns = session.turns[-LOOKS_BACK:]
        shown, past = ([_read(turn, self.words) for turn in turns if turn.number >= first] for first in (OPENING, 1))
        last = turns[-1].instruction if turns else ""
        rng = random.Random(f"animegamer/director/{self.seed}/{session.next_number}/{last}")
        rules = session.rules or PUBLISHED_RULES
        main = _main(shown, self.words, self.seed)
        on = _setting(rng, shown, self.words, main)
        found: dict[Act, tuple[str, str, str]] = {}
        meets = count > 1 and rules.only(session.character) == rules.names  # one brings a friend, if nothing is due
        for number in range(count):  # with others to choose from, the last one goes on, the others stay
            setting = on if number == count - 1 else _last_setting(shown, on)
            fit = [act for act in self.words.acts if self._tried(act, main, setting[0], alone=count > 1)]
            known = fit or [act for act in self.words.acts if self.words.tried(main, act.phrase)]
            if meets and number > 0 and not any(act.company for act in found):
                known = [act for act in known if act.company] or known
            acts = _likely_acts(rng, past, self.words, known, session.character, rules)
            found.update([(act, (main, *setting)) for act in acts if act not in found][:1])
        shown_names = {name for turn in shown for name in turn.characters}
        others = [name for name in self.words.characters if name != main and (name in shown_names or not shown)]
        for name in others:
            if len(found) == count:
                break
            setting = _setting(rng, shown, self.words, name)
            new = [act for act in self.words.acts if act not in found and self.words.tried(name, setting[0])]
            fit = [act for act in new if self._tried(act, name, setting[0], alone=True)]
            found.update((act, (name, *setting)) for act in fit[:1])
        return tuple(
            self._proposal(rng, act, past, at, session.character, rules, count == 1) for act, at in found.items()
        )

    def _tried(self, act: Act, main: str, place: str, alone: bool) -> bool:
        """Whether an act fits a place, and training showed it there, begun by the main character or, unless `alone`, by
        a friend.
        """
        words = self.words
        if act.places and place not in act.places or not words.tried(act.phrase, place):
            return False
        begins = [main, *_friends(words, main, place)] if act.company else [main]
        return len(begins) > act.company and any(
            words.tried(name, act.phrase) for name in begins[: 1 if alone else None]
        )

    def _proposal(
        self,
        rng: random.Random,
        act: Act,
        past: Sequence[_Past],
        setting: tuple[str, str, str],
        stats: Values,
        rules: Rules,
        alone: bool,
    ) -> Proposal:
        """The instruction of an act. setting: main character, place and time of day. alone: nobody chooses, so that a
        new thing may come.
        """
        main, place, time = setting
        characters = _characters(rng, act, past, self.words, main, place)
        restful = rules.is_restful(act.change)
        free = not (act.company or restful) and len(act.phrase.split()) <= FREE_HANDS
        motion = act.phrase + (_carried(rng, past, self.words, new=alone) if free else "")
        adverb = _adverb(rng, restful, not past, self.words)
        change = _change(act, past, rules)
        raised = [name for name, units in change.items() if units > 0 and stats[name] < LOW]
        reason = min(raised, key=lambda name: stats[name], default="")
        return Proposal(Instruction(characters, motion, place, adverb, time).text, reason)


@dataclass(frozen=True)
class _Past:
    """The parts of a past turn's instruction; None or empty if the world does not know them."""

    act: Act | None
    change: Values
    characters: tuple[str, ...]
    place: str
    time: str
    motion: str


def _read(turn: Turn, words: Words) -> _Past:
    who, motion, time, place = words.parts_of(turn.instruction)
    return _Past(words.act_of(motion), turn.state.change, who, place, time, motion)


def _change(act: Act, past: Sequence[_Past], rules: Rules) -> dict[str, int]:
    """How an act changes the stats: the engine's last prediction for it, or what the world states."""
    predicted = next((turn.change for turn in reversed(past) if turn.act == act), None)
    return rules.change(act.change if predicted is None else predicted)


def _likely_acts(
    rng: random.Random, past: Sequence[_Past], words: Words, known: Sequence[Act], stats: Values, rules: Rules
) -> list[Act]:
    """All acts that may come now, in the order in which they are drawn. known: those that go with the rest of the turn;
    another comes only if a consequence asks for what none of them brings.
    """
    recent = [turn.act for turn in past]
    often = Counter(recent[-(SPAN - 1) :])
    may = [act for act in known if often[act] < MOST_OF_SPAN]
    only = rules.only(stats)
    if len(only) < len(rules.stats):  # a consequence applies: what it demands comes first, even if it came often
        wanted = [act for act in words.acts if any(_change(act, past, rules)[name] > 0 for name in only)]
        may = [act for act in wanted if act in may] or [act for act in wanted if act in known] or wanted or may
    if not past and min(stats.values()) >= LOW:  # the first turn is one to watch
        calm = {
            act
            for act in may
            if act.company or rules.is_restful(act.change) or max(rules.change(act.change).values()) <= 0
        }
        may = [act for act in may if act not in calm] or may
    keys = {}
    for act in may or known or words.acts:
        change = _change(act, past, rules)
        cost = _distance(rules.after(stats, rules.allowed(stats, change)), rules) - _distance(stats, rules)
        freshness = 1.0 / (1 + often[act]) * (0.1 if act in recent[-2:] else 1.0)
        weight = freshness * math.exp(-max(-30.0, min(30.0, cost)))
        keys[act] = rng.random() ** (1 / weight)  # draws without replacement, in proportion to the weights
    return sorted(keys, key=lambda act: -keys[act])


def _distance(stats: Values, rules: Rules) -> float:
    """How far the stats are from the middle of their ranges; it grows with the square of each distance."""
    return sum(((stats[stat.name] - (stat.low + stat.high) / 2) / CALM) ** 2 for stat in rules.stats)


def _setting(rng: random.Random, past: Sequence[_Past], words: Words, main: str) -> tuple[str, str]:
    """(place, time of day) of the next turn of this main character."""
    places = [turn.place for turn in past if turn.place in words.places]
    times = [turn.time for turn in past if turn.time in words.times]
    known = [place for place in words.places if words.tried(main, place)]
    place = _go_on(rng, places, known or words.places, PLACE_TURNS)
    return place, _go_on(rng, times, words.times, TIME_TURNS)


def _last_setting(past: Sequence[_Past], otherwise: tuple[str, str]) -> tuple[str, str]:
    """(place, time of day) as the turns so far have named them last."""
    place = next((turn.place for turn in reversed(past) if turn.place), otherwise[0])
    return place, next((turn.time for turn in reversed(past) if turn.time), otherwise[1])


def _go_on(rng: random.Random, past: Sequence[str], known: Sequence[str], lasts: tuple[int, int]) -> str:
    """The last one again, until it has lasted long enough or came too often; then the one absent for longest."""
    if not known:
        return ""
    if not past:
        return rng.choice(known)
    stayed = next((index for index, name in enumerate(reversed(past)) if name != past[-1]), len(past))
    may_last = len(known) < FEWEST_PLACES or past[-SPAN:].count(past[-1]) < MOST_OF_SPAN
    if stayed < lasts[0] or (stayed < lasts[1] and may_last and rng.random() < 0.5):
        return past[-1]
    return _oldest(rng, past, [name for name in known if name != past[-1]] or known)


def _oldest(rng: random.Random, past: Sequence[str], known: Sequence[str]) -> str:
    """The one of `known` that was absent from `past` for longest; any of those that never were in it."""
    last = {name: index for index, name in enumerate(past)}
    first = min(last.get(name, -1) for name in known)
    return rng.choice([name for name in known if last.get(name, -1) == first])


def _main(past: Sequence[_Past], words: Words, seed: int) -> str:
    """The main character, who stays: a turn that shows them with a friend who begins it changes nothing."""
    main = ""
    for turn in past:
        if turn.characters and main not in turn.characters:
            main = turn.characters[0]
    return main or random.Random(f"animegamer/director/{seed}/main").choice(words.characters)


def _characters(
    rng: random.Random, act: Act, past: Sequence[_Past], words: Words, main: str, place: str
) -> tuple[str, ...]:
    """The main character, and with an act for two the friend who was not met for longest.

    The friend comes first if the act is new to the main character.
    """
    others = [name for name in words.characters if name != main]
    if not act.company or not others:
        return (main,)
    met = [name for turn in past for name in turn.characters if name != main]
    friends = _friends(words, main, place) or others
    if words.tried(main, act.phrase):
        return main, _oldest(rng, met, friends)
    return _oldest(rng, met, [name for name in friends if words.tried(name, act.phrase)] or friends), main


def _friends(words: Words, main: str, place: str) -> list[str]:
    """Who may meet the main character at a place."""
    others = (name for name in words.characters if name != main)
    return [name for name in others if words.tried(main, name) and words.tried(name, place)]


def _adverb(rng: random.Random, restful: bool, begins: bool, words: Words) -> str:
    """An adverb: a calm one for an act that gives rest, a middling one for the first turn, since a small world draws
    quick shots worst, else any but the stillest.
    """
    half = (len(words.adverbs) + 1) // 2
    first, last = (0, half) if restful else (half - 1, half) if begins else (1, None)
    groups = words.adverbs[first:last] or words.adverbs
    return rng.choice(rng.choice(groups)) if groups else ""


def _carried(rng: random.Random, past: Sequence[_Past], words: Words, new: bool) -> str:
    """At times ` with the scarf`, once a turn has described it, or if `new` ` with a red scarf`; else an empty text."""
    if not words.things or rng.random() >= CARRIES:
        return ""
    recent = [turn.motion for turn in past[-REMEMBERED_TURNS:]]
    known = [
        thing
        for thing in words.things
        if any(motion.endswith(f" {look} {thing}") for motion in recent for look in words.looks)
    ]
    if known:
        return f" with the {rng.choice(known)}"
    if not new:
        return ""
    look = f"{rng.choice(words.looks)} " if words.looks else ""
    return f" with a {look}{rng.choice(words.things)}"


# For worlds that list no words, such as the published ones: everyday acts and places, which the engine's base language
# model knows, and the characters of the film, or those that the story has named so far.

FILM_CHARACTERS = {"qiqi": ("Qiqi",), "sosuke": ("Sosuke", "Ponyo")}  # by the name of the world's spec

EVERYDAY = Words(
    acts=(
        Act("sleep in bed", {"stamina": 1}),
        Act("rest on a bench", {"stamina": 1}),
        Act("eat a meal", {"stamina": 1}),
        Act("drink a cup of tea", {"stamina": 1}),
        Act("talk to a friend", {"social": 1}, company=True),
        Act("walk with a friend", {"social": 1}, company=True),
        Act("greet the neighbors", {"social": 1}),
        Act("help an old woman", {"social": 1}),
        Act("fly on a broomstick", {"entertainment": 1}),
        Act("run", {"entertainment": 1}),
        Act("dance", {"entertainment": 1}),
        Act("read a book", {"entertainment": 1}),
        Act("play with a cat", {"entertainment": 1}),
        Act("sing a song", {"entertainment": 1}),
        Act("look around"),
        Act("walk along the road"),
        Act("clean the room"),
        Act("carry a basket"),
    ),
    places=(
        "bedroom", "kitchen", "garden", "street", "market", "bakery", "forest", "beach", "harbor", "meadow", "hill",
        "living room",
    ),
    times=("morning", "day", "evening", "night"),
    adverbs=(
        ("barely", "faintly"),
        ("gently", "slowly", "softly"),
        ("steadily", "calmly"),
        ("quickly", "swiftly"),
        ("wildly", "furiously"),
    ),
)  # fmt: skip


def words_for(life: Life, world_name: str, session: GameSession) -> Words:
    """A world's own words, or else everyday words with the characters of its film and of the story so far."""
    if life.words is not None:
        return life.words
    named = [PUBLISHED.fullmatch(turn.instruction) for turn in session.turns]
    who = [name for parts in named if parts for name in names_of(parts["who"])]
    characters = dict.fromkeys([*FILM_CHARACTERS.get(world_name, ()), *who])
    return replace(EVERYDAY, characters=tuple(characters))


def director_for(life: Life, world_name: str, session: GameSession, seed: int) -> Director:
    """The director of a world with this life, for the game so far; ValueError if it has no words to propose with."""
    return Director(words_for(life, world_name, session), seed)
