"""Draw the pictures that the README shows, from the world that the pack ships: `python docs/make_pictures.py`.

game.webp           the Toybox's first game in motion: shot, instruction, motion scope, stats
contact-sheet.png   the same game on one picture
autoplay.webp       eight turns that the Toybox plays by itself
couples.jpg         twelve couples of two films, which never met in training
wild.jpg            sixty shots of the two quickest levels, as they come
js/characters.jpg   the twenty characters, a film in each row, as the Toybox's films draw them; the page shows it too
"""

from __future__ import annotations

import argparse
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from animegamer_core.game.director import Director  # noqa: E402
from animegamer_core.game.state import GameSession, Turn, read_instructions, scope_name  # noqa: E402
from animegamer_core.media.contact_sheet import contact_sheet  # noqa: E402
from animegamer_core.media.video import Frames, to_uint8  # noqa: E402
from animegamer_core.toybox.drawing.draw import draw_frame  # noqa: E402
from animegamer_core.toybox.games import sample_game  # noqa: E402
from animegamer_core.toybox.scenes import reference_scenes  # noqa: E402
from animegamer_core.toybox.world import CHARACTERS, PLACES, RULES, Scene, instruction  # noqa: E402
from animegamer_core.weights import open_world  # noqa: E402

GAME = ROOT / "animegamer_core" / "toybox" / "games" / "first-game.txt"
FILMS = ("game", "autoplay", "couples", "wild", "characters")
PICTURES = ROOT / "docs" / "pictures"
AUTOPLAYED, AUTOPLAY_SEED = 8, 1  # turns, and the director's seed
EVERY = 2  # of an autoplayed shot's frames; all of them would make a file of several MB
FPS = 8
FIRST_GAME, WILD = 1_000_000, 4.883  # of the sheets of shots; the least motion of the two quickest levels
SHEET_WIDTH = 1100
SHOT = (384, 256)  # width and height of a shot: the Toybox draws 288 x 192
PAGE, MARGIN = (672, 288), 16
INK, FAINT, PAPER, TRACK = "#23262f", "#696d78", "#f3f1ec", "#e1ddd3"


def main(argv: Sequence[str] | None = None) -> None:
    """Play the games and write the pictures."""
    parser = argparse.ArgumentParser(description="draw the README's pictures")
    parser.add_argument("--out", type=Path, default=PICTURES)
    parser.add_argument("--turns", type=int, help="of the game (default: all)")
    parser.add_argument("--steps", type=int, help="sampling steps (default: the world's)")
    parser.add_argument("--only", nargs="+", choices=FILMS, default=FILMS, help="which (default: all)")
    args = parser.parse_args(argv)
    instructions = read_instructions(GAME.read_text(encoding="utf-8"))[: args.turns]
    args.out.mkdir(parents=True, exist_ok=True)
    if "game" in args.only:
        turns, clips = play(lambda session: instructions[len(session.turns)], len(instructions), args.steps)
        save_film(args.out / "game.webp", turns, clips)
        save_sheet(args.out / "contact-sheet.png", turns, clips)
    if "autoplay" in args.only:
        director = Director(open_world("toybox").life.words, AUTOPLAY_SEED)
        count = AUTOPLAYED if args.turns is None else args.turns
        turns, clips = play(lambda session: director(session)[0].instruction, count, args.steps)
        save_film(args.out / "autoplay.webp", turns, [frames[::EVERY] for frames in clips], FPS // EVERY)
    for name in ("couples", "wild"):
        if name in args.only:
            save_shots(args.out / f"{name}.jpg", list(scenes_of(name))[: args.turns], args.steps)
    if "characters" in args.only:
        save_characters((ROOT / "js" if args.out == PICTURES else args.out) / "characters.jpg")


def play(
    instruct: Callable[[GameSession], str], count: int, steps: int | None
) -> tuple[tuple[Turn, ...], list[Frames]]:
    """The turns of a game in the shipped world, and their shots. instruct: the next instruction."""
    world = open_world("toybox")
    engine, decoder = world.load_engine(), world.load_decoder()
    session, clips = GameSession(window=4, rules=RULES), []
    for _ in range(count):
        text = instruct(session)
        state = engine.predict(session.past(), text)
        session = session.step(text, state)
        value = world.motion_table.value(state.motion)
        clips.append(to_uint8(decoder.shoot(state.representation, value, seed=len(clips), steps=steps)))
    return session.turns, clips


def save_film(path: Path, turns: Sequence[Turn], clips: Sequence[Frames], fps: int = FPS) -> None:
    """The game in motion: each shot once, beside what was asked for and what came of it."""
    pictures = [page(turn, frame) for turn, frames in zip(turns, clips, strict=True) for frame in frames]
    pictures[0].save(
        path, save_all=True, append_images=pictures[1:], duration=1000 // fps, loop=0, quality=62, method=6
    )


def scenes_of(sheet: str) -> Iterator[Scene]:
    """The first scene of each of twelve games of new couples, or of the first sixty games that begin quick."""
    split, count, quick = ("couple", 12, 0.0) if sheet == "couples" else ("heldout", 60, WILD)
    games = (sample_game(seed, turns=1, split=split).scenes[0] for seed in itertools.count(FIRST_GAME))
    return itertools.islice((scene for scene in games if scene.amplitude >= quick), count)


def save_shots(path: Path, scenes: Sequence[Scene], steps: int | None) -> None:
    """The middle frame of one shot of each scene, as the engine predicts it from its instruction alone."""
    world = open_world("toybox")
    engine, decoder = world.load_engine(), world.load_decoder()
    columns = 3 if len(scenes) <= 12 else 6
    size = SHOT if columns == 3 else (SHOT[0] // 2, SHOT[1] // 2)
    sheet = Image.new("RGB", (columns * size[0], -(-len(scenes) // columns) * size[1]), PAPER)
    for number, scene in enumerate(scenes):
        state = engine.predict((), instruction(scene, world.motion_table.level(scene.amplitude)))
        shot = decoder.shoot(state.representation, world.motion_table.value(state.motion), seed=number, steps=steps)
        frame = Image.fromarray(to_uint8(shot)[len(shot) // 2]).resize(size, Image.Resampling.LANCZOS)
        sheet.paste(frame, (number % columns * size[0], number // columns * size[1]))
    sheet.save(path, quality=80)


def save_characters(path: Path) -> None:
    """Every character waving in its own film, with its name: four in a row."""
    width, height = SHOT[0] * 2 // 3, SHOT[1] * 2 // 3
    sheet = Image.new("RGB", (4 * width, len(CHARACTERS) // 4 * height), PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(18)
    for number, (name, row) in enumerate(CHARACTERS.items()):
        place = next(place for place, film in PLACES.items() if film == row.film)
        frame = draw_frame(replace(reference_scenes(name)[0], place=place, time="day"), 0)
        left, top = number % 4 * width, number // 4 * height
        sheet.paste(Image.fromarray(frame).resize((width, height), Image.Resampling.LANCZOS), (left, top))
        pen.rectangle((left, top, left + 16 + pen.textlength(name, font), top + 26), PAPER)
        pen.text((left + 8, top + 3), name, INK, font)
    sheet.save(path, quality=76)


def page(turn: Turn, frame: np.ndarray) -> Image.Image:
    """One frame of the film."""
    picture = Image.new("RGB", PAGE, PAPER)
    picture.paste(Image.fromarray(frame).resize(SHOT, Image.Resampling.LANCZOS), (MARGIN, MARGIN))
    pen = ImageDraw.Draw(picture)
    left, right = 2 * MARGIN + SHOT[0], PAGE[0] - MARGIN
    pen.text((left, MARGIN), f"turn {turn.number}", FAINT, ImageFont.load_default(14))
    top = MARGIN + 24
    for line in lines_of(turn.instruction):
        pen.text((left, top), line, INK, ImageFont.load_default(15))
        top += 20
    pen.text((left, 168), f"motion: {scope_name(turn.state.motion)}", INK, ImageFont.load_default(14))
    for row, (name, colour) in enumerate((stat.name, stat.colour) for stat in RULES.stats):
        value, y = turn.character[name], 200 + 24 * row
        pen.text((left, y), name, FAINT, ImageFont.load_default(13))
        box = (left + 100, y + 2, right - 30, y + 14)
        pen.rounded_rectangle(box, 6, TRACK)
        pen.rounded_rectangle((*box[:2], box[0] + (box[2] - box[0]) * max(value, 6) / 100, box[3]), 6, colour)
        pen.text((right, y), str(value), INK, ImageFont.load_default(13), anchor="ra")
    return picture


def lines_of(instruction: str) -> list[str]:
    """The instruction's three parts, each wrapped to the width beside a shot."""
    parts = [part.strip() for part in instruction.rstrip(".").split(";")]
    return [line for part in parts for line in textwrap.wrap(part, 31)]


def save_sheet(path: Path, turns: Sequence[Turn], clips: Sequence[Frames]) -> None:
    """The contact sheet, made small enough for a page."""
    sheet = contact_sheet(turns, clips, "first-game")
    small = sheet.resize((SHEET_WIDTH, round(sheet.height * SHEET_WIDTH / sheet.width)), Image.Resampling.LANCZOS)
    small.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
