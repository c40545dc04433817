"""How a game goes that plays itself: `python tests/measure/autoplay.py --turns 1000`.

Prints how often each act and place came, whether every instruction is in the world's vocabulary, how long the stats
stayed between 5 and 95, and the memory at turn 100 and at the end. The states are predicted; with --shots the first
turns are drawn too. With --stated the engine is left out: each act changes the stats as the world states, which takes
seconds. The same seed prints the same counts.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from animegamer_core.game.director import Director, director_for, words_for  # noqa: E402
from animegamer_core.game.life import PUBLISHED_RULES, Rules  # noqa: E402
from animegamer_core.game.recall import PUBLISHED  # noqa: E402
from animegamer_core.game.state import GameSession, GameState  # noqa: E402
from animegamer_core.runtime.models import PlaySettings  # noqa: E402
from animegamer_core.story.player import Player  # noqa: E402
from animegamer_core.story.story import Story  # noqa: E402
from animegamer_core.weights import World, open_world  # noqa: E402

FIRST = "Character: {}; Motion: run; Background: day forest."  # of a game whose main character is chosen
LOW, HIGH = 5, 95
EARLY = 100  # the turn after which memory should stay the same


def main() -> None:
    """Play, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", default="toybox")
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--shots", type=int, default=0, help="of the first turns to draw")
    parser.add_argument("--steps", type=int, help="sampling steps of the shots")
    parser.add_argument("--seed", type=int, default=0, help="of the director")
    parser.add_argument("--main", help="the main character; by default the director chooses")
    parser.add_argument("--stated", action="store_true", help="change the stats as the world states, without an engine")
    parser.add_argument("--published", action="store_true", help="with --stated: the published rules, without drift")
    args = parser.parse_args()
    world = open_world(args.world)
    if args.stated:
        rules = PUBLISHED_RULES if args.published else world.life.rules
        report(world, stated(world, rules, args))
        return
    with tempfile.TemporaryDirectory() as folder:
        session = play(world, Path(folder), args)
    report(world, session)


def stated(world: World, rules: Rules, args: argparse.Namespace) -> GameSession:
    """The game if each act did what the world states."""
    session = GameSession(opening=rules.start, rules=rules)
    words = words_for(world.life, world.spec.name, session)
    director = Director(words, args.seed)
    if args.main:
        session = session.step(FIRST.format(args.main), GameState(None, 2, {}))
    for _ in range(args.turns - session.next_number + 1):
        text = director(session)[0].instruction
        act = words.act_of(PUBLISHED.fullmatch(text)["motion"])
        session = session.step(text, GameState(None, 2, act.change))
    return session


def play(world: World, folder: Path, args: argparse.Namespace) -> GameSession:
    """Play the game, and print time and memory on the way."""
    story = Story.open(folder, "auto", world.spec.name, world.fingerprint)
    player = Player(world, story, PlaySettings(steps=args.steps))
    director = director_for(world.life, world.spec.name, player.session, args.seed)
    process, begun, early = psutil.Process(), time.perf_counter(), 0
    with story.lock():
        if args.main:
            player.step(FIRST.format(args.main), draw=args.shots > 0)
        for number in range(player.session.next_number, args.turns + 1):
            next(player.autoplay(director, 1, draw=number <= args.shots))
            if number == min(EARLY, args.turns):
                early = process.memory_info().rss
            if number % EARLY == 0:
                print(f"turn {number}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    grown = (process.memory_info().rss - early) / 2**20
    print(
        f"{args.turns} turns in {time.perf_counter() - begun:.0f} s; memory grew by {grown:.1f} MB after turn {EARLY}"
    )
    return player.session


def report(world: World, session: GameSession) -> None:
    """Print what was proposed, and what became of the stats."""
    turns = session.turns
    words = words_for(world.life, world.spec.name, session)
    tokenizer = world.tokenizer()
    unknown = {word for turn in turns for word in tokenizer.unknown_words(turn.instruction)}
    parts = [PUBLISHED.fullmatch(turn.instruction) for turn in turns]
    print(
        f"instructions in the vocabulary: {sum(map(bool, parts))} of {len(turns)}; unknown words: {unknown or 'none'}"
    )
    acts = Counter(act.phrase if (act := words.act_of(part["motion"])) else "?" for part in parts if part)
    places = Counter(
        next((name for name in words.places if part["place"].endswith(name)), "?") for part in parts if part
    )
    for name, counts in (("motion", acts), ("place", places)):
        shares = ", ".join(f"{key} {100 * count / len(turns):.1f}" for key, count in counts.most_common())
        print(f"{name}, % of turns: {shares}")
    stats = [turn.character for turn in turns]
    inside = sum(all(LOW <= value <= HIGH for value in one.values()) for one in stats)
    print(f"all stats between {LOW} and {HIGH}: {100 * inside / len(stats):.1f} % of turns")
    for name in stats[0]:
        values = sorted(one[name] for one in stats)
        print(f"  {name}: {values[0]} to {values[-1]}, median {values[len(values) // 2]}")


if __name__ == "__main__":
    main()
