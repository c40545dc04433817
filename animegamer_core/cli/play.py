"""The verb `play`: a game from an instruction file or line by line, saved as a story in a folder."""
# ruff: noqa: T201

from __future__ import annotations

import io
import sys
import time
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from ..checkpoint.adapters import open_with_adapters
from ..life import PUBLISHED_RULES
from ..recall import MEMORIES, chosen_memory, turn_name
from ..runtime.device import choose_device
from ..runtime.presets import PresetModels, get_preset, override_notes, preset_for_device, with_preset
from ..spec import dtype_name
from ..state import MotionScope, MotionTable, check_length, read_instructions, scope_name
from ..story.batch import game_text
from ..story.endpoint_director import DIRECTORS, RULES
from ..story.index import check_there
from ..story.player import PlayedTurn, Player, PlaySettings, read_in
from ..story.story import Story
from .director import AUTO, EDIT, DirectorOptions, Suggestions, auto_proposer, check_director
from .options import Adapters, Device, Dtype, Flag, Guidance, Preset, Profile, World, one_of
from .play_opening import check_opening, opening_of

if typing.TYPE_CHECKING:
    from tqdm import tqdm

    from ..checkpoint import World as OpenWorld

UNDO, QUIT = "@undo", ("@quit", "quit", "exit")
_REPLACED = "\ufffd"  # what stands for bytes that are not UTF-8


@dataclass(frozen=True, kw_only=True)
class Options:
    file: Positional[Path | None] = None
    """Instructions, one per line; without FILE, you type them."""
    world: World = "toybox"
    lora: Adapters = ()
    out: Path = Path("out")
    """Folder that holds stories."""
    name: str | None = None
    """The story's name; unset: FILE's name, or `story`."""
    resume: Flag = False
    """Continue after the story's last turn."""
    branch: int | None = None
    """Continue after this turn in a new branch."""
    window: int | None = None
    """Past turns in the prompt; unset: as many as in the world's training."""
    memory: Annotated[str, one_of(MEMORIES)] | None = None
    """recent: the engine reads the last turns; recall: also earlier ones that the instruction refers to. Unset: what
    the story has used so far; for a new one, the world's."""
    recalled_turns: int | None = None
    """Maximum number of earlier turns in the window with --memory recall; unset: 2."""
    seed: int = 0
    """Noise seed of turn 1; another seed gives another take."""
    preset: Preset | None = None
    """Speed and GPU memory."""
    steps: int | None = None
    """Sampling steps; unset: the preset's, or the world's."""
    guidance: Guidance | None = None
    """Guidance schedule; unset: the preset's, or the profile's."""
    profile: Profile | None = None
    """How prompts are built and read; unset: the world's."""
    motion: Annotated[tuple[str, ...], UseAppendAction, arg(metavar="TURN=SCOPE")] = ()
    """Motion of a turn's shot: still, gentle, brisk, fast, wild, or a value such as 2.5px."""
    opening: Path | None = None
    """Start a new game with a picture or a part of a film as turn 0."""
    opening_at: float | None = None
    """Where in the film the opening is, in seconds; unset: its start."""
    opening_text: str | None = None
    """What happens in the opening, or a whole instruction."""
    show_opening: Flag = False
    """Start story.mp4 and contact-sheet.png with the opening's clip."""
    auto: int = 0
    """Play this number of proposed turns, after those of FILE if there is one."""
    suggest: Flag = False
    """Propose three instructions before each one that you type."""
    director_seed: int = 0
    """Seed of the proposals."""
    director: Annotated[str, one_of(DIRECTORS)] = RULES
    """endpoint: a model at an OpenAI-compatible endpoint; the key is read from OPENAI_API_KEY."""
    director_url: str | None = None
    """The endpoint, such as http://localhost:8000/v1."""
    director_model: str | None = None
    """The model's name at the endpoint."""
    device: Device = "auto"
    engine_device: str | None = None
    """Separate device for the engine, which then predicts the next turn while a shot is drawn."""
    cfg_parallel: str | None = None
    """A second GPU, such as cuda:1, for guidance's unconditional pass."""
    dtype: Dtype = "auto"
    """Number format."""


def run(args: Options) -> int:
    """Play by these arguments; returns the exit status. After Ctrl-C, print how to continue."""
    if args.resume and args.branch is not None:
        raise ValueError("--resume and --branch both say where to continue; give only one of them")
    check_director(args)
    check_opening(args)
    world = open_with_adapters(args.world, args.lora, playing=True, profile=args.profile)
    name = args.name or (args.file.stem if args.file else "auto" if args.auto else "story")
    instructions = read_game(args.file) if args.file else ()
    settings, models = _settings_and_models(args, world)
    if args.resume or args.branch is not None:
        check_there(args.out, name)
    story = Story.open(args.out, name, world.spec.name, world.fingerprint)
    with story.lock():
        read = [read_in(story, number, line, world) for number, line in enumerate(instructions, start=1)]
        after, rest = plan(story, read, args.resume, args.branch)
        rest = instructions[len(instructions) - len(rest) :]
        if story.entries and not (args.file or args.auto or args.resume or args.branch is not None):
            raise ValueError(
                f"story {name!r} has {len(story.entries)} turns; add --resume or --branch N, or choose another --name"
            )
        opening = opening_of(args, world, story, settings)
        player = Player(world, story, settings, after, models, opening)
        return _play(player, rest if args.file or args.auto else None, args, _how_to_go_on(args, after))


def _play(player: Player, instructions: Sequence[str] | None, args: Options, go_on: str) -> int:
    """Play these instructions and then the proposed ones, or typed ones, and end the branch; returns the exit status.

    go_on: how to continue if the game is interrupted after its first turn.
    """
    after = player.session.next_number - 1
    count = len(instructions or ()) + args.auto
    progress = _Progress(sys.stderr.isatty(), after + count, (player.session.rules or PUBLISHED_RULES).label)
    try:
        if instructions is None:
            _play_typed(player, progress, Suggestions(player, DirectorOptions.of(args), args.suggest))
        else:
            _warn_of_unknown_words(player.world, *map(player.read, instructions))
            _warn_of_unused_motion(player.settings, after + 1, after + count)
            player.play(instructions, progress.turn, progress.step, ahead=player.settings.engine_is_apart)
            if args.auto:
                for played in player.autoplay(auto_proposer(args, player), args.auto, progress.step):
                    progress.turn(played)
    except KeyboardInterrupt:
        progress.close()
        last = player.session.next_number - 1
        how = go_on if last > after else "the same command"
        print(f"\nStopped after turn {last}; all turns are saved. Continue with {how}.", file=sys.stderr)
        return 130
    except RuntimeError as error:
        import torch

        if not isinstance(error, torch.OutOfMemoryError):
            raise
        progress.close()
        raise ValueError(
            f"{player.settings.device} is out of memory for this world; try --preset low_vram or --device cpu"
        ) from error
    if instructions is None:
        _warn_of_unused_motion(player.settings, after + 1, player.session.next_number - 1)
    for path in player.finish(args.show_opening):
        print(path)
    return 0


def _how_to_go_on(args: Options, after: int) -> str:
    """The command for the rest of a game that is interrupted some turns after turn `after`."""
    if args.file or args.auto:
        return "the same command" if after == 0 or not args.resume else f"--branch {after} instead of --resume"
    if args.resume:
        return "the same command"
    return "the same command and --resume" if args.branch is None else "--resume instead of --branch"


def read_game(path: Path) -> tuple[str, ...]:
    """The instructions of a UTF-8 file; ValueError if it is something else or has none."""
    instructions = read_instructions(game_text(path))
    if not instructions:
        raise ValueError(f"{path}: no instructions in this file; write one per line")
    return instructions


def plan(story: Story, instructions: Sequence[str], resume: bool, branch: int | None) -> tuple[int, tuple[str, ...]]:
    """(the turn to continue after, the instructions to play).

    If the story's turns so far are the beginning of the file, only the rest of the file is played.
    """
    if branch is None and not resume:
        return 0, tuple(instructions)
    session = story.session(len(story.entries) if branch is None else branch, 0)
    played = [turn.instruction for turn in session.turns if turn.number > 0]
    rest = instructions[len(played) :] if played == list(instructions[: len(played)]) else instructions
    return len(played), tuple(rest)


def _settings_and_models(args: Options, world: OpenWorld) -> tuple[PlaySettings, PresetModels | None]:
    """The settings, and the models if a preset prepares them. Prints which options replace the preset's choices."""
    import torch

    settings = PlaySettings(
        window=args.window,
        seed=args.seed,
        steps=args.steps,
        guidance=args.guidance,
        motion=dict(parse_motion(text, world.motion_table) for text in args.motion),
        device=choose_device(args.device),
        dtype=None if args.dtype == "auto" else getattr(torch, args.dtype),
        engine_device=choose_device(args.engine_device) if args.engine_device else None,
        cfg_parallel=choose_device(args.cfg_parallel) if args.cfg_parallel else None,
        memory=chosen_memory(args.memory, args.recalled_turns),
    )
    for line in world.warnings_for(settings.window_in(world)):
        _print_note(f"warning: {line}")
    if not args.preset:
        return settings, None
    dtype = settings.dtype or (torch.float32 if settings.device == "cpu" else world.stored_dtype("decoder"))
    preset = preset_for_device(get_preset(args.preset), settings.device, _print_note, dtype_name(dtype))
    for line in override_notes(preset, steps=args.steps, guidance=args.guidance):
        _print_note(f"preset {preset.name}: {line}")
    settings = with_preset(preset, settings, world)
    return settings, PresetModels(world, settings, preset, _print_note)


def _print_note(line: str) -> None:
    print(line, file=sys.stderr)


def parse_motion(text: str, table: MotionTable) -> tuple[int, float]:
    """(turn, motion value in px per frame) of `3=fast`, `3=4` or `3=2.5px`."""
    number, _, motion = text.partition("=")
    try:
        if motion.endswith("px"):
            return int(number), float(motion[:-2])
        return int(number), float(table.value(MotionScope.parse(motion)))
    except ValueError as error:
        raise ValueError(f"--motion {text}: expected TURN=SCOPE or TURN=VALUEpx, such as 3=fast or 3=2.5px") from error


def _warn_of_unknown_words(world: OpenWorld, *instructions: str) -> None:
    tokenizer = world.tokenizer()
    unknown = dict.fromkeys(word for text in instructions for word in tokenizer.unknown_words(text))
    if unknown:
        _print_note(f"warning: world {world.spec.name!r} was not trained with these words: {', '.join(unknown)}")


def _warn_of_unused_motion(settings: PlaySettings, first: int, last: int) -> None:
    unused = ", ".join(str(number) for number in sorted(settings.motion) if not first <= number <= last)
    if unused:
        turns = f"turns {first} to {last}" if last >= first else "no turn"
        _print_note(f"warning: --motion of turn {unused} has no effect; this command plays {turns}")


def _play_typed(player: Player, progress: _Progress, suggestions: Suggestions) -> None:
    """Play typed instructions until the input ends or the player quits."""
    _print_note(f"One instruction per line; {UNDO} undoes the last turn, {AUTO} 3 plays three, quit ends the game.")
    if suggestions.offers:
        _print_note(f"Type a number to play that proposal, or {EDIT} 2 to change the second one first.")
    for line in _lines(suggestions):
        if line in QUIT:
            break
        if line.split()[0] == AUTO:
            suggestions.auto(line, progress.turn, progress.step)
        elif line != UNDO and line.startswith("@"):
            _print_note(f"unknown command {line}; use {UNDO} or {QUIT[0]}")
        elif line != UNDO:
            if _is_readable(player, line):
                progress.turn(player.step(line, progress.step))
        elif player.session.next_number > 1:
            player.rewind(player.session.next_number - 2)
            _print_note(f"back after turn {player.session.next_number - 1}")


def _is_readable(player: Player, line: str) -> bool:
    """Whether an instruction can be read; prints why not, or which words the world does not know."""
    try:
        read = player.read(line)
        check_length(read, len(player.world.tokenizer().encode_text(read)))
    except ValueError as error:
        _print_note(str(error))
        return False
    _warn_of_unknown_words(player.world, read)
    return True


def _lines(suggestions: Suggestions) -> Iterator[str]:
    """Typed lines, without blank lines and comments as in a file, and proposals that were chosen instead.

    A line that cannot be read is named, and the game goes on.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    while True:
        suggestions.offer()
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if _REPLACED in line:
            _print_note("this line has bytes that are not UTF-8; type it again")
            continue
        try:
            read = read_instructions(line)
        except ValueError as error:  # far too long
            _print_note(str(error))
            continue
        yield from filter(None, map(suggestions.instruction_of, read))


class _Progress:
    """Prints turns to standard output and, on a terminal, a progress bar of sampling to standard error."""

    def __init__(self, show_bar: bool, total: int, label: Callable[[str], str]) -> None:
        """label: what a stat is called."""
        self.show_bar = show_bar
        self.total = total
        self.label = label
        self.bar: tqdm | None = None
        self.started = time.perf_counter()

    def step(self, done: int, steps: int, _: object = None) -> None:
        """Update the bar."""
        from tqdm import tqdm

        if self.bar is None:
            self.bar = tqdm(total=steps, desc="drawing", unit="step", leave=False, disable=not self.show_bar)
        self.bar.update(done - self.bar.n)

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def turn(self, played: PlayedTurn) -> None:
        """Print a turn: its instruction, motion, stats and clip."""
        self.close()
        turn, seconds = played.turn, time.perf_counter() - self.started
        state, character = turn.state, turn.character
        of = f"/{self.total}" if self.total >= turn.number else ""
        stats = []
        for name, change in turn.moved.items():
            stats.append(f"{self.label(name)} {character[name]}" + (f" ({change:+d})" if change else ""))
        motion = f"motion {scope_name(state.motion)} ({played.motion:g} px)"
        how = f"{seconds:.1f} s" if played.predicted or played.drawn else "known"
        print(f"turn {turn.number}{of}  {turn.instruction}")
        print(f"  {motion}  {'  '.join(stats)}  {played.clip} ({how})", flush=True)
        if turn.refused:
            print(f"  not counted by this world's rules: {', '.join(map(self.label, turn.refused))}", flush=True)
        if turn.recalled:
            print(f"  remembered: {', '.join(map(turn_name, turn.recalled))}", flush=True)
        self.started = time.perf_counter()
