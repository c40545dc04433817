"""Options and commands of `play` for a world that acts: `--auto N`, `--suggest`, and `@auto N` while you type."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ..state import read_instructions
from ..story.director import SUGGESTIONS, Proposal, Proposer
from ..story.everyday import director_for
from ..story.player import PlayedTurn, Player
from .ahead import DrawingAhead

AUTO, EDIT = "@auto", "@edit"


def add_director_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the director."""
    group = parser.add_argument_group("a world that acts", "A director proposes what happens next, by a small rule.")
    group.add_argument(
        "--auto", type=int, default=0, metavar="N", help="play N proposed turns, after those of FILE if there is one"
    )
    group.add_argument(
        "--suggest", action="store_true", help=f"offer {SUGGESTIONS} next instructions before each one that you type"
    )
    group.add_argument(
        "--director-seed", type=int, default=0, metavar="N", help="another seed proposes another life (default 0)"
    )


def check_director(args: argparse.Namespace) -> None:
    """ValueError for options that contradict one another."""
    if args.auto < 0:
        raise ValueError(f"--auto is {args.auto}; expected a number of turns")
    if args.suggest and (args.auto or args.file):
        raise ValueError("--suggest is for instructions that you type; leave out FILE and --auto")


@dataclass
class Suggestions:
    """What the director offers to a player who types. offers: with --suggest. ahead: draws it while they think."""

    player: Player
    seed: int
    offers: bool
    ahead: DrawingAhead
    shown: tuple[Proposal, ...] = field(default=(), init=False)

    def proposer(self) -> Proposer:
        """The director of the game so far; ValueError if its world states no words."""
        return proposer_for(self.player, self.seed)

    def offer(self) -> None:
        """Print the proposals for the next turn."""
        if not self.offers:
            return
        self.shown = ()
        try:
            self.shown = self.proposer()(self.player.session, SUGGESTIONS)
        except ValueError as error:
            _note(str(error))
            return
        for number, proposal in enumerate(self.shown, start=1):
            why = f"  ({self.player.session.rules.label(proposal.reason)} is low)" if proposal.reason else ""
            _note(f"  {number}. {proposal.instruction}{why}")

    def drawn_ahead(self) -> AbstractContextManager[None]:
        """Within the block, the proposals are drawn ahead."""
        return self.ahead.while_waiting([one.instruction for one in self.shown], self.proposer)

    def instruction_of(self, line: str) -> str:
        """The instruction that a typed line chooses: a number, `@edit` with a number, or the line itself; empty if
        nothing is chosen.
        """
        command, _, number = line.rpartition(" ")
        if command not in ("", EDIT) or not number.isdecimal() or not self.shown:
            return line
        if not 1 <= int(number) <= len(self.shown):
            _note(f"there is no proposal {number}; choose 1 to {len(self.shown)}")
            return ""
        chosen = self.shown[int(number) - 1].instruction
        return edited(chosen) if command == EDIT else chosen

    def auto(self, line: str, on_turn: Callable[[PlayedTurn], None], on_step: Callable[..., None]) -> None:
        """Play the turns of `@auto N`; Ctrl-C gives the game back to the player."""
        _, _, number = line.partition(" ")
        if not number.isdecimal():
            _note(f"how many turns? {AUTO} 5 plays five")
            return
        try:
            proposer = self.proposer()
        except ValueError as error:
            _note(str(error))
            return
        _note("Ctrl-C gives the game back to you.")
        try:
            for played in self.player.autoplay(proposer, int(number), on_step):
                on_turn(played)
        except KeyboardInterrupt:
            _note("stopped; the turn in progress is not kept")


def proposer_for(player: Player, seed: int) -> Proposer:
    """The director of a player's world."""
    return director_for(player.world.life, player.world.spec.name, player.session, seed)


def edited(text: str) -> str:
    """The text as the player changes it on the input line; where that cannot be done, what they type in its place.

    Empty if nothing is left to play: a blank line, a comment, or the end of the input.
    """
    try:
        import readline
    except ImportError:  # on Windows
        _note(f"type it as you want it: {text}")
        return _played(sys.stdin.readline())
    readline.set_startup_hook(lambda: readline.insert_text(text))
    try:
        return _played(input("> ") if sys.stdin.isatty() else sys.stdin.readline())
    except EOFError:
        return ""
    finally:
        readline.set_startup_hook()


def _played(line: str) -> str:
    return " ".join(read_instructions(line))


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
