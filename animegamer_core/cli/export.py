"""The verb `export`: a saved story as a film to share."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..media.film_writer import FILM_KINDS
from ..media.soundtrack import FADE, Soundtrack
from ..story.film import FILMS, SCALINGS, SUBTITLES, FilmOptions, export_film
from ..story.story import Story


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `export`."""
    add = parser.add_argument
    add("story", type=Path, metavar="STORY", help="a story's folder, such as out/my-game")
    kinds = ", ".join(f".{kind}" for kind in FILM_KINDS)
    add("--out", type=Path, metavar="FILE", help=f"the film: {kinds} (default STORY/{FILMS}/film.mp4)")
    add("--branch", metavar="NAME", help="a branch of the story, such as line-2 (default: the current one)")
    add("--turns", type=int, default=-1, metavar="N", help="the first N turns only")
    add(
        "--subtitles",
        choices=SUBTITLES,
        default="none",
        help="number and instruction of each turn. burned: drawn into the frames; soft: a track in the mp4 that a "
        "player can switch off, plus an .srt file next to it (default %(default)s)",
    )
    add("--show-opening", action="store_true", help="start with the clip of turn 0, if the game has an opening")
    add("--stats", action="store_true", help="show motion and stats in a corner")
    add("--title", default="", metavar="TEXT", help="start with a title card")
    add("--scale", type=int, default=0, help="enlarge by this whole number (default: what text needs to be legible)")
    add("--scaling", choices=SCALINGS, default="lanczos", help="how to enlarge (default %(default)s)")
    add(
        "--fps",
        type=float,
        default=0,
        help="frames per second, such as 24; rates other than the original are interpolated",
    )
    add("--audio", type=Path, metavar="FILE", help="music or a voice-over, cut to the film's length")
    add("--once", action="store_true", help="do not loop an --audio file that is shorter than the film")
    add(
        "--fade",
        type=float,
        default=FADE,
        metavar="S",
        help="seconds over which the sound fades out (default %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the film and print its files."""
    story = Story.read(args.story.absolute().parent, args.story.absolute().name)
    if args.branch:
        story.use(args.branch)
    sound = None if args.audio is None else Soundtrack(args.audio, loop=not args.once, fade=args.fade)
    look = (args.subtitles, args.stats, args.title, args.scale, args.scaling, args.fps)
    options = FilmOptions(*look, sound, args.show_opening)
    out = args.out or args.story / FILMS / "film.mp4"
    with story.lock(), _Bar() as bar:  # nobody may rename or delete it meanwhile
        film = export_film(story, out, options, args.turns, bar.show)
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
