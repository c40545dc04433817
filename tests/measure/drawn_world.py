"""Trains a world of a drawn film, as the node Train Film World does, and compares what it plays with the true clips.

    python tests/measure/drawn_world.py out/drawn --clips 800

Not collected by pytest. The film is drawn with the Toybox's pen, but the Toybox knows none of its people and places:
hair and clothes are exchanged, places have another film's light, all is mirrored. A run that was stopped continues.
Prints the PSNR of turns as played, trained on and held out, and shows their middle frames above the true ones.
"""

# ruff: noqa: T201, E402
import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from PIL import Image

from animegamer_core.__main__ import main as animegamer
from animegamer_core.data.benchmark import BenchmarkGame, BenchmarkTurn
from animegamer_core.data.dataset import CLIPS, DatasetFolder, with_levels, write_tables
from animegamer_core.data.motion import DEFAULT_THRESHOLD, motion_value
from animegamer_core.data.records import ClipRecord
from animegamer_core.data.workers import parallel_map
from animegamer_core.evaluate.estimates import psnr
from animegamer_core.evaluate.players import WorldPlayer
from animegamer_core.files import make_folder
from animegamer_core.media.video import read_clip, write_clip
from animegamer_core.story.player import PlaySettings
from animegamer_core.toybox import world as toybox
from animegamer_core.toybox.drawing.draw import draw_shot
from animegamer_core.toybox.drawing.looks import LOOKS
from animegamer_core.toybox.games import sample_game
from animegamer_core.train.stages import film_plan
from animegamer_core.train.world_setup import world_exists
from animegamer_core.weights import open_world

# name in the Toybox -> name here and whose hair and clothes; worker processes import this file, and so the looks
PEOPLE = {"Miko": "Rosa Luna", "Taro": "Emil Leo", "Hana": "Ida Suzu", "Goro": "Otto Kuma"}
PEOPLE |= {"Yuzu": "Lotte Yuki", "Nori": "Jonas Pico", "Rin": "Greta Nova", "Kai": "Anton Tomo"}
for name, who in PEOPLE.items():
    colours = {part: getattr(LOOKS[name], part) for part in ("hair", "eyes", "top", "trim", "legs", "shoes")}
    LOOKS[name] = replace(LOOKS[who.split()[1]], **colours)
NAMES = "bay wood peak alley palace bakery attic archive park fair terrace studio".split()
PLACES = dict(zip(toybox.PLACES, NAMES, strict=True))
FILMS = "meadow lantern orbit snow harbour orbit snow meadow snow lantern meadow harbour".split()
toybox.PLACES.update(zip(toybox.PLACES, FILMS, strict=True))
TURNS, HELD_OUT = 10, 3


def drawn_film(folder: Path, clips: int) -> DatasetFolder:
    """The dataset of this many training clips, in games of ten turns, and of three held-out games more."""
    count, rng, games = -(-clips // TURNS), random.Random("drawn film"), {}
    for number in range(count + HELD_OUT):
        who = [rng.choice(tuple(PEOPLE)) for _ in range(min(TURNS, clips))]
        games[f"g{number:03d}"] = sample_game(10_000 + number, turns=len(who), who=who).scenes
    scenes = {f"{CLIPS}/{name}-{turn:02d}.mp4": scene for name, row in games.items() for turn, scene in enumerate(row)}
    make_folder(folder / CLIPS)
    drawn = parallel_map(draw, [(folder, clip, scene) for clip, scene in scenes.items()])
    turns, levels = with_levels([ClipRecord(**row) for row in drawn])
    turns = [msgspec.structs.replace(t, adverb=toybox.adverb(scenes[t.clip], t.motion_level)) for t in turns]
    rows = [(name, [clip for clip in scenes if f"/{name}-" in clip], int(name[1:]) >= count) for name in games]
    settings = {"fps": toybox.FPS, "motion": {"backend": "dis", "threshold": DEFAULT_THRESHOLD, **levels}}
    return write_tables(folder, turns, rows, {"source": "drawn"}, {"frames": toybox.FRAMES, **settings})


def draw(item: tuple[Path, str, toybox.Scene]) -> dict[str, object]:
    """Draw a clip and write its file; its row, without adverb."""
    folder, clip, scene = item
    frames, start = np.ascontiguousarray(draw_shot(scene)[:, :, ::-1]), 2.0 * int(clip[-6:-4])
    write_clip(folder / clip, frames, toybox.FPS)
    row = {"film": clip[6:-7], "start": start, "end": start + 2, "clip": clip, "motion_value": motion_value(frames)}
    row |= {"motion": toybox.motion_text(replace(scene, prop_told=True)), "stats": toybox.MOTIONS[scene.motion].change}
    names = tuple(PEOPLE[name].split()[0] for name in toybox.characters(scene))
    return {**row, "character": names, "background": f"{scene.time} {PLACES[scene.place]}"}


def train(world: Path, dataset: DatasetFolder, effort: float) -> None:
    """Make the world and train it with the node's numbers; a stage continues where it was."""
    where = ["--dataset", str(dataset.path)]
    if not world_exists(str(world)):
        animegamer(["new", "--from", "toybox", *where, "--out", str(world)])
    chosen = ["adapt.true_states=0.5"]
    for stage, row in film_plan(len(dataset.training_clips)).items():
        steps = max(1, round(row.steps * effort))
        values = [f"steps={steps}", f"batch={row.batch}", f"lr={row.lr}", f"precision={row.precision}"]
        chosen += [f"{stage}.{value}" for value in values]
    what = [*where, "--world", str(world), "--out", str(world.with_name("run")), "--resume"]
    what += [word for one in chosen for word in ("--set", one)]
    animegamer(["train", "all", *what, "--stages", "joint,predict,adapt"])


def compare(world: Path, dataset: DatasetFolder, held_out: bool, sheet: Path) -> list[float]:
    """PSNR of the played turns of three such games; the sheet has their middle frames, true ones below."""
    player, found, rows = WorldPlayer(open_world(world), PlaySettings()), [], []
    for game in [game for game in dataset.games if game.held_out == held_out][:HELD_OUT]:
        clips = [dataset.turns[clip] for clip in game.clips]
        turns = [BenchmarkTurn(c.character, c.motion, c.background, c.motion_level, c.adverb, c.stats) for c in clips]
        shots = [shot.frames for shot in player.play(BenchmarkGame(game.name, tuple(turns)), 0)]
        true = [read_clip(dataset.path / clip.clip).frames for clip in clips]
        found += map(psnr, shots, true)
        rows += [np.concatenate([frames[8] for frames in row], 1) for row in (shots, true)]
    Image.fromarray(np.concatenate(rows)).save(sheet)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clips", type=int, default=800)
    parser.add_argument("--effort", type=float, default=1.0, help="part of the steps, as of the node")
    args = parser.parse_args()
    data = args.folder / "dataset"
    dataset = DatasetFolder.open(data) if (data / "dataset.json").is_file() else drawn_film(data, args.clips)
    train(args.folder / "world", dataset, args.effort)
    for name, held_out in (("trained-on", False), ("held-out", True)):
        found = compare(args.folder / "world", dataset, held_out, args.folder / f"{name}.png")
        print(f"{name}: {len(found)} turns, PSNR {np.mean(found):.1f} dB ({min(found):.1f} to {max(found):.1f})")


if __name__ == "__main__":
    main()
