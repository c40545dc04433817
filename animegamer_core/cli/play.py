"""The verbs `play`, `takes` and `export`: games become stories in a folder, and stories become films."""
# ruff: noqa: T201

from __future__ import annotations

import sys
import time
import typing
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from ..game.director import SUGGESTIONS, Proposal
from ..game.life import PUBLISHED_RULES
from ..game.plain import Reading
from ..game.recall import MEMORIES, chosen_memory, turn_name
from ..game.state import GameSession, MotionScope, MotionTable, read_instructions, scope_name
from ..json_files import read_text
from ..media.soundtrack import read_sound
from ..messages import shortened
from ..runtime.device import choose_device
from ..runtime.models import LoadedModels
from ..runtime.presets import PRESETS, PresetModels, preset_for_device, with_preset
from ..spec import dtype_name
from ..story.film import FILMS, export_film
from ..story.folder import check_there
from ..story.opening import DEFAULT_TEXT, frames_of_bytes, open_game, read_opening
from ..story.player import PlayedTurn, Player, PlaySettings, check_same_opening
from ..story.story import Story
from ..story.takes import play_takes, take_seeds
from ..weights.adapters import open_with_adapters
from .options import Drawing, Dtype, Flag, Preset, Profile, Progress, note, one_of, overwrite, show_picture

if typing.TYPE_CHECKING:
    from torch import Tensor

    from ..runtime.previews import MovingPreview
    from ..weights import World as OpenWorld

UNDO, QUIT = "@undo", ("@quit", "quit", "exit")
AUTO = "@auto"


@dataclass(frozen=True, kw_only=True)
class Play(Drawing):
    file: Positional[Path | None] = None
    """Instructions, one per line; without FILE, you type them."""
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
    preset: Preset | None = None
    """Speed and GPU memory."""
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
    cfg_parallel: str | None = None
    """A second GPU, such as cuda:1, for guidance's unconditional pass."""
    dtype: Dtype = "auto"
    """Number format."""
    preview: Flag = False
    """Show each shot on the terminal while it is drawn, as a moving picture in 24-bit colours."""

    def run(self) -> int:
        """Play by these options; after Ctrl-C, print how to continue."""
        import torch  # not before: --help does without

        from ..runtime.previews import MovingPreview

        if self.resume and self.branch is not None:
            raise ValueError("--resume and --branch both say where to continue; give only one of them")
        world = open_with_adapters(self.world, self.lora, playing=True, profile=self.profile)
        name = self.name or (self.file.stem if self.file else "auto" if self.auto else "story")
        game = read_game(self.file) if self.file else {}
        settings, models = self._settings_and_models(world)
        continues = self.resume or self.branch is not None
        if continues:
            check_there(self.out, name)
        story = Story.open(self.out, name, world.spec.name, world.fingerprint)
        with story.lock():
            after, rest = plan(story, tuple(game.values()), self.resume, self.branch)
            if story.entries and not (self.file or self.auto or continues):
                turns = len(story.entries)
                raise ValueError(f"story {name!r} has {turns} turns; add --resume or --branch N, or another --name")
            player = Player(world, story, settings, after, models, self._opening(world, story, settings))
            try:
                wanted = self.preview and sys.stderr.isatty()
                with MovingPreview(show_picture, world.spec.decoder.fps) if wanted else nullcontext() as preview:
                    shown = _Shown(player, preview)
                    if self.file or self.auto:
                        shown.total = player.session.next_number - 1 + len(rest) + self.auto
                        left = [*game.items()][len(game) - len(rest) :]
                        player.play(_readings(self.file, left, player), shown.turn, shown.step)
                        self._play_proposed(player, shown, self.auto)
                    else:
                        self._play_typed(player, shown)
            except KeyboardInterrupt:
                overwrite("")
                last, how = player.session.next_number - 1, "the same command"  # which finds the turns that are saved
                if not (self.file or self.auto or self.resume):
                    how += " and --resume" if self.branch is None else " and --resume instead of --branch"
                note(f"\nStopped after turn {last}; all turns are saved. Continue with {how}.")
                return 130
            except torch.OutOfMemoryError as error:
                overwrite("")
                remedy = "try --preset low_vram or --device cpu"
                raise ValueError(f"{settings.device} is out of memory for this world; {remedy}") from error
            for path in player.finish(self.show_opening):
                print(path)
        return 0

    def _settings_and_models(self, world: OpenWorld) -> tuple[PlaySettings, PresetModels | None]:
        """The settings, and the models if a preset prepares them. Prints which options replace the preset's choices."""
        import torch

        settings = PlaySettings(
            window=self.window,
            seed=self.seed,
            **self.sampling.stated(),
            motion=dict(parse_motion(text, world.motion_table) for text in self.motion),
            device=choose_device(self.device),
            dtype=None if self.dtype == "auto" else getattr(torch, self.dtype),
            cfg_parallel=choose_device(self.cfg_parallel) if self.cfg_parallel else None,
            memory=chosen_memory(self.memory, self.recalled_turns),
        )
        for line in world.warnings_for(settings.window_in(world)):
            note(f"warning: {line}")
        if not self.preset:
            return settings, None
        dtype = settings.dtype or (world.cpu_dtype if settings.device == "cpu" else world.stored_dtype)("decoder")
        preset = preset_for_device(PRESETS[self.preset], settings.device, note, dtype_name(dtype))
        settings = with_preset(preset, settings, world)
        return settings, PresetModels(world, settings, preset, note)

    def _opening(self, world: OpenWorld, story: Story, settings: PlaySettings) -> GameSession | None:
        """The game that --opening begins; ValueError if the story's turns started with another, except for branch 0."""
        if self.opening is None:
            return None
        pictures, frame = read_opening(self.opening, self.opening_at, world.spec.decoder)
        encoder = world.load_encoder(settings.device, settings.dtype)
        text = DEFAULT_TEXT if self.opening_text is None else self.opening_text
        turn = open_game(encoder, text, frames_of_bytes(pictures), len(pictures), frame).turns[0]
        begun = GameSession(rules=story.rules or world.life.rules)
        opening = begun.open_with(turn.instruction, turn.state, turn.clip)
        if story.entries and self.branch != 0:
            check_same_opening(story, story.session(0, None), opening)
        return opening

    def _play_proposed(self, player: Player, shown: _Shown, turns: int) -> None:
        if turns:
            for played in player.autoplay(player.director(self.director_seed), turns, shown.step):
                shown.turn(played)

    def _play_typed(self, player: Player, shown: _Shown) -> None:
        """Play until the input ends or the player quits. A line that cannot be played does not end the game."""
        note(f"One instruction per line; {UNDO} undoes the last turn, {AUTO} 3 plays three, quit ends the game.")
        if self.suggest:
            note("Type a number to play that proposal.")
        while True:
            offered: Sequence[Proposal] = ()
            try:
                if self.suggest:
                    offered = player.director(self.director_seed)(player.session, SUGGESTIONS)
            except ValueError as error:  # in some worlds nobody has a name before the first turn
                note(str(error))
            for number, proposal in enumerate(offered, start=1):
                why = f"  ({player.session.rules.label(proposal.reason)} is low)" if proposal.reason else ""
                note(f"  {number}. {proposal.instruction}{why}")
            if sys.stdin.isatty():
                print("> ", end="", file=sys.stderr, flush=True)
            try:
                line = sys.stdin.readline()
                typed = " ".join(read_instructions(line))  # nothing for a comment
                if not line or typed in QUIT:
                    return
                if typed:
                    self._play_line(player, shown, typed, offered)
            except ValueError as error:
                note(str(error))

    def _play_line(self, player: Player, shown: _Shown, line: str, offered: Sequence[Proposal]) -> None:
        """Do what a line says: a command, the number of a proposal, or an instruction."""
        command, _, number = line.partition(" ")
        if command == AUTO:
            if not number.isdecimal() or len(number) > 9:
                raise ValueError(f"how many turns? {AUTO} 5 plays five")
            self._play_proposed(player, shown, int(number))
        elif line == UNDO:
            if player.session.next_number > 1:
                player.rewind(player.session.next_number - 2)
                note(f"back after turn {player.session.next_number - 1}")
        elif line.startswith("@"):
            raise ValueError(f"unknown command {line}; use {UNDO} or {QUIT[0]}")
        else:
            if offered and line.isdecimal():
                if not 1 <= int(line) <= len(offered):
                    raise ValueError(f"there is no proposal {shortened(line, 20)}; choose 1 to {len(offered)}")
                line = offered[int(line) - 1].instruction
            shown.turn(player.step(player.read(line), shown.step))


def read_game(path: Path) -> dict[int, str]:
    """The instructions of a UTF-8 file by their lines' numbers; ValueError if it is something else or has none."""
    lines = enumerate(read_text(path).splitlines(), start=1)
    game = {number: instruction for number, line in lines for instruction in read_instructions(line)}
    if not game:
        raise ValueError(f"{path}: no instructions in this file; write one per line")
    return game


def _readings(file: Path | None, lines: Iterable[tuple[int, str]], player: Player) -> Iterator[Reading]:
    """How instructions of a file are read, each after the turn before; ValueError names the line."""
    for number, instruction in lines:
        try:
            reading = player.read(instruction)
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: {error}") from error
        yield reading


def plan(story: Story, instructions: Sequence[str], resume: bool, branch: int | None) -> tuple[int, tuple[str, ...]]:
    """(the turn to continue after, the instructions to play): the rest of a file that begins with the story's turns."""
    if branch is None and not resume:
        return 0, tuple(instructions)
    session = story.session(len(story.entries) if branch is None else branch, 0)
    turns = (turn for turn in session.turns if turn.number > 0)
    played = tuple(entry.typed or turn.instruction for entry, turn in zip(story.entries, turns, strict=False))
    known = len(played) if tuple(instructions[: len(played)]) == played else 0
    return len(played), tuple(instructions[known:])


def parse_motion(text: str, table: MotionTable) -> tuple[int, float]:
    """(turn, motion value in px per frame) of `3=fast`, `3=4` or `3=2.5px`."""
    number, _, motion = text.partition("=")
    try:
        given: str | float = motion[:-2] if motion.endswith("px") else table.value(MotionScope.parse(motion))
        return int(number), float(given)
    except ValueError as error:
        raise ValueError(f"--motion {text}: expected TURN=SCOPE or TURN=VALUEpx, such as 3=fast or 3=2.5px") from error


class _Shown:
    """Prints turns to standard output, each with its seconds. total: turns of the game, if known."""

    def __init__(self, player: Player, preview: MovingPreview | None) -> None:
        self.label, self.total = (player.session.rules or PUBLISHED_RULES).label, 0
        self.player, self.preview, self.started = player, preview, time.perf_counter()

    def step(self, done: int, steps: int, clean_BTCHW: Tensor) -> None:
        overwrite(f"  drawing: step {done} of {steps}")
        if self.preview is not None:
            self.preview.step(self.player.models.decoder(), done, steps, clean_BTCHW)

    def turn(self, played: PlayedTurn) -> None:
        if self.preview is not None:
            self.preview.play()
        overwrite("")
        turn, seconds = played.turn, time.perf_counter() - self.started
        of = f"/{self.total}" if self.total >= turn.number else ""
        stats = "  ".join(
            f"{self.label(name)} {turn.character[name]}" + (f" ({change:+d})" if change else "")
            for name, change in turn.moved.items()
        )
        motion = f"motion {scope_name(turn.state.motion)} ({played.motion:g} px)"
        how = f"{seconds:.1f} s" if played.predicted or played.drawn else "known"
        print(f"turn {turn.number}{of}  {turn.instruction}\n  {motion}  {stats}  {played.clip} ({how})", flush=True)
        if played.reading.typed:
            print(f"  typed: {played.reading.typed}", flush=True)
        if played.reading.unknown:
            print(f"  not known here: {', '.join(map(repr, played.reading.unknown))}", flush=True)
        if played.reading.notes:
            print(f"  {' '.join(played.reading.sentences)}", flush=True)
        if turn.refused:
            print(f"  not counted by this world's rules: {', '.join(map(self.label, turn.refused))}", flush=True)
        if turn.recalled:
            print(f"  remembered: {', '.join(map(turn_name, turn.recalled))}", flush=True)
        self.started = time.perf_counter()


@dataclass(frozen=True, kw_only=True)
class Takes(Drawing):
    file: Positional[Path]
    """A text file: an instruction per line."""
    takes: int = 4
    """Takes of the game, each with its own noise."""
    out: Path = Path("out")
    """Folder that holds stories."""

    def run(self) -> int:
        """Play all takes and show them side by side; after an interruption the same command continues."""
        game, seeds = read_game(self.file), take_seeds(self.takes, self.seed)
        world = open_with_adapters(self.world, self.lora, playing=True)
        story = Story.open(self.out, self.file.stem, world.spec.name, world.fingerprint)
        settings = PlaySettings(**self.sampling.stated(), device=choose_device(self.device))
        models = LoadedModels(world, settings)

        def shown(played: PlayedTurn) -> None:
            how = "drawn" if played.drawn else "known"
            note(f"  turn {played.turn.number}  {played.turn.instruction}  ({how})")

        def play(seed: int) -> None:
            player = Player(world, story, replace(settings, seed=seed), 0, models)
            player.play(_readings(self.file, game.items(), player), shown)
            print(f"seed {seed}  branch {story.branch}", flush=True)

        with story.lock():
            print(*play_takes(story, len(game), seeds, play), sep="\n")
        return 0


@dataclass(frozen=True, kw_only=True)
class Export:
    story: Positional[Path]
    """A story's folder, such as out/my-game."""
    out: Path | None = None
    """The film; unset: films/film.mp4 in the story."""
    branch: str | None = None
    """A branch of the story, such as branch-2; unset: the current one."""
    turns: int = -1
    """The first N turns only; -1: all."""
    subtitles: Flag = False
    """Number and instruction of each turn: a track in the mp4 that a player can switch off, and an .srt file next to
    it."""
    show_opening: Flag = False
    """Start with the clip of turn 0, if the game has an opening."""
    audio: Path | None = None
    """Music or a voice-over, repeated or cut to the film's length, fading out at its end."""

    def run(self) -> int:
        """Write the film and print its files."""
        story = Story.read(self.story.absolute().parent, self.story.absolute().name)
        if self.branch:
            story.use(self.branch)
        sound = None if self.audio is None else read_sound(self.audio)
        out = self.out or self.story / FILMS / "film.mp4"
        with story.lock(reading=True):  # nobody may rename or delete it meanwhile
            show = Progress("pictures written")
            film = export_film(story, out, self.turns, self.subtitles, sound, self.show_opening, show)
        print(*film.files, sep="\n")
        width, height = film.size
        note(f"{width} x {height}, {film.fps:g} frames per second, {film.seconds:.1f} s")
        for line in film.notes:
            note(f"note: {line}")
        return 0
