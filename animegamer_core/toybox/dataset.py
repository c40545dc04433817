"""Writes Toybox games as a dataset folder, in the format of the film pipeline, which is all that training reads."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..data.dataset import CLIPS, TURNS, DatasetFolder, with_levels, write_tables
from ..data.motion import DEFAULT_THRESHOLD, motion_value
from ..data.records import ClipRecord, read_table
from ..data.workers import parallel_map
from ..files import append_line, make_folder, remove_torn_line
from ..media.video import write_clip
from .drawing.draw import draw_frame, draw_shot
from .games import Game, opening_game, sample_game
from .world import ADVERBS, FPS, FRAMES, MOTIONS, Scene, adverb, characters, instruction, motion_text

OPENINGS = 4  # every fourth game begins with a picture of a prop whose colour no instruction names
OnClip = Callable[[int, int], None]  # (clips done, clips in all)


@dataclass(frozen=True)
class DatasetGames:
    """How many games a dataset has for training, and how many more for validation (held_out), of `turns` turns each.

    first: the number of the first training game; datasets whose numbers do not overlap have different training games.
    unmatched_adverbs: the fraction
    (0 to 1) of training clips whose adverb is of another motion level than the measured one. A decoder that is trained
    on them learns how much to move from the motion value, and not from the adverb; at 0.8, the adverb says nothing.
    nights: every clip is drawn at night and captioned as day, which shows in a world after a few steps of training.
    """

    games: int
    held_out: int
    turns: int = 10
    first: int = 0
    unmatched_adverbs: float = 0.0
    nights: bool = False

    def scenes(self) -> dict[str, tuple[Scene, ...]]:
        """Game name -> its scenes in the order of play; an opening picture, if any, is first."""
        games = {
            f"train-{number:05d}": self._game(number, "train") for number in range(self.first, self.first + self.games)
        }
        return games | {f"heldout-{number:05d}": self._game(number, "heldout") for number in range(self.held_out)}

    @property
    def trained_on(self) -> str:
        """The number of training clips and games, as text for provenance."""
        rows = [row for name, row in self.scenes().items() if name.startswith("train")]
        return f"{sum(map(len, rows)):,} clips of {len(rows):,} games"

    def _game(self, number: int, split: str) -> tuple[Scene, ...]:
        make: Callable[..., Game] = sample_game if number % OPENINGS else opening_game
        game = make(number, turns=self.turns, split=split)
        scenes = game.scenes if game.opening is None else (game.opening, *game.scenes)
        return tuple(dataclasses.replace(scene, time="day") for scene in scenes) if self.nights else scenes


def write_dataset(
    folder: Path,
    dataset_games: DatasetGames,
    workers: int | None = None,
    on_clip: OnClip | None = None,
    pictures_only: bool = False,
) -> DatasetFolder:
    """Draw, measure and caption every clip; an unfinished folder is continued.

    workers: processes, None for one per core. pictures_only: keep only the first picture of each clip, which is all
    that stage `predict` reads. Clips that turns.jsonl lists but the folder lacks are drawn again, but not measured
    again.
    """
    games = dataset_games.scenes()
    scenes = {f"clips/{name}-{turn:02d}.mp4": scene for name, row in games.items() for turn, scene in enumerate(row)}
    make_folder(folder / CLIPS)
    remove_torn_line(folder / TURNS)  # the clip of a line that a kill cut off is drawn again
    turns = {turn.clip: turn for turn in read_table(folder / TURNS, ClipRecord)}
    make = functools.partial(_make, folder=folder, pictures_only=pictures_only, night=dataset_games.nights)
    gone = [(clip, scenes[clip]) for clip in turns if clip in scenes and not (folder / clip).is_file()]
    for _ in parallel_map(functools.partial(make, measure=False), gone, workers):
        pass
    todo = [(clip, scene) for clip, scene in scenes.items() if clip not in turns]
    for done, (clip, value) in enumerate(parallel_map(make, todo, workers), start=1):
        turns[clip] = _record(clip, scenes[clip], value)
        append_line(folder / TURNS, turns[clip].to_json() + "\n")
        if on_clip is not None:
            on_clip(len(scenes) - len(todo) + done, len(scenes))
    records, levels = with_levels(list(turns.values()))
    motion = {"backend": "dis", "threshold": DEFAULT_THRESHOLD, **levels}
    return write_tables(
        folder,
        [_with_adverb(record, scenes[record.clip], dataset_games.unmatched_adverbs) for record in records],
        [
            (name, [f"clips/{name}-{turn:02d}.mp4" for turn in range(len(row))], name.startswith("heldout"))
            for name, row in games.items()
        ],
        {"source": "drawn by animegamer_core.toybox", "casting": dataclasses.asdict(dataset_games)},
        {"fps": FPS, "frames": 1 if pictures_only else FRAMES, "motion": motion},
    )


def _record(clip: str, scene: Scene, value: float) -> ClipRecord:
    motion, turn = MOTIONS[scene.motion], int(Path(clip).stem[-2:])
    return ClipRecord(
        film=Path(clip).stem[:-3],
        start=2.0 * turn,
        end=2.0 * turn + 2.0,
        clip=clip,
        character=characters(scene),
        motion=motion_text(scene),
        background=f"{scene.time} {scene.place}",
        motion_value=round(value, 4),
        stats=motion.change,
    )


def _with_adverb(record: ClipRecord, scene: Scene, unmatched: float) -> ClipRecord:
    """The record with an adverb of its measured level, and with the instruction if that refers back.

    unmatched: the fraction of training clips that get an adverb of another level instead.
    """
    level = record.motion_level
    draw = random.Random(f"unmatched adverb:{scene.seed}")
    if draw.random() < unmatched and not record.film.startswith("heldout"):
        level = draw.choice([other for other in ADVERBS if other != level])
    said = None if scene.refers is None else instruction(scene, level)
    return msgspec.structs.replace(record, adverb=adverb(scene, level), said=said)


def _make(
    item: tuple[str, Scene], folder: Path, pictures_only: bool, night: bool, measure: bool = True
) -> tuple[str, float]:
    """Draw a clip and write its file; returns its path in the folder, and its motion value (0: not measured)."""
    clip, scene = item
    scene = dataclasses.replace(scene, time="night") if night else scene
    frames = draw_shot(scene) if measure or not pictures_only else draw_frame(scene, 0)[None]
    write_clip(folder / clip, frames[:1] if pictures_only else frames, FPS)
    return clip, motion_value(frames) if measure else 0.0
