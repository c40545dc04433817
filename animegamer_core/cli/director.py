"""Options and commands of `play` for a world that acts: `--auto N`, `--suggest`, `--director`, and `@auto N`."""
# ruff: noqa: T201

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field

from ..messages import brief
from ..state import read_instructions
from ..story.director import SUGGESTIONS, Proposal, Proposer
from ..story.endpoint import stated
from ..story.endpoint_director import ENDPOINT, proposer_for
from ..story.everyday import NobodyNamedError
from ..story.player import PlayedTurn, Player

AUTO, EDIT = "@auto", "@edit"
_DIGITS = 9  # of a number that is typed


def check_director(args: typing.Any) -> None:
    """ValueError for options that contradict one another."""
    if args.auto < 0:
        raise ValueError(f"--auto is {args.auto}; expected a number of turns")
    if args.suggest and (args.auto or args.file):
        raise ValueError("--suggest is for instructions that you type; drop FILE and --auto")
    if args.director != ENDPOINT and (args.director_url or args.director_model):
        raise ValueError(f"--director-url and --director-model need --director {ENDPOINT}; add it, or drop them")


@dataclass(frozen=True)
class DirectorOptions:
    """Who proposes. kind: one of DIRECTORS. endpoint: (url, model) for `endpoint`."""

    kind: str
    seed: int
    endpoint: tuple[str, str] | None

    @classmethod
    def of(cls, args: typing.Any) -> DirectorOptions:
        """The options of a command line; missing ones come from the environment."""
        url, model = stated()
        return cls(args.director, args.director_seed, (args.director_url or url, args.director_model or model))

    def proposer(self, player: Player) -> Proposer:
        """Who proposes the turns of a player's game; ValueError if its world states no words, or for no endpoint."""
        world = player.world
        return proposer_for(self.kind, world.life, world.spec.name, player.session, self.seed, endpoint=self.endpoint)


def auto_proposer(args: typing.Any, player: Player) -> Proposer:
    """Who proposes the turns of `--auto`; ValueError as for DirectorOptions.proposer."""
    try:
        return DirectorOptions.of(args).proposer(player)
    except NobodyNamedError as error:
        how = "`play FILE --auto N` plays the turns of FILE first; with `--resume`, `--auto N` continues a story"
        raise ValueError(f"{error}. {how}") from error


@dataclass
class Suggestions:
    """What the director offers to a player who types. offers: with --suggest."""

    player: Player
    director: DirectorOptions
    offers: bool
    shown: tuple[Proposal, ...] = field(default=(), init=False)

    def proposer(self) -> Proposer:
        """The director for the game so far; ValueError as for DirectorOptions.proposer."""
        return self.director.proposer(self.player)

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

    def instruction_of(self, line: str) -> str:
        """The instruction that a typed line chooses: a number, `@edit` with a number, or the line itself; empty if
        nothing is chosen.
        """
        command, _, number = line.rpartition(" ")
        if command not in ("", EDIT) or not number.isdecimal() or not self.shown:
            return line
        numbered = {str(number): one.instruction for number, one in enumerate(self.shown, start=1)}
        chosen = numbered.get(number)
        if chosen is None:
            _note(f"there is no proposal {brief(number, 20)}; choose 1 to {len(self.shown)}")
            return ""
        return edited(chosen) if command == EDIT else chosen

    def auto(self, line: str, on_turn: Callable[[PlayedTurn], None], on_step: Callable[..., None]) -> None:
        """Play the turns of `@auto N`; Ctrl-C, or no proposal, gives the game back to the player."""
        _, _, number = line.partition(" ")
        if not number.isdecimal() or len(number) > _DIGITS:
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
        except ValueError as error:  # such as a model that does not answer any more
            _note(str(error))


def edited(text: str) -> str:
    """The text as the player changes it on the input line; where that cannot be done, what they type in its place.

    Empty if nothing is left to play: a blank line, a comment, or the end of the input.
    """
    try:
        import readline
    except ImportError:  # on Windows
        _note(f"type your version: {text}")
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
