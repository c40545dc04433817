"""Trains the Toybox's decoder on while its games are drawn, and distils it, as the shipped one was.

    python tests/measure/train_toybox.py out/run --cards 2 --until 1160 1500

The recipe (`animegamer_core.toybox.build`) draws its games first and trains on films of them. Here processes draw
games, the first card encodes their clips as they come and predicts their states, and all cards train the decoder on
what there is; then they distil it, and the new world, in WORK/world, is calibrated. The start is the shipped world,
whose other models stay; what its decoder lacks of the present code's, such as more blocks of the refiner, starts new.
`--until`: seconds since the start at which training and distillation end. Every part logs into WORK/log; the decoder
is saved in WORK every three minutes. Not collected by pytest.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch import Tensor  # noqa: E402

from animegamer_core.data.dataset import DatasetFolder  # noqa: E402
from animegamer_core.data.motion import motion_value  # noqa: E402
from animegamer_core.data.records import ClipRecord, GameRecord  # noqa: E402
from animegamer_core.evaluate.toybox_recipe.recipe import FULL, MINIATURE  # noqa: E402
from animegamer_core.evaluate.toybox_recipe.stages import calibrate_world  # noqa: E402
from animegamer_core.model.decoder import ShotDecoder  # noqa: E402
from animegamer_core.toybox.calibration import uncalibrated_table  # noqa: E402
from animegamer_core.toybox.dataset import DatasetGames, _record, _with_adverb  # noqa: E402
from animegamer_core.toybox.drawing.draw import draw_shot  # noqa: E402
from animegamer_core.toybox.games import sample_game  # noqa: E402
from animegamer_core.train import trainer as trainer_module  # noqa: E402
from animegamer_core.train.distributed import close_at_exit, processes  # noqa: E402
from animegamer_core.train.engine_learner import add_predictions  # noqa: E402
from animegamer_core.train.few_steps import FewStepLearner  # noqa: E402
from animegamer_core.train.learners import DiffusionLearner  # noqa: E402
from animegamer_core.train.parts import WorldParts  # noqa: E402
from animegamer_core.train.stages import stage_config  # noqa: E402
from animegamer_core.train.trainer import Trainer  # noqa: E402
from animegamer_core.train.training_data import (  # noqa: E402
    TrainingData,
    add_encoder_features,
    add_latents,
    add_states,
)
from animegamer_core.weights import open_world  # noqa: E402

GAMES, QUICK_GAMES = (DatasetGames(number, 0, first=50_000, unmatched_adverbs=0.8) for number in (3000, 4))
SHARD = 24  # games in a file of features
ROOM = 400  # drawn games that wait to be encoded, at most
LEAST = 2000  # clips to begin with
TOGETHER = 10  # steps after which the cards agree on the time and on the clips there are
SAVED_EVERY = 180  # seconds


def main() -> None:
    """Start the processes, each of which is this program with a role, and wait for those that train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--cards", type=int, default=1, help="processes that train, each on a GPU if there is one")
    parser.add_argument("--until", nargs=2, type=float, default=(1160, 1500))
    parser.add_argument("--batch", type=int, default=256, help="clips a step")
    parser.add_argument("--drawing", type=int, default=max(1, (os.cpu_count() or 1) - 6), help="processes that draw")
    parser.add_argument("--quick", action="store_true", help="a few games and steps, to test the program")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        return ROLES[args.role](Run(args))
    for name in ("clips", "features", "log"):
        (args.work / name).mkdir(parents=True, exist_ok=True)
    (args.work / "start").write_text(repr(time.time()))

    def start(role: str, threads: int, *launcher: str) -> subprocess.Popen[bytes]:
        with (args.work / "log" / role).open("wb") as log:
            command = [sys.executable, *launcher, *sys.argv, "--role", role]
            on_cpu = {"ACCELERATE_USE_CPU": str(not torch.cuda.is_available())}
            environment = {**os.environ, **on_cpu, "OMP_NUM_THREADS": str(threads)}
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    cards = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(args.cards)]
    helpers = [start("draw", 1), start("encode", 4)]
    try:
        if start("train", 4, *cards).wait():
            sys.exit(f"training failed; look into {args.work}/log")
    finally:
        for process in helpers:
            process.kill()


class Run:
    """The settings of a process, and the shipped Toybox."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.work, self.quick, self.batch, self.drawing = args.work, args.quick, args.batch, args.drawing
        self.ends, self.began = args.until, float((args.work / "start").read_text())
        self.games = QUICK_GAMES if args.quick else GAMES
        self.world = open_world("toybox")

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.time() - self.began

    def say(self, *words: object) -> None:
        """Print a line with the time."""
        print(f"[{self.now:7.1f}]", *words, flush=True)

    def records(self, game: int, values: Sequence[float]) -> list[ClipRecord]:
        """The records of a game's clips with these measured motion values."""
        found = []
        for turn, (scene, value) in enumerate(zip(self.games._game(game, "train"), values, strict=True)):
            record = _record(f"clips/{game}-{turn:02d}.mp4", scene, float(value))
            record = msgspec.structs.replace(record, motion_level=int(self.world.motion_table.level(float(value))))
            found.append(_with_adverb(record, scene, self.games.unmatched_adverbs))
        return found


def draw(run: Run) -> None:
    """Draw the games' clips in many processes, no faster than they are encoded."""
    numbers = range(run.games.first, run.games.first + run.games.games)
    with multiprocessing.get_context("spawn").Pool(run.drawing) as pool:
        for done, _ in enumerate(pool.imap_unordered(_drawn, ((run, number) for number in numbers)), 1):
            if done % 100 == 0:
                run.say("drawn", done)
    run.say("all drawn")


def _drawn(task: tuple[Run, int]) -> None:
    run, number = task
    folder = run.work / "clips"
    while len(os.listdir(folder)) > ROOM:
        time.sleep(1)
    shots = np.stack(list(map(draw_shot, run.games._game(number, "train"))))
    with (folder / f"{number}.part").open("wb") as file:
        np.savez(file, shots=shots, values=np.array(list(map(motion_value, shots))))
    os.replace(folder / f"{number}.part", folder / f"{number}.npz")


@torch.no_grad()
def encode(run: Run) -> None:
    """Encode clips as they come: latents, true and predicted states, and records, in files of SHARD games each."""
    parts, device = WorldParts.load(run.world), "cuda:0" if torch.cuda.is_available() else "cpu"
    engine, decoder, encoder = (parts.of(name).eval().to(device) for name in ("engine", "decoder", "encoder"))
    waiting, folder = list(range(run.games.first, run.games.first + run.games.games)), run.work / "clips"
    for number in itertools.count():
        ready: list[int] = []
        while len(ready) < min(SHARD, len(waiting)):
            time.sleep(0.5)
            ready = [game for game in waiting if (folder / f"{game}.npz").is_file()][:SHARD]
        if not ready:
            return run.say("all encoded")
        files = [np.load(folder / f"{game}.npz") for game in ready]
        rows = [run.records(game, file["values"]) for game, file in zip(ready, files, strict=True)]
        turns = tuple(record for game in rows for record in game)
        ends = np.cumsum([0, *map(len, rows)]).tolist()
        games = tuple(GameRecord(str(at), tuple(range(at, end))) for at, end in itertools.pairwise(ends))
        clips = torch.from_numpy(np.concatenate([file["shots"] for file in files]))
        data = TrainingData(DatasetFolder(run.work, turns, games), {"frames": clips})
        data = add_states(add_encoder_features(add_latents(data, decoder), encoder), encoder)
        data = add_predictions(data, engine, window=4)
        found = {name: data.store[name].cpu() for name in ("latents", "states", "predicted")}
        path = run.work / "features" / f"{number:05d}.pt"
        torch.save({**found, "records": msgspec.json.encode(turns)}, path.with_suffix(".part"))
        os.replace(path.with_suffix(".part"), path)
        for game in ready:
            (folder / f"{game}.npz").unlink()
            waiting.remove(game)
        run.say("encoded", (number + 1) * SHARD, "games")


class Clips:
    """The clips encoded so far: what `DiffusionLearner` asks of TrainingData."""

    def __init__(self, run: Run, device: torch.device) -> None:
        self.folder, self.files, self.count = run.work / "features", 0, 0
        spec, most = run.world.spec, 11 * run.games.games
        state = (spec.state.tokens, spec.state.width)
        rows = {"latents": (2, *spec.decoder.latent_shape), "states": state, "predicted": state}
        self.store = {name: torch.zeros(most, *row, dtype=torch.half, device=device) for name, row in rows.items()}
        self.motion, self.records = torch.zeros(most), list[ClipRecord]()

    def load(self) -> None:
        """Read the files that are new to all cards."""
        new = itertools.count(self.files)
        end = next(number for number in new if not (self.folder / f"{number:05d}.pt").is_file())
        for number in range(self.files, int(least(end))):
            shard = torch.load(self.folder / f"{number:05d}.pt", weights_only=True)
            self.records += msgspec.json.decode(shard["records"], type=list[ClipRecord])
            rows = slice(self.count, len(self.records))
            for name, own in self.store.items():
                own[rows] = shard[name].to(own.device)
            self.motion[rows] = torch.tensor([record.motion_value for record in self.records[rows]])
            self.files, self.count = number + 1, len(self.records)

    def gather(self, name: str, rows: Tensor, device: object) -> Tensor:
        """A feature's rows."""
        own = self.store[name]
        return own[rows.to(own.device)]

    def clips(self, held_out: bool = False) -> tuple[int, ...]:
        """None, since there are no losses on held-out games."""
        return ()


def least(value: float) -> float:
    """The least of all cards' values."""
    if processes().num_processes == 1:
        return value
    found = torch.tensor(value, dtype=torch.double, device=processes().device)
    dist.all_reduce(found, dist.ReduceOp.MIN)
    return float(found)


def train(run: Run) -> None:
    """Train the decoder on all cards, distil it, and calibrate the new world."""
    parts, device = WorldParts.load(run.world, ("encoder", "engine")), processes().device
    decoder, source = ShotDecoder(run.world.spec, run.world.profile), run.world.source("decoder")
    lacking, _ = decoder.load_state_dict({name: source.tensor(name) for name in source.keys()}, strict=False)  # noqa: SIM118
    run.say("new:", [name for name in lacking if not name.startswith("vae.")])
    parts, data = replace(parts, decoder=decoder), Clips(run, device)
    while data.count < (20 if run.quick else LEAST):
        time.sleep(0.5)
        data.load()
    change = {"batch": run.batch, "lr": 8e-4, "ema": 0.999, "compile": True} | (MINIATURE if run.quick else {})
    config = replace(stage_config("adapt"), **(FULL.changes["adapt"] | change))
    trainer = Trainer("adapt", config, learner := DiffusionLearner(config, decoder, None), data, device)
    learner.idle, began = (), run.now
    own, main, clock, saved, losses = decoder.transformer, processes().is_main_process, run.now, run.now, list[Tensor]()

    def rows(step: int) -> Tensor:
        return torch.randint(data.count, (config.batch,), generator=torch.Generator().manual_seed(step))

    def rate(config: object, step: int) -> float:
        done = min(1.0, max(0.0, (clock - began) / max(1e-3, run.ends[0] - began)))
        return 8e-4 * min(1, (step + 1) / 60) * (0.02 + 0.98 * (1 + math.cos(math.pi * done)) / 2)

    def save(name: str) -> None:
        path = run.work / f"{name}.safetensors"
        save_file(
            {key: value.detach().float().cpu().clone() for key, value in own.state_dict().items()}, f"{path}.part"
        )
        os.replace(f"{path}.part", path)
        run.say("saved", path.name)

    trainer._sampler, trainer_module.learning_rate = SimpleNamespace(batch=rows), rate
    while clock < run.ends[0] and not (run.quick and trainer.state.step >= TOGETHER):
        losses.append(trainer.take_step()["loss"])
        if trainer.state.step % TOGETHER == 0:
            clock = least(run.now)
            data.load()
        if len(losses) == 100:
            run.say("step", trainer.state.step, torch.stack(losses).mean().item(), data.count, "clips")
            losses.clear()
        if main and run.now > saved + SAVED_EVERY:
            with trainer.averaged_weights():
                save("teacher")
            saved = run.now
    run.say("ends at step", trainer.state.step)
    with trainer.averaged_weights():
        teacher = {name: value.detach().clone() for name, value in own.state_dict().items()}
    own.load_state_dict(teacher)
    if main:
        save("teacher")
    distill(run, parts, data)
    if main:
        save("student")
        with torch.no_grad():
            for name, value in own.state_dict().items():
                value.copy_(torch.lerp(teacher[name], value, FULL.student))
        finish(run, parts)
    processes().wait_for_everyone()
    close_at_exit()


def distill(run: Run, parts: WorldParts, data: Clips) -> None:
    """Few-step distillation by the recipe's stage, as far as the time goes; the decoder becomes the student."""
    change = FULL.changes["distill"] | (MINIATURE | {"steps": 4} if run.quick else {})
    config = replace(stage_config("distill"), **change, minutes=max(0.01, (run.ends[1] - run.now) / 60))
    turns = tuple(data.records)
    known = TrainingData(
        DatasetFolder(run.work, turns, ()), {name: own[: len(turns)] for name, own in data.store.items()}
    )
    trainer = Trainer("distill", config, FewStepLearner(config, parts.of("decoder")), known, processes().device)
    while trainer.state.step < config.steps:
        losses = trainer.take_step()
        if trainer.state.step % 50 == 0:
            run.say("step", trainer.state.step, {name: round(value.item(), 5) for name, value in losses.items()})
        if trainer.state.step % TOGETHER == 0 and least(run.now) > run.ends[1]:
            break
    average = trainer.state.average
    for name, value in trainer.state.parameters.items():
        value.data.copy_(average.get(name, value))


def finish(run: Run, parts: WorldParts) -> None:
    """The new world: the shipped one with the new transformer, calibrated, in 8 bits."""
    shutil.copytree(run.world.folder, run.work / "world", dirs_exist_ok=True)
    world = open_world(run.work / "world")
    parts.decoder.vae.load_state_dict(run.world.load_decoder("cpu", torch.float32, ("vae",)).vae.state_dict())
    world = WorldParts(parts.spec, decoder=parts.decoder).save(world, torch.float16)
    scenes = [sample_game(number).scenes[0] for number in range(1 if run.quick else FULL.calibrated_on)]
    run.say(calibrate_world(world, uncalibrated_table(world), scenes, str(processes().device)))


ROLES = {"draw": draw, "encode": encode, "train": train}

if __name__ == "__main__":
    main()
