"""The verb `export`: a saved story as a film to share."""
# ruff: noqa: T201

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from ..media.soundtrack import read_sound
from ..story.film import FILMS, export_film
from ..story.story import Story
from .options import Flag


@dataclass(frozen=True, kw_only=True)
class Options:
    story: Positional[Path]
    """A story's folder, such as out/my-game."""
    out: Path | None = None
    """The film; unset: films/film.mp4 in the story."""
    branch: str | None = None
    """A branch of the story, such as line-2; unset: the current one."""
    turns: int = -1
    """The first N turns only; -1: all."""
    subtitles: Flag = False
    """Number and instruction of each turn: a track in the mp4 that a player can switch off, and an .srt file next to
    it."""
    show_opening: Flag = False
    """Start with the clip of turn 0, if the game has an opening."""
    audio: Path | None = None
    """Music or a voice-over, repeated or cut to the film's length, fading out at its end."""


def run(args: Options) -> int:
    """Write the film and print its files."""
    story = Story.read(args.story.absolute().parent, args.story.absolute().name)
    if args.branch:
        story.use(args.branch)
    sound = None if args.audio is None else read_sound(args.audio)
    out = args.out or args.story / FILMS / "film.mp4"
    with story.lock(), _Bar() as bar:  # nobody may rename or delete it meanwhile
        film = export_film(story, out, args.turns, args.subtitles, sound, args.show_opening, bar.show)
    for path in film.files:
        print(path)
    width, height = film.size
    print(f"{width} x {height}, {film.fps:g} frames per second, {film.seconds:.1f} s", file=sys.stderr)
    for note in film.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


class _Bar:
    """A progress bar on a terminal."""

    def __enter__(self) -> _Bar:
        from tqdm import tqdm

        self._bar = tqdm(desc="writing", unit="picture", leave=False, disable=not sys.stderr.isatty())
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self, done: int, total: int) -> None:
        """Update the bar."""
        self._bar.total = total
        self._bar.update(done - self._bar.n)
