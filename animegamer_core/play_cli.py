"""The verb `play`: a game from an instruction file or line by line, kept as a story in a folder."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
import time
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path

from .index import check_there
from .play import PlayedTurn, Player, PlaySettings, choose_device
from .presets import PRESETS, PresetModels, get_preset, overridden, preset_on, settings_by
from .spec import DTYPES, GUIDANCE_NAMES, PROFILES, dtype_name
from .state import UNIT, MotionScope, MotionTable, read_instructions, scope_name
from .story import Story
from .train.staged import add_stage_files, open_staged

if typing.TYPE_CHECKING:
    import torch
    from tqdm import tqdm

    from .checkpoint import World

UNDO, QUIT = "@undo", ("@quit", "quit", "exit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `play`."""
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="instructions, one a line; none: type them")
    parser.add_argument("--world", default="toybox", help="toybox, or a world's folder (default %(default)s)")
    add_stage_files(parser)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder that holds stories (default %(default)s)")
    parser.add_argument("--name", help="the story's name (default: FILE's name, or `story`)")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--resume", action="store_true", help="go on after the story's last turn")
    start.add_argument("--branch", type=int, metavar="N", help="go on after turn N, on a line of its own")
    parser.add_argument("--window", type=int, help="past turns to read (default: as many as in the world's training)")
    parser.add_argument("--seed", type=int, default=0, help="noise seed of turn 1; another seed is another take")
    parser.add_argument("--preset", choices=tuple(PRESETS), help="how fast, and on how small a card")
    parser.add_argument("--steps", type=int, help="sampling steps (default: the preset's, or the world's)")
    parser.add_argument(
        "--guidance", choices=GUIDANCE_NAMES, help="guidance schedule (default: the preset's, or the profile's)"
    )
    parser.add_argument("--profile", choices=tuple(PROFILES), help="how prompts are read (default: the world's)")
    parser.add_argument(
        "--motion",
        action="append",
        default=[],
        metavar="N=SCOPE",
        help="motion of turn N's shot: still, gentle, brisk, fast, wild, or a value such as 2.5px; may be repeated",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default %(default)s)")
    parser.add_argument(
        "--engine-device",
        metavar="DEVICE",
        help="of the engine alone: it then reads the next instruction while a shot is drawn",
    )
    parser.add_argument(
        "--halves", metavar="DEVICE", help="a second GPU, such as cuda:1, for the unconditional half of guidance"
    )
    parser.add_argument(
        "--dtype", choices=("auto", *DTYPES), default="auto", help="number format (default %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Play as asked. Interrupted, the story stays whole and the way to go on is printed."""
    played = open_staged(args.world, args.stage_file, playing=True, profile=args.profile)
    name = args.name or (args.file.stem if args.file else "story")
    instructions = read_game(args.file) if args.file else ()
    settings, models = _how(args, played)
    if args.resume or args.branch is not None:
        check_there(args.out, name)
    story = Story.open(args.out, name, played.spec.name, played.fingerprint)
    with story.lock():
        after, ahead = plan(story, instructions, args.resume, args.branch)
        if story.entries and not (args.file or args.resume or args.branch is not None):
            raise ValueError(
                f"story {name!r} has {len(story.entries)} turns; add --resume or --branch N, or choose another --name"
            )
        player = Player(played, story, settings, after, models)
        return _play(player, ahead if args.file else None, _way_on(args, after))


def _play(player: Player, ahead: Sequence[str] | None, way_on: str) -> int:
    """Play these instructions, or typed ones, and end the line; interrupted, print the way to go on."""
    after = player.session.next_number - 1
    show = _Show(sys.stderr.isatty(), after + len(ahead or ()))
    try:
        if ahead is None:
            _converse(player, show)
        else:
            _warn_of_unknown_words(player.world, *ahead)
            _warn_of_idle_motion(player.settings, after + 1, after + len(ahead))
            player.play(ahead, show.turn, show.step, ahead=player.settings.apart)
    except KeyboardInterrupt:
        show.close()
        played = player.session.next_number - 1
        how = way_on if played > after else "the same command"
        print(f"\nStopped after turn {played}; all is kept. Go on with {how}.", file=sys.stderr)
        return 130
    except RuntimeError as error:
        import torch

        if not isinstance(error, torch.OutOfMemoryError):
            raise
        show.close()
        raise ValueError(
            f"{player.settings.device} has not the memory that this world takes there; choose a preset for small "
            "cards, such as --preset low_vram, or --device cpu"
        ) from error
    if ahead is None:
        _warn_of_idle_motion(player.settings, after + 1, player.session.next_number - 1)
    for path in player.finish():
        print(path)
    return 0


def _way_on(args: argparse.Namespace, after: int) -> str:
    """The words that take an interrupted play up again, once it has played a turn after turn `after`."""
    if args.file:
        return "the same command" if after == 0 or not args.resume else f"--branch {after} in place of --resume"
    if args.resume:
        return "the same command"
    return "the same command and --resume" if args.branch is None else "--resume in place of --branch"


def read_game(path: Path) -> tuple[str, ...]:
    """The instructions of a UTF-8 file; ValueError if it is something else or holds none."""
    try:
        instructions = read_instructions(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text; save the instructions as UTF-8, one a line") from error
    if not instructions:
        raise ValueError(f"{path}: no instructions in this file; write one a line")
    return instructions


def plan(story: Story, instructions: Sequence[str], resume: bool, branch: int | None) -> tuple[int, tuple[str, ...]]:
    """(the turn to go on after, the instructions that follow it).

    Where the turns before it are the beginning of this file, the rest of the file is played; otherwise the whole file
    follows them.
    """
    if branch is None and not resume:
        return 0, tuple(instructions)
    session = story.session(len(story.entries) if branch is None else branch, 0)
    told = [turn.instruction for turn in session.turns if turn.number > 0]
    rest = instructions[len(told) :] if told == list(instructions[: len(told)]) else instructions
    return len(told), tuple(rest)


def settings_of(args: argparse.Namespace, table: MotionTable) -> PlaySettings:
    """The settings that the arguments name; ValueError for a device that is not there or an unreadable motion."""
    return PlaySettings(
        window=args.window,
        seed=args.seed,
        steps=args.steps,
        guidance=args.guidance,
        motion=dict(parse_motion(text, table) for text in args.motion),
        device=choose_device(args.device),
        dtype=_dtype(args.dtype),
        engine_device=choose_device(args.engine_device) if args.engine_device else None,
        halves=choose_device(args.halves) if args.halves else None,
    )


def _how(args: argparse.Namespace, world: World) -> tuple[PlaySettings, PresetModels | None]:
    """The settings, and the models where a preset makes them ready; what wins over the preset is said."""
    settings = settings_of(args, world.motion_table)
    for line in world.warnings_for(settings.window_in(world)):
        _tell(f"warning: {line}")
    if not args.preset:
        return settings, None
    preset = preset_on(get_preset(args.preset), settings.device, _tell, _drawn_in(settings, world))
    for line in overridden(preset, steps=args.steps, guidance=args.guidance):
        _tell(f"preset {preset.name}: {line}")
    settings = settings_by(preset, settings, world)
    return settings, PresetModels(world, settings, preset, _tell)


def _drawn_in(settings: PlaySettings, world: World) -> str:
    """The number format that the decoder will have."""
    if settings.dtype is not None:
        return dtype_name(settings.dtype)
    return "float32" if settings.device == "cpu" else dtype_name(world.stored_dtype("decoder"))


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def parse_motion(text: str, table: MotionTable) -> tuple[int, float]:
    """`3=fast`, `3=4` or `3=2.5px` as (turn, motion value in px a frame)."""
    number, _, motion = text.partition("=")
    try:
        if motion.endswith("px"):
            return int(number), float(motion[:-2])
        return int(number), float(table.value(MotionScope.parse(motion)))
    except ValueError as error:
        raise ValueError(f"--motion {text}: expected TURN=SCOPE or TURN=VALUEpx, as 3=fast or 3=2.5px") from error


def _dtype(name: str) -> torch.dtype | None:
    import torch

    return None if name == "auto" else getattr(torch, name)


def _warn_of_unknown_words(world: World, *instructions: str) -> None:
    tokenizer = world.tokenizer()
    unknown = dict.fromkeys(word for text in instructions for word in tokenizer.unknown_words(text))
    if unknown:
        print(f"warning: world {world.spec.name!r} never saw these words: {', '.join(unknown)}", file=sys.stderr)


def _warn_of_idle_motion(settings: PlaySettings, first: int, last: int) -> None:
    idle = [number for number in sorted(settings.motion) if not first <= number <= last]
    if idle:
        turns = f"turns {first} to {last}" if last >= first else "no turn"
        print(
            f"warning: --motion of turn {', '.join(map(str, idle))} changes nothing; this command plays {turns}",
            file=sys.stderr,
        )


def _converse(player: Player, show: _Show) -> None:
    """Play typed lines until the input ends or the player leaves."""
    print(f"One instruction a line; {UNDO} takes the last turn back, quit ends the game.", file=sys.stderr)
    for line in _lines():
        if line in QUIT:
            break
        if line != UNDO and line.startswith("@"):
            print(f"no such command: {line}; there are {UNDO} and {QUIT[0]}", file=sys.stderr)
        elif line != UNDO:
            _warn_of_unknown_words(player.world, line)
            show.turn(player.step(line, show.step))
        elif player.session.next_number > 1:
            player.rewind(player.session.next_number - 2)
            print(f"back after turn {player.session.next_number - 1}", file=sys.stderr)


def _lines() -> Iterator[str]:
    """Typed lines; empty ones and those with a # in front are left out, as in a file."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield from read_instructions(line)


class _Show:
    """Turns as lines on the standard output and, where somebody watches, sampling as a bar on the error output."""

    def __init__(self, watched: bool, total: int) -> None:
        self.watched = watched
        self.total = total
        self.bar: tqdm | None = None
        self.begun = time.perf_counter()

    def step(self, done: int, steps: int, _: object = None) -> None:
        """Move the bar."""
        from tqdm import tqdm

        if self.bar is None:
            self.bar = tqdm(total=steps, desc="drawing", unit="step", leave=False, disable=not self.watched)
        self.bar.update(done - self.bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def turn(self, played: PlayedTurn) -> None:
        """Print a turn: its words, its motion and gauges, its clip."""
        self.close()
        turn, seconds = played.turn, time.perf_counter() - self.begun
        state, character = turn.state, turn.character
        of = f"/{self.total}" if self.total >= turn.number else ""
        gauges = "  ".join(
            f"{name} {getattr(character, name)}{_signed(UNIT * getattr(state.change, name))}"
            for name in ("stamina", "social", "entertainment")
        )
        motion = f"motion {scope_name(state.motion)} ({played.motion:g} px)"
        how = f"{seconds:.1f} s" if played.predicted or played.drawn else "known"
        print(f"turn {turn.number}{of}  {turn.instruction}")
        print(f"  {motion}  {gauges}  {played.clip} ({how})", flush=True)
        self.begun = time.perf_counter()


def _signed(change: int) -> str:
    return f" ({change:+d})" if change else ""
